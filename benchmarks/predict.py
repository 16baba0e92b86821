"""Predicting from Parquet files, with us and with peers; all columns of the result are consumed, and written nowhere.

Each does it twice in one session. Seconds are those of the first pass, from a running engine (or from nothing, where
there is none) to the sum of all predictions; rows a second are those of the second pass.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from benchmarks.learn_data import CLASSES, FEATURES, IMAGE, PIXELS, WIDTH, files_of, matrix_of
from benchmarks.learn_job import Mlp
from benchmarks.passes import twice
from benchmarks.ranks import WORKERS, rank_and_size
from benchmarks.row import Report

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

Kind = Literal["columns", "images"]
Framework = Literal["torch", "keras"]
MEMORY = "4g"
RAY_CORES = 2 * WORKERS  # its tasks and actors each hold one


def create_model(config: dict[str, Any]) -> nn.Module:
    """The same weights everywhere; what it gives is positive, so that sums can be compared."""
    torch.manual_seed(0)
    if config["kind"] == "columns":
        return Mlp(WIDTH, 64, 64, 1, last=nn.Sigmoid()).eval()
    return Mlp(PIXELS, 256, CLASSES, last=nn.Softmax(dim=-1)).eval()


def features_of(kind: Kind) -> list[str]:
    return FEATURES if kind == "columns" else [IMAGE]


def ours_on_spark(folder: str, kind: Kind, batch_size: int, framework: Framework = "torch") -> Report:
    """`Estimator.predict` on a Spark DataFrame."""
    from zoo.orca import stop_orca_context

    session = _spark()
    importlib.import_module(framework)  # torch is there; Keras brings TensorFlow

    def work() -> list[Any]:
        estimator = _estimator(kind, framework, by_columns=True)
        data = session.read.parquet(folder)
        return _consume_on_spark(estimator.predict(data, batch_size=batch_size, feature_cols=features_of(kind)))

    report = twice(work)
    stop_orca_context()
    return report


def ours_on_shards(
    folder: str, kind: Kind, batch_size: int, framework: Framework = "torch", context: str = "embedded"
) -> Report:
    """`Estimator.predict` on shards that each hold the rows of a file; the embedded engine is started by the clock."""
    from zoo.orca import init_orca_context, stop_orca_context
    from zoo.orca.data import XShards

    importlib.import_module(framework)

    def work() -> list[Any]:
        files = np.array(files_of(folder))
        shards = XShards.partition(files, num_shards=len(files)).transform_shard(_read_shard)
        predicted = _estimator(kind, framework).predict(shards, batch_size=batch_size)
        return _add(predicted.transform_shard(_sum_shard).collect())

    start = time.perf_counter()
    init_orca_context(context, cores=WORKERS)
    report = twice(work, start if context == "embedded" else None)
    stop_orca_context()
    return report


def _read_shard(files: np.ndarray) -> dict[str, np.ndarray]:
    return {"x": matrix_of(pa.concat_tables([pq.ParquetFile(file).read(use_threads=False) for file in files]))}


def _sum_shard(shard: dict[str, np.ndarray]) -> list[float]:
    return _sum(shard["prediction"])


def ours_on_ray(folder: str, kind: Kind, batch_size: int) -> Report:
    """`Estimator.predict` on a Ray Dataset."""
    from zoo.orca import init_orca_context, stop_orca_context

    init_orca_context("ray", cores=RAY_CORES)
    import ray

    def work() -> list[Any]:
        data = ray.data.read_parquet(folder)
        return _consume_on_ray(_estimator(kind).predict(data, batch_size=batch_size, feature_cols=features_of(kind)))

    report = twice(work)
    stop_orca_context()
    return report


def _estimator(kind: Kind, framework: Framework = "torch", by_columns: bool = False) -> Any:
    if framework == "keras":
        from benchmarks.keras_predict import make_estimator

        return make_estimator(kind, by_columns)
    from zoo.orca.learn.pytorch import Estimator

    return Estimator.from_torch(
        model=create_model, loss=nn.MSELoss(), config={"kind": kind}, num_workers=WORKERS, backend="bigdl"
    )


def spark_udf(folder: str, kind: Kind, batch_size: int) -> Report:
    """pyspark's `predict_batch_udf`, which adds a column."""

    def run(frame: DataFrame) -> DataFrame:
        from pyspark.ml.functions import predict_batch_udf
        from pyspark.sql.functions import struct

        shapes = [[WIDTH]] if kind == "columns" else [[PIXELS]]
        udf = predict_batch_udf(
            lambda: _udf_function(kind),
            return_type=_spark_type(kind),
            batch_size=batch_size,
            input_tensor_shapes=shapes,
        )
        features = features_of(kind)  # several columns reach the function as one matrix if they come as one struct
        return frame.withColumn("prediction", udf(struct(*features) if len(features) > 1 else features[0]))

    return _on_spark(folder, run)


def _udf_function(kind: Kind) -> Any:
    predict = _predictor(kind)

    def function(inputs: np.ndarray) -> np.ndarray:
        return predict(np.ascontiguousarray(inputs, np.float32))

    return function


def spark_map_in_pandas(folder: str, kind: Kind, batch_size: int) -> Report:
    """`mapInPandas`: frames in, frames with one column more out."""

    def predict_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        predict = _predictor(kind)
        for frame in frames:
            rows = frame[FEATURES].to_numpy(np.float32) if kind == "columns" else np.stack(frame[IMAGE].to_list())
            output = predict(rows)
            yield frame.assign(prediction=output if output.ndim == 1 else list(output))

    return _on_spark(folder, lambda frame: frame.mapInPandas(predict_frames, _with_prediction(frame, kind)))


def spark_map_in_arrow(folder: str, kind: Kind, batch_size: int) -> Report:
    """`mapInArrow` by hand: the columns that came go back as they are."""

    def predict_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        predict = _predictor(kind)
        for batch in batches:
            if batch.num_rows:
                yield batch.append_column("prediction", _to_arrow(predict(matrix_of(batch))))

    return _on_spark(folder, lambda frame: frame.mapInArrow(predict_batches, _with_prediction(frame, kind)))


def _on_spark(folder: str, run: Any) -> Report:
    from zoo.orca import stop_orca_context

    session = _spark()
    report = twice(lambda: _consume_on_spark(run(session.read.parquet(folder))))
    stop_orca_context()
    return report


def _spark() -> SparkSession:
    from zoo.orca import OrcaContext, init_orca_context

    init_orca_context("local", cores=WORKERS, memory=MEMORY)
    return OrcaContext.get_spark_session()


def _consume_on_spark(frame: DataFrame) -> list[Any]:
    """All columns go into Spark's sink that keeps nothing; the sum is taken on the way, in the same pass."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    kind = frame.schema["prediction"].dataType.typeName()
    column = f.col("prediction")
    if kind == "array":
        column = f.element_at(column, 1)
    elif kind not in ("float", "double"):
        column = f.element_at(vector_to_array(column), 1)
    seen = Observation()
    watched = frame.observe(seen, f.count(f.lit(1)).alias("rows"), f.sum(column).alias("total"))
    watched.write.format("noop").mode("overwrite").save()
    return [seen.get["rows"], seen.get["total"]]


def _spark_type(kind: Kind) -> Any:
    from pyspark.sql.types import ArrayType, FloatType

    return FloatType() if kind == "columns" else ArrayType(FloatType())


def _with_prediction(frame: DataFrame, kind: Kind) -> Any:
    from pyspark.sql.types import StructField, StructType

    return StructType([*frame.schema.fields, StructField("prediction", _spark_type(kind))])


def ray_map_batches(folder: str, kind: Kind, batch_size: int, batch_format: str) -> Report:
    """Ray Data's way: a pool of actors that each hold the model."""
    from zoo.orca import init_orca_context, stop_orca_context

    init_orca_context("ray", cores=RAY_CORES)
    import ray

    predictor = {"numpy": NumpyPredictor, "pyarrow": ArrowPredictor}[batch_format]

    def work() -> list[Any]:
        data = ray.data.read_parquet(folder).map_batches(
            predictor,
            fn_constructor_args=(kind,),
            batch_size=batch_size,
            batch_format=batch_format,
            compute=ray.data.ActorPoolStrategy(size=WORKERS),
        )
        return _consume_on_ray(data)

    report = twice(work)
    stop_orca_context()
    return report


class NumpyPredictor:
    def __init__(self, kind: Kind):
        self._kind, self._predict = kind, _predictor(kind)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        columns = [batch[name] for name in features_of(self._kind)]
        rows = np.stack(columns, axis=1) if self._kind == "columns" else np.stack(list(columns[0]))
        return {**batch, "prediction": self._predict(rows)}


class ArrowPredictor:
    def __init__(self, kind: Kind):
        self._predict = _predictor(kind)

    def __call__(self, batch: pa.Table) -> pa.Table:
        return batch.append_column("prediction", _to_arrow(self._predict(matrix_of(batch))))


def _consume_on_ray(data: Any) -> list[Any]:
    """Every batch with all its columns goes through a task that gives its sum."""
    return _add([[row["rows"], row["total"]] for row in data.map_batches(_sum_batch, batch_format="numpy").take_all()])


def _sum_batch(batch: dict[str, np.ndarray]) -> dict[str, list[Any]]:
    predictions = batch["prediction"]
    rows, total = _sum(np.stack(list(predictions)) if predictions.dtype == object else predictions)
    return {"rows": [rows], "total": [total]}


def plain_rank(folder: str, kind: Kind, batch_size: int) -> dict[str, Any]:
    """One of two interpreters that each read and predict half of the files."""
    predict = _predictor(kind)

    def work() -> list[Any]:
        batches = (
            batch
            for file in files_of(folder, *rank_and_size())
            for batch in pq.ParquetFile(file).iter_batches(batch_size, use_threads=False)
        )
        return _add([_sum(predict(matrix_of(batch))) for batch in batches])

    report = twice(work)
    return {"checksum": report.checksum, "rate": report.rate}


def _predictor(kind: Kind) -> Any:
    torch.set_num_threads(1)
    model = create_model({"kind": kind})

    def predict(rows: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return model(torch.as_tensor(rows)).numpy()

    return predict


def _to_arrow(predictions: np.ndarray) -> pa.Array:
    if predictions.ndim == 1:
        return pa.array(predictions)
    offsets = np.arange(0, predictions.size + 1, predictions.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(predictions.ravel()))


def _sum(predictions: np.ndarray) -> list[Any]:
    """How many, and the sum of the first output of each."""
    first = predictions if predictions.ndim == 1 else predictions[:, 0]
    return [len(first), float(first.sum(dtype=np.float64))]


def _add(sums: list[list[Any]]) -> list[Any]:
    return [sum(rows for rows, _ in sums), sum(total for _, total in sums)]
