"""Functions behind the pooling layers. Arguments have the width before the height."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as fn

from bigdl.nn.parts_convolution import SAME, as_given, channels_first, check_format, same_pads


def max_1d(x: Tensor, k_w: int, d_w: int) -> Tensor:
    return fn.max_pool1d(x.mT, k_w if k_w != -1 else x.shape[-2], d_w if d_w > 0 else None).mT


def max_2d(x: Tensor, kw: int, kh: int, dw: int, dh: int, pad_w: int, pad_h: int, to_ceil: bool, format: str) -> Tensor:
    x = channels_first(x, check_format(format))
    kernel, stride, pad = (kh, kw), (dh, dw), (pad_h, pad_w)
    if SAME in pad:
        x, pad = fn.pad(x, same_pads(x.shape[-2:], kernel, stride), value=float("-inf")), (0, 0)
    return as_given(fn.max_pool2d(x, kernel, stride, pad, ceil_mode=to_ceil), format)


def average_2d(x: Tensor, kw: int, kh: int, dw: int, dh: int, pad_w: int, pad_h: int, global_pooling: bool,
               ceil_mode: bool, count_include_pad: bool, divide: bool, format: str) -> Tensor:  # fmt: skip
    x = channels_first(x, check_format(format))
    if global_pooling:
        (kh, kw), (pad_h, pad_w), (dh, dw) = x.shape[-2:], (0, 0), (1, 1)
    kernel, stride = (kh, kw), (dh, dw)
    if SAME in (pad_h, pad_w):
        return as_given(_average_same(x, kernel, stride, count_include_pad, divide), format)
    divisor = None if divide else 1
    output = fn.avg_pool2d(x, kernel, stride, (pad_h, pad_w), ceil_mode, count_include_pad, divisor)
    return as_given(output, format)


def _average_same(x: Tensor, kernel: Sequence[int], stride: Sequence[int], counts_pad: bool, divide: bool) -> Tensor:
    pads = same_pads(x.shape[-2:], kernel, stride)
    sums = fn.avg_pool2d(fn.pad(x, pads), kernel, stride, divisor_override=1)
    if not divide:
        return sums
    if counts_pad:
        return sums / (kernel[0] * kernel[1])
    return sums / fn.avg_pool2d(fn.pad(x.new_ones(1, *x.shape[-2:]), pads), kernel, stride, divisor_override=1)


def max_3d(x: Tensor, k_t: int, k_w: int, k_h: int, d_t: int, d_w: int, d_h: int, pad_t: int, pad_w: int,
           pad_h: int) -> Tensor:  # fmt: skip
    return fn.max_pool3d(x, (k_t, k_h, k_w), (d_t, d_h, d_w), (pad_t, pad_h, pad_w))


def average_3d(x: Tensor, k_t: int, k_w: int, k_h: int, d_t: int, d_w: int, d_h: int, pad_t: int, pad_w: int,
               pad_h: int, count_include_pad: bool, ceil_mode: bool) -> Tensor:  # fmt: skip
    pad = (pad_t, pad_h, pad_w)
    return fn.avg_pool3d(x, (k_t, k_h, k_w), (d_t, d_h, d_w), pad, ceil_mode, count_include_pad)
