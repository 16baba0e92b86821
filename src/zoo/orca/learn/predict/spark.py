"""Predict on a Spark DataFrame: one Arrow pass that keeps the order, all columns, and full batches.

A DataFrame that only reads Parquet files gives its tasks the files' names: they read the rows themselves, so that none
goes through the JVM on the way to the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from zoo.orca.data.parquet_scan import ParquetScan, plain_scan
from zoo.orca.engine.garbage import leave_modules_out
from zoo.orca.engine.spark import SparkEngine
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.columns import check_spark_columns, column_to_numpy, concatenate
from zoo.orca.learn.predict.model import (
    Model,
    Predictor,
    Result,
    Shipment,
    Started,
    as_outputs,
    join_results,
    takes_text,
)
from zoo.orca.learn.predict.output import PREDICTION, OutputType
from zoo.orca.optional import require

# A chunk is given to Spark in parts when its predictions are larger than this.
PART_BYTES = 32 << 20

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def predict_spark(
    df: Any,
    predictor: Predictor,
    batch_size: int,
    feature_cols: Sequence[str],
    output: OutputType,
    prediction_col: str = PREDICTION,
) -> Any:
    """The DataFrame with a last column, of predictions; it is computed when it is used. Streaming frames too.

    Args:
        feature_cols: the columns that are forward's arguments, in order.
        output: what the model gives (`OutputType.probe`), which decides the type of the column.
    """
    text = takes_text(predictor)
    check_spark_columns(df, feature_cols, text)
    for name in df.columns:
        if name.lower() == prediction_col.lower():
            raise InvalidArgumentError(
                f"the DataFrame has a column {name!r} already, where the prediction goes. "
                f"Drop or rename it first: df.withColumnRenamed({name!r}, 'earlier')."
            )
    types = require("pyspark.sql.types", "A Spark DataFrame")
    final = [*df.columns, prediction_col]
    *names, prediction = final if _are_plain(final) else map(str, range(len(final)))
    fields = [
        types.StructField(name, field.dataType, field.nullable, field.metadata)
        for name, field in zip(names, df.schema.fields, strict=True)
    ]
    schema = types.StructType([*fields, types.StructField(prediction, output.spark_type)])
    shipment = Shipment(SparkEngine(df.sparkSession.sparkContext), predictor, output.squeeze)
    given = [*names, prediction]
    function = _predicting(shipment, df.columns, given, feature_cols, batch_size, output, text)
    scan = plain_scan(df, df.columns)
    if scan is None:
        source = _renamed(df, names)
    else:
        count = len(scan.partitions)
        source = df.sparkSession.range(0, count, 1, count)
        function = _reading(scan, df.columns, function)
    try:
        return _renamed(source.mapInArrow(function, schema), final)
    except NotImplementedError as error:
        raise InvalidArgumentError(
            f"a column has a type that Arrow cannot carry: {error} Drop it, or cast it to text, before predict."
        ) from error


def _are_plain(names: Sequence[str]) -> bool:
    """Whether mapInArrow can have them: it stumbles over dots in names and over columns of one name."""
    return len({name.lower() for name in names}) == len(names) and not any("." in name or "`" in name for name in names)


def _renamed(df: Any, names: Sequence[str]) -> Any:
    """To give columns the names that they have would still cost a copy of every row."""
    return df if df.columns == list(names) else df.toDF(*names)


def _reading(scan: ParquetScan, names: Sequence[str], function: ArrowFunction) -> ArrowFunction:
    """What a task does that is given numbers of partitions: it reads their rows, and goes on."""

    def read(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks:
            for partition in chunk.column(0).to_pylist():
                yield from scan.batches(partition, names)

    return lambda chunks: function(read(chunks))


def _predicting(
    shipment: Shipment,
    names: Sequence[str],
    given: Sequence[str],
    feature_cols: Sequence[str],
    batch_size: int,
    output: OutputType,
    text: bool = False,
) -> ArrowFunction:
    """What a task does with the Arrow chunks of its partition.

    Args:
        names: those of the DataFrame's columns, in their order.
        given: what columns are called that go out, the prediction's last.
    """

    def predicting(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        leave_modules_out()
        rows = (chunk for chunk in chunks if chunk.num_rows)
        first = next(rows, None)
        if first is not None:
            pass_ = _Pass(shipment.model(), names, given, feature_cols, batch_size, output, text)
            try:
                yield from pass_.chunk(first)
                for chunk in rows:
                    yield from pass_.chunk(chunk)
                yield from pass_.end()
            finally:
                pass_.close()

    return predicting


class _Pass:
    """The way of one partition through the model: chunks come in, full batches go to the model, chunks go out.

    It holds a chunk of rows at most, the batches that the model has begun with, and PART_BYTES of predictions.
    """

    def __init__(
        self,
        model: Model,
        names: Sequence[str],
        given: Sequence[str],
        feature_cols: Sequence[str],
        batch_size: int,
        output: OutputType,
        text: bool = False,
    ):
        self._model = model
        self._given = list(given)
        self._features = [(name, names.index(name)) for name in feature_cols]
        self._batch_size = batch_size
        self._output = output
        self._text = text
        self._waiting: deque[pa.RecordBatch] = deque()  # rows that are not given out yet
        self._left: list[list[np.ndarray]] = []  # features of rows at the end, too few for a batch
        self._left_rows = 0
        self._started: deque[tuple[Started, tuple[np.ndarray, ...]]] = deque()  # batches in the model, and their rows
        self._results: list[Result] = []  # predictions for the first waiting rows
        self._result_rows = 0

    def chunk(self, chunk: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a chunk, and give what is ready."""
        features = [column_to_numpy(chunk.column(at), name, accept_text=self._text) for name, at in self._features]
        self._waiting.append(chunk)
        start = 0
        while start < chunk.num_rows:
            stop = min(chunk.num_rows, start + self._batch_size - self._left_rows)
            self._left.append([column[start:stop] for column in features])
            self._left_rows += stop - start
            start = stop
            if self._left_rows == self._batch_size:
                yield from self._run()

    def end(self) -> Iterator[pa.RecordBatch]:
        """Predict the last rows, and give what is left."""
        if self._left_rows:
            yield from self._run()
        while self._started:
            yield from self._finish()

    def close(self) -> None:
        """Leave no batch in the model, whatever became of the rows."""
        for started, _ in self._started:
            started.close()
        self._started.clear()

    def _run(self) -> Iterator[pa.RecordBatch]:
        """Give the rows at hand to the model, and give what is ready if it has enough to do."""
        columns = zip(self._features, zip(*self._left, strict=True), strict=True)
        features = tuple(concatenate(name, parts) for (name, _), parts in columns)
        self._left, self._left_rows = [], 0
        self._started.append((self._model.start(features), features))
        if len(self._started) >= self._model.ahead:
            yield from self._finish()

    def _finish(self) -> Iterator[pa.RecordBatch]:
        """Wait for the predictions of the batch that was first, and give what is ready."""
        started, features = self._started.popleft()
        result = self._model.finish(started, features)
        if self._results and _shapes(result) != _shapes(self._results[0]):
            yield from self._give(1)
        self._results.append(result)
        self._result_rows += len(features[0])
        row_bytes = sum(output.nbytes for output in as_outputs(result)) // len(as_outputs(result)[0])
        yield from self._give(max(1, PART_BYTES // max(1, row_bytes)))

    def _give(self, part: int) -> Iterator[pa.RecordBatch]:
        """Rows that have their prediction: a whole chunk, or what remains of it, or a part of it if that is large."""
        while self._waiting and self._result_rows >= min(self._waiting[0].num_rows, part):
            chunk = self._waiting.popleft()
            count = min(chunk.num_rows, self._result_rows)
            outputs = as_outputs(joined := join_results(self._results))
            mine = [output[:count] for output in outputs]
            rest = [output[count:] for output in outputs]
            several = isinstance(joined, list)
            self._result_rows -= count
            self._results = [rest if several else rest[0]] if self._result_rows else []
            if count < chunk.num_rows:
                self._waiting.appendleft(chunk.slice(count))
            prediction = self._output.to_arrow(mine if several else mine[0])
            yield pa.RecordBatch.from_arrays([*chunk.slice(0, count).columns, prediction], names=self._given)


def _shapes(result: Result) -> list[tuple[int, ...]]:
    return [output.shape[1:] for output in as_outputs(result)]
