"""The torch modules below layers: tensors in, tensors out, a list of tensors where BigDL says table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from bigdl.nn.initialization_method import InitializationMethod, RandomUniform
from zoo.orca.errors import BatchError, InvalidArgumentError

Table = list[Any]


@dataclass(frozen=True)
class Spec:
    """How a weight begins, and the shape that BigDL shows it in."""

    fans: tuple[int, int]
    init: InitializationMethod
    shown: tuple[int, ...]


#: What the names of parameters begin with, and which regularizer they have; all others are weights, "w".
ROLES = {"bias": "b", "hidden_weight": "u", "point_weight": "p", "cell_weight": "c"}


def role(name: str) -> str:
    """Whether a parameter is a bias ("b"), a weight of a hidden state ("u"), of a cell ("c"), or another ("w")."""
    return next((found for start, found in ROLES.items() if name.startswith(start)), "w")


class Part(nn.Module):
    """The module of a layer of ours, with weights that know how they begin.

    Attributes:
        layer_name: the name of the layer that the module belongs to.
        regularizers: {role of weights: (l1, l2)}.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layer_name = ""
        self.specs: dict[str, Spec] = {}
        self.init_methods: dict[str, InitializationMethod] = {}
        self.regularizers: dict[str, tuple[float, float]] = {}

    def add_weight(
        self,
        name: str,
        shape: Iterable[int],
        fans: tuple[int, int] = (1, 1),
        init: InitializationMethod | None = None,
        shown: Iterable[int] | None = None,
    ) -> None:
        """Make a weight and fill it; without a method it is uniform within 1 / sqrt(fan in), as in Torch7."""
        shape = tuple(shape)
        if not all(isinstance(side, Integral) and side > 0 for side in shape):
            raise InvalidArgumentError(
                f"{type(self).__name__}: sizes must be whole numbers from 1 on, but give a {name} of shape {shape}"
            )
        weight = nn.Parameter(torch.empty(*map(int, shape)))
        self.specs[name] = Spec(fans, init or RandomUniform(), tuple(shown or shape))
        self.register_parameter(name, weight)
        self._fill(name)

    def add_bias(self, name: str, size: int, fans: tuple[int, int], wanted: bool = True) -> None:
        """Make a bias like a weight, or none."""
        if wanted:
            self.add_weight(name, (size,), fans)
        else:
            self.register_parameter(name, None)

    def reset(self) -> None:
        """Fill the weights anew."""
        for name in self.specs:
            self._fill(name)

    def _fill(self, name: str) -> None:
        spec = self.specs[name]
        with torch.no_grad():
            self.init_methods.get(role(name), spec.init).fill(getattr(self, name), spec.fans)

    def penalty(self) -> Tensor | None:
        """The sum of l1 * |w| + l2 / 2 * w * w over the regularized weights here and below; None without any."""
        terms = [l1 * weight.abs().sum() + l2 / 2 * weight.square().sum() for weight, (l1, l2) in regularized(self)]
        return torch.stack(terms).sum() if terms else None


def regularized(module: nn.Module) -> list[tuple[Tensor, tuple[float, float]]]:
    """The weights below a module that have a regularizer, each once, and frozen ones left out."""
    found = []
    for part in module.modules():
        rates = getattr(part, "regularizers", None)
        if not rates:  # as almost everywhere: this is asked at each step
            continue
        for name, weight in part.named_parameters(recurse=False):
            if role(name) in rates and weight.requires_grad:
                found.append((weight, rates[role(name)]))
    return found


class Apply(Part):
    """A function of the catalogue, with its arguments: a layer without weights."""

    def __init__(self, row: Any, arguments: dict[str, Any]):
        super().__init__()
        self.row = row
        self.arguments = arguments

    def forward(self, x: Any) -> Any:
        if self.row.wants_table and not isinstance(x, list | tuple):
            raise BatchError(f"{self.row.name} takes a list of tensors, got one of shape {tuple(x.shape)}")
        if self.row.wants_mode:
            return self.row.make(x, **self.arguments, training=self.training)
        return self.row.make(x, **self.arguments)

    def extra_repr(self) -> str:
        return ", ".join([self.row.name, *(f"{name}={value!r}" for name, value in self.arguments.items())])


def call(module: nn.Module, x: Any) -> Any:
    """What a module gives; one that is not ours takes the tensors of a list as arguments."""
    return module(*x) if isinstance(x, list) and not isinstance(module, Part) else module(x)


def map_table(function: Callable[[Any], Any], values: Any) -> Any:
    """What a function gives for each leaf of nested lists."""
    return [map_table(function, each) for each in values] if isinstance(values, list | tuple) else function(values)


def leaves(values: Any) -> list[Any]:
    """The leaves of nested lists, in order."""
    return [leaf for each in values for leaf in leaves(each)] if isinstance(values, list | tuple) else [values]


def axis(x: Tensor, dimension: int, n_input_dims: int = 0) -> int:
    """The dimension of torch that BigDL's means: from 1, negative from the end.

    Where `n_input_dims` says how many dimensions one record has, a batch's own comes before them and does not count.
    """
    if dimension < 0:
        return x.dim() + dimension
    return dimension - 1 + (1 if 0 < n_input_dims < x.dim() else 0)
