"""The contract of a framework's part of `est.export`: the trained model, which predicts, and can be written."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from zoo.orca.errors import NotOfferedError, sentence
from zoo.orca.learn.export.rows import Rows
from zoo.orca.learn.predict.model import Predictor, as_outputs, load_here, predict_rows

#: The tolerance of models whose own predictions are computed in half precision.
ROUGH = 2e-2
# Where something was found, in the words of OpenVINO and Keras; what was found is in the line below.
_PLACE = re.compile(
    r"FrontEnd API failed with |(Exception from|Check '.*' failed at) src/\S+$|"
    r"(ValueError: )?Exception encountered when calling "
)
_COLOURS = re.compile(r"\x1b\[\d+m")
_ARGUMENTS_FOLLOW = "Arguments received by "
_STACK_FOLLOWS = ("in user code:", "The following operation failed in the TorchScript interpreter.")


class Original(ABC):
    """A trained model as its estimator has it.

    Attributes:
        name: what errors call it.
        tolerance: how far a written model's outputs may be from its own, as a part of the largest, by default.
    """

    name: str
    tolerance: float = 1e-4

    def __init__(self, predictor: Predictor):
        self._predictor = predictor

    def predict(self, rows: Rows) -> list[np.ndarray]:
        """What est.predict gives for these rows, an array for each output."""
        return as_outputs(predict_rows(load_here(self._predictor), rows.features, rows.count))

    @abstractmethod
    def cast(self, rows: Rows) -> Rows:
        """Rows of the types that the model computes with."""

    @abstractmethod
    def input_names(self) -> list[str]:
        """What the model calls its inputs, in order; [] where it does not say."""

    @abstractmethod
    def write(self, format: str, path: Path, rows: Rows, half: bool) -> str:
        """Write the model, whose inputs are like rows; says by what means."""

    def measure(self, outputs: list[np.ndarray], labels: Any) -> dict[str, float]:
        """Figures of outputs against labels: the accuracy of classes, the mean absolute error of other numbers."""
        found, wanted = outputs[0], np.asarray(labels[0] if isinstance(labels, list | tuple) else labels)
        if found.ndim == 2 and found.shape[1] > 1 and wanted.size == len(found) and wanted.dtype.kind in "iu":
            return {"accuracy": float(np.mean(found.argmax(axis=1) == wanted.reshape(-1)))}
        if wanted.size == found.size:
            return {"MAE": float(np.mean(np.abs(found.reshape(wanted.shape) - wanted)))}
        return {}


def cannot_write(name: str, format: str, cause: BaseException | str, instead: str) -> NotOfferedError:
    """The error for a model that a format cannot hold."""
    reason = cause if isinstance(cause, str) else reason_of(cause)
    return NotOfferedError(f"{name} cannot be written as {format}: {sentence(reason)} {instead}")


def reason_of(error: BaseException) -> str:
    """The line of an error that says why; TensorFlow, TorchScript and OpenVINO put a stack before it."""
    text = _COLOURS.sub("", str(error)).partition(_ARGUMENTS_FOLLOW)[0]
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not _PLACE.match(line)] or [""]
    line = lines[-1] if lines[0] in _STACK_FOLLOWS else lines[0]
    return line if line.startswith(type(error).__name__) else f"{type(error).__name__}: {line}"
