"""What every criterion is: an object over arrays, around a torch module over tensors; and how one is declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bigdl.nn.spelling import answers_spelling, check_arguments
from bigdl.util.common import JTensor
from zoo.orca.errors import InvalidArgumentError

#: Stands for an argument without a default in a declaration.
REQUIRED = inspect.Parameter.empty
# How constructors call the choice between the mean and the sum.
AVERAGES = ("size_average", "sizeAverage")


class Criterion:
    """A loss of (output, target).

    Attributes:
        module: the torch module that computes it, `module(output, target)`; several tensors are a list.

    Example:
        >>> from bigdl.nn.criterion import MSECriterion
        >>> MSECriterion().forward(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        2.0
    """

    module: torch.nn.Module
    bigdl_type = "float"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = answers_spelling(cls.__init__)  # type: ignore[method-assign]

    @property
    def value(self) -> torch.nn.Module:
        """The torch module, under the name of what used to be a handle on the JVM."""
        return self.module

    def forward(self, input: Any, target: Any) -> float:
        """The loss of an output (a list of arrays where the criterion takes several) and a target."""
        with torch.no_grad():
            return float(self.module(as_tensors(input), as_tensors(target)))

    def backward(self, input: Any, target: Any) -> Any:
        """The gradient of the loss by the output, in the output's form."""
        outputs = as_tensors(input)
        leaves = [leaf.requires_grad_() for leaf in _leaves(outputs)]
        loss = self.module(outputs, as_tensors(target))
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        found = [
            np.zeros(tuple(leaf.shape), np.float32) if each is None else each.numpy()
            for leaf, each in zip(leaves, gradients, strict=True)
        ]
        return _in_the_form_of(outputs, iter(found))

    def __call__(self, input: Any, target: Any) -> Any:
        """The loss of tensors as a tensor, or of arrays as a number."""
        tensors = isinstance(input, Tensor) or (isinstance(input, list | tuple) and isinstance(input[0], Tensor))
        return self.module(input, target) if tensors else self.forward(input, target)

    def __repr__(self) -> str:
        arguments = getattr(self, "arguments", {})
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


class Losses(torch.nn.Module):
    """A loss made of many: of each element or each row, whose mean, sum or all of them it gives.

    Args:
        function: gives the losses of (output, target, **options), or a pair of them and how much each counts.
        reduction: "mean", "sum" or "none".
        counts: gives how much each counts, without the losses, or None where all count alike.
        needs_labels: whether the function looks at the target.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        reduction: str,
        options: dict[str, Any],
        counts: Callable[..., Tensor | None] | None = None,
        needs_labels: bool = True,
    ):
        super().__init__()
        self.needs_labels = needs_labels
        self.function = function
        self.counts = counts
        self.reduction = reduction
        self.options = {name: value for name, value in options.items() if not isinstance(value, Tensor)}
        self.tensors = [name for name in options if name not in self.options]
        for name in self.tensors:  # they go where the module goes
            self.register_buffer(name, options[name], persistent=False)

    def forward(self, output: Any, target: Any) -> Tensor:
        found = self.function(output, target, **self._all_options())
        losses, counts = found if isinstance(found, tuple) else (found, None)
        if self.reduction == "none":
            return losses
        if self.reduction == "sum":
            return losses.sum()
        # Where nothing counts the loss is 0, not 0 / 0.
        return losses.mean() if counts is None else losses.sum() / counts.sum().clamp(min=1e-12)

    def denominator(self, output: Any, target: Any) -> float | None:
        """What the mean is divided by, in rows, where that is not the number of rows."""
        if self.counts is None or self.reduction != "mean":
            return None
        counts = self.counts(output, target, **self._all_options())
        return None if counts is None else float(counts.sum()) * len(counts) / counts.numel()

    def _all_options(self) -> dict[str, Any]:
        return self.options | {name: getattr(self, name) for name in self.tensors}


def declare(
    name: str,
    says: str,
    function: Callable[..., Any],
    reduction: str = "mean",
    counts: Callable[..., Tensor | None] | None = None,
    needs_labels: bool = True,
    **arguments: Any,
) -> Any:
    """A criterion that is only a mapping to a function.

    Args:
        says: what the loss is, for its docstring.
        counts, needs_labels: see `Losses`.
        arguments: what the constructor takes, with defaults. `size_average` chooses the mean or the sum; where there
            is none, `reduction` says which it is. All others are given to the function, arrays as tensors.
    """
    parameters = [
        inspect.Parameter(each, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        for each, default in arguments.items()
    ]
    signature = inspect.Signature(parameters)
    choice = next((each for each in AVERAGES if each in arguments), None)

    def construct(self: Criterion, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("bigdl_type", None)
        check_arguments(name, signature, args, kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        self.arguments = dict(bound.arguments)
        options = {each: _as_option(value) for each, value in self.arguments.items() if each not in AVERAGES}
        averages = reduction == "mean" if choice is None else self.arguments[choice]
        self.module = Losses(function, "mean" if averages else "sum", options, counts, needs_labels)

    body = {"__init__": construct, "__doc__": says, "__module__": "bigdl.nn.criterion", "__signature__": signature}
    return type(name, (Criterion,), body)


def as_tensors(values: Any) -> Any:
    """Arrays, numbers or tensors, also in lists, as float32 tensors."""
    if isinstance(values, list | tuple) and any(isinstance(each, np.ndarray | Tensor | JTensor) for each in values):
        return [as_tensors(each) for each in values]
    if isinstance(values, JTensor):
        values = values.to_ndarray()
    if isinstance(values, Tensor):
        return values.detach().float().clone()
    try:
        return torch.from_numpy(np.array(values, dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"Expected arrays or numbers, got {values!r}: {error}") from error


def _as_option(value: Any) -> Any:
    if isinstance(value, JTensor):
        value = value.to_ndarray()
    return torch.as_tensor(value, dtype=torch.float32) if isinstance(value, np.ndarray | Tensor | list) else value


def _leaves(values: Any) -> list[Tensor]:
    return [leaf for each in values for leaf in _leaves(each)] if isinstance(values, list) else [values]


def _in_the_form_of(values: Any, found: Any) -> Any:
    return [_in_the_form_of(each, found) for each in values] if isinstance(values, list) else next(found)
