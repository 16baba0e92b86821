"""Files that lie elsewhere, for code that only knows local ones."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable
from functools import wraps
from typing import Any

from zoo.orca.data.file import PathLike, filesystem_of, is_local, url_of
from zoo.orca.errors import PathExistsError, PathNotFoundError


def is_local_path(path: PathLike) -> bool:
    """Tell whether a path is plain or file://.

    >>> is_local_path("s3://bucket/model")
    False
    """
    return is_local(path)


def get_file_list(path: PathLike, recursive: bool = False) -> list[str]:
    """The files in a folder, with those of its subfolders if asked, sorted; a file is a list of itself.

    Example: ``get_file_list("hdfs://namenode:8020/data", recursive=True)``
    """
    fs, root = filesystem_of(path)
    if not fs.exists(root):
        raise PathNotFoundError(f"No such file or directory: {path}")
    found = fs.find(root) if recursive else fs.find(root, maxdepth=1)
    # An object store's empty marker of a folder is no file to a user.
    return [url_of(os.fspath(path), root, name) for name in sorted(found) if not name.endswith("/")]


def put_local_file_to_remote(local_path: PathLike, remote_path: PathLike, over_write: bool = False) -> None:
    """Copy a file or folder of this machine to any filesystem.

    Example: ``put_local_file_to_remote("/tmp/model.pt", "s3://bucket/model.pt")``
    """
    source, local = filesystem_of(local_path)
    _check_copy(local_path, remote_path, over_write)
    fs, remote = filesystem_of(remote_path)
    # Without the trailing slash fsspec puts a folder inside one that exists, rather than over it.
    if source.isdir(local):
        fs.put(local + "/", remote + "/", recursive=True)
    else:
        fs.put_file(local, remote)


def get_remote_file_to_local(remote_path: PathLike, local_path: PathLike, over_write: bool = False) -> None:
    """Copy a file or folder of any filesystem to this machine.

    Example: ``get_remote_file_to_local("s3://bucket/model.pt", "/tmp/model.pt", over_write=True)``
    """
    fs, remote = filesystem_of(remote_path)
    _check_copy(remote_path, local_path, over_write)
    _, local = filesystem_of(local_path)
    if fs.isdir(remote):
        fs.get(remote + "/", local + "/", recursive=True)
    else:
        fs.get_file(remote, local)


def _check_copy(source: PathLike, target: PathLike, over_write: bool) -> None:
    source_fs, source_name = filesystem_of(source)
    if not source_fs.exists(source_name):
        raise PathNotFoundError(f"No such file or directory: {source}")
    target_fs, target_name = filesystem_of(target)
    if not over_write and target_fs.exists(target_name):
        raise PathExistsError(f"Expected nothing at {target}, which exists. Pass over_write=True to replace it.")


def append_suffix(prefix: str, path: PathLike) -> str:
    """A name with the suffix that a path has.

    >>> append_suffix("/tmp/copy", "hdfs://node/model.bigdl")
    '/tmp/copy.bigdl'
    """
    return prefix + os.path.splitext(os.fspath(path))[1]


def convert_to_safe_path(input_path: PathLike, follow_symlinks: bool = True) -> str:
    """The absolute path with no '..' in it, links followed unless told not to."""
    return os.path.realpath(input_path) if follow_symlinks else os.path.abspath(input_path)


def enable_multi_fs_save(save_func: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method `save(self, path, ...)` that writes local files write to any filesystem."""

    @wraps(save_func)
    def save(obj: Any, path: PathLike, *args: Any, **kwargs: Any) -> Any:
        if is_local(path):
            return save_func(obj, filesystem_of(path)[1], *args, **kwargs)
        over_write = _asks_to_overwrite(save_func, obj, path, *args, **kwargs)
        with tempfile.TemporaryDirectory() as folder:
            local = append_suffix(os.path.join(folder, "saved"), path)
            result = save_func(obj, local, *args, **kwargs)
            put_local_file_to_remote(local, path, over_write=over_write)
            return result

    return save


def _asks_to_overwrite(save_func: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """What the call says about overwriting; a function that has no such argument overwrites."""
    call = inspect.signature(save_func).bind(*args, **kwargs)
    call.apply_defaults()
    given = {**call.arguments, **kwargs}
    return bool(given.get("over_write", given.get("overwrite", True)))


def enable_multi_fs_load(load_func: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method `load(self, path, ...)` that reads local files read from any filesystem."""

    @wraps(load_func)
    def load(obj: Any, path: PathLike, *args: Any, **kwargs: Any) -> Any:
        return enable_multi_fs_load_static(lambda local, *rest, **named: load_func(obj, local, *rest, **named))(
            path, *args, **kwargs
        )

    return load


def enable_multi_fs_load_static(load_func: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function `load(path, ...)` that reads local files read from any filesystem."""

    @wraps(load_func)
    def load(path: PathLike, *args: Any, **kwargs: Any) -> Any:
        if is_local(path):
            return load_func(filesystem_of(path)[1], *args, **kwargs)
        with tempfile.TemporaryDirectory() as folder:
            local = append_suffix(os.path.join(folder, "loaded"), path)
            get_remote_file_to_local(path, local)
            return load_func(local, *args, **kwargs)

    return load
