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
DISTRIBUTOR = "Spark TorchDistributor, its DataFrame path"


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
            contend("Ray Dataset", "us", "ours_on_ray", "ray"),
            contend(DISTRIBUTOR, "peer", "torch_distributor", "spark"),
            contend("Ray Data + Ray Train", "peer", "ray_data", "ray"),
            contend("Spark toPandas, one process of 2 threads", "peer", "to_pandas", "spark", threads=WORKERS),
            torchrun("torchrun ranks that read with pyarrow", "limit", "benchmarks.ingest:pyarrow_rank", job),
        ),
        bars=(Bar("at least 2 times as fast as TorchDistributor", DISTRIBUTOR, at_most=1 / 2),),
        prepare=partial(learn_data.make_columns, Path(folder), rows),
    )
