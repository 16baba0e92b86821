"""The published names of `zoo.common`, from the modules that define them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo.common.arrays import set_core_number, to_list_of_numpy
from zoo.common.files import (
    append_suffix,
    convert_to_safe_path,
    enable_multi_fs_load,
    enable_multi_fs_load_static,
    enable_multi_fs_save,
    get_file_list,
    get_remote_file_to_local,
    is_local_path,
    put_local_file_to_remote,
)

if TYPE_CHECKING:
    from zoo.common.tensors import JTensor, Sample

# They build on the layer library, which is loaded when one of them is asked for.
TENSORS = ("JTensor", "Sample")

__all__ = [
    "JTensor",
    "Sample",
    "append_suffix",
    "convert_to_safe_path",
    "enable_multi_fs_load",
    "enable_multi_fs_load_static",
    "enable_multi_fs_save",
    "get_file_list",
    "get_remote_file_to_local",
    "is_local_path",
    "put_local_file_to_remote",
    "set_core_number",
    "to_list_of_numpy",
]


def __getattr__(name: str) -> Any:
    if name in TENSORS:
        from zoo.common import tensors

        return getattr(tensors, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
