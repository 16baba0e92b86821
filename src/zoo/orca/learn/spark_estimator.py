"""What the estimators have that follow BigDL: summaries, gradient clipping and versioned checkpoints."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from zoo.orca.learn.base_estimator import BaseEstimator


class Estimator(BaseEstimator):
    """An estimator whose `fit` returns the estimator; see the framework's own for how to make one."""

    @abstractmethod
    def set_tensorboard(self, log_dir: str, app_name: str) -> None:
        """Write summaries to log_dir/app_name/train and log_dir/app_name/validation."""

    @abstractmethod
    def clear_gradient_clipping(self) -> None:
        """Train with gradients as they are."""

    @abstractmethod
    def set_constant_gradient_clipping(self, min: float, max: float) -> None:
        """Clip every gradient to the range."""

    @abstractmethod
    def set_l2_norm_gradient_clipping(self, clip_norm: float) -> None:
        """Scale gradients down so that their joint L2 norm is at most clip_norm."""

    @abstractmethod
    def get_train_summary(self, tag: str | None = None) -> list[list[float]] | None:
        """What was written under "Loss", "Throughput" or "LearningRate", as [iteration, value, time]."""

    @abstractmethod
    def get_validation_summary(self, tag: str | None = None) -> list[list[float]] | None:
        """What was written of a metric of the validation data, as [iteration, value, time]."""

    @abstractmethod
    def load_orca_checkpoint(self, path: str, version: int | None) -> Any:
        """Take up a checkpoint of a folder, the newest when no version is given."""
