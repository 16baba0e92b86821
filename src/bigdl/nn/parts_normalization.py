"""Modules that bring values to a common scale: over a batch, a record, or the neighbourhood of a value."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as fn

from bigdl.nn.initialization_method import Ones, RandomUniform, Zeros
from bigdl.nn.parts import Part
from bigdl.nn.parts_convolution import as_given, channels_first, check_format
from zoo.orca.errors import InvalidArgumentError


class BatchNorm(Part):
    """Over the batch and all places of a channel; its weights begin between 0 and 1, as in Torch7."""

    #: Of an input with a batch.
    dims: tuple[int, ...] = (2,)

    def __init__(self, n_output: int, eps: float, momentum: float, affine: bool, data_format: str = "NCHW"):
        super().__init__()
        self.eps, self.momentum, self.data_format = eps, momentum, data_format
        self.register_buffer("running_mean", torch.zeros(n_output))
        self.register_buffer("running_var", torch.ones(n_output))
        self.weight: Any
        if affine:
            self.add_weight("weight", (n_output,), init=RandomUniform(1.0, 0.0))
            self.add_weight("bias", (n_output,), init=Zeros())
        else:
            self.register_parameter("weight", None)
            self.register_parameter("bias", None)

    def forward(self, x: Tensor) -> Tensor:
        batched = x.dim() in self.dims
        x = channels_first(x if batched else x.unsqueeze(0), self.data_format)
        output = fn.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, self.momentum, self.eps
        )
        output = as_given(output, self.data_format)
        return output if batched else output.squeeze(0)


class SpatialBatchNorm(BatchNorm):
    dims = (4,)


class VolumetricBatchNorm(BatchNorm):
    dims = (5,)


class LayerNorm(Part):
    def __init__(self, hidden_size: int):
        super().__init__()
        self.size = hidden_size
        self.add_weight("weight", (hidden_size,), init=Ones())
        self.add_weight("bias", (hidden_size,), init=Zeros())

    def forward(self, x: Tensor) -> Tensor:
        return fn.layer_norm(x, (self.size,), self.weight, self.bias, eps=1e-6)


def cross_map(x: Tensor, size: int, alpha: float, beta: float, k: float, data_format: str) -> Tensor:
    x = channels_first(x, check_format(data_format))
    if x.dim() == 3:
        return as_given(fn.local_response_norm(x.unsqueeze(0), size, alpha, beta, k).squeeze(0), data_format)
    return as_given(fn.local_response_norm(x, size, alpha, beta, k), data_format)


def within_channel(x: Tensor, size: int, alpha: float, beta: float) -> Tensor:
    return x * (1 + alpha * fn.avg_pool2d(x.square(), size, 1, (size - 1) // 2)).pow(-beta)


class Neighbourhood(Part):
    """Weighs the neighbourhood of each place, over all planes; at the borders only what is inside counts."""

    def __init__(self, n_input_plane: int, kernel: Any):
        super().__init__()
        kernel = torch.ones(9, 9) if kernel is None else torch.as_tensor(kernel, dtype=torch.float32)
        if kernel.dim() == 1:
            kernel = kernel[:, None] * kernel[None, :]
        if kernel.dim() != 2 or not all(side % 2 for side in kernel.shape):
            raise InvalidArgumentError(f"Expected a kernel with odd sides, got one of shape {tuple(kernel.shape)}")
        weight = (kernel / (kernel.sum() * n_input_plane)).expand(1, n_input_plane, *kernel.shape)
        self.register_buffer("kernel", weight.clone(), persistent=False)

    def mean(self, x: Tensor) -> Tensor:
        return fn.conv2d(x, self.kernel, padding=tuple(side // 2 for side in self.kernel.shape[-2:]))

    def share(self, x: Tensor) -> Tensor:
        """How much of the kernel is inside, at each place."""
        return self.mean(torch.ones_like(x))


class Subtractive(Neighbourhood):
    def forward(self, x: Tensor) -> Tensor:
        return x - self.mean(x) / self.share(x)


class Divisive(Neighbourhood):
    def __init__(self, n_input_plane: int, kernel: Any, threshold: float, thresval: float):
        super().__init__(n_input_plane, kernel)
        self.limits = (threshold, thresval)

    def forward(self, x: Tensor) -> Tensor:
        return x / fn.threshold(self.mean(x.square()).sqrt() / self.share(x), *self.limits)


class Contrastive(Part):
    def __init__(self, n_input_plane: int, kernel: Any, threshold: float, thresval: float):
        super().__init__()
        self.subtract = Subtractive(n_input_plane, kernel)
        self.divide = Divisive(n_input_plane, kernel, threshold, thresval)

    def forward(self, x: Tensor) -> Tensor:
        return self.divide(self.subtract(x))
