"""Functions behind the layers that take a table of tensors, or give one."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as fn

from bigdl.nn.parts import Table, axis, leaves
from bigdl.util.common import INTMAX
from zoo.orca.errors import InvalidArgumentError


def add(x: Table) -> Tensor:
    return functools.reduce(torch.add, x)


def multiply(x: Table) -> Tensor:
    return functools.reduce(torch.mul, x)


def highest(x: Table) -> Tensor:
    return functools.reduce(torch.maximum, x)


def lowest(x: Table) -> Tensor:
    return functools.reduce(torch.minimum, x)


def average(x: Table) -> Tensor:
    return add(x) / len(x)


def join(x: Table, dimension: int, n_input_dims: int) -> Tensor:
    return torch.cat(x, dim=axis(x[0], dimension, n_input_dims))


def split(x: Tensor, dimension: int, n_input_dims: int) -> Table:
    return list(x.unbind(axis(x, dimension, n_input_dims)))


def bifurcate(x: Tensor, dimension: int) -> Table:
    at = axis(x, dimension)
    half = x.shape[at] // 2
    return list(x.split([half, x.shape[at] - half], dim=at))


def narrow(x: Table, offset: int, length: int) -> Any:
    end = offset - 1 + length if length > 0 else len(x) + length + 1
    return x[offset - 1 : end]


def select(x: Table, index: int) -> Any:
    if index == 0 or abs(index) > len(x):
        raise InvalidArgumentError(f"SelectTable: index {index} is not among 1 to {len(x)}, the size of the table.")
    return x[index - 1 if index > 0 else index]


def mixture(x: Table, dim: int) -> Tensor:
    gate, experts = x
    at = gate.dim() - 1 if dim == INTMAX else dim - 1
    stacked = torch.stack(experts, dim=at) if isinstance(experts, list) else experts
    shape = [side if each <= at else 1 for each, side in enumerate([*gate.shape, *[1] * (stacked.dim() - gate.dim())])]
    return (stacked * gate.reshape(shape)).sum(dim=at)


def dot(x: Table) -> Tensor:
    return _rows((x[0] * x[1]).sum(dim=-1))


def cosine(x: Table) -> Tensor:
    return _rows(fn.cosine_similarity(x[0], x[1], dim=-1))


def distance(x: Table, norm: int) -> Tensor:
    return _rows(torch.linalg.vector_norm(x[0] - x[1], ord=norm, dim=-1))


def _rows(x: Tensor) -> Tensor:
    return x.reshape(1) if x.dim() == 0 else x


def matrix_product(x: Table, trans_a: bool, trans_b: bool) -> Tensor:
    first, second = x
    return (first.mT if trans_a else first) @ (second.mT if trans_b else second)


def vector_product(x: Table, trans: bool) -> Tensor:
    matrix, vector = x
    return ((matrix.mT if trans else matrix) @ vector.unsqueeze(-1)).squeeze(-1)


def cross_product(x: Table, numTensor: int, embeddingSize: int) -> Tensor:
    if numTensor > 0 and len(x) != numTensor:
        raise InvalidArgumentError(f"CrossProduct expected {numTensor} tensors, got {len(x)}")
    if embeddingSize > 0 and x[0].shape[-1] != embeddingSize:
        raise InvalidArgumentError(f"CrossProduct expected tensors of size {embeddingSize}, got {x[0].shape[-1]}")
    return torch.stack([(a * b).sum(dim=-1) for a, b in itertools.combinations(x, 2)], dim=-1)


def pack(x: Any, dimension: int) -> Tensor:
    return torch.stack(x if isinstance(x, list) else [x], dim=dimension - 1)


def masked_select(x: Table) -> Tensor:
    values, mask = x
    return values[mask.bool()]


def index(x: Table, dimension: int) -> Tensor:
    values, indices = x
    return values.index_select(axis(values, dimension), indices.long() - 1)


def flatten(x: Table) -> Table:
    return leaves(x)


def sample(x: Table) -> Tensor:
    centre, log_variance = x
    return centre + (log_variance / 2).exp() * torch.randn_like(centre)
