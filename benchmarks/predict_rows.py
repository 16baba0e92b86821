"""The `predict` rows: a model over Parquet files of twenty columns, and of one column of arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import learn_data
from benchmarks.ranks import as_plain_processes
from benchmarks.row import Bar, Contender, Kind, Row, Settings
from benchmarks.train_rows import ENVIRONMENT, NEEDS

ON_SPARK = ("Spark predict_batch_udf", "Spark mapInPandas", "Spark mapInArrow, hand-written")
ON_RAY = ("Ray Data map_batches", "Ray Data map_batches, Arrow batches")
LIMIT = "pyarrow + torch in two processes"
BATCH_SIZE = 4096


def rows(settings: Settings) -> list[Row]:
    columns, arrays = (count // 10 if settings.quick else count for count in (2_000_000, 200_000))
    return [
        _row(settings, "columns", columns, learn_data.make_columns, f"{columns:,} rows of 20 columns of floats"),
        _row(settings, "images", arrays, learn_data.make_images, f"{arrays:,} rows of arrays of 784 floats"),
    ]


def _row(settings: Settings, kind: str, count: int, make: Callable[[Path, int], None], words: str) -> Row:
    folder = settings.data / f"{kind}-{count}"
    arguments = {"folder": str(folder), "kind": kind, "batch_size": BATCH_SIZE}
    plain = {"function": "benchmarks.predict:plain_rank", "arguments": arguments}

    def contend(name: str, kind: Kind, function: str, engine: str, **more: Any) -> Contender:
        return Contender(name, kind, f"benchmarks.predict:{function}", arguments | more, NEEDS[engine], ENVIRONMENT)

    return Row(
        name=f"predict-{kind}",
        title=f"Predict from Parquet: {words}, 2 workers of 1 thread",
        contenders=(
            contend("Spark DataFrame", "us", "ours_on_spark", "spark"),
            contend("embedded engine", "us", "ours_on_shards", "local"),
            contend("Ray Dataset", "us", "ours_on_ray", "ray"),
            contend("XShards on Ray", "us", "ours_on_shards", "ray", context="ray"),
            contend(ON_SPARK[0], "peer", "spark_udf", "spark"),
            contend(ON_SPARK[1], "peer", "spark_map_in_pandas", "spark"),
            contend(ON_SPARK[2], "peer", "spark_map_in_arrow", "spark"),
            contend(ON_RAY[0], "peer", "ray_map_batches", "ray", batch_format="numpy"),
            contend(ON_RAY[1], "peer", "ray_map_batches", "ray", batch_format="pyarrow"),
            Contender(LIMIT, "limit", as_plain_processes, plain, NEEDS["local"], ENVIRONMENT),
        ),
        clock="rate",
        bars=(
            Bar("Spark: at least 2 times as fast as the best peer on Spark", ON_SPARK, at_least=2),
            Bar("Ray: at least 10 times as fast as Ray Data", ON_RAY, us="XShards on Ray", at_least=10),
            Bar("a Ray Dataset: ahead of Ray Data", ON_RAY, us="Ray Dataset", at_least=1),
            Bar(
                "embedded, from nothing: at least 0.8 of two plain processes",
                LIMIT,
                us="embedded engine",
                clock="seconds",
                at_least=0.8,
            ),
            Bar("Spark, the first query of a session: ahead of the best peer", ON_SPARK, clock="seconds", at_least=1),
        ),
        prepare=partial(make, folder, count),
        tolerance=1e-4,  # floats of 32 bits, multiplied in batches of different sizes
    )
