"""Criterions made of criterions: weighted sums, one a table entry, one a time step, and layers in front of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bigdl.nn.criterion_base import Criterion
from zoo.orca.errors import BatchError, InvalidArgumentError
from zoo.orca.learn.pytorch.loss import words


class Parts(torch.nn.Module):
    """A weighted sum of losses, each of its own part of (output, target).

    Attributes:
        rows_part: which part of a whole batch's rows are here; training says so. Where some losses are sums and others
            means, all ranks' losses are averaged by their rows, so that sums must be so much larger.
    """

    def __init__(self) -> None:
        super().__init__()
        self.members = torch.nn.ModuleList()
        self.weights: list[float] = []
        self.rows_part = 1.0

    def add(self, member: torch.nn.Module, weight: float) -> None:
        self.members.append(member)
        self.weights.append(weight)

    @property
    def reduction(self) -> str:
        """A sum over rows if all parts are; else the ranks' losses are taken as means over their rows."""
        kinds = set(map(_reduction, self.members))
        return kinds.pop() if len(kinds) == 1 else "mean"

    def parts(self, output: Any, target: Any) -> list[tuple[Any, Any]]:
        """What each part is given."""
        return [(output, target)] * len(self.members)

    def forward(self, output: Any, target: Any) -> Tensor:
        if not self.members:
            raise InvalidArgumentError("There is no criterion yet: add one, for example with add(MSECriterion()).")
        given = zip(self.members, self._factors(), self.parts(output, target), strict=True)
        return torch.stack([factor * member(*part) for member, factor, part in given]).sum()

    def _factors(self) -> list[float]:
        if self.reduction == "sum" or not self.rows_part:
            return self.weights
        sums = [_reduction(member) == "sum" for member in self.members]
        return [
            weight / self.rows_part if is_sum else weight for weight, is_sum in zip(self.weights, sums, strict=True)
        ]

    def denominator(self, output: Any, target: Any) -> float | None:
        """What all parts are divided by; where they differ they are taken as means over rows."""
        given = zip(self.members, self.parts(output, target), strict=True)
        return _common([_denominator(member, *part) for member, part in given])


class TableParts(Parts):
    """Each loss has one entry of the output table, and one of the target table or the one target."""

    def __init__(self, repeat_target: bool):
        super().__init__()
        self.repeat_target = repeat_target

    def parts(self, output: Any, target: Any) -> list[tuple[Any, Any]]:
        count = len(self.members)
        targets = [target] * count if self.repeat_target else target
        for what, values in (("outputs", output), ("targets", targets)):
            if not isinstance(values, list | tuple) or len(values) != count:
                raise BatchError(
                    f"ParallelCriterion has {count} criterions, so it needs a list of {count} {what}, got "
                    f"{words(values)}. With one target for all of them type: ParallelCriterion(repeat_target=True)."
                )
        return list(zip(output, targets, strict=True))


class TimeSteps(torch.nn.Module):
    """A loss of each time step, summed or averaged over them."""

    def __init__(self, criterion: torch.nn.Module, averages: bool, dimension: int):
        super().__init__()
        self.criterion = criterion
        self.averages = averages
        self.dimension = dimension

    @property
    def reduction(self) -> str:
        return _reduction(self.criterion)

    def steps(self, output: Tensor, target: Tensor) -> list[tuple[Tensor, Tensor]]:
        """(output, target) of each time step."""
        axis = self.dimension - 1
        if output.ndim <= axis or target.ndim <= axis or output.shape[axis] != target.shape[axis]:
            raise BatchError(
                f"TimeDistributedCriterion needs as many time steps in the labels as in the output, in dimension "
                f"{self.dimension}, got {words(output)} and {words(target)}."
            )
        return list(zip(output.unbind(axis), target.unbind(axis), strict=True))

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        losses = torch.stack([self.criterion(*step) for step in self.steps(output, target)])
        return losses.mean() if self.averages else losses.sum()

    def denominator(self, output: Tensor, target: Tensor) -> float | None:
        return _common([_denominator(self.criterion, *step) for step in self.steps(output, target)])


class MaskedSteps(torch.nn.Module):
    """The loss of the time steps that are not padding."""

    def __init__(self, criterion: torch.nn.Module, padding_value: float):
        super().__init__()
        self.criterion = criterion
        self.padding_value = padding_value

    @property
    def reduction(self) -> str:
        return _reduction(self.criterion)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        counts = self._counts(output, target)
        if not counts.any():
            return output.sum() * 0
        return self.criterion(output.flatten(0, 1)[counts], target.flatten(0, 1)[counts])

    def denominator(self, output: Tensor, target: Tensor) -> float | None:
        counts = self._counts(output, target)
        own = _denominator(self.criterion, output.flatten(0, 1)[counts], target.flatten(0, 1)[counts])
        return (float(counts.sum()) if own is None else own) / output.shape[1]

    def _counts(self, output: Tensor, target: Tensor) -> Tensor:
        """Which of all rows' time steps count."""
        if output.ndim < 2 or target.shape[:2] != output.shape[:2]:
            raise BatchError(
                "TimeDistributedMaskCriterion needs an output and labels of (rows, time steps, ...), got "
                f"{words(output)} and {words(target)}."
            )
        return (target.flatten(0, 1).reshape(output.shape[0] * output.shape[1], -1) != self.padding_value).any(1)


class Transformed(torch.nn.Module):
    """A loss of what layers make of output and target."""

    def __init__(self, criterion: torch.nn.Module, of_output: Any, of_target: Any):
        super().__init__()
        self.criterion = criterion
        self.of_output = of_output
        self.of_target = of_target

    @property
    def reduction(self) -> str:
        return _reduction(self.criterion)

    def both(self, output: Any, target: Any) -> tuple[Any, Any]:
        """Output and target as the loss is given them; targets need no gradient."""
        with torch.no_grad():
            target = target if self.of_target is None else self.of_target(target)
        return output if self.of_output is None else self.of_output(output), target

    def forward(self, output: Any, target: Any) -> Tensor:
        return self.criterion(*self.both(output, target))

    def denominator(self, output: Any, target: Any) -> float | None:
        return _denominator(self.criterion, *self.both(output, target))


class MultiCriterion(Criterion):
    """A weighted sum of criterions of one output and one target.

    Several workers train as one process does, unless the means of its criterions are divided by different things (class
    weights of one alone, say): these are averaged by rows.

    Example: ``MultiCriterion().add(MSECriterion()).add(AbsCriterion(), 0.5)``
    """

    def __init__(self) -> None:
        self.module = Parts()

    def add(self, criterion: Criterion, weight: float = 1.0) -> MultiCriterion:
        """Add a criterion, which counts so much; gives this one."""
        self.module.add(module_of(criterion), weight)
        return self


class ParallelCriterion(Criterion):
    """A weighted sum of criterions, the first of the first output and target, and so on.

    What MultiCriterion says of several workers holds here, too.

    Example: ``ParallelCriterion().add(ClassNLLCriterion(), 0.5).add(MSECriterion())``
    """

    def __init__(self, repeat_target: bool = False) -> None:
        self.module = TableParts(repeat_target)

    def add(self, criterion: Criterion, weight: float = 1.0) -> ParallelCriterion:
        """Add a criterion of the next output, which counts so much; gives this one."""
        self.module.add(module_of(criterion), weight)
        return self


class TimeDistributedCriterion(Criterion):
    """A criterion of each time step, summed over them, or averaged if `size_average`; `dimension` counts from 1.

    Each time step has its own mean. Where those are divided by different things (class weights, labels left out),
    workers are averaged by rows, which is not exact; the one mean of TimeDistributedMaskCriterion is.

    Example: ``TimeDistributedCriterion(ClassNLLCriterion(), True)``
    """

    def __init__(self, criterion: Criterion, size_average: bool = False, dimension: int = 2) -> None:
        if dimension < 2:
            raise InvalidArgumentError(f"Expected dimension to be 2 or more, for 1 counts the rows, got {dimension}")
        self.module = TimeSteps(module_of(criterion), size_average, dimension)


class TimeDistributedMaskCriterion(Criterion):
    """The mean of a criterion over the time steps whose label is not `padding_value`.

    Example: ``TimeDistributedMaskCriterion(ClassNLLCriterion(), padding_value=0)``
    """

    def __init__(self, criterion: Criterion, padding_value: int = 0) -> None:
        self.module = MaskedSteps(module_of(criterion), padding_value)


class TransformerCriterion(Criterion):
    """A criterion of what layers make of the output and of the target; None leaves them as they are.

    Example: ``TransformerCriterion(MSECriterion(), input_transformer=features, target_transformer=features)``
    """

    def __init__(self, criterion: Criterion, input_transformer: Any = None, target_transformer: Any = None) -> None:
        transformers = [getattr(each, "module", each) for each in (input_transformer, target_transformer)]
        self.module = Transformed(module_of(criterion), *transformers)


def module_of(criterion: Any) -> torch.nn.Module:
    """The torch module of a criterion, or a torch loss as it is."""
    module = getattr(criterion, "module", criterion)
    if isinstance(module, torch.nn.Module):
        return module
    raise InvalidArgumentError(
        f"Expected a criterion, such as MSECriterion(), or a torch loss, got a {type(criterion).__name__}."
    )


def _reduction(member: torch.nn.Module) -> str:
    return getattr(member, "reduction", "mean")


def _denominator(member: torch.nn.Module, output: Any, target: Any) -> float | None:
    asked: Callable[..., float | None] | None = getattr(member, "denominator", None)
    return asked(output, target) if asked is not None else None


def _common(found: Sequence[float | None]) -> float | None:
    """What several denominators have in common: themselves, where they are the same."""
    return found[0] if len(set(found)) == 1 else None
