"""The `ingest` row: train a small model on what Parquet files hold, where getting at the rows is most of the work."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks import learn_data
from benchmarks.ranks import WORKERS
from benchmarks.row import Bar, Contender, Kind, Row, Settings
from benchmarks.train_rows import ENVIRONMENT, NEEDS, torchrun

ROWS = 4_000_000
BATCH_SIZE = 8192
EPOCHS = 2
ON_RAY = "Ray Dataset"
DISTRIBUTOR = "Spark TorchDistributor, its DataFrame path"
RAY_DATA = "Ray Data + Ray Train"
TO_PANDAS = "Spark toPandas, one process of 2 threads"
PYARROW = "torchrun ranks that read with pyarrow"


def row(settings: Settings) -> Row:
    rows = ROWS // 10 if settings.quick else ROWS
    folder = settings.data / f"columns-{rows}"
    job = {"folder": str(folder), "kind": "small", "rows": rows, "batch_size": BATCH_SIZE, "epochs": EPOCHS}

    def contend(name: str, kind: Kind, function: str, engine: str, threads: int = 1) -> Contender:
        environment = ENVIRONMENT | {"OMP_NUM_THREADS": str(threads)}
        return Contender(name, kind, f"benchmarks.ingest:{function}", {"job": job}, NEEDS[engine], environment)

    return Row(
        name="ingest",
        title=(
            f"Parquet of {rows:,} rows of {learn_data.WIDTH} floats and a label into an MLP of 1,409 parameters, "
            f"{EPOCHS} epochs, batches of {BATCH_SIZE}, {WORKERS} workers"
        ),
        contenders=(
            contend("Spark DataFrame", "us", "ours_on_spark", "spark"),
            contend("Spark DataFrame, torch_distributed", "us", "ours_on_spark_torch_distributed", "spark"),
            contend(ON_RAY, "us", "ours_on_ray", "ray"),
            contend(DISTRIBUTOR, "peer", "torch_distributor", "spark"),
            contend(RAY_DATA, "peer", "ray_data", "ray"),
            contend(TO_PANDAS, "peer", "to_pandas", "spark", threads=WORKERS),
            torchrun(PYARROW, "limit", "benchmarks.ingest:pyarrow_rank", job),
        ),
        bars=(
            Bar("within 1.3 of ranks that read with pyarrow", PYARROW, at_most=1.3),
            Bar("at least 4 times as fast as TorchDistributor", DISTRIBUTOR, at_least=4),
            Bar("a Ray Dataset at least 2 times as fast as Ray Data + Train", RAY_DATA, us=ON_RAY, at_least=2),
            Bar("at most half of toPandas' peak memory", TO_PANDAS, at_most=0.5, clock="peak"),
        ),
        prepare=partial(learn_data.make_columns, Path(folder), rows),
    )
