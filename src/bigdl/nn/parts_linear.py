"""Modules with weights that are multiplied, added, compared or looked up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as fn

from bigdl.nn.functions_value import normalize
from bigdl.nn.initialization_method import ConstInitMethod, Ones, RandomNormal, Xavier, Zeros
from bigdl.nn.parts import Part, Table
from bigdl.util.common import DOUBLEMAX
from zoo.orca.errors import BatchError, InvalidArgumentError


class Linear(Part):
    quantizable = True

    def __init__(self, input_size: int, output_size: int, with_bias: bool = True):
        super().__init__()
        fans = (input_size, output_size)
        self.add_weight("weight", (output_size, input_size), fans)
        self.add_bias("bias", output_size, fans, with_bias)

    def forward(self, x: Tensor) -> Tensor:
        return fn.linear(x, self.weight, self.bias)


class SparseLinear(Linear):
    """A Linear whose input learns only within a part of it."""

    quantizable = False

    def __init__(self, input_size: int, output_size: int, with_bias: bool, backwardStart: int, backwardLength: int):
        super().__init__(input_size, output_size, with_bias)
        self.backward_part = (backwardStart - 1, backwardLength)

    def forward(self, x: Tensor) -> Tensor:
        start, length = self.backward_part
        if start >= 0 and length > 0:
            before, middle, after = x.split([start, length, x.shape[-1] - start - length], dim=-1)
            x = torch.cat([before.detach(), middle, after.detach()], dim=-1)
        return super().forward(x)


class Bilinear(Part):
    def __init__(self, input_size1: int, input_size2: int, output_size: int, bias_res: bool):
        super().__init__()
        fans = (input_size1, output_size)
        self.add_weight("weight", (output_size, input_size1, input_size2), fans)
        self.add_bias("bias", output_size, fans, bias_res)

    def forward(self, x: Table) -> Tensor:
        return fn.bilinear(x[0], x[1], self.weight, self.bias)


class Cosine(Part):
    def __init__(self, input_size: int, output_size: int):
        super().__init__()
        self.add_weight("weight", (output_size, input_size), (input_size, output_size))

    def forward(self, x: Tensor) -> Tensor:
        return fn.linear(fn.normalize(x, dim=-1), fn.normalize(self.weight, dim=-1))


class Euclidean(Part):
    def __init__(self, input_size: int, output_size: int):
        super().__init__()
        self.add_weight("weight", (input_size, output_size), (input_size, output_size))

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x.unsqueeze(-1) - self.weight, dim=-2)


class Add(Part):
    def __init__(self, input_size: int):
        super().__init__()
        self.add_bias("bias", input_size, (input_size, input_size))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class CAdd(Part):
    def __init__(self, size: Sequence[int]):
        super().__init__()
        self.add_weight("bias", size, (math.prod(size), math.prod(size)))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class Mul(Part):
    def __init__(self) -> None:
        super().__init__()
        self.add_weight("weight", (1,))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class CMul(Part):
    def __init__(self, size: Sequence[int]):
        super().__init__()
        self.add_weight("weight", size, (math.prod(size), math.prod(size)))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Scale(Part):
    def __init__(self, size: Sequence[int]):
        super().__init__()
        fans = (math.prod(size), math.prod(size))
        self.add_weight("weight", size, fans)
        self.add_weight("bias", size, fans)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


class NormalizeScale(Part):
    def __init__(self, p: float, scale: float, size: Sequence[int], eps: float):
        super().__init__()
        self.p, self.eps = p, eps
        self.add_weight("weight", size, init=ConstInitMethod(scale))

    def forward(self, x: Tensor) -> Tensor:
        return normalize(x, self.p, self.eps) * self.weight


class LookupTable(Part):
    def __init__(self, n_index: int, n_output: int, padding_value: float, max_norm: float, norm_type: float,
                 should_scale_grad_by_freq: bool):  # fmt: skip
        super().__init__()
        self.padding = int(padding_value) - 1 if padding_value > 0 else None
        self.max_norm = None if max_norm >= DOUBLEMAX else max_norm
        self.norm_type = norm_type
        self.by_frequency = should_scale_grad_by_freq
        self.add_weight("weight", (n_index, n_output), (n_index, n_output), RandomNormal(0.0, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        ids = x.long()
        highest = len(self.weight)
        if ids.numel() and not (int(ids.min()) >= 1 and int(ids.max()) <= highest):
            raise BatchError(
                f"LookupTable has rows 1 to {highest} (n_index), but ids from {int(ids.min())} to {int(ids.max())} "
                "came."
            )
        return fn.embedding(ids - 1, self.weight, self.padding, self.max_norm, self.norm_type, self.by_frequency)


class PReLU(Part):
    def __init__(self, n_output_plane: int):
        super().__init__()
        self.add_weight("weight", (max(n_output_plane, 1),), init=ConstInitMethod(0.25))

    def forward(self, x: Tensor) -> Tensor:
        if len(self.weight) > 1 and x.dim() in (1, 3):
            return fn.prelu(x.unsqueeze(0), self.weight).squeeze(0)
        return fn.prelu(x, self.weight)


class SReLU(Part):
    def __init__(self, input_shape: Sequence[int], shared_axes: Sequence[int] | None):
        super().__init__()
        shape = [1 if at + 1 in (shared_axes or ()) else side for at, side in enumerate(input_shape)]
        fans = (math.prod(shape), math.prod(shape))
        for name, init in (("t_left", Zeros()), ("a_left", Xavier()), ("t_right", Xavier()), ("a_right", Ones())):
            self.add_weight(name, shape, fans, init)

    def forward(self, x: Tensor) -> Tensor:
        above = self.t_right + self.a_right * (x - self.t_right)
        below = self.t_left + self.a_left * (x - self.t_left)
        return torch.where(x >= self.t_right, above, torch.where(x <= self.t_left, below, x))


class Maxout(Part):
    def __init__(self, input_size: int, output_size: int, maxout_number: int, with_bias: bool):
        super().__init__()
        fans = (input_size, output_size * maxout_number)
        self.pieces = maxout_number
        self.add_weight("weight", (maxout_number * output_size, input_size), fans)
        self.add_bias("bias", maxout_number * output_size, fans, with_bias)

    def forward(self, x: Tensor) -> Tensor:
        pieces = fn.linear(x, self.weight, self.bias)
        return pieces.reshape(*x.shape[:-1], self.pieces, -1).amax(dim=-2)


class Highway(Part):
    def __init__(self, size: int, with_bias: bool, activation: Any):
        super().__init__()
        self.activation = None if activation is None else activation.module
        for gate in ("", "_gate"):
            self.add_weight(f"weight{gate}", (size, size), (size, size))
            self.add_bias(f"bias{gate}", size, (size, size), with_bias)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(fn.linear(x, self.weight_gate, self.bias_gate))
        carried = fn.linear(x, self.weight, self.bias)
        carried = torch.tanh(carried) if self.activation is None else self.activation(carried)
        return gate * carried + (1 - gate) * x


class FeedForward(Part):
    """Two linear layers with ReLU and dropout between them, as in a transformer."""

    def __init__(self, hidden_size: int, filter_size: int, relu_dropout: float):
        super().__init__()
        self.p = relu_dropout
        self.inner = Linear(hidden_size, filter_size)
        self.outer = Linear(filter_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(fn.dropout(fn.relu(self.inner(x)), self.p, self.training))


class Attention(Part):
    """What queries find among keys, with several heads: a table of (queries, keys, bias of each pair)."""

    def __init__(self, hidden_size: int, num_heads: int, attention_dropout: float):
        super().__init__()
        if hidden_size % num_heads:
            raise InvalidArgumentError(f"num_heads={num_heads} must divide hidden_size={hidden_size}")
        self.heads, self.p = num_heads, attention_dropout
        self.query, self.key, self.given, self.out = (Linear(hidden_size, hidden_size, False) for _ in range(4))

    def forward(self, x: Table) -> Tensor:
        queries, keys, bias = x
        query, key, value = self._split(self.query(queries)), self._split(self.key(keys)), self._split(self.given(keys))
        found = fn.scaled_dot_product_attention(query, key, value, bias, self.p if self.training else 0.0)
        return self.out(found.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        """(batch, length, size) to (batch, head, length, size of a head)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
