"""Predicting with a model file of OpenVINO, with us and with peers, on the same two cores and with the same precision.

Each does it twice in one process, which has imported OpenVINO. Seconds are those of the first pass, from a running
engine (or from nothing, where there is none) to the sum of all predictions; rows a second are those of the second pass.
Reading and compiling the model is part of both.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.learn_data import FILES, IMAGE, files_of, make_images
from benchmarks.openvino_models import SHAPES, Net, write_model
from benchmarks.passes import twice
from benchmarks.ranks import WORKERS
from benchmarks.row import Report

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

ARRAYS = "x.npy"
MEMORY = "4g"


def make_data(folder: Path, rows: int, net: Net) -> None:
    """A model, an array of rows in memory's own form, and Parquet files of the same size with a column of flat rows."""
    write_model(folder / "model.xml", net)
    if net == "mlp":
        make_images(folder / "parquet", rows)
    if (folder / ARRAYS).exists():
        return
    x = np.random.default_rng(2026).standard_normal((rows, *SHAPES[net]), np.float32)
    if net == "cnn":
        (folder / "parquet").mkdir(exist_ok=True)
        for number, part in enumerate(np.split(x, FILES)):
            offsets = np.arange(0, part.size + 1, part[0].size, dtype=np.int32)
            images = pa.ListArray.from_arrays(offsets, pa.array(part.ravel()))
            pq.write_table(pa.table({IMAGE: images}), folder / "parquet" / f"part-{number}.parquet", compression="none")
    np.save(folder / ARRAYS, x)


def ours_on_arrays(folder: str, net: Net, batch_size: int) -> Report:
    """`Estimator.predict` on an array in memory."""
    from zoo.orca import init_orca_context, stop_orca_context

    init_orca_context("embedded", cores=WORKERS)
    _import()
    x = np.load(Path(folder) / ARRAYS)
    report = twice(lambda: _sum([_estimator(folder).predict(x, batch_size=batch_size)]))
    stop_orca_context()
    return report


def queue_on_arrays(folder: str, net: Net, batch_size: int) -> Report:
    """One process that keeps `AsyncInferQueue` busy."""
    _import()
    x = np.load(Path(folder) / ARRAYS)

    def work() -> list[Any]:
        batches = (x[first : first + batch_size] for first in range(0, len(x), batch_size))
        return _sum(_through_queue(folder, batches))

    return twice(work)


def queue_on_parquet(folder: str, net: Net, batch_size: int) -> Report:
    """One process that reads Parquet with pyarrow, and keeps `AsyncInferQueue` busy."""
    _import()

    def work() -> list[Any]:
        batches = (
            _rows(batch.column(IMAGE), net)
            for file in files_of(str(Path(folder) / "parquet"))
            for batch in pq.ParquetFile(file).iter_batches(batch_size)
        )
        return _sum(_through_queue(folder, batches))

    return twice(work)


def queue_on_driver(folder: str, net: Net, batch_size: int) -> Report:
    """The DataFrame's rows brought to the driver as Arrow, which keeps `AsyncInferQueue` busy."""
    from zoo.orca import stop_orca_context

    session = _spark()
    _import()

    def work() -> list[Any]:
        table = session.read.parquet(str(Path(folder) / "parquet")).toArrow()
        batches = (_rows(batch.column(IMAGE), net) for batch in table.to_batches(batch_size))
        return _sum(_through_queue(folder, batches))

    report = twice(work)
    stop_orca_context()
    return report


def _through_queue(folder: str, batches: Iterable[np.ndarray]) -> list[np.ndarray]:
    import openvino

    compiled = _compile(folder, WORKERS)
    queue = openvino.AsyncInferQueue(compiled)
    results: list[np.ndarray] = []
    queue.set_callback(lambda request, _: results.append(request.get_output_tensor(0).data.copy()))
    for batch in batches:
        queue.start_async([batch])
    queue.wait_all()
    return results


def _compile(folder: str, threads: int) -> Any:
    import openvino

    properties = {
        "PERFORMANCE_HINT": "THROUGHPUT",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",  # as ours: a CPU with bfloat16 would use that by itself
        "ENABLE_CPU_PINNING": threads == WORKERS,
    }
    return openvino.Core().compile_model(str(Path(folder) / "model.xml"), "CPU", properties)


def ours_on_spark(folder: str, net: Net, batch_size: int) -> Report:
    """`Estimator.predict` on a Spark DataFrame."""
    return _on_spark(
        folder, lambda frame: _estimator(folder).predict(frame, feature_cols=[IMAGE], batch_size=batch_size)
    )


def spark_map_in_pandas(folder: str, net: Net, batch_size: int) -> Report:
    """`mapInPandas` by hand: a compiled model a task, a batch of rows at a time."""

    def predict_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        request = _compile(folder, 1).create_infer_request()
        for frame in frames:
            rows = np.stack(frame[IMAGE].to_list()).reshape(len(frame), *SHAPES[net])
            parts = [
                request.infer([rows[start : start + batch_size]])[0].copy() for start in range(0, len(rows), batch_size)
            ]
            yield frame.assign(prediction=list(np.concatenate(parts)))

    def run(frame: DataFrame) -> DataFrame:
        from pyspark.sql.types import ArrayType, FloatType, StructField, StructType

        schema = StructType([*frame.schema.fields, StructField("prediction", ArrayType(FloatType()))])
        return frame.mapInPandas(predict_frames, schema)

    return _on_spark(folder, run)


def _on_spark(folder: str, run: Callable[[DataFrame], DataFrame]) -> Report:
    from zoo.orca import stop_orca_context

    session = _spark()
    _import()
    report = twice(lambda: _consume(run(session.read.parquet(str(Path(folder) / "parquet")))))
    stop_orca_context()
    return report


def _spark() -> SparkSession:
    from zoo.orca import OrcaContext, init_orca_context

    init_orca_context("local", cores=WORKERS, memory=MEMORY)
    return OrcaContext.get_spark_session()


def _consume(frame: DataFrame) -> list[Any]:
    """All columns go into Spark's sink that keeps nothing; the sum is taken on the way, in the same pass."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    column = f.col("prediction")
    if frame.schema["prediction"].dataType.typeName() != "array":
        column = vector_to_array(column)
    seen = Observation()
    watched = frame.observe(seen, f.count(f.lit(1)).alias("rows"), f.sum(f.element_at(column, 1)).alias("total"))
    watched.write.format("noop").mode("overwrite").save()
    return [seen.get["rows"], seen.get["total"]]


def _import() -> None:
    """What every contender of this process needs is loaded before the clock runs."""
    importlib.import_module("openvino")
    importlib.import_module("zoo.orca.learn.openvino")


def _estimator(folder: str) -> Any:
    from zoo.orca.learn.openvino import Estimator

    return Estimator.from_openvino(model_path=str(Path(folder) / "model.xml"))


def _rows(images: pa.Array, net: Net) -> np.ndarray:
    return images.flatten().to_numpy().reshape(-1, *SHAPES[net])


def _sum(results: list[np.ndarray]) -> list[Any]:
    """How many, and the sum of the first output of each."""
    return [sum(map(len, results)), float(sum(each[:, 0].sum(dtype=np.float64) for each in results))]
