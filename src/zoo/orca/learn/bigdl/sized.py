"""The user's model and loss as training calls them: float inputs and labels, in the sizes that were asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.loss import _Loss

from zoo.orca.errors import BatchError, InvalidArgumentError
from zoo.orca.learn.pytorch.loss import denominator_of, explain, words
from zoo.orca.learn.pytorch.tensors import float_type

Size = Sequence[int] | Sequence[Sequence[int]] | None

#: These take the numbers of classes, one a row, as integers that count from 0.
CLASS_LOSSES = (torch.nn.CrossEntropyLoss, torch.nn.NLLLoss, torch.nn.MultiMarginLoss)
_CLASS_FUNCTIONS = (functional.cross_entropy, functional.nll_loss, functional.multi_margin_loss)


class Network(torch.nn.Module):
    """A model that takes features as data has them.

    Args:
        module: the model.
        size: that of a row's tensor; a list of sizes cuts a row's values into several tensors, one after the other.
        as_table: whether several inputs are one list (as BigDL's layers take them), or arguments of their own.

    Attributes:
        assembles: whether several columns are one input, side by side.
        raw: whether features are a loader's own tensors, to be left as they are.
        head: what becomes of the output; None leaves it.
    """

    def __init__(self, module: torch.nn.Module, size: Size = None, as_table: bool = False):
        super().__init__()
        self.module = module
        self.sizes = as_sizes(size, "feature_preprocessing")
        self.as_table = as_table
        self.assembles = False
        self.raw = False
        self.head: Callable[[Any], Any] | None = None

    def forward(self, *features: Any) -> Any:
        inputs = list(features) if self.raw else self._inputs(features)
        if len(inputs) > 1:
            output = self.module(inputs) if self.as_table else self.module(*inputs)
        else:
            output = self.module(*inputs)
        if not self.raw:
            output = with_rows(output, inputs[0].shape[0])
        return output if self.head is None else self.head(output)

    def _inputs(self, features: Sequence[Tensor]) -> list[Tensor]:
        kind = float_type([self])
        columns = [as_rows(_as_float(each, kind)) for each in features]
        if len(columns) > 1 and (self.assembles or self.sizes):
            columns = [side_by_side(columns)]
        return columns if self.sizes is None else cut(columns[0], self.sizes, "features")


class SizedLoss(torch.nn.Module):
    """A loss that takes labels as data has them.

    Args:
        loss: a module, or a function of (output, target).
        network: the model, for the regularization of its layers.
        size: that of a row's label.
    """

    def __init__(self, loss: Callable[[Any, Any], Tensor], network: Network, size: Size = None):
        super().__init__()
        self.loss = loss
        self.sizes = as_sizes(size, "label_preprocessing")
        self.assembles = False
        self.raw = False
        self._network = (network,)  # in a tuple, for it is no part of the loss
        self._last: tuple[Any, Any] | None = None  # a batch's labels as data has them, and as the loss takes them
        is_module = isinstance(loss, torch.nn.Module)
        self._wants_classes = isinstance(loss, CLASS_LOSSES) if is_module else loss in _CLASS_FUNCTIONS
        self._is_torchs = (
            type(loss).__module__ == _Loss.__module__ or getattr(loss, "__module__", "") == functional.__name__
        )

    @property
    def reduction(self) -> str:
        return getattr(self.loss, "reduction", "mean")

    def forward(self, output: Any, target: Any) -> Tensor:
        labels = self.labels(output, target)
        self._last = (target, labels)
        try:
            return self.loss(output, labels)
        except IndexError as error:
            if self._wants_classes:
                raise explain(error, output, labels) from error
            raise

    def labels(self, output: Any, target: Any) -> Any:
        """Labels as the loss takes them: float, of the size asked for, a number a row in a column of its own."""
        if self.raw:
            return target
        kind = float_type(self._network)
        if isinstance(target, list | tuple):
            columns = [as_rows(_as_float(each, kind)) for each in target]
            if not (self.assembles or self.sizes):
                return columns
            target = side_by_side(columns)
        target = as_rows(_as_float(target, kind))
        if self.sizes is not None:
            made = cut(target, self.sizes, "labels")
            target = made[0] if len(made) == 1 else made
        if self._wants_classes and isinstance(output, Tensor) and target.numel() == len(output):
            return target.reshape(-1).long()
        if self._is_torchs and isinstance(output, Tensor) and target.shape == (*output.shape, 1) and output.ndim == 1:
            return target[:, 0]  # beside a column torch would compare every row with every other
        return target

    def _orca_denominator(self, output: Any, target: Any) -> float | None:
        (known, labels), self._last = self._last or (None, None), None
        if known is not target:
            labels = self.labels(output, target)
        own = getattr(self.loss, "denominator", None)
        return denominator_of(self.loss, output, labels) if own is None else own(output, labels)

    @property
    def _orca_needs_labels(self) -> bool:
        """Whether the loss, one of torch's or BigDL's, looks at labels; functions of the user's own may not."""
        if not isinstance(self.loss, torch.nn.Module):
            return self.loss in _CLASS_FUNCTIONS
        return any(isinstance(each, _Loss) or getattr(each, "needs_labels", False) for each in self.loss.modules())

    def _orca_rows_part(self, part: float) -> None:
        if isinstance(self.loss, torch.nn.Module):
            for each in self.loss.modules():
                if hasattr(each, "rows_part"):
                    each.rows_part = part

    def _orca_penalty(self) -> Tensor | None:
        (network,) = self._network
        penalty = getattr(network.module, "penalty", None)
        return penalty() if callable(penalty) and network.as_table else None


def as_sizes(size: Size, what: str) -> list[tuple[int, ...]] | None:
    """A size, or several, as a list of sizes; None where none was asked for.

    >>> as_sizes([1, 28, 28], "feature_preprocessing"), as_sizes([[2], [3, 4]], "feature_preprocessing")
    ([(1, 28, 28)], [(2,), (3, 4)])
    """
    if size is None or len(size) == 0:
        return None
    nested = [list(each) if isinstance(each, list | tuple) else each for each in size]
    several = nested if all(isinstance(each, list) for each in nested) else [nested]
    if not all(isinstance(number, int) and number > 0 for each in several for number in each):  # type: ignore[union-attr]
        raise InvalidArgumentError(
            f"{what} must be a size, such as [1, 28, 28], or a list of sizes, such as [[2], [3, 4]], but is {size!r}."
        )
    return [tuple(each) for each in several]  # type: ignore[arg-type]


def as_rows(column: Tensor) -> Tensor:
    """A number a row as a tensor of one value a row."""
    return column.unsqueeze(1) if column.ndim == 1 else column


def with_rows(output: Any, rows: int) -> Any:
    """A model's output with a first dimension of rows, which models that squeeze lose where there is one row.

    >>> with_rows(torch.zeros(3), 1).shape, with_rows(torch.zeros(()), 1).shape, with_rows(torch.zeros(1, 3), 1).shape
    (torch.Size([1, 3]), torch.Size([1]), torch.Size([1, 3]))
    """
    if isinstance(output, list | tuple):
        return type(output)(with_rows(each, rows) for each in output) if type(output) in (list, tuple) else output
    lost = isinstance(output, Tensor) and rows == 1 and (output.ndim == 0 or output.shape[0] != 1)
    return output.unsqueeze(0) if lost else output


def side_by_side(columns: Sequence[Tensor]) -> Tensor:
    """The values of several columns, one after the other in each row."""
    return torch.cat([column.reshape(column.shape[0], -1) for column in columns], dim=1)


def cut(column: Tensor, sizes: Sequence[tuple[int, ...]], what: str) -> list[Tensor]:
    """A row's values as tensors of some sizes."""
    flat = column.reshape(column.shape[0], -1)
    widths = [math.prod(size) for size in sizes]
    if sum(widths) != flat.shape[1]:
        wanted = " and ".join(str(list(size)) for size in sizes)
        raise BatchError(
            f"the {what} have {flat.shape[1]} values a row ({words(column)}), but their preprocessing makes tensors of "
            f"{wanted} of them, {sum(widths)} values. Give the size that fits the data."
        )
    return [part.reshape(part.shape[0], *size) for part, size in zip(flat.split(widths, dim=1), sizes, strict=True)]


def _as_float(column: Tensor, kind: torch.dtype) -> Tensor:
    return column if column.is_floating_point() else column.to(kind)
