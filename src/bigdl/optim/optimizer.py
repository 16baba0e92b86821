"""BigDL's optimization methods, schedules, triggers, validation methods and summaries, over those of zoo.orca.learn.

>>> Adam(1e-3).learningrate
0.001
>>> MaxEpoch(5)
MaxEpoch(5)
"""

from __future__ import annotations

import importlib
from typing import Any

from bigdl.optim.regularizer import L1L2Regularizer, L1Regularizer, L2Regularizer
from bigdl.optim.training import BaseOptimizer, DistriOptimizer, LocalOptimizer, Optimizer
from bigdl.transform.vision import image
from bigdl.util import common
from bigdl.util.common import DOUBLEMAX
from zoo.orca.errors import NotOfferedError
from zoo.orca.learn import metrics, optimizers
from zoo.orca.learn.optimizers.schedule import (
    Default,
    Exponential,
    MultiStep,
    Plateau,
    Poly,
    Scheduler,
    SequentialSchedule,
    Step,
    Warmup,
)
from zoo.orca.learn.summary import TrainSummary, ValidationSummary
from zoo.orca.learn.trigger import (
    EveryEpoch,
    MaxEpoch,
    MaxIteration,
    MaxScore,
    MinLoss,
    SeveralIteration,
    TriggerAnd,
    TriggerOr,
)
from zoo.orca.names import public_names

__all__ = [
    "MAE",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "Adamax",
    "BaseOptimizer",
    "Default",
    "DistriOptimizer",
    "EveryEpoch",
    "Exponential",
    "Ftrl",
    "HitRatio",
    "L1L2Regularizer",
    "L1Regularizer",
    "L2Regularizer",
    "LBFGS",
    "LocalOptimizer",
    "Loss",
    "MaxEpoch",
    "MaxIteration",
    "MaxScore",
    "MeanAveragePrecision",
    "MeanAveragePrecisionObjectDetection",
    "MinLoss",
    "MultiStep",
    "NDCG",
    "OptimMethod",
    "Optimizer",
    "ParallelAdam",
    "Plateau",
    "Poly",
    "RMSprop",
    "SequentialSchedule",
    "SeveralIteration",
    "Step",
    "Top1Accuracy",
    "Top5Accuracy",
    "TrainSummary",
    "TreeNNAccuracy",
    "TriggerAnd",
    "TriggerOr",
    "ValidationMethod",
    "ValidationSummary",
    "Warmup",
    *common.__all__,
    *image.__all__,
]


def __getattr__(name: str) -> Any:
    # Existing code counts on the star import for these; they are loaded when first asked for.
    if name in common.__all__:
        return getattr(common, name)
    if name in image.__all__:
        return getattr(image, name)
    if name == "ActivityRegularization":  # which is a layer, so it needs torch
        return importlib.import_module("bigdl.nn.layer").ActivityRegularization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


OptimMethod = optimizers.Optimizer
Adagrad = optimizers.Adagrad
Adadelta = optimizers.Adadelta
Adam = optimizers.Adam
Adamax = optimizers.Adamax
Ftrl = optimizers.Ftrl
LBFGS = optimizers.LBFGS
ParallelAdam = optimizers.ParallelAdam
RMSprop = optimizers.RMSprop

ValidationMethod = metrics.Metric
MAE = metrics.MAE
TreeNNAccuracy = metrics.TreeNNAccuracy
HitRatio = metrics.HitRatio
NDCG = metrics.NDCG
MeanAveragePrecision = metrics.MeanAveragePrecision


class SGD(optimizers.SGD):
    """Stochastic gradient descent; BigDL spells the keyword of its schedule `leaningrate_schedule`.

    Example: ``SGD(0.1, momentum=0.9, leaningrate_schedule=Poly(0.5, 100))``
    """

    def __init__(
        self,
        learningrate: float = 1e-3,
        learningrate_decay: float = 0.0,
        weightdecay: float = 0.0,
        momentum: float = 0.0,
        dampening: float = DOUBLEMAX,
        nesterov: bool = False,
        leaningrate_schedule: Scheduler | None = None,
        learningrates: Any = None,
        weightdecays: Any = None,
        bigdl_type: str = "float",
    ) -> None:
        super().__init__(
            learningrate,
            learningrate_decay,
            weightdecay,
            momentum,
            dampening,
            nesterov,
            leaningrate_schedule,
            learningrates,
            weightdecays,
        )


class Top1Accuracy(metrics.Accuracy):
    """The part of rows whose class was predicted right; labels count from 1."""

    def __init__(self, bigdl_type: str = "float") -> None:
        super().__init__(zero_based_label=False)


class Top5Accuracy(metrics.Top5Accuracy):
    """The part of rows whose class is among the five that were thought most likely; labels count from 1."""

    def __init__(self, bigdl_type: str = "float") -> None:
        pass

    def _options(self, backend: str) -> dict[str, Any]:
        return {"zero_based_label": False} if backend == "bigdl" else {}


class Loss(metrics.Metric):
    """The mean over rows of a criterion, a torch loss or a function of (output, target), which gives a batch's mean.

    Without one it is ClassNLLCriterion; TFOptimizer measures the loss of its graph.
    """

    bigdl = "Loss"

    def __init__(self, cri: Any = None, bigdl_type: str = "float") -> None:
        self.cri = cri

    def _options(self, backend: str) -> dict[str, Any]:
        if self.cri is None:
            self.cri = importlib.import_module("bigdl.nn.criterion").ClassNLLCriterion()
        if not hasattr(self.cri, "module") and not hasattr(self.cri, "register_buffer"):
            return {"criterion": self.cri}
        from torch.nn import Identity

        from zoo.orca.learn.bigdl.sized import Network, SizedLoss
        from zoo.orca.learn.bigdl.training import function_of

        return {"criterion": SizedLoss(function_of(self.cri), Network(Identity()))}


class MeanAveragePrecisionObjectDetection:
    """The mean average precision of boxes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise NotOfferedError(
            "Boxes are not measured here. Predict them, and give them to torchmetrics.detection.MeanAveragePrecision."
        )


__dir__ = public_names(globals(), [*common.__all__, *image.__all__])
