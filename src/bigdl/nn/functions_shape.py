"""Functions behind the layers that change the shape of a tensor, or take parts of it. Dimensions count from 1."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as fn

from bigdl.nn.parts import axis
from zoo.orca.errors import InvalidArgumentError

LOG = logging.getLogger(__name__)


def reshape(x: Tensor, size: Sequence[int], batch_mode: bool | None) -> Tensor:
    whole = x.numel() == math.prod(size) and x.dim() > 0 and x.shape[0] != 1
    if batch_mode is False or (batch_mode is None and whole):
        return x.reshape(*size)
    return x.reshape(x.shape[0], *size)


def infer_reshape(x: Tensor, size: Sequence[int], batch_mode: bool) -> Tensor:
    rest = x.shape[1:] if batch_mode else x.shape
    sizes = [rest[at] if side == 0 else side for at, side in enumerate(size)]
    return x.reshape(x.shape[0], *sizes) if batch_mode else x.reshape(*sizes)


def view(x: Tensor, sizes: Any, num_input_dims: int) -> Tensor:
    sizes = [sizes] if isinstance(sizes, int) else list(sizes)
    if num_input_dims > 0:
        leading = math.prod(x.shape[: x.dim() - num_input_dims]) if x.dim() > num_input_dims else None
        return x.reshape(*sizes) if leading is None else x.reshape(leading, *sizes)
    if -1 in sizes:
        return x.reshape(*sizes)
    # A batch of one record is a batch, as in Reshape.
    return x.reshape(*sizes) if x.numel() == math.prod(sizes) and x.shape[0] != 1 else x.reshape(-1, *sizes)


def transpose(x: Tensor, permutations: Sequence[Sequence[int]]) -> Tensor:
    for first, second in permutations:
        x = x.transpose(axis(x, first), axis(x, second))
    return x


def squeeze(x: Tensor, dim: int | None, num_input_dims: int) -> Tensor:
    if dim is None:
        return x.squeeze()
    dims = [dim] if isinstance(dim, int) else list(dim)
    return x.squeeze(tuple(axis(x, each, num_input_dims) for each in dims))


def unsqueeze(x: Tensor, pos: int, num_input_dims: int) -> Tensor:
    return x.unsqueeze(pos - 1 + (1 if 0 < num_input_dims < x.dim() else 0))


def select(x: Tensor, dim: int, index: int) -> Tensor:
    at = axis(x, dim)
    if index == 0 or abs(index) > x.shape[at]:
        raise InvalidArgumentError(f"Select: index {index} is not among 1 to {x.shape[at]}, as dimension {dim} has it.")
    return x.select(at, index - 1 if index > 0 else index)


def narrow(x: Tensor, dimension: int, offset: int, length: int) -> Tensor:
    at = axis(x, dimension)
    start = offset - 1 if offset > 0 else x.shape[at] + offset
    return x.narrow(at, start, length if length >= 0 else x.shape[at] - start + length + 1)


def padding(x: Tensor, dim: int, pad: int, n_input_dim: int, value: float, n_index: int) -> Tensor:
    at = dim - 1 + (1 if x.dim() != n_input_dim else 0)
    filling = x.new_full([abs(pad) if each == at else side for each, side in enumerate(x.shape)], value)
    position = x.shape[at] - (n_index - 1) if pad > 0 else n_index - 1
    before, after = x.split([position, x.shape[at] - position], dim=at)
    return torch.cat([before, filling, after], dim=at)


def replicate(x: Tensor, n_features: int, dim: int, n_dim: int) -> Tensor:
    at = dim - 1 + (1 if 0 < n_dim < x.dim() else 0)
    return x.unsqueeze(at).expand(*x.shape[:at], n_features, *x.shape[at:])


def tile(x: Tensor, dim: int, copies: int) -> Tensor:
    return torch.cat([x] * copies, dim=axis(x, dim))


def echo(x: Any) -> Any:
    LOG.info("Echo: %s", [tuple(each.shape) for each in x] if isinstance(x, list) else tuple(x.shape))
    return x


def masking(x: Tensor, mask_value: float) -> Tensor:
    return x * (x != mask_value).any(dim=-1, keepdim=True)


def total(x: Tensor, dimension: int, n_input_dims: int, size_average: bool, squeeze: bool) -> Tensor:
    at = axis(x, dimension, n_input_dims)
    return _whole(x.mean(at, keepdim=not squeeze) if size_average else x.sum(at, keepdim=not squeeze))


def mean(x: Tensor, dimension: int, n_input_dims: int, squeeze: bool) -> Tensor:
    return _whole(x.mean(axis(x, dimension, n_input_dims), keepdim=not squeeze))


def largest(x: Tensor, dim: int, num_input_dims: int) -> Tensor:
    return _whole(x.amax(axis(x, dim, num_input_dims)))


def smallest(x: Tensor, dim: int, num_input_dims: int) -> Tensor:
    return _whole(x.amin(axis(x, dim, num_input_dims)))


def _whole(x: Tensor) -> Tensor:
    """Torch7 has no tensors without dimensions."""
    return x.reshape(1) if x.dim() == 0 else x


def expand(x: Tensor, sizes: Sequence[int]) -> Tensor:
    return x.expand(*sizes)


def upsample_1d(x: Tensor, length: int) -> Tensor:
    return x.repeat_interleave(length, dim=-2)


def upsample_2d(x: Tensor, size: Sequence[int], data_format: str) -> Tensor:
    rows, columns = (-2, -1) if data_format.upper() == "NCHW" else (-3, -2)
    return x.repeat_interleave(size[0], dim=rows).repeat_interleave(size[1], dim=columns)


def upsample_3d(x: Tensor, size: Sequence[int]) -> Tensor:
    for at, times in zip((-3, -2, -1), size, strict=True):
        x = x.repeat_interleave(times, dim=at)
    return x


def crop(x: Tensor, crops: Sequence[Sequence[int]], channels_first: bool) -> Tensor:
    first = x.dim() - len(crops) - (0 if channels_first else 1)
    for number, (before, after) in enumerate(crops):
        x = x.narrow(first + number, before, x.shape[first + number] - before - after)
    return x


def crop_2d(x: Tensor, heightCrop: Sequence[int], widthCrop: Sequence[int], data_format: str) -> Tensor:
    return crop(x, [heightCrop, widthCrop], data_format.upper() == "NCHW")


def crop_3d(x: Tensor, dim1Crop: Any, dim2Crop: Any, dim3Crop: Any, data_format: str) -> Tensor:
    return crop(x, [dim1Crop, dim2Crop, dim3Crop], data_format == "channel_first")


def zero_pad(x: Tensor, pad_left: int, pad_right: int, pad_top: int, pad_bottom: int) -> Tensor:
    return fn.pad(x, (pad_left, pad_right, pad_top, pad_bottom))


def resize_bilinear(x: Tensor, output_height: int, output_width: int, align_corner: bool, data_format: str) -> Tensor:
    rows, columns = (-2, -1) if data_format.upper() == "NCHW" else (-3, -2)
    return _stretch(_stretch(x, rows, output_height, align_corner), columns, output_width, align_corner)


def _stretch(x: Tensor, at: int, size: int, align_corner: bool) -> Tensor:
    """Linear interpolation along a dimension, from its first value on: torch's own begins half a value later."""
    old = x.shape[at]
    step = (old - 1) / (size - 1) if align_corner and size > 1 else old / size
    where = torch.arange(size, device=x.device, dtype=x.dtype) * step
    low = where.long().clamp(max=old - 1)
    part = (where - low).reshape([-1 if each == x.dim() + at else 1 for each in range(x.dim())])
    return torch.lerp(x.index_select(at, low), x.index_select(at, (low + 1).clamp(max=old - 1)), part)
