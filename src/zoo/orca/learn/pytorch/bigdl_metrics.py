"""Metrics as BigDL's engine measures and names them: labels may be (n,), (n, 1), whole or decimal numbers."""

from __future__ import annotations

import math
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

    def __init__(self, zero_based_label: bool = True) -> None:
        super().__init__()
        self.zero_based_label = zero_based_label

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        best = preds.topk(min(5, preds.shape[-1]), dim=-1).indices + (0 if self.zero_based_label else 1)
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
            raise BatchError(
                "Expected predictions for AUC, got nan among them: has training diverged? "
                "Try a smaller learning rate, or stop_on_nan=True in from_torch."
            )
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


class TreeNNAccuracy(BigDLMetric):
    """The accuracy of each tree's first node; outputs are (rows, nodes, classes), labels (rows, nodes) from 1."""

    bigdl_name = "TreeNNAccuracy"

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        roots = preds[:, 0] if preds.ndim == 3 else preds
        labels = targets.reshape(len(targets), -1)[:, 0]
        if _is_one_column(roots):
            return mean_of((roots.reshape(-1) >= 0.5) == labels)
        return mean_of(roots.argmax(dim=-1) + 1 == labels)


class HitRatio(BigDLMetric):
    """Whether the right one of `neg_num + 1` rows that follow each other is among the k with the highest output."""

    def __init__(self, k: int = 10, neg_num: int = 100) -> None:
        super().__init__()
        self.k = k
        self.neg_num = neg_num

    @property
    def name(self) -> str:
        return f"HitRate@{self.k}"

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        places = self._places(preds, targets)
        return mean_of((places <= self.k) * self._gain(places))

    def _gain(self, places: Tensor) -> Tensor:
        """What a hit at each place is worth."""
        return torch.ones_like(places, dtype=torch.float64)

    def _places(self, preds: Tensor, targets: Tensor) -> Tensor:
        """The place, from 1, of the right item in each group."""
        group = self.neg_num + 1
        if preds.numel() % group or preds.numel() != targets.numel():
            raise BatchError(
                f"Expected groups of {group} rows for {self.name}, one right item (label 1) and {self.neg_num} wrong "
                f"ones (label 0), got a batch of {preds.numel()} outputs and {targets.numel()} labels. Give a "
                f"batch_size that is a multiple of {group}, and partitions of whole groups."
            )
        scores, right = preds.reshape(-1, group), targets.reshape(-1, group) > 0.5
        if not (right.sum(1) == 1).all():
            raise BatchError(f"Expected one right item (label 1) in each group of {group} rows for {self.name}")
        return (scores > scores[right].unsqueeze(1)).sum(1) + 1


class NDCG(HitRatio):
    """A hit is worth log(2) / log(place + 1)."""

    @property
    def name(self) -> str:
        return f"NDCG@{self.k}"

    def _gain(self, places: Tensor) -> Tensor:
        return math.log(2) / (places + 1).double().log()


class MeanAveragePrecision(BigDLMetric):
    """The mean of the classes' average precisions.

    Its state are histograms of the outputs of a class, of all rows and of the class's own: rows of any two ranks can
    be put in order by them, as far as the bins go. Rows of one bin are taken as one step.
    """

    bigdl_name = "MeanAveragePrecision"

    #: How many numbers the histograms have together at most: 16 MiB.
    most = 2**21

    def __init__(self, k: int, classes: int) -> None:
        self.k = k
        self.classes = classes
        # Bins are the first bits of the numbers themselves, so that they are fine near 0 and wide far from it.
        self.bits = min(16, int(math.log2(self.most / (2 * classes))))
        self.size = classes * 2 * 2**self.bits
        super().__init__()

    def _measure(self, preds: Tensor, targets: Tensor) -> Tensor:
        if preds.ndim != 2 or preds.shape[1] != self.classes:
            raise BatchError(
                f"Expected an output of {self.classes} columns, one for each class, got the shape {tuple(preds.shape)}"
            )
        labels = flat_like(preds[:, 0], targets).long() - 1
        own = torch.nn.functional.one_hot(labels.clamp(0, self.classes - 1), self.classes).bool()
        own &= (labels == labels.clamp(0, self.classes - 1)).unsqueeze(1)
        bins = _in_order(preds.float()) >> (32 - self.bits)
        places = (torch.arange(self.classes, device=preds.device) * 2 + own.long()) * 2**self.bits + bins
        return torch.bincount(places.flatten(), minlength=self.size).double()

    def _figure(self, state: np.ndarray) -> float:
        wrong, right = state.reshape(self.classes, 2, -1)[:, :, ::-1].transpose(1, 0, 2)  # the highest outputs first
        found = [_average_precision(*each, self.k) for each in zip(wrong, right, strict=True) if each[1].any()]
        return float(np.mean(found)) if found else float("nan")


class Loss(BigDLMetric):
    """The mean over rows of a loss of a batch; it sees output and target as they are.

    Args:
        criterion: gives the mean of a batch, or the sum if its `reduction` is "sum"; what it divides by, if that is
            not the rows, its `denominator(output, target)` says.
    """

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
                "reduction to 'mean'."
            )
        first = preds[0] if isinstance(preds, list | tuple) else preds
        if getattr(self.criterion, "reduction", "mean") == "sum":
            return torch.stack([loss.double().reshape(()), loss.new_tensor(len(first), dtype=torch.float64)])
        asked = getattr(self.criterion, "_orca_denominator", None) or getattr(self.criterion, "denominator", None)
        counted = None if asked is None else asked(preds, targets)
        rows = loss.new_tensor(len(first) if counted is None else counted, dtype=torch.float64)
        return torch.stack([loss.double().reshape(()) * rows, rows])


def _is_one_column(preds: Tensor) -> bool:
    """Whether there is one prediction a row."""
    return preds.ndim == 1 or preds.shape[-1] == 1


def _in_order(values: Tensor) -> Tensor:
    """Numbers as whole ones from 0 to 2 ** 32 in the same order: the bits of float32, negative ones turned round."""
    bits = values.contiguous().view(torch.int32).long()
    return torch.where(bits < 0, -1 - bits, bits + 2**31)


def _average_precision(wrong: np.ndarray, right: np.ndarray, k: int) -> float:
    """The mean of the precisions at each right row among the first k; both are counts, the likeliest rows first."""
    total, hits = np.cumsum(wrong + right), np.cumsum(right)
    wanted = hits[-1] if k < 0 else min(hits[-1], k)
    counted = right if k < 0 else np.where(total - wrong - right < k, right, 0)
    precision = np.divide(hits, total, out=np.zeros_like(hits), where=total > 0)
    return float(min((precision * counted).sum() / wanted, 1.0))
