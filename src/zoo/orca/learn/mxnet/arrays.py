"""Between batches of a feed, MXNet's arrays, and the tensors that checkpoints hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca import mxnet_library as library
from zoo.orca.errors import BatchError
from zoo.orca.feed.structure import as_arguments

if TYPE_CHECKING:
    import torch

# Whole numbers beyond it have no float32 of their own.
EXACT = 2**24


def split(batch: Any) -> tuple[tuple[Any, ...], Any]:
    """The features and the target of a feed's batch; None where there is no target."""
    parts = as_arguments(batch)
    return (parts, None) if len(parts) == 1 else (parts[:-1], parts[-1])


def in_order(value: Any, names: list[str] | None = None) -> list[Any]:
    """Arrays however they are nested, in a list: a dict's by `names`, or by its sorted keys where there are none.

    One array alone may have any name."""
    if isinstance(value, dict):
        if names is None or len(value) == 1:
            return [value[name] for name in sorted(value)]
        if set(names) != set(value):
            raise BatchError(
                f"the model calls its inputs {', '.join(names) or '(none)'}, but the data has {', '.join(value)}. Name "
                "them alike, or give the arrays in a list, in the model's order."
            )
        return [value[name] for name in names]
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in in_order(each, names)]
    return [] if value is None else [value]


def to_nd(value: Any, dtype: Any, what: str = "features") -> Any:
    """An array of MXNet's: numbers become the model's type, as MXNet's own iterators make them; MXNet's stay."""
    mx = library.load()
    if isinstance(value, mx.nd.NDArray):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise BatchError(f"{what} must be numbers, but there is {array.dtype} of shape {array.shape}.")
    if array.dtype.kind in "iu" and array.dtype.itemsize > 2 and array.size and dtype != np.float64:
        _need_exact(array, what)
    return copied(array, dtype)


def copied(array: np.ndarray, dtype: Any) -> Any:
    """A copy of a numpy array as MXNet's; `mx.nd.array` would look for sparse matrices first, with a warning."""
    mx = library.load()
    made = mx.nd.empty(array.shape, dtype=dtype)
    made[:] = array.astype(dtype, copy=False)
    return made


def _need_exact(array: np.ndarray, what: str) -> None:
    if max(int(array.max()), -int(array.min())) > EXACT:
        raise BatchError(
            f"{what} hold whole numbers beyond 2**24, which float32, MXNet's type of numbers, cannot tell apart. Use "
            "ids without gaps, or a data creator whose gluon DataLoader gives int64 arrays, which stay as they are."
        )


def label_type(value: Any, dtype: Any) -> Any:
    """The type of labels: classes need more than a float16 can tell apart."""
    kind = getattr(getattr(value, "dtype", None), "kind", "f")
    return np.float32 if kind in "biu" and dtype == np.float16 else dtype


def describe(arrays: list[Any]) -> str:
    """Arrays in words."""
    return ", ".join(f"{np.dtype(each.dtype).name} {tuple(each.shape)}" for each in arrays)


def to_tensor(array: Any) -> torch.Tensor:
    """An array of MXNet's as a tensor with memory of its own."""
    import torch

    return torch.from_numpy(array.asnumpy())


def to_array(tensor: Any) -> Any:
    """A tensor as an array of MXNet's."""
    array = tensor.numpy()
    return copied(array, array.dtype)
