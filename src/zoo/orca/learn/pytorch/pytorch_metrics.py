"""Metrics on tensors, which add up: the sums and counts of all ranks together give the figure for all rows."""

# ruff: noqa: E402 - what is missing is said first
from __future__ import annotations

from zoo.orca.optional import require

require("torch", "The PyTorch estimator")

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoo.orca.errors import BatchError, InvalidArgumentError
from zoo.orca.names import public_names

EPSILON = 1e-7


class TorchMetric(ABC):
    """A figure that is measured batch by batch and kept as a vector of sums, so that ranks can add theirs up.

    Called with (predictions, targets) any number of times; `compute()` is the figure over all calls so far.
    """

    #: How many sums there are.
    size = 2

    def __init__(self) -> None:
        self._sums = torch.zeros(self.size, dtype=torch.float64)

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({facts})"

    @property
    def name(self) -> str:
        """What the figure is called in results."""
        return type(self).__name__

    def __call__(self, preds: Any, targets: Any) -> None:
        """Count a batch."""
        self._add(self._measure(as_tensor(preds, "output"), as_tensor(targets, "target")))

    def value(self) -> float:
        """The figure over all that was counted; nan when nothing was."""
        return self._figure(self.state())

    def compute(self) -> Tensor:
        """The figure as a tensor without dimensions."""
        return torch.tensor(self.value(), dtype=torch.float32)

    def state(self) -> np.ndarray:
        """The sums and counts, which may be added to those of other ranks."""
        return self._sums.cpu().numpy().copy()

    def load_sum(self, state: np.ndarray) -> None:
        """Take over sums and counts, such as the sum of all ranks' states."""
        state = np.asarray(state, dtype=np.float64)
        if state.shape != (self.size,):
            raise InvalidArgumentError(
                f"Expected the state of {self.name} to have the shape ({self.size},), got {state.shape}"
            )
        self._sums = torch.from_numpy(state.copy())

    def reset(self) -> None:
        """Forget all that was counted."""
        self._sums = torch.zeros(self.size, dtype=torch.float64)

    @abstractmethod
    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        """The sums and counts of one batch."""

    def _figure(self, state: np.ndarray) -> float:
        """The figure of sums and counts: here a sum through a count."""
        total, count = state.tolist()
        return total / count if count else float("nan")

    def _add(self, sums: Tensor) -> None:
        # They stay on the batch's device: bringing them over would wait for it at every batch.
        self._sums = self._sums.to(sums.device) + sums.detach()


class Accuracy(TorchMetric):
    """Equal elements over all elements; probabilities become classes by argmax, or by 0.5 where there is one."""

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        if preds.ndim == targets.ndim + 1 and preds.shape[-1] == 1:
            preds = preds.squeeze(-1)
        if preds.ndim == targets.ndim + 1:
            preds = preds.argmax(dim=1)
        elif preds.is_floating_point():
            preds = preds >= 0.5
        return mean_of(preds == same_shape(preds, targets))


class BinaryAccuracy(TorchMetric):
    """The part of predictions on the label's side of a threshold."""

    def __call__(self, preds: Any, targets: Any, threshold: float = 0.5) -> None:
        preds, targets = as_tensor(preds, "output"), as_tensor(targets, "target")
        self._add(self._measure(preds > threshold, targets))

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        return mean_of(preds == flat_like(preds, targets))


class CategoricalAccuracy(TorchMetric):
    """The part of rows whose most likely class is the one of a one-hot label."""

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        return mean_of(preds.argmax(dim=-1) == same_shape(preds, targets).argmax(dim=-1))


class SparseCategoricalAccuracy(TorchMetric):
    """The part of rows whose most likely class is the label's number."""

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        classes = preds.argmax(dim=-1)
        return mean_of(classes == flat_like(classes, targets))


class Top5Accuracy(TorchMetric):
    """The part of rows whose label is among the five most likely classes."""

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        best = preds.topk(min(5, preds.shape[-1]), dim=-1).indices
        labels = flat_like(best[..., 0], targets)
        return mean_of((best == labels.unsqueeze(-1)).any(dim=-1))


class MSE(TorchMetric):
    """The mean squared difference over all elements."""

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        return mean_of((preds.double() - same_shape(preds, targets).double()) ** 2)


class MAE(TorchMetric):
    """The mean absolute difference over all elements."""

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        return mean_of((preds.double() - same_shape(preds, targets).double()).abs())


class BinaryCrossEntropy(TorchMetric):
    """The cross entropy of probabilities and 0/1 labels, mean over all elements."""

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        probabilities, truth = clipped(preds), flat_like(preds, targets).double()
        return mean_of(-(truth * probabilities.log() + (1 - truth) * (1 - probabilities).log()))


class CategoricalCrossEntropy(TorchMetric):
    """The cross entropy of class probabilities and one-hot labels, mean over rows."""

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        truth = same_shape(preds, targets).double()
        return mean_of(-(truth * clipped(preds).log()).sum(dim=-1))


class SparseCategoricalCrossEntropy(TorchMetric):
    """The cross entropy of class probabilities and class numbers, mean over rows."""

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        labels = flat_like(preds[..., 0], targets).long()
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < preds.shape[-1]:
            raise BatchError(
                f"Expected labels from 0 to {preds.shape[-1] - 1}, as the output has {preds.shape[-1]} classes, "
                f"got labels from {int(labels.min())} to {int(labels.max())}"
            )
        return mean_of(-clipped(preds).gather(-1, labels.unsqueeze(-1)).log())


class KLDivergence(TorchMetric):
    """The divergence of the predicted distribution from the true one, mean over rows."""

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        truth = same_shape(preds, targets).double()
        return mean_of((truth * (truth / preds.double() + EPSILON).log()).sum(dim=-1))


class Poisson(TorchMetric):
    """The Poisson loss, mean over all elements."""

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        rates, counts = preds.double(), same_shape(preds, targets).double()
        return mean_of(rates - counts * (rates + EPSILON).log())


def as_tensor(value: Any, what: str) -> Tensor:
    """A model's output or a target as one tensor."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, list | tuple | dict):
        raise BatchError(
            f"Expected one {what} to compare, got a {type(value).__name__} of {len(value)}. Write a TrainingOperator "
            "whose forward_batch returns the output and the target to be measured."
        )
    return torch.as_tensor(value).detach()


def mean_of(values: Tensor) -> Tensor:
    """The state whose figure is the mean of the values: their sum and their count."""
    return torch.stack([values.sum(dtype=torch.float64), values.new_tensor(values.numel(), dtype=torch.float64)])


def clipped(preds: Tensor) -> Tensor:
    """Probabilities kept so far from 0 and 1 that their logarithms are finite."""
    return preds.double().clamp(EPSILON, 1 - EPSILON)


def same_shape(preds: Tensor, targets: Tensor) -> Tensor:
    """The targets, which must have the predictions' shape."""
    if preds.shape != targets.shape:
        raise BatchError(
            f"Expected output and target of one shape, got {tuple(preds.shape)} and {tuple(targets.shape)}. "
            "Reshape one of them, for example the labels with labels.reshape(-1, 1)"
        )
    return targets


def flat_like(preds: Tensor, targets: Tensor) -> Tensor:
    """The targets in the predictions' shape, from which they may differ by dimensions of size 1: (n, 1) and (n,)."""
    if [size for size in preds.shape if size != 1] != [size for size in targets.shape if size != 1]:
        raise BatchError(
            f"Expected one label for each of {tuple(preds.shape)} predictions, got labels of shape "
            f"{tuple(targets.shape)}"
        )
    return targets.reshape(preds.shape)


__dir__ = public_names(globals())
