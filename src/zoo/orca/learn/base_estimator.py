"""What every estimator has, whatever its framework and engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class BaseEstimator(ABC):
    """Trains a model on distributed data, measures it, and predicts with it."""

    @abstractmethod
    def fit(self, data: Any, epochs: int, batch_size: int) -> Any:
        """Train the model on data."""

    @abstractmethod
    def predict(self, data: Any, batch_size: int) -> Any:
        """The model's output for data, in the data's order."""

    @abstractmethod
    def evaluate(self, data: Any, batch_size: int) -> Any:
        """The metrics of the model on data, by name."""

    @abstractmethod
    def get_model(self) -> Any:
        """The model with its weights as they are now."""

    @abstractmethod
    def save(self, model_path: str) -> Any:
        """Write the model to a path."""

    @abstractmethod
    def load(self, model_path: str) -> Any:
        """Read back what `save` wrote."""

    @abstractmethod
    def shutdown(self) -> Any:
        """Give back what the estimator holds."""
