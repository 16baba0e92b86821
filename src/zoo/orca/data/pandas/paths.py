"""The files behind a path, with the words each backend has for a missing one."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.orca.data.file import PathLike, list_files
from zoo.orca.errors import PathNotFoundError

Paths = PathLike | Sequence[PathLike]


def files_of(paths: Paths) -> list[str]:
    """The files to read with the pandas backend."""
    return list_files(paths)


def spark_files_of(paths: Paths) -> list[str]:
    """The files to read with the Spark backend, which has its own words for a missing path."""
    try:
        return list_files(paths)
    except FileNotFoundError as error:
        raise PathNotFoundError(f"Path does not exist: {paths}. {error}") from error
