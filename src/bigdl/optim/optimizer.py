"""BigDL's optimization methods, schedules, triggers, validation methods and summaries, over those of zoo.orca.learn.

>>> Adam(1e-3).learningrate
0.001
>>> MaxEpoch(5)
MaxEpoch(5)
"""

from __future__ import annotations

from typing import Any

from bigdl.util import common
from bigdl.util.common import DOUBLEMAX
from zoo.orca.errors import InvalidArgumentError
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

__all__ = [
    "MAE",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "Adamax",
    "Default",
    "EveryEpoch",
    "Exponential",
    "Ftrl",
    "LBFGS",
    "Loss",
    "MaxEpoch",
    "MaxIteration",
    "MaxScore",
    "MinLoss",
    "MultiStep",
    "OptimMethod",
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
    "TriggerAnd",
    "TriggerOr",
    "ValidationMethod",
    "ValidationSummary",
    "Warmup",
    *common.__all__,
]


def __getattr__(name: str) -> Any:
    # Existing code counts on the star import for these; they are loaded when first asked for.
    if name in common.__all__:
        return getattr(common, name)
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
Top5Accuracy = metrics.Top5Accuracy


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


class Loss(metrics.Metric):
    """The mean over rows of a loss function of (output, target), which gives the mean of a batch.

    TFOptimizer takes it without one: it measures the loss of its graph anyway.
    """

    bigdl = "Loss"

    def __init__(self, cri: Any = None, bigdl_type: str = "float") -> None:
        self.cri = cri

    def _options(self, backend: str) -> dict[str, Any]:
        if self.cri is None:
            raise InvalidArgumentError("Expected a loss to measure: Loss(cri=...), a function of (output, target)")
        return {"criterion": self.cri}
