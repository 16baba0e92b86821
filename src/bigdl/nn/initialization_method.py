"""How the weights of layers begin.

>>> from bigdl.nn.layer import Linear
>>> Linear(3, 2).set_init_method(Xavier(), Zeros()).get_weights()[1].tolist()
[0.0, 0.0]
"""

# ruff: noqa: E402 - what is missing is said first
from __future__ import annotations

from zoo.orca.optional import require

require("torch", "bigdl.nn.initialization_method")

import math
from typing import Any

import torch
from torch import Tensor

from bigdl.nn.spelling import answers_spelling
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.names import public_names

__all__ = [
    "BilinearFiller",
    "ConstInitMethod",
    "InitializationMethod",
    "MsraFiller",
    "Ones",
    "RandomNormal",
    "RandomUniform",
    "Xavier",
    "Zeros",
]


class InitializationMethod:
    """Fills a tensor of weights; `fans` are how many values come into an output, and go out of an input."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = answers_spelling(cls.__init__)  # type: ignore[method-assign]

    def fill(self, tensor: Tensor, fans: tuple[int, int]) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how to fill a tensor")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class ConstInitMethod(InitializationMethod):
    """One value everywhere.

    Example: ``Linear(3, 2).set_init_method(ConstInitMethod(0.1))``
    """

    def __init__(self, value: float, bigdl_type: str = "float"):
        self.value = value

    def fill(self, tensor: Tensor, fans: tuple[int, int]) -> None:
        tensor.fill_(self.value)


class Zeros(InitializationMethod):
    """Zero everywhere."""

    def __init__(self, bigdl_type: str = "float"):
        pass

    def fill(self, tensor: Tensor, fans: tuple[int, int]) -> None:
        tensor.zero_()


class Ones(InitializationMethod):
    """One everywhere."""

    def __init__(self, bigdl_type: str = "float"):
        pass

    def fill(self, tensor: Tensor, fans: tuple[int, int]) -> None:
        tensor.fill_(1.0)


class RandomUniform(InitializationMethod):
    """Evenly spread between two limits; without limits, between -1 and 1 over the root of the incoming values.

    BigDL has the upper limit first; the limits are told apart by their size, so either order does.
    """

    def __init__(self, upper: float | None = None, lower: float | None = None, bigdl_type: str = "float"):
        if (upper is None) != (lower is None):
            raise InvalidArgumentError(f"Expected both limits or none, got upper={upper}, lower={lower}")
        self.upper = upper
        self.lower = lower

    def fill(self, tensor: Tensor, fans: tuple[int, int]) -> None:
        if self.upper is None or self.lower is None:
            limit = 1.0 / math.sqrt(max(fans[0], 1))
            tensor.uniform_(-limit, limit)
        else:
            tensor.uniform_(min(self.lower, self.upper), max(self.lower, self.upper))


class RandomNormal(InitializationMethod):
    """Normally distributed around a mean."""

    def __init__(self, mean: float, stdv: float, bigdl_type: str = "float"):
        self.mean = mean
        self.stdv = stdv

    def fill(self, tensor: Tensor, fans: tuple[int, int]) -> None:
        tensor.normal_(self.mean, self.stdv)


class Xavier(InitializationMethod):
    """Evenly spread, so wide that values neither grow nor shrink on their way through layers like this one."""

    def __init__(self, bigdl_type: str = "float"):
        pass

    def fill(self, tensor: Tensor, fans: tuple[int, int]) -> None:
        limit = math.sqrt(6.0 / max(fans[0] + fans[1], 1))
        tensor.uniform_(-limit, limit)


class MsraFiller(InitializationMethod):
    """Normally distributed, for layers that ReLU follows.

    Args:
        varianceNormAverage: count the mean of incoming and outgoing values, not the incoming ones alone.
    """

    def __init__(self, varianceNormAverage: bool = True, bigdl_type: str = "float"):
        self.varianceNormAverage = varianceNormAverage

    def fill(self, tensor: Tensor, fans: tuple[int, int]) -> None:
        counted = (fans[0] + fans[1]) / 2 if self.varianceNormAverage else fans[0]
        tensor.normal_(0.0, math.sqrt(2.0 / max(counted, 1)))


class BilinearFiller(InitializationMethod):
    """The kernel of a bilinear interpolation, for transposed convolutions that enlarge an image."""

    def __init__(self, bigdl_type: str = "float"):
        pass

    def fill(self, tensor: Tensor, fans: tuple[int, int]) -> None:
        if tensor.dim() < 4 or tensor.shape[-1] != tensor.shape[-2]:
            raise InvalidArgumentError(
                f"BilinearFiller fills square kernels of two-dimensional convolutions, not weights of shape "
                f"{tuple(tensor.shape)}"
            )
        size = tensor.shape[-1]
        factor = math.ceil(size / 2)
        centre = (2 * factor - 1 - factor % 2) / (2.0 * factor)
        weights = 1 - (torch.arange(size, dtype=tensor.dtype) / factor - centre).abs()
        tensor.copy_(weights[:, None] * weights[None, :])


__dir__ = public_names(globals())
