"""OpenCV, loaded on first use, and what all code for images asks of it."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from zoo.orca.data.file import PathLike, filesystem_of, open_file, url_of
from zoo.orca.errors import InvalidArgumentError, PathNotFoundError
from zoo.orca.optional import require

#: What a file in a folder must end with to be taken for an image; a file that is named itself may end with anything.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".png", ".bmp", ".dib", ".tif", ".tiff", ".webp", ".jp2", ".gif",
                  ".pbm", ".pgm", ".ppm", ".pnm")  # fmt: skip
LIBRARY_PATH = "LD_LIBRARY_PATH"


@functools.cache
def opencv() -> ModuleType:
    """The module cv2.

    Records are spread over processes, one a core, so OpenCV itself gets one thread; who loaded it before keeps his.
    """
    if "cv2" in sys.modules:
        return sys.modules["cv2"]
    # Its import puts its own folder into LD_LIBRARY_PATH, for every process started later.
    path = os.environ.get(LIBRARY_PATH)
    try:
        cv2 = require("cv2", "Reading and changing images")
    finally:
        os.environ.pop(LIBRARY_PATH, None)
        if path is not None:
            os.environ[LIBRARY_PATH] = path
    cv2.setNumThreads(1)
    return cv2


def decode(data: bytes, name: Any, image_codec: int = -1) -> np.ndarray:
    """The pixels of an encoded image as rows, columns, channels (BGR).

    Args:
        name: what the image is called in errors: its path.
        image_codec: above 0 for colour, 0 for grey, below 0 for the image as it is.
    """
    cv2 = opencv()
    flags = {0: cv2.IMREAD_GRAYSCALE, 1: cv2.IMREAD_COLOR}.get(min(image_codec, 1), cv2.IMREAD_UNCHANGED)
    mat = cv2.imdecode(np.frombuffer(data, np.uint8), flags) if data else None
    if mat is None:
        raise InvalidArgumentError(
            f"{name or 'An image without a name'} cannot be read as an image ({len(data)} bytes): it is damaged, or of "
            "a format that OpenCV does not know. Remove it, or leave it out of the path."
        )
    return with_channels(mat)


def with_channels(mat: np.ndarray) -> np.ndarray:
    """A mat of three dimensions; OpenCV drops the last where an image has one channel."""
    return mat if mat.ndim == 3 else mat[..., np.newaxis]


def resize(mat: np.ndarray, height: int, width: int, mode: int = 1) -> np.ndarray:
    """A mat of another size."""
    return with_channels(opencv().resize(mat, (int(width), int(height)), interpolation=mode))


def image_files(path: PathLike | Sequence[PathLike]) -> list[str]:
    """The image files meant by a file, a folder with the folders in it, a pattern, a list, or these between commas.

    In a folder, names that start with '_' or '.' and files that are no images by their suffix are left out.
    """
    return [file for each in given_paths(path) for file in _files_of_one(each)]


def given_paths(path: PathLike | Sequence[PathLike]) -> list[str]:
    """The paths that users give as one, as a list, or between commas."""
    given = path if isinstance(path, list | tuple) else str(path).split(",")
    return [str(each).strip() for each in given]


def read_bytes(path: PathLike) -> bytes:
    """What is in a file."""
    if "://" not in str(path):  # finding the filesystem of each of many small files takes longer than reading them
        with contextlib.suppress(OSError):
            return Path(path).read_bytes()
    with open_file(path) as file:
        return file.read()


def is_image_name(name: str) -> bool:
    """Whether a file is an image by its suffix."""
    return name.lower().endswith(IMAGE_SUFFIXES)


def _files_of_one(path: str) -> list[str]:
    fs, root = filesystem_of(path)
    is_pattern = any(sign in root for sign in "*?[") and not fs.exists(root)
    found: list[str] = []
    for match in sorted(fs.glob(root)) if is_pattern else [root]:
        if fs.isdir(match):
            found += [name for name in sorted(fs.find(match)) if _belongs(name, match)]
        elif fs.exists(match):
            found.append(match)
    if not found:
        there = "there is no image in it" if not is_pattern and fs.exists(root) else "nothing is there"
        raise PathNotFoundError(f"No such file or directory: {path} ({there})")
    return [url_of(path, root, name) for name in found]


def _belongs(name: str, folder: str) -> bool:
    parts = name[len(folder) :].strip("/").split("/")
    return is_image_name(name) and not any(part.startswith(("_", ".")) for part in parts)
