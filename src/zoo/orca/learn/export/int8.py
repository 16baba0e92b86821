"""Weights and activations in int8: NNCF's quantisation after training, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.learn.export.agreement import compare
from zoo.orca.learn.export.formats import Format, Runtime
from zoo.orca.learn.export.original import cannot_write
from zoo.orca.learn.export.quiet import quietly
from zoo.orca.learn.export.report import Int8Loss
from zoo.orca.learn.export.rows import Rows
from zoo.orca.optional import require

# Rows that go through the model at once.
BATCH = 32

#: From outputs and labels to figures by name.
Measure = Callable[[list[np.ndarray], Any], dict[str, float]]


@dataclass(frozen=True)
class Calibration:
    """Rows that int8 is calibrated and measured with, and their labels; None where there are none."""

    rows: Rows
    labels: Any = None


def check_int8(format: Format) -> None:
    """Raise a typed error if a format cannot be quantised here."""
    if format.name not in _QUANTISERS:
        raise NotOfferedError(
            f"int8 is offered for {' and '.join(map(repr, _QUANTISERS))}, but format is {format.name!r}. Export to "
            '"openvino", which also runs it faster.'
        )
    require("nncf", "int8")


def check_finite(rows: Rows) -> None:
    """Raise a typed error if rows hold what has no place on a scale."""
    missing = np.zeros(rows.count, bool)
    for leaf in rows.leaves:
        missing |= ~np.isfinite(leaf).reshape(rows.count, -1).all(axis=1)
    if missing.any():
        raise InvalidArgumentError(
            f"int8 must be rows of numbers, which the scales are found from, but {missing.sum()} of {rows.count} rows "
            "have NaN or infinite values. Leave those rows out."
        )


def quantise(format: Format, source: Path, target: Path, rows: Rows, name: str) -> None:
    """Write the model of one file, in int8, to another; name is what errors call it."""
    with quietly():
        try:
            _QUANTISERS[format.name](source, target, rows)
        except Exception as error:
            raise cannot_write(name, f"{format.name} in int8", error, "Export it without int8.") from error


def measure_loss(
    before: Runtime, after: Runtime, calibration: Calibration, measure: Measure, sizes: tuple[int, int]
) -> Int8Loss:
    """What int8 costs, on the rows of a calibration; sizes are those of the files before and after."""
    rows, labels = calibration.rows, calibration.labels
    expected, found = _outputs(before, rows), _outputs(after, rows)
    return Int8Loss(
        rows=rows.count,
        before={} if labels is None else measure(expected, labels),
        after={} if labels is None else measure(found, labels),
        agreement=compare(expected, found),
        same_choice=_same_choice(expected[0], found[0]),
        smaller=sizes[0] / sizes[1] if sizes[1] else 1.0,  # a model may have no weights at all
    )


def _outputs(runtime: Runtime, rows: Rows) -> list[np.ndarray]:
    return [np.concatenate(parts) for parts in zip(*map(runtime, _batches(rows)), strict=True)]


def measure_by(metric: Any) -> Measure:
    """A user's function of labels and predictions as a measure."""
    if not callable(metric):
        raise InvalidArgumentError(
            f"metric must be a function metric(labels, predictions) that returns a number, but is {metric!r}."
        )
    name = getattr(metric, "__name__", type(metric).__name__)

    def measure(outputs: list[np.ndarray], labels: Any) -> dict[str, float]:
        value = metric(labels, outputs[0] if len(outputs) == 1 else outputs)
        try:
            return {name: float(value)}
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"metric must return a number, but {name} returned {value!r}.") from error

    return measure


def _same_choice(expected: np.ndarray, found: np.ndarray) -> float | None:
    if expected.ndim != 2 or expected.shape[1] < 2 or expected.shape != found.shape:
        return None
    return float(np.mean(expected.argmax(axis=1) == found.argmax(axis=1)))


def _quantise_openvino(source: Path, target: Path, rows: Rows) -> None:
    openvino = require("openvino", "int8")
    batches = [list(leaves) for leaves in _batches(rows)]
    openvino.save_model(_quantised(openvino.Core().read_model(source), batches), target, compress_to_fp16=False)


def _quantise_onnx(source: Path, target: Path, rows: Rows) -> None:
    onnx = require("onnx", "int8")
    batches = [dict(zip(rows.names, leaves, strict=True)) for leaves in _batches(rows)]
    onnx.save(_quantised(onnx.load(source), batches), target)


def _batches(rows: Rows) -> Iterator[tuple[np.ndarray, ...]]:
    for at in range(0, rows.count, BATCH):
        yield tuple(leaf[at : at + BATCH] for leaf in rows.leaves)


def _quantised(model: Any, batches: list[Any]) -> Any:
    """A model in int8, whose activations have the range that they have over all rows.

    By default NNCF takes the mean of the ranges that batches have, which cuts off much of what rows of a table hold.
    """
    nncf = require("nncf", "int8")
    ranges = require("nncf.quantization.range_estimator", "int8").RangeEstimatorParametersSet.MINMAX
    parameters = nncf.AdvancedQuantizationParameters(activations_range_estimator_params=ranges)
    return nncf.quantize(model, nncf.Dataset(batches), subset_size=len(batches), advanced_parameters=parameters)


_QUANTISERS: dict[str, Callable[[Path, Path, Rows], None]] = {
    "openvino": _quantise_openvino,
    "onnx": _quantise_onnx,
}
