"""Metrics as users name them; what measures them depends on the backend, and is loaded when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.names import public_names
from zoo.orca.optional import require

if TYPE_CHECKING:
    from zoo.orca.learn.pytorch.pytorch_metrics import TorchMetric

BACKENDS = {
    "bigdl": "zoo.orca.learn.pytorch.bigdl_metrics",
    "pytorch": "zoo.orca.learn.pytorch.pytorch_metrics",
}


class Metric:
    """A metric by name. `bigdl` and `pytorch` say which class measures it there; None: it has no such form."""

    bigdl: str | None = None
    pytorch: str | None = None

    def get_metric(self, backend: str = "bigdl") -> TorchMetric:
        """What measures it on a backend: called with (predictions, targets), read with `compute()`."""
        return _form(self, backend)(**self._options(backend))

    def get_name(self) -> str:
        """The metric's own name."""
        return type(self).__name__

    def _options(self, backend: str) -> dict[str, Any]:
        """What the form on the backend is made with."""
        return {}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({arguments})"

    @staticmethod
    def convert_metrics_list(
        metrics: Metric | Sequence[Metric] | None, backend: str = "bigdl"
    ) -> list[TorchMetric] | None:
        """The forms of one metric or several."""
        if metrics is None:
            return None
        return [each.get_metric(backend) for each in _as_list(metrics)]

    @staticmethod
    def convert_metrics_dict(
        metrics: Metric | Sequence[Metric] | None, backend: str = "bigdl"
    ) -> dict[str, TorchMetric]:
        """The forms of one metric or several by the names that results have: "Top1Accuracy" in BigDL's engine."""
        found: dict[str, TorchMetric] = {}
        for metric in [] if metrics is None else _as_list(metrics):
            form = metric.get_metric(backend)
            if form.name in found:
                raise InvalidArgumentError(
                    f"Expected metrics whose results have different names, but two of {_as_list(metrics)} are both "
                    f"reported as '{form.name}'. Leave one of them out."
                )
            found[form.name] = form
        return found


class Accuracy(Metric):
    """The part of rows whose class was predicted right; labels count from 0, or from 1 for BigDL if so asked."""

    bigdl = "Accuracy"
    pytorch = "Accuracy"

    def __init__(self, zero_based_label: bool = True) -> None:
        self.zero_based_label = zero_based_label

    def _options(self, backend: str) -> dict[str, Any]:
        if backend == "bigdl":
            return {"zero_based_label": self.zero_based_label}
        if not self.zero_based_label:
            raise NotOfferedError(
                "Accuracy(zero_based_label=False) is for the bigdl backend; here labels must count from 0. "
                "Subtract 1 from the labels and use Accuracy()"
            )
        return {}


class SparseCategoricalAccuracy(Metric):
    """The part of rows whose class was predicted right, the label being the class's number."""

    bigdl = "SparseCategoricalAccuracy"
    pytorch = "SparseCategoricalAccuracy"


class CategoricalAccuracy(Metric):
    """The part of rows whose class was predicted right, the label being one-hot."""

    bigdl = "CategoricalAccuracy"
    pytorch = "CategoricalAccuracy"


class BinaryAccuracy(Metric):
    """The part of predictions that are on their label's side of 0.5."""

    bigdl = "BinaryAccuracy"
    pytorch = "BinaryAccuracy"


class Top5Accuracy(Metric):
    """The part of rows whose class is among the five that were thought most likely."""

    bigdl = "Top5Accuracy"
    pytorch = "Top5Accuracy"


class AUC(Metric):
    """The area under the ROC curve, measured at so many thresholds."""

    bigdl = "AUC"

    def __init__(self, threshold_num: int = 200) -> None:
        if isinstance(threshold_num, bool) or not isinstance(threshold_num, int) or threshold_num < 2:
            raise InvalidArgumentError(f"Expected threshold_num to be a whole number from 2 on, got {threshold_num!r}")
        self.threshold_num = threshold_num

    def _options(self, backend: str) -> dict[str, Any]:
        return {"threshold_num": self.threshold_num}


class MAE(Metric):
    """The mean absolute difference."""

    bigdl = "MAE"
    pytorch = "MAE"


class MSE(Metric):
    """The mean squared difference."""

    bigdl = "MSE"
    pytorch = "MSE"


class TreeNNAccuracy(Metric):
    """The part of trees whose first node, the root, was predicted right; labels count from 1."""

    bigdl = "TreeNNAccuracy"


class HitRatio(Metric):
    """How often the one right item is among the k that were thought best of it and `neg_num` wrong ones."""

    bigdl = "HitRatio"

    def __init__(self, k: int = 10, neg_num: int = 100) -> None:
        self.k = _positive("k", k)
        self.neg_num = _positive("neg_num", neg_num)

    def _options(self, backend: str) -> dict[str, Any]:
        return {"k": self.k, "neg_num": self.neg_num}


class NDCG(HitRatio):
    """HitRatio that counts a hit the more, the nearer to the top it is: log(2) / log(place + 1)."""

    bigdl = "NDCG"


class MeanAveragePrecision(Metric):
    """The mean over classes of the average precision among the k rows thought likeliest to be of the class.

    Labels count from 1. k = -1 takes all rows.
    """

    bigdl = "MeanAveragePrecision"

    def __init__(self, k: int, classes: int) -> None:
        self.k = k if k == -1 else _positive("k", k)
        self.classes = _positive("classes", classes)

    def _options(self, backend: str) -> dict[str, Any]:
        return {"k": self.k, "classes": self.classes}


class BinaryCrossEntropy(Metric):
    """The cross entropy of probabilities and 0/1 labels."""

    pytorch = "BinaryCrossEntropy"


class CategoricalCrossEntropy(Metric):
    """The cross entropy of class probabilities and one-hot labels."""

    pytorch = "CategoricalCrossEntropy"


class SparseCategoricalCrossEntropy(Metric):
    """The cross entropy of class probabilities and class numbers."""

    pytorch = "SparseCategoricalCrossEntropy"


class KLDivergence(Metric):
    """The Kullback-Leibler divergence of predicted and true distributions."""

    pytorch = "KLDivergence"


class Poisson(Metric):
    """The Poisson loss of predicted rates and counts."""

    pytorch = "Poisson"


def _form(metric: Metric, backend: str) -> type[TorchMetric]:
    """The class that measures a metric on a backend."""
    if backend not in BACKENDS:
        if backend in ("tf", "mxnet"):
            raise NotOfferedError(
                f"Orca's metrics have no form for {backend}: give the framework's own to its estimator."
            )
        raise InvalidArgumentError(f"Expected a backend, one of {', '.join(BACKENDS)}, got {backend!r}")
    form: str | None = getattr(metric, backend)
    if form is None:
        raise NotOfferedError(
            f"{metric.get_name()} has no form for the {backend} backend. Use another of zoo.orca.learn.metrics."
        )
    require("torch", f"Measuring {metric.get_name()}")
    return getattr(importlib.import_module(BACKENDS[backend]), form)


def _as_list(metrics: Any) -> list[Metric]:
    """One metric or several as a list of metrics."""
    found = list(metrics) if isinstance(metrics, list | tuple) else [metrics]
    for each in found:
        if not isinstance(each, Metric):
            raise InvalidArgumentError(
                f"Only orca metrics are supported, but get {type(each).__name__}: {each!r}. "
                "Type for example: from zoo.orca.learn.metrics import Accuracy, and give Accuracy()"
            )
    return found


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgumentError(f"Expected {name} to be a whole number from 1 on, got {value!r}")
    return value


__dir__ = public_names(globals())
