"""What a learner asks of a model of MXNet, be it a gluon Block or a symbolic Module."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from zoo.orca import mxnet_library as library
from zoo.orca.errors import BatchError, NotOfferedError, sentence

#: Operators that draw random numbers while training.
_DRAWING = ("Dropout", "_random", "_sample", "_shuffle", "RNN", "Custom", "_rnn_param", "uniform", "normal")


class Net(ABC):
    """A model with its optimizer, on one rank. `build` is called before anything else, with the first batch.

    Attributes:
        optimizer: MXNet's optimizer.
        updater: what applies it, and holds its states by the number of a parameter.
        draws: whether training may draw random numbers.
    """

    optimizer: Any
    updater: Any
    draws = True

    @property
    @abstractmethod
    def native(self) -> Any:
        """MXNet's own model."""

    @abstractmethod
    def build(self, features: tuple[Any, ...], target: Any) -> None:
        """Make parameters that wait for a shape, as the batch tells it."""

    @abstractmethod
    def train(self, features: tuple[Any, ...], target: Any, rows: int) -> tuple[list[Any], list[Any], Any]:
        """Forward and backward: outputs, labels, and the rows' losses added up (None where the graph has its own)."""

    @abstractmethod
    def forward(self, features: tuple[Any, ...], target: Any, rows: int) -> tuple[list[Any], list[Any], Any]:
        """The same without training; without a target there are no labels and no loss."""

    @abstractmethod
    def contributions(self, rows: int, total: int) -> list[Any]:
        """Dense arrays to be summed over ranks in place, the same shapes on all of them; zeros where rows is 0."""

    @abstractmethod
    def take_sums(self) -> None:
        """The contributions are sums now: make them the gradients."""

    @abstractmethod
    def update(self, total: int) -> None:
        """Let the optimizer take a step, for a batch of so many rows over all ranks."""

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """All that training changes, by names that are the same in every process."""

    @abstractmethod
    def buffers(self) -> list[Any]:
        """Those of them that a forward pass changes: BatchNorm's statistics."""

    @abstractmethod
    def load(self, weights: dict[str, Any], path: str = "the state") -> None:
        """Take weights; a `CheckpointError` where they are another model's."""


def dtype_of(arrays: list[Any]) -> Any:
    """The type in which a model computes: that of its floats."""
    kinds = {np.dtype(each.dtype) for each in arrays if np.dtype(each.dtype).kind == "f"}
    return np.float32 if not kinds or np.dtype(np.float32) in kinds else kinds.pop().type


def need_dense(kinds: dict[str, str]) -> None:
    """Raise a typed error for a weight, by name, whose kind of storage is not dense."""
    for name, kind in kinds.items():
        if kind != "default":
            raise NotOfferedError(
                f"the weight {name!r} is {kind}, which only MXNet's own servers can update. Use a dense weight; "
                "its gradient may be row_sparse (Embedding(..., sparse_grad=True))."
            )


def graph_draws(symbol: Any) -> bool:
    """Whether a graph has operators that draw random numbers."""
    operators = [node["op"] for node in json.loads(symbol.tojson())["nodes"]]
    return any(operator.startswith(_DRAWING) for operator in operators)


def explained(error: Exception, arrays: str, what: str) -> BatchError:
    """What MXNet says of a batch that it cannot take, with the batch."""
    reason = str(error).strip().splitlines()
    return BatchError(
        f"{what} cannot take a batch of {arrays}: {type(error).__name__}: {sentence(reason[-1] if reason else '')} "
        "Check the shapes and types of features and labels."
    )


def mxnet_errors() -> tuple[type[Exception], ...]:
    mx = library.load()
    return (mx.base.MXNetError, AssertionError, ValueError, TypeError, IndexError)
