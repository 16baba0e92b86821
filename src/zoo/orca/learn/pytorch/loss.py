"""The user's loss, and by what its mean was taken, so that ranks can be combined exactly."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoo.orca.errors import BatchError, InvalidArgumentError


class Criterion:
    """Calls the user's loss and remembers the last batch's denominator.

    Attributes:
        row_weights: a weight for each row of the batch in hand, or None.
        denominator: what the last loss was divided by, when that is not the number of rows: the sum of class weights,
            of rows not ignored, or of row weights; None for a plain mean.
        tell: called with (loss, denominator) after each call, if set.
        is_sum: whether the loss is a sum over rows, not a mean.
        context: makes what the loss is computed in (autocast).
        rows_part: which part of the rows of a whole batch this rank's are.

    A loss of ours may know more, as methods: `_orca_denominator(output, target)`, what its mean divides by if not the
    rows; `_orca_penalty()`, a tensor or None: regularization, of which the gradient counts, and not the value; and
    `_orca_rows_part(part)`, which is told `rows_part` before each call, or 1 where nothing is learned.
    """

    def __init__(self, loss: Callable[..., Tensor]):
        self.loss = loss
        self.row_weights: Tensor | None = None
        self.denominator: float | None = None
        self.tell: Callable[[Tensor, float | None], None] | None = None
        self.is_sum = getattr(loss, "reduction", "mean") == "sum"
        self.context: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
        self.rows_part = 1.0

    def __call__(self, output: Any, target: Any, *more: Any, **named: Any) -> Tensor:
        """The loss; operators of the user's own may have losses of more than two arguments."""
        target, weights = _as_torch_wants(target), self.row_weights
        loss_of = self._plain if weights is None else functools.partial(self._weighted, weights)
        try:
            with self.context():
                loss = loss_of(output, target, *more, **named)
        except InvalidArgumentError:
            raise
        except (RuntimeError, IndexError, ValueError) as error:
            if "deterministic" in str(error):  # torch says itself what is missing
                raise
            raise explain(error, output, target, getattr(self.loss, "ignore_index", None)) from error
        loss = self._penalised(loss)
        if self.tell is not None:
            self.tell(loss, self.denominator)
        return loss

    def _plain(self, output: Any, target: Any, *more: Any, **named: Any) -> Tensor:
        told = getattr(self.loss, "_orca_rows_part", None)
        if told is not None:
            told(self.rows_part if torch.is_grad_enabled() else 1.0)
        loss = _need_scalar(self.loss(output, target, *more, **named))
        self.denominator = None if self.is_sum else denominator_of(self.loss, output, target)
        return loss

    def _penalised(self, loss: Tensor) -> Tensor:
        penalty = getattr(self.loss, "_orca_penalty", None) if torch.is_grad_enabled() else None
        amount = None if penalty is None else penalty()
        if amount is None:
            return loss
        # Means of ranks are weighted, so that their penalties add up to one; sums are not.
        return loss + (self.rows_part if self.is_sum else 1.0) * (amount - amount.detach())

    def __getattr__(self, name: str) -> Any:
        """A user's operator may ask its loss for more than calls."""
        if name == "loss":  # not there yet while unpickling
            raise AttributeError(name)
        return getattr(self.loss, name)

    def _weighted(self, weights: Tensor, output: Any, target: Any, *more: Any, **named: Any) -> Tensor:
        losses = row_losses(self.loss)(output, target, *more, **named)
        if losses.ndim == 0 or len(losses) != len(weights):
            raise InvalidArgumentError(
                f"weight_col needs a loss for each of the {len(weights)} rows, but the loss gives the shape "
                f"{tuple(losses.shape)}. Use a torch loss, or one that takes reduction='none'."
            )
        self.denominator = float(weights.sum())
        per_row = losses.reshape(len(losses), -1).mean(dim=1)
        return (per_row * weights).sum() / max(self.denominator, 1e-12)


class LossSum:
    """The loss over all batches of all ranks: summed like a metric, by its state."""

    def __init__(self) -> None:
        self._state = np.zeros(2)

    def add(self, loss: float, divisor: float | None) -> None:
        """Count a batch's loss, which was divided by that; None for a sum."""
        if divisor is None:
            self._state += (loss, 0.0)
        elif divisor > 0:  # else no row counted, and the loss is no number
            self._state += (loss * divisor, divisor)

    def state(self) -> np.ndarray:
        return self._state

    def load_sum(self, state: np.ndarray) -> None:
        self._state = state

    def value(self) -> float:
        total, divisor = self._state
        return float(total / divisor if divisor else total)


def row_losses(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same loss for each row by itself."""
    if hasattr(loss, "reduction"):
        each: Any = copy.copy(loss)
        each.reduction = "none"
        return each
    if "reduction" in inspect.signature(loss).parameters:
        return functools.partial(loss, reduction="none")
    raise InvalidArgumentError(
        f"weight_col needs a loss that can be asked for each row's loss, but {_name(loss)} has no `reduction`. "
        "Use a torch loss such as torch.nn.MSELoss(), or add a parameter reduction='mean' to yours."
    )


def explain(error: Exception, output: Any, target: Any, ignored: int | None = None) -> BatchError:
    """Why the loss did not take a batch, in the user's words."""
    if isinstance(output, Tensor) and isinstance(target, Tensor) and output.ndim > 1 and not target.is_floating_point():
        classes = output.shape[1]
        counted = target if ignored is None else target[target != ignored]
        low, high = (int(counted.min()), int(counted.max())) if counted.numel() else (0, 0)
        if low < 0 or high >= classes:
            return BatchError(
                f"labels are out of range: the model has {classes} outputs, so labels must be 0 to {classes - 1}, but "
                f"there are labels from {low} to {high}. Give the model more outputs, or number the classes from 0."
            )
    return BatchError(
        f"the loss cannot take the model's output ({words(output)}) and the labels ({words(target)}): {error} "
        "Make the shapes and types fit: reshape the output in the model or the labels in the data."
    )


def words(value: Any) -> str:
    """Shapes and types of tensors, however they are nested."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} of {', '.join(map(words, value))}"
    if isinstance(value, dict):
        return f"dict of {', '.join(f'{key}: {words(each)}' for key, each in value.items())}"
    return type(value).__name__


def _as_torch_wants(target: Any) -> Any:
    """Labels that are integers as torch's losses take them: int64."""
    if isinstance(target, Tensor) and target.dtype in (torch.int32, torch.int16):
        return target.long()
    return target


def _need_scalar(loss: Any) -> Tensor:
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return loss.reshape(())
    raise InvalidArgumentError(
        f"the loss must be one number, but it gives {words(loss)}. Use reduction='mean', or take the mean yourself."
    )


def denominator_of(loss: Any, output: Any, target: Any) -> float | None:
    """Class weights and ignored labels change what torch's mean divides by."""
    if hasattr(loss, "_orca_denominator"):
        return loss._orca_denominator(output, target)
    if not isinstance(loss, torch.nn.CrossEntropyLoss | torch.nn.NLLLoss) or target.is_floating_point():
        return None
    counted = target[target != loss.ignore_index]
    if loss.weight is not None:
        return float(loss.weight[counted].sum())
    # In rows, for labels of a row may be many (tokens, pixels).
    return counted.numel() * len(target) / target.numel() if counted.numel() != target.numel() else None


def _name(loss: Any) -> str:
    return getattr(loss, "__name__", type(loss).__name__)
