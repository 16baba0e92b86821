"""PyTorch on every engine: `Estimator.from_torch`, and `TrainingOperator` to change what a step is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo.orca.optional import require

if TYPE_CHECKING:
    from zoo.orca.learn.pytorch.estimator import Estimator
    from zoo.orca.learn.pytorch.training_operator import TrainingOperator

__all__ = ["Estimator", "TrainingOperator"]

_HOMES = {"Estimator": "estimator", "TrainingOperator": "training_operator"}


def __getattr__(name: str) -> Any:
    """Load torch when one of the names is asked for, not before."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("torch", "The PyTorch estimator")
    return getattr(require(f"{__name__}.{_HOMES[name]}", "The PyTorch estimator"), name)


def __dir__() -> list[str]:
    return __all__
