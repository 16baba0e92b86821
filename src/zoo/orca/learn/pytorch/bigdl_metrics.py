"""Metrics as BigDL's engine measures and names them: labels may be (n,), (n, 1), whole or decimal numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoo.orca.errors import BatchError
from zoo.orca.learn.pytorch.pytorch_metrics import (
    TorchMetric,
    as_tensor,
    flat_like,
    mean_of,
)


class BigDLMetric(TorchMetric):
    """A metric with a name of BigDL's."""

    bigdl_name: str

    @property
    def name(self) -> str:
        return self.bigdl_name


class Accuracy(BigDLMetric):
    """One output column: on the 0/1 label's side of 0.5; several: the largest is the label's class."""

    bigdl_name = "Top1Accuracy"

    def __init__(self, zero_based_label: bool = True) -> None:
        super().__init__()
        self.zero_based_label = zero_based_label

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        if _is_one_column(preds):
            return mean_of((preds >= 0.5) == flat_like(preds, targets))
        classes = preds.argmax(dim=-1)
        first = 0 if self.zero_based_label else 1
        return mean_of(classes + first == flat_like(classes, targets))


class SparseCategoricalAccuracy(BigDLMetric):
    """The largest output column is the label's class."""

    bigdl_name = "Top1Accuracy"

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        classes = preds.argmax(dim=-1)
        return mean_of(classes == flat_like(classes, targets))


class CategoricalAccuracy(BigDLMetric):
    """The largest output column is the largest of a one-hot label."""

    bigdl_name = "Top1Accuracy"

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        return mean_of(preds.argmax(dim=-1) == flat_like(preds, targets).argmax(dim=-1))


class BinaryAccuracy(BigDLMetric):
    """The output is on the 0/1 label's side of 0.5."""

    bigdl_name = "Top1Accuracy"

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        return mean_of((preds >= 0.5) == flat_like(preds, targets))


class Top5Accuracy(BigDLMetric):
    """The label is among the five largest output columns."""

    bigdl_name = "Top5Accuracy"

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        best = preds.topk(min(5, preds.shape[-1]), dim=-1).indices
        labels = flat_like(best[..., 0], targets)
        return mean_of((best == labels.unsqueeze(-1)).any(dim=-1))


class AUC(BigDLMetric):
    """The area under the ROC curve by the trapezoids between thresholds that are evenly spread from 0 to 1.

    Its state is two histograms, of the predictions of positives and of negatives between the thresholds.
    """

    bigdl_name = "AucScore"

    def __init__(self, threshold_num: int = 200) -> None:
        # Between n thresholds there are n - 1 bins, and one for predictions at or above 1.
        self.size = 2 * threshold_num
        self.threshold_num = threshold_num
        super().__init__()

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        if not _is_one_column(preds):
            raise BatchError(
                f"Expected one prediction a row for AUC, the probability of label 1, got an output of shape "
                f"{tuple(preds.shape)}"
            )
        if preds.isnan().any():
            raise BatchError("Expected predictions for AUC, got nan among them: has training diverged?")
        positive = (flat_like(preds, targets) > 0.5).flatten()
        intervals = self.threshold_num - 1
        bins = (preds.double().flatten() * intervals).floor().clamp(0, intervals).long()
        counts = torch.bincount(bins + positive * self.threshold_num, minlength=self.size)
        return counts.to(torch.float64)

    def _figure(self, state: np.ndarray) -> float:
        negatives, positives = state.reshape(2, self.threshold_num)
        if not negatives.sum() or not positives.sum():
            return float("nan")
        # From the highest threshold down: the rates of what lies above it.
        false_rate = np.concatenate([[0.0], np.cumsum(negatives[::-1]) / negatives.sum()])
        true_rate = np.concatenate([[0.0], np.cumsum(positives[::-1]) / positives.sum()])
        return float(np.trapezoid(true_rate, false_rate))


class MAE(BigDLMetric):
    """The mean absolute difference over all elements."""

    bigdl_name = "MAE"

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        return mean_of((preds.double() - flat_like(preds, targets).double()).abs())


class MSE(BigDLMetric):
    """The mean squared difference over all elements."""

    bigdl_name = "MSE"

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        return mean_of((preds.double() - flat_like(preds, targets).double()) ** 2)


class Loss(BigDLMetric):
    """The mean over rows of a loss function that gives the mean of a batch; it sees output and target as they are."""

    bigdl_name = "Loss"

    def __init__(self, criterion: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.criterion = criterion

    def __call__(self, preds: Any, targets: Any) -> None:
        self._add(self._measure(preds, targets))

    def _measure(self, preds: Any, targets: Any) -> Tensor:
        loss = as_tensor(self.criterion(preds, targets), "loss")
        if loss.numel() != 1:
            raise BatchError(
                f"Expected a loss that is one number for a batch, got a tensor of shape {tuple(loss.shape)}. Set its "
                "reduction to 'mean'"
            )
        first = preds[0] if isinstance(preds, list | tuple) else preds
        rows = loss.new_tensor(len(first), dtype=torch.float64)
        return torch.stack([loss.double().reshape(()) * rows, rows])


def _is_one_column(preds: Tensor) -> bool:
    """Whether there is one prediction a row."""
    return preds.ndim == 1 or preds.shape[-1] == 1
