"""Fetching files to train on."""

from __future__ import annotations

import os
import shutil
import urllib.request

from zoo.orca.errors import PathNotFoundError
from zoo.orca.names import public_names


def maybe_download(filename: str, work_directory: str, source_url: str) -> str:
    """The path of a file in a folder; it is fetched from a URL (https://, file://) if it is not there yet.

    Example: ``maybe_download("digits.npz", "/tmp/data", "https://example.org/digits.npz")``
    """
    os.makedirs(work_directory, exist_ok=True)
    path = os.path.join(work_directory, filename)
    if os.path.exists(path):
        return path
    # Fetched under another name: a file of the right name is a whole one.
    part = f"{path}.part"
    try:
        with urllib.request.urlopen(source_url) as source, open(part, "wb") as target:
            shutil.copyfileobj(source, target)
    except (OSError, ValueError) as error:
        if os.path.exists(part):
            os.remove(part)
        reason = getattr(error, "reason", error)
        raise PathNotFoundError(
            f"{source_url} could not be fetched: {reason}. Put the file there yourself: {path}"
        ) from error
    os.replace(part, path)
    return path


__dir__ = public_names(globals())
