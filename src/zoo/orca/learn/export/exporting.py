"""`est.export`: from a trained estimator to a file that another runtime reads, checked before it is kept."""

from __future__ import annotations

import dataclasses
import logging
import shutil
import tempfile
from abc import abstractmethod
from functools import partial
from numbers import Real
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from zoo.orca.data.file import filesystem_of
from zoo.orca.errors import ExportMismatchError, InvalidArgumentError, OrcaError, PathExistsError, PreconditionError
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.checkpoint import write_file
from zoo.orca.learn.estimator import as_columns, check_path
from zoo.orca.learn.export.agreement import Agreement, compare, scales_of
from zoo.orca.learn.export.calibration import gather, is_in_memory
from zoo.orca.learn.export.formats import Format, Runtime, find_format
from zoo.orca.learn.export.int8 import (
    Calibration,
    Measure,
    check_finite,
    check_int8,
    measure_by,
    measure_loss,
    quantise,
)
from zoo.orca.learn.export.openvino_files import output_names
from zoo.orca.learn.export.original import Original, cannot_write, reason_of
from zoo.orca.learn.export.quiet import quietly
from zoo.orca.learn.export.report import ExportReport, Int8Loss, Tensor
from zoo.orca.learn.export.rows import KEPT, Rows, rows_of_batch, rows_of_sample

if TYPE_CHECKING:
    from zoo.orca.feed.base import Feed

logger = logging.getLogger("zoo.orca")

# What a model is traced with. One row could be taken for a dimension of size 1, and lose it.
TRACED_ROWS = 2
# How many rows are also computed one at a time.
ALONE = 8
HALF_TOLERANCE = 1e-2


class Exporting:
    """What estimators whose models can be deployed have."""

    #: Rows of the last data that was trained or measured with, and which columns they were.
    _seen: Rows | None = None
    _seen_columns: Columns = Columns()

    def export(
        self,
        format: str,
        path: str,
        *,
        sample: Any = None,
        tolerance: float | None = None,
        int8: Any = None,
        metric: Any = None,
        half: bool = False,
        overwrite: bool = False,
        feature_cols: Any = None,
        label_cols: Any = None,
        calibration_rows: int = 300,
    ) -> ExportReport:
        """Write the trained model for another runtime, and check that it predicts what this estimator does.

        The file is read again by that runtime, and its predictions for some rows are compared with est.predict's. Only
        if they agree is the file kept; else there is an ExportMismatchError, and what was at the path stays.

        Args:
            format: "openvino", "onnx", "torchscript" or "torch.export".
            path: the file to write, on this machine or any filesystem; its ending may be left out.
            sample: rows like those to predict, as est.predict takes them, if no fit has shown any.
            tolerance: the largest difference allowed, as a part of the largest output; 1e-4 unless the estimator or
                the file computes in half precision.
            int8: data to calibrate with, as fit takes it; weights and activations are then written in int8, and the
                report says what that costs. With a tolerance, int8 is held to it, too.
            metric: a function metric(labels, predictions) that measures int8; the estimator's own metrics if left out.
            half: write weights in half precision (openvino).
            overwrite: replace files that are there already.
            feature_cols, label_cols: columns of sample and int8 where they are frames; the last fit's if left out.
            calibration_rows: how many rows of int8 are used.
        """
        chosen = find_format(format)
        chosen.check_installed()
        paths = _check_paths(chosen, check_path(path, "path"), overwrite)
        limit = _check_tolerance(tolerance)
        if half and chosen.name != "openvino":
            raise InvalidArgumentError(f'half=True goes with format="openvino", but format is {chosen.name!r}.')
        columns = self._columns_of(feature_cols, label_cols)
        original = self._original()
        rows = _named(original.cast(self._rows(sample, columns)), original.input_names())
        calibration = None
        if int8 is not None:
            check_int8(chosen)
            found = gather(int8, columns, calibration_rows, "int8", bool(label_cols))
            calibration = Calibration(_like(rows, original.cast(found.rows)), found.labels)
            check_finite(calibration.rows)
        measure = original.measure if metric is None else measure_by(metric)
        if metric is not None and (calibration is None or calibration.labels is None):
            raise InvalidArgumentError("metric measures int8 against labels, and there are none. Pass int8=(x, y).")
        with tempfile.TemporaryDirectory(prefix="orca-export-") as folder:
            job = _Job(chosen, paths, original, rows, limit, half, Path(folder))
            report = job.run(calibration, measure)
        logger.info("exported:\n%s", report)
        return report

    @abstractmethod
    def _original(self) -> Original:
        """The trained model, to be written."""

    def _remember(self, feed: Feed, batch: Any) -> None:
        """Keep a few rows of the data that is trained with; later they show what the model takes."""
        if batch is not None:
            self._seen = rows_of_batch(feed, batch, self._seen_columns.features)

    def _columns_of(self, feature_cols: Any, label_cols: Any) -> Columns:
        given, seen = as_columns(feature_cols, label_cols), self._seen_columns
        return Columns(given.features or seen.features, given.labels or seen.labels)

    def _rows(self, sample: Any, columns: Columns) -> Rows:
        if sample is not None:
            if is_in_memory(sample):
                return rows_of_sample(sample, columns.features)
            return gather(sample, Columns(columns.features), KEPT, "sample").rows
        if self._seen is None:
            raise PreconditionError(
                "export needs rows that show what the model takes, and no fit of this estimator has shown any. Pass "
                "sample=x, some rows of features as est.predict takes them."
            )
        return self._seen


@dataclasses.dataclass(frozen=True)
class _Job:
    """One export: what is written, where to, and aside in which folder."""

    format: Format
    paths: list[str]
    original: Original
    rows: Rows
    tolerance: float | None
    half: bool
    folder: Path

    def run(self, calibration: Calibration | None, measure: Measure) -> ExportReport:
        """Write, read again, compare, quantise, and only then put the files where they belong."""
        file = self._aside("model")
        expected = self._expected()
        by = self.original.write(self.format.name, file, self.rows.first(TRACED_ROWS), self.half)
        runtime, runtime_name = self._open(file)
        limit = self.tolerance or max(self.original.tolerance, HALF_TOLERANCE if self.half else 0.0)
        agreement = self._compare(runtime, expected)
        _check_agrees(agreement, limit, self.paths[0])
        loss = None
        if calibration is not None:
            file, loss = self._in_int8(file, runtime, calibration, measure)
        files = self._files(file)
        for source, target in reversed(list(zip(files, self.paths, strict=True))):  # the one that is opened last
            write_file(target, partial(_copy, source))
        return ExportReport(
            format=self.format.name,
            path=self.paths[0],
            files=tuple(self.paths),
            size=sum(each.stat().st_size for each in files),
            by=by,
            runtime=runtime_name,
            inputs=_described(self.rows.names, self.rows.leaves),
            outputs=self._outputs(runtime),
            agreement=agreement,
            tolerance=limit,
            int8=loss,
        )

    def _in_int8(
        self, file: Path, runtime: Runtime, calibration: Calibration, measure: Measure
    ) -> tuple[Path, Int8Loss]:
        target = self._aside("int8")
        quantise(self.format, file, target, calibration.rows, self.original.name)
        after, _ = self._open(target)
        sizes = self._files(file)[-1].stat().st_size, self._files(target)[-1].stat().st_size
        loss = measure_loss(runtime, after, calibration, measure, sizes)
        if self.tolerance is not None:
            _check_agrees(loss.agreement, self.tolerance, self.paths[0], "in int8 ")
        return target, loss

    def _expected(self) -> list[np.ndarray]:
        """What est.predict gives for the rows; without that there is nothing to hold a file against."""
        try:
            expected = self.original.predict(self.rows)
        except OrcaError:
            raise
        except Exception as error:
            rows = ", ".join(map(str, _described(self.rows.names, self.rows.leaves)))
            raise InvalidArgumentError(
                f"{self.original.name} cannot predict the rows to export with, {rows}: {reason_of(error)} Pass "
                "sample=x, some rows of features, without labels, as est.predict takes them."
            ) from error
        if not any(np.isfinite(output).any() for output in expected):
            raise InvalidArgumentError(
                f"{self.original.name} predicts no finite number for the {self.rows.count} rows to export with, so "
                "nothing can be compared. Pass sample=x, rows without NaN, or look at the training."
            )
        return expected

    def _compare(self, runtime: Runtime, expected: list[np.ndarray]) -> Agreement:
        """All rows at once, and some alone: a model may have taken a batch's size, or a branch, for its own."""
        found = self._computed(runtime, self.rows)
        shapes = [[output.shape for output in outputs] for outputs in (expected, found)]
        if shapes[0] != shapes[1]:
            raise ExportMismatchError(
                f"the model as written gives outputs of the shapes {shapes[1]}, but est.predict those of {shapes[0]}. "
                f"{self.paths[0]} was not written. Does a TrainingOperator predict in a way of its own? Else try "
                "another format."
            )
        agreement = compare(expected, found)
        for number in range(min(ALONE, self.rows.count)):
            row = self.rows.only(number)
            try:
                alone = self.original.predict(row)
            except Exception:  # one that squeezes cannot predict a row alone itself
                return agreement
            agreement = agreement.joined(compare(alone, self._computed(runtime, row), scales_of(expected)))
        return agreement

    def _computed(self, runtime: Runtime, rows: Rows) -> list[np.ndarray]:
        try:
            return runtime(rows.leaves)
        except Exception as error:
            raise ExportMismatchError(
                f"the model as written cannot compute a batch of {rows.count} rows, as est.predict does: "
                f"{reason_of(error)} {self.paths[0]} was not written. Does forward() look at the size of its batch, or "
                "squeeze() without saying which dimension? Else try another format."
            ) from error

    def _open(self, file: Path) -> tuple[Runtime, str]:
        with quietly():
            try:
                return self.format.open(file)
            except Exception as error:
                raise cannot_write(self.original.name, self.format.name, error, "Try another format.") from error

    def _outputs(self, runtime: Runtime) -> tuple[Tensor, ...]:
        outputs = runtime(self.rows.leaves)
        return _described(output_names(len(outputs), self.rows.names), outputs)

    def _aside(self, stem: str) -> Path:
        return self.folder / f"{stem}{self.format.endings[0]}"

    def _files(self, file: Path) -> list[Path]:
        return [file.with_suffix(ending) for ending in self.format.endings]


def _copy(source: Path, target: IO[bytes]) -> None:
    with open(source, "rb") as file:
        shutil.copyfileobj(file, target)


def _check_paths(format: Format, path: str, overwrite: bool) -> list[str]:
    paths = format.paths(path)
    for each in paths:
        fs, name = filesystem_of(each)
        if not overwrite and fs.exists(name):
            raise PathExistsError(
                f"{each} is there already. Pass overwrite=True to replace it, or choose another path."
            )
    return paths


def _check_tolerance(tolerance: Any) -> float | None:
    if tolerance is None:
        return None
    if isinstance(tolerance, bool) or not isinstance(tolerance, Real) or not float(tolerance) > 0:
        raise InvalidArgumentError(f"tolerance must be a number above 0, but is {tolerance!r}.")
    return float(tolerance)


def _check_agrees(agreement: Agreement, tolerance: float, path: str, form: str = "") -> None:
    if not agreement.within(tolerance):
        raise ExportMismatchError(
            f"the model {form}as written predicts something else than est.predict: its outputs differ by "
            f"{agreement.difference:.2g}, which is {agreement.relative:.2g} of the largest, and at most {tolerance:g} "
            f"is allowed. {path} was not written. Does forward() draw random numbers, look at the size of its batch, "
            "take branches by the values of rows, or does a TrainingOperator predict in a way of its own? Else pass a "
            "larger tolerance=..., or try another format."
        )


def _named(rows: Rows, names: list[str]) -> Rows:
    """Rows whose inputs all have a name: that of a column, or the model's own, or a number."""
    count = len(rows.leaves)
    for known in (rows.names, tuple(names)):
        if len(known) == count and len(set(known)) == count and all(known):
            return dataclasses.replace(rows, names=known)
    numbered = ("input",) if count == 1 else tuple(f"input_{number}" for number in range(count))
    return dataclasses.replace(rows, names=numbered)


def _like(rows: Rows, others: Rows) -> Rows:
    """Rows to calibrate with, if they are like those that the model is exported with."""
    wanted = [leaf.shape[1:] for leaf in rows.leaves]
    found = [leaf.shape[1:] for leaf in others.leaves]
    if wanted != found:
        raise InvalidArgumentError(
            f"int8 must be data like that of fit, rows of the shapes {wanted}, but they are {found}. Pass "
            "int8=(x, y), or int8=x without labels."
        )
    return dataclasses.replace(others, names=rows.names)


def _described(names: Any, arrays: Any) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(name, str(np.asarray(array).dtype), (None, *array.shape[1:]))
        for name, array in zip(names, arrays, strict=True)
    )
