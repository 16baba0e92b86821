"""BigDL layers on every engine: `Estimator.from_bigdl`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo.orca.optional import require

if TYPE_CHECKING:
    from zoo.orca.learn.bigdl.estimator import BigDLEstimator, Estimator

__all__ = ["BigDLEstimator", "Estimator"]


def __getattr__(name: str) -> Any:
    """Load torch when one of the names is asked for, not before."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("torch", "The BigDL estimator")
    return getattr(require(f"{__name__}.estimator", "The BigDL estimator"), name)


def __dir__() -> list[str]:
    return __all__
