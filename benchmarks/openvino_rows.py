"""The `predict-openvino` rows: a model file over arrays in memory, and over a Spark DataFrame of arrays."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.openvino_models import Net
from benchmarks.openvino_predict import make_data
from benchmarks.row import Bar, Contender, Kind, Row, Settings
from benchmarks.train_rows import ENVIRONMENT

QUEUE = "AsyncInferQueue, one process"
DRIVER = "AsyncInferQueue in the driver, over df.toArrow()"
PARQUET = "AsyncInferQueue over Parquet, without Spark"
PANDAS = "Spark mapInPandas, hand-written"
NEEDS = {"local": ("openvino",), "spark": ("openvino", "pyspark")}
BATCH_SIZES: dict[Net, int] = {"cnn": 32, "mlp": 256}
ROWS: dict[Net, int] = {"cnn": 8_000, "mlp": 200_000}
WORDS: dict[Net, str] = {"cnn": "images of 3 x 64 x 64, a network of 304 MFLOP", "mlp": "rows of 784 floats, an MLP"}


def rows(settings: Settings) -> list[Row]:
    return [_arrays(settings, "cnn"), _arrays(settings, "mlp"), _spark(settings, "cnn"), _spark(settings, "mlp")]


def _arrays(settings: Settings, net: Net) -> Row:
    contend = _Contend(settings, net)
    return Row(
        name=f"predict-openvino-arrays-{net}",
        title=f"OpenVINO on an array: {contend.words}, 2 cores",
        contenders=(
            contend("Estimator.predict", "us", "ours_on_arrays", "local"),
            contend(QUEUE, "peer", "queue_on_arrays", "local"),
        ),
        clock="rate",
        bars=(Bar("at least 0.9 of AsyncInferQueue's speed", QUEUE, at_least=0.9),),
        prepare=contend.prepare,
        tolerance=1e-4,
    )


def _spark(settings: Settings, net: Net) -> Row:
    contend = _Contend(settings, net)
    ahead = Bar("at least 3 times as fast as a hand-written mapInPandas", PANDAS, at_least=3)
    queue = Bar("at least 0.9 of AsyncInferQueue's speed over the DataFrame's rows", DRIVER, at_least=0.9)
    return Row(
        name=f"predict-openvino-spark-{net}",
        title=f"OpenVINO on a Spark DataFrame from Parquet: {contend.words}, 2 cores",
        contenders=(
            contend("Spark DataFrame", "us", "ours_on_spark", "spark"),
            contend(PANDAS, "peer", "spark_map_in_pandas", "spark"),
            contend(DRIVER, "peer", "queue_on_driver", "spark"),
            # It never sees Spark, which alone takes time to read the rows and to take them back.
            contend(PARQUET, "limit", "queue_on_parquet", "local"),
        ),
        clock="rate",
        bars=(ahead, queue),
        prepare=contend.prepare,
        tolerance=1e-4,
    )


class _Contend:
    """The contenders for one network, all on the same data."""

    def __init__(self, settings: Settings, net: Net):
        count = ROWS[net] // 10 if settings.quick else ROWS[net]
        folder = settings.data / f"openvino-{net}-{count}"
        self._arguments: dict[str, Any] = {"folder": str(folder), "net": net, "batch_size": BATCH_SIZES[net]}
        self.words = f"{count:,} {WORDS[net]}"
        self.prepare = partial(make_data, folder, count, net)

    def __call__(self, name: str, kind: Kind, function: str, engine: str) -> Contender:
        work = f"benchmarks.openvino_predict:{function}"
        return Contender(name, kind, work, self._arguments, NEEDS[engine], ENVIRONMENT)
