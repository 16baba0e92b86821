"""Files anywhere: the one place that decides how a path becomes a filesystem, and the published helpers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError, PathNotFoundError
from zoo.orca.optional import require

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
    from PIL.Image import Image

PathLike = str | os.PathLike[str]

S3_SCHEMES = ("s3", "s3a", "s3n")


def filesystem_of(path: PathLike) -> tuple[AbstractFileSystem, str]:
    """The fsspec filesystem a path lies on, and what the path is called there.

    >>> filesystem_of("file:///tmp/a.csv")[1]
    '/tmp/a.csv'
    """
    import fsspec

    text = os.fspath(path)
    scheme, separator, rest = text.partition("://")
    if separator and scheme in S3_SCHEMES:
        require("s3fs", f"Reading or writing {text}")
        return fsspec.filesystem("s3", **_s3_options()), rest.rstrip("/")
    try:
        return fsspec.core.url_to_fs(text)
    except ValueError as error:
        raise InvalidArgumentError(
            f"Expected a plain path or a URL that fsspec can open (file://, s3://, hdfs://), got '{text}'. "
            f"fsspec says: {error}"
        ) from error


def _s3_options() -> dict[str, Any]:
    # Said explicitly, although botocore reads the same variables: fsspec keeps one filesystem per set of
    # options, so a changed environment must change them. Listings are not kept, since others write too.
    options: dict[str, Any] = {"use_listings_cache": False}
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        options["key"] = os.environ["AWS_ACCESS_KEY_ID"]
        options["secret"] = os.environ.get("AWS_SECRET_ACCESS_KEY")
        options["token"] = os.environ.get("AWS_SESSION_TOKEN")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        options["endpoint_url"] = endpoint
    return options


def is_local(path: PathLike) -> bool:
    """Tell whether a path is on this machine's own filesystem: a plain path or file://."""
    scheme, separator, _ = os.fspath(path).partition("://")
    return not separator or scheme in ("file", "local")


def list_files(path_or_paths: PathLike | Sequence[PathLike], suffixes: Sequence[str] | None = None) -> list[str]:
    """The files meant by a file, a list, a folder (not its subfolders) or a pattern, each sorted by name.

    In a folder, names that start with '_' or '.' are left out, and so are those without one of the suffixes.
    """
    if isinstance(path_or_paths, str | os.PathLike):
        return _files_of_one(os.fspath(path_or_paths), suffixes)
    return [file for path in path_or_paths for file in _files_of_one(os.fspath(path), suffixes)]


def _files_of_one(path: str, suffixes: Sequence[str] | None) -> list[str]:
    fs, root = filesystem_of(path)
    if fs.isdir(root):
        found = [entry["name"] for entry in fs.ls(root, detail=True) if entry["type"] == "file"]
        found = [name for name in found if _is_data_file(name, root, suffixes)]
    elif fs.exists(root):
        found = [root]
    else:
        found = fs.glob(root) if any(sign in root for sign in "*?[") else []
        if not found:
            raise PathNotFoundError(f"No such file or directory: {path}")
    if not found:
        wanted = f" that ends in {' or '.join(suffixes)}" if suffixes else ""
        raise PathNotFoundError(f"No such file or directory: {path} is a folder with no file{wanted} in it.")
    return [url_of(path, root, name) for name in sorted(found)]


def _is_data_file(name: str, folder: str, suffixes: Sequence[str] | None) -> bool:
    # Object stores list the folder's own empty marker among its files.
    if name.rstrip("/") == folder.rstrip("/"):
        return False
    base = name.rsplit("/", 1)[-1]
    return not base.startswith(("_", ".")) and (suffixes is None or base.endswith(tuple(suffixes)))


def url_of(asked: str, root: str, name: str) -> str:
    """The path that leads back to a name found while looking at root, which the user asked for as a URL."""
    if is_local(asked):
        return name
    # What stands before the root (scheme, host, port) is kept: fsspec's own unstrip_protocol forgets hosts.
    return asked.rstrip("/").removesuffix(root.rstrip("/")) + name


@contextmanager
def open_file(path: PathLike, mode: str = "rb", **options: Any) -> Iterator[IO[Any]]:
    """Open a file on any filesystem; a missing one is a PathNotFoundError with the path as it was given."""
    fs, name = filesystem_of(path)
    try:
        opened = fs.open(name, mode, **options)
    except FileNotFoundError as error:
        raise PathNotFoundError(f"No such file or directory: {os.fspath(path)}") from error
    with opened:
        yield opened


def open_text(path: PathLike) -> list[str]:
    """Read a text file into a list of lines, white space stripped.

    Example: ``open_text("s3://bucket/labels.txt")``
    """
    with open_file(path, "r", encoding="utf-8") as file:
        return [line.strip() for line in file]


def open_image(path: PathLike) -> Image:
    """Read an image file into a PIL Image.

    Example: ``open_image("file:///data/cat.jpg").size``
    """
    image_module = require("PIL.Image", "open_image")
    with open_file(path) as file:
        image = image_module.open(file)
        # PIL reads pixels on first use, which would be after the file is closed.
        image.load()
        return image


def load_numpy(path: PathLike) -> Any:
    """Read an array (.npy) or a mapping of arrays (.npz) written by numpy.

    Example: ``load_numpy("hdfs://namenode:8020/x.npy")``
    """
    with open_file(path) as file:
        loaded = np.load(file)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            return {name: loaded[name] for name in loaded.files}
        return loaded


def exists(path: PathLike) -> bool:
    """Tell whether a file or folder exists."""
    fs, name = filesystem_of(path)
    return bool(fs.exists(name))


def makedirs(path: PathLike) -> None:
    """Make a folder, with the ones above it; one that exists already is left as it is."""
    fs, name = filesystem_of(path)
    fs.makedirs(name, exist_ok=True)
    if hasattr(fs, "call_s3") and not fs.exists(name):
        # Object stores have no folders: an empty object whose name ends in "/" stands for one.
        bucket, _, key = name.partition("/")
        fs.call_s3("put_object", Bucket=bucket, Key=key + "/")


def write_text(path: PathLike, text: str) -> int:
    """Write a text file and return the number of characters written.

    Example: ``write_text("s3://bucket/notes.txt", "hello")``
    """
    with open_file(path, "w", encoding="utf-8") as file:
        return file.write(text)
