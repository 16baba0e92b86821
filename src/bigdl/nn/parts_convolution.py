"""Convolutions: over frames, images and volumes, transposed, separable, and with weights of their own at each place.

Arguments have the width before the height; the sides of tensors and of kernels have the height first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as fn

from bigdl.nn.parts import Part
from zoo.orca.errors import InvalidArgumentError

CONVOLVE = {1: fn.conv1d, 2: fn.conv2d, 3: fn.conv3d}
CONVOLVE_BACK = {2: fn.conv_transpose2d, 3: fn.conv_transpose3d}
SAME = -1


def channels_first(x: Tensor, data_format: str) -> Tensor:
    """An image whose channels come last, with channels first."""
    return x.movedim(-1, -3) if data_format.upper() == "NHWC" else x


def as_given(x: Tensor, data_format: str) -> Tensor:
    """The way back of channels_first."""
    return x.movedim(-3, -1) if data_format.upper() == "NHWC" else x


def check_format(data_format: str) -> str:
    if data_format.upper() not in ("NCHW", "NHWC"):
        raise InvalidArgumentError(f'Expected the format "NCHW" or "NHWC", got {data_format!r}')
    return data_format.upper()


def same_pads(sides: Sequence[int], kernel: Sequence[int], stride: Sequence[int]) -> list[int]:
    """What to pad before and after each side, the last side first, so that there is an output at each stride."""
    pads: list[int] = []
    for side, width, step in reversed(list(zip(sides, kernel, stride, strict=True))):
        missing = max((math.ceil(side / step) - 1) * step + width - side, 0)
        pads += [missing // 2, missing - missing // 2]
    return pads


def padded(x: Tensor, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]) -> tuple[Tensor, Any]:
    """The input, padded where the padding is to be found out, and the padding that is left to do."""
    if SAME not in pad:
        return x, tuple(pad)
    return fn.pad(x, same_pads(x.shape[-len(kernel) :], kernel, stride)), (0,) * len(kernel)


class Convolution(Part):
    """A convolution over as many dimensions as the kernel has sides."""

    def __init__(self, planes: tuple[int, int], kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int],
                 groups: int = 1, dilation: Sequence[int] = (), with_bias: bool = True, data_format: str = "NCHW",
                 shown_groups: bool = False):  # fmt: skip
        super().__init__()
        inputs, outputs = planes
        if inputs % groups or outputs % groups:
            raise InvalidArgumentError(f"n_group={groups} must divide both {inputs} input and {outputs} output planes.")
        self.kernel, self.stride, self.pad = tuple(kernel), tuple(stride), tuple(pad)
        self.dilation = tuple(dilation) or (1,) * len(self.kernel)
        self.groups = groups
        self.data_format = check_format(data_format)
        each = math.prod(kernel)
        fans = (inputs // groups * each, outputs // groups * each)
        shown = (groups, outputs // groups, inputs // groups, *kernel) if shown_groups else None
        self.add_weight("weight", (outputs, inputs // groups, *kernel), fans, shown=shown)
        self.add_bias("bias", outputs, fans, with_bias)

    def forward(self, x: Tensor) -> Tensor:
        x, pad = padded(channels_first(x, self.data_format), self.kernel, self.stride, self.pad)
        convolve = CONVOLVE[len(self.kernel)]
        output = convolve(x, self.weight, self.bias, self.stride, pad, self.dilation, self.groups)
        return as_given(output, self.data_format)


class Spatial(Convolution):
    def __init__(self, n_input_plane: int, n_output_plane: int, kernel_w: int, kernel_h: int, stride_w: int,
                 stride_h: int, pad_w: int, pad_h: int, n_group: int, with_bias: bool = True,
                 data_format: str = "NCHW"):  # fmt: skip
        super().__init__((n_input_plane, n_output_plane), (kernel_h, kernel_w), (stride_h, stride_w), (pad_h, pad_w),
                         n_group, with_bias=with_bias, data_format=data_format, shown_groups=True)  # fmt: skip


class Dilated(Convolution):
    def __init__(self, n_input_plane: int, n_output_plane: int, kw: int, kh: int, dw: int, dh: int, pad_w: int,
                 pad_h: int, dilation_w: int, dilation_h: int):  # fmt: skip
        super().__init__((n_input_plane, n_output_plane), (kh, kw), (dh, dw), (pad_h, pad_w),
                         dilation=(dilation_h, dilation_w))  # fmt: skip


class Volumetric(Convolution):
    def __init__(self, n_input_plane: int, n_output_plane: int, k_t: int, k_w: int, k_h: int, d_t: int, d_w: int,
                 d_h: int, pad_t: int, pad_w: int, pad_h: int, with_bias: bool):  # fmt: skip
        super().__init__((n_input_plane, n_output_plane), (k_t, k_h, k_w), (d_t, d_h, d_w), (pad_t, pad_h, pad_w),
                         with_bias=with_bias)  # fmt: skip


class Transposed(Part):
    """A transposed convolution, which enlarges."""

    def __init__(self, planes: tuple[int, int], kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int],
                 adjusted: Sequence[int], groups: int, no_bias: bool):  # fmt: skip
        super().__init__()
        inputs, outputs = planes
        self.stride, self.pad, self.adjusted, self.groups = tuple(stride), tuple(pad), tuple(adjusted), groups
        each = math.prod(kernel)
        fans = (inputs // groups * each, outputs // groups * each)
        shown = (groups, inputs // groups, outputs // groups, *kernel)
        self.add_weight("weight", (inputs, outputs // groups, *kernel), fans, shown=shown)
        self.add_bias("bias", outputs, fans, not no_bias)

    def forward(self, x: Tensor) -> Tensor:
        convolve = CONVOLVE_BACK[len(self.stride)]
        return convolve(x, self.weight, self.bias, self.stride, self.pad, self.adjusted, self.groups)


class SpatialFull(Transposed):
    def __init__(self, n_input_plane: int, n_output_plane: int, kw: int, kh: int, dw: int, dh: int, pad_w: int,
                 pad_h: int, adj_w: int, adj_h: int, n_group: int, no_bias: bool):  # fmt: skip
        super().__init__((n_input_plane, n_output_plane), (kh, kw), (dh, dw), (pad_h, pad_w), (adj_h, adj_w), n_group,
                         no_bias)  # fmt: skip


class VolumetricFull(Transposed):
    def __init__(self, n_input_plane: int, n_output_plane: int, kt: int, kw: int, kh: int, dt: int, dw: int, dh: int,
                 pad_t: int, pad_w: int, pad_h: int, adj_t: int, adj_w: int, adj_h: int, n_group: int,
                 no_bias: bool):  # fmt: skip
        super().__init__((n_input_plane, n_output_plane), (kt, kh, kw), (dt, dh, dw), (pad_t, pad_h, pad_w),
                         (adj_t, adj_h, adj_w), n_group, no_bias)  # fmt: skip


class Separable(Part):
    """A convolution of each plane for itself, then of all planes point by point."""

    def __init__(self, n_input_channel: int, n_output_channel: int, depth_multiplier: int, kernel_w: int,
                 kernel_h: int, stride_w: int, stride_h: int, pad_w: int, pad_h: int, with_bias: bool,
                 data_format: str):  # fmt: skip
        super().__init__()
        self.kernel, self.stride, self.pad = (kernel_h, kernel_w), (stride_h, stride_w), (pad_h, pad_w)
        self.data_format = check_format(data_format)
        self.planes, middle = n_input_channel, n_input_channel * depth_multiplier
        fans = (kernel_h * kernel_w, depth_multiplier * kernel_h * kernel_w)
        self.add_weight("weight", (middle, 1, *self.kernel), fans)
        self.add_weight("point_weight", (n_output_channel, middle, 1, 1), (middle, n_output_channel))
        self.add_bias("bias", n_output_channel, (middle, n_output_channel), with_bias)

    def forward(self, x: Tensor) -> Tensor:
        x, pad = padded(channels_first(x, self.data_format), self.kernel, self.stride, self.pad)
        depth = fn.conv2d(x, self.weight, None, self.stride, pad, groups=self.planes)
        return as_given(fn.conv2d(depth, self.point_weight, self.bias), self.data_format)


class Mapped(Part):
    """A convolution between some pairs of planes only: a table of (input, output), counted from 1."""

    def __init__(self, conn_table: Any, kw: int, kh: int, dw: int, dh: int, pad_w: int, pad_h: int):
        super().__init__()
        pairs = torch.as_tensor(conn_table, dtype=torch.long).reshape(-1, 2)
        self.register_buffer("pairs", pairs - 1)
        self.planes = (int(pairs[:, 1].max()), int(pairs[:, 0].max()))
        self.stride, self.pad = (dh, dw), (pad_h, pad_w)
        fans = (kw * kh * len(pairs) // self.planes[0], kw * kh)
        self.add_weight("weight", (len(pairs), kh, kw), fans)
        self.add_bias("bias", self.planes[0], fans)

    def forward(self, x: Tensor) -> Tensor:
        full = self.weight.new_zeros(*self.planes, *self.weight.shape[1:])
        full = full.index_put((self.pairs[:, 1], self.pairs[:, 0]), self.weight, accumulate=True)
        return fn.conv2d(x, full, self.bias, self.stride, self.pad)


class Temporal(Part):
    """A convolution over frames: (batch, frames, size); a row of the weight has the frames one after the other."""

    def __init__(self, input_frame_size: int, output_frame_size: int, kernel_w: int, stride_w: int):
        super().__init__()
        self.kernel, self.stride, self.size = kernel_w, stride_w, input_frame_size
        fans = (input_frame_size * kernel_w, output_frame_size * kernel_w)
        self.add_weight("weight", (output_frame_size, kernel_w * input_frame_size), fans)
        self.add_bias("bias", output_frame_size, fans)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.reshape(-1, self.kernel, self.size).mT
        return fn.conv1d(x.mT, weight, self.bias, self.stride).mT


class Local1D(Part):
    """A convolution over frames, with weights of their own at each place."""

    def __init__(self, n_input_frame: int, input_frame_size: int, output_frame_size: int, kernel_w: int,
                 stride_w: int):  # fmt: skip
        super().__init__()
        self.kernel, self.stride = kernel_w, stride_w
        frames = (n_input_frame - kernel_w) // stride_w + 1
        fans = (input_frame_size * kernel_w, output_frame_size * kernel_w)
        self.add_weight("weight", (frames, output_frame_size, kernel_w * input_frame_size), fans)
        self.add_weight("bias", (frames, output_frame_size), fans)

    def forward(self, x: Tensor) -> Tensor:
        windows = x.unfold(-2, self.kernel, self.stride).mT.flatten(-2)
        return torch.einsum("...fk,fok->...fo", windows, self.weight) + self.bias


class Local2D(Part):
    """A convolution over images, with weights of their own at each place."""

    def __init__(self, n_input_plane: int, input_width: int, input_height: int, n_output_plane: int, kernel_w: int,
                 kernel_h: int, stride_w: int, stride_h: int, pad_w: int, pad_h: int, with_bias: bool,
                 data_format: str):  # fmt: skip
        super().__init__()
        self.kernel, self.stride, self.pad = (kernel_h, kernel_w), (stride_h, stride_w), (pad_h, pad_w)
        self.data_format = check_format(data_format)
        self.sides = (
            (input_height + 2 * pad_h - kernel_h) // stride_h + 1,
            (input_width + 2 * pad_w - kernel_w) // stride_w + 1,
        )
        each, places = n_input_plane * kernel_h * kernel_w, self.sides[0] * self.sides[1]
        fans = (each, n_output_plane * kernel_h * kernel_w)
        self.add_weight("weight", (places, n_output_plane, each), fans)
        if with_bias:
            self.add_weight("bias", (n_output_plane, *self.sides), fans)
        else:
            self.register_parameter("bias", None)

    def forward(self, x: Tensor) -> Tensor:
        windows = fn.unfold(channels_first(x, self.data_format), self.kernel, padding=self.pad, stride=self.stride)
        output = torch.einsum("...kp,pok->...op", windows, self.weight).unflatten(-1, self.sides)
        return as_given(output if self.bias is None else output + self.bias, self.data_format)
