"""Between DataFrames, XShards and RDDs of predictions; the module's name and its functions are published ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from zoo.orca.context import OrcaContext
from zoo.orca.data.convert import BLOB, pack, unpack
from zoo.orca.data.shard import XShards
from zoo.orca.engine.spark import SparkEngine, SparkPlacement
from zoo.orca.errors import InvalidArgumentError, PreconditionError, ShardTypeError
from zoo.orca.feed.columns import column_to_numpy, concatenate, frame_columns, select_for_arrow
from zoo.orca.feed.structure import count_rows
from zoo.orca.learn.checkpoint import find_checkpoint, optimizer_name
from zoo.orca.learn.predict.output import PREDICTION, OutputType
from zoo.orca.names import public_names
from zoo.orca.optional import is_instance_of, require

MODES = ("fit", "evaluate", "predict")


def convert_predict_rdd_to_dataframe(df: Any, prediction_rdd: Any) -> Any:
    """The DataFrame with a column `prediction`, from an RDD with a prediction for each row, in the same partitions.

    A prediction is a number, an array, or a list of arrays; the first one decides the type of the column.
    """
    types = require("pyspark.sql.types", "A Spark DataFrame")
    first = prediction_rdd.take(1)
    output = _output_type(first[0]) if first else OutputType((0,))
    schema = types.StructType([*df.schema.fields, types.StructField(PREDICTION, output.spark_type)])
    rows = df.rdd.zip(prediction_rdd).map(lambda pair: (*pair[0], _as_cell(pair[1])))
    return df.sparkSession.createDataFrame(rows, schema)


def convert_predict_rdd_to_xshard(data: XShards, prediction_rdd: Any) -> XShards:
    """The shards with "prediction" added, from an RDD with a prediction for each record, in the same partitions."""

    def add(shards: Iterator[Any], predictions: Iterator[Any]) -> Iterator[dict[str, Any]]:
        for shard in shards:
            mine = list(itertools.islice(predictions, count_rows(shard["x"])))
            yield {**shard, PREDICTION: _stacked(mine)}

    return XShards.from_placement(data.placement.zip(SparkPlacement(prediction_rdd), add))


def convert_predict_xshards_to_dataframe(df: Any, pred_shards: XShards) -> Any:
    """The DataFrame with a column `prediction`, from shards `{"prediction": ...}` in the same partitions."""
    placement = pred_shards.placement
    if not isinstance(placement, SparkPlacement):
        placement = SparkEngine(df.sparkSession.sparkContext).place(placement.fetch())
    return convert_predict_rdd_to_dataframe(df, placement.rdd.flatMap(_each_prediction))


def update_predict_xshards(xshard: XShards, pred_xshards: XShards) -> XShards:
    """The dict shards of the first, with the entries of the second's put in, shard by shard."""
    pairs = xshard.placement.zip(pred_xshards.placement, lambda mine, theirs: zip(mine, theirs, strict=True))
    return XShards.from_placement(pairs.map(lambda index, shards: ({**mine, **theirs} for mine, theirs in shards)))


def arrays2dict(
    iter: Iterable[Any],
    feature_cols: Sequence[Any],
    label_cols: Sequence[Any] | None,
    shard_size: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Shards `{"x", "y"}` of (features, labels) records: all in one, or shard_size in each, the rest in the last.

    The features of a record are an array, or a list of them if there are several columns; so are the labels.
    """
    records = itertools.chain(iter)  # the name of the argument is published, and hides the builtin
    while chunk := list(itertools.islice(records, shard_size)):
        shard = {"x": _stack_columns([record[0] for record in chunk], len(feature_cols))}
        if label_cols:
            shard["y"] = _stack_columns([record[1] for record in chunk], len(label_cols))
        yield shard


def dataframe_to_xshards(
    data: Any,
    validation_data: Any,
    feature_cols: Sequence[str],
    label_cols: Sequence[str] | None,
    mode: str = "fit",
    num_workers: int | None = None,
    accept_str_col: bool = False,
) -> tuple[XShards, XShards | None]:
    """Shards `{"x", "y"}` of a DataFrame and of one for validation, or None.

    Args:
        mode: "fit", "evaluate" or "predict", which needs no labels.
        num_workers: at least so many partitions, outside "predict", so that no worker is without data.
    """
    if mode not in MODES:
        raise InvalidArgumentError(f"mode must be one of {', '.join(MODES)}, but is {mode!r}.")
    if mode != "predict" and not label_cols:
        raise PreconditionError(f"label_cols must be given to {mode} on a DataFrame: a list of column names.")
    labels = None if mode == "predict" else label_cols
    if num_workers and mode != "predict" and data.rdd.getNumPartitions() < num_workers:
        data = data.repartition(num_workers)
    shards = _dataframe_to_xshards(data, feature_cols, labels, accept_str_col)
    if validation_data is None:
        return shards, None
    count = data.rdd.getNumPartitions()
    if validation_data.rdd.getNumPartitions() != count:
        validation_data = validation_data.repartition(count)
    return shards, _dataframe_to_xshards(validation_data, feature_cols, labels, accept_str_col)


def maybe_dataframe_to_xshards(
    data: Any,
    validation_data: Any,
    feature_cols: Sequence[str] | None,
    label_cols: Sequence[str] | None,
    mode: str = "fit",
    num_workers: int | None = None,
    accept_str_col: bool = False,
) -> tuple[Any, Any]:
    """`dataframe_to_xshards` if data is a DataFrame; other data as it came."""
    if not is_instance_of(data, "pyspark.sql", "DataFrame"):
        return data, validation_data
    return dataframe_to_xshards(
        data, validation_data, feature_cols or (), label_cols, mode, num_workers, accept_str_col
    )


def process_xshards_of_pandas_dataframe(
    data: XShards,
    feature_cols: Sequence[Any] | None,
    label_cols: Sequence[Any] | None = None,
    validation_data: XShards | None = None,
    mode: str | None = None,
) -> Any:
    """Dict shards of pandas shards, and of those for validation if the mode is "fit"; dict shards as they came."""
    shards = _as_dicts(data, feature_cols, label_cols)
    if mode != "fit":
        return shards
    return shards, None if validation_data is None else _as_dicts(validation_data, feature_cols, label_cols)


def transform_to_shard_dict(
    data: XShards, feature_cols: Sequence[Any], label_cols: Sequence[Any] | None = None
) -> XShards:
    """Pandas shards as dicts: "x" is a list of the feature columns, "y" the first label column."""
    features, labels = list(feature_cols), list(label_cols or ())[:1]

    def to_dict(shard: pd.DataFrame) -> dict[str, Any]:
        if not isinstance(shard, pd.DataFrame):
            raise ShardTypeError(
                f"expected shards of pandas DataFrames, but there is a {type(shard).__name__}. "
                "Turn each into one first (transform_shard)."
            )
        converted: dict[str, Any] = {"x": frame_columns(shard, features)}
        return converted | ({"y": frame_columns(shard, labels)[0]} if labels else {})

    return data.transform_shard(to_dict)


def find_latest_checkpoint(model_dir: str, model_type: str = "bigdl") -> tuple[str, str | None, int]:
    """The folder, the model's name and the number of the newest checkpoint below a folder."""
    if model_type not in ("bigdl", "pytorch", "tf"):
        raise InvalidArgumentError(f'model_type must be "bigdl", "pytorch" or "tf", but is {model_type!r}.')
    folder, number = find_checkpoint(model_dir)
    return folder, optimizer_name(folder, number), number


def bigdl_metric_results_to_dict(results: Iterable[Any]) -> dict[str, Any]:
    """Metric name -> value, of results that have `method` and `result`."""
    return {result.method: result.result for result in results}


def _dataframe_to_xshards(
    data: Any, feature_cols: Sequence[str], label_cols: Sequence[str] | None = None, accept_str_col: bool = False
) -> XShards:
    """A shard `{"x", "y"}` for each partition with rows, or several of OrcaContext._shard_size rows."""
    names = [*feature_cols, *(label_cols or ())]
    chosen = select_for_arrow(data, names, accept_str_col)
    at = {name: number for number, name in enumerate(chosen.columns)}
    size, features, labels = OrcaContext._shard_size, list(feature_cols), list(label_cols or ())

    def read(index: int, blobs: Iterator[Any]) -> Iterator[dict[str, Any]]:
        chunks = [unpack(row[BLOB]) for row in blobs]
        if not chunks:
            return
        columns = {name: _join(name, [chunk.column(at[name]) for chunk in chunks], accept_str_col) for name in at}
        rows = len(columns[features[0]])
        for start in range(0, rows, size or rows):
            stop = start + (size or rows)
            shard = {"x": _one_or_tuple([columns[name][start:stop] for name in features])}
            if labels:
                shard["y"] = _one_or_tuple([columns[name][start:stop] for name in labels])
            yield shard

    numbered = chosen.toDF(*map(str, range(len(at))))  # mapInArrow stumbles over dots in names
    packed = numbered.mapInArrow(_pack_each, f"{BLOB} binary").rdd
    return XShards.from_placement(SparkPlacement(packed).map(read))


def _pack_each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch as one row of bytes."""
    for batch in batches:
        if batch.num_rows:
            yield pa.RecordBatch.from_pydict({BLOB: [pack(pa.Table.from_batches([batch]))]})


def _join(name: str, chunks: list[pa.ChunkedArray], accept_text: bool) -> np.ndarray:
    parts = [column_to_numpy(chunk, name, accept_text=accept_text) for chunk in chunks]
    return np.require(concatenate(name, parts), requirements="W")


def _one_or_tuple(arrays: list[np.ndarray]) -> Any:
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _stack_columns(records: list[Any], columns: int) -> Any:
    if columns == 1:
        return np.stack([np.asarray(record[0] if isinstance(record, list | tuple) else record) for record in records])
    return tuple(np.stack([np.asarray(record[column]) for record in records]) for column in range(columns))


def _as_dicts(data: XShards, feature_cols: Any, label_cols: Any) -> XShards:
    if data._get_class_name() != "pandas.core.frame.DataFrame":
        return data
    if not feature_cols:
        raise PreconditionError("feature_cols must be given for shards of pandas DataFrames: a list of column names.")
    return transform_to_shard_dict(data, feature_cols, label_cols)


def _stacked(predictions: list[Any]) -> Any:
    """The predictions of records as an array, or as a list of arrays if each is a list."""
    if predictions and isinstance(predictions[0], list | tuple):
        return [np.stack(parts) for parts in zip(*predictions, strict=True)]
    return np.stack(predictions) if predictions else np.empty(0, np.float32)


def _each_prediction(shard: Any) -> Iterator[Any]:
    """The prediction of each record of a shard."""
    prediction = shard[PREDICTION]
    return map(list, zip(*prediction, strict=True)) if isinstance(prediction, list | tuple) else iter(prediction)


def _output_type(prediction: Any) -> OutputType:
    several = isinstance(prediction, list | tuple)
    parts = prediction if several else [prediction]
    return OutputType(tuple(np.ndim(part) for part in parts), several)


def _as_cell(prediction: Any) -> Any:
    """A prediction as the value of a DataFrame's cell."""
    from pyspark.ml.linalg import Vectors

    if isinstance(prediction, list | tuple):
        return [Vectors.dense(np.atleast_1d(part)) for part in prediction]
    array = np.asarray(prediction)
    if array.ndim == 1:
        return Vectors.dense(array)
    return array.astype(float).tolist()


__dir__ = public_names(globals())
