"""The `growth-rows` curves: what one more row costs `fit` and `predict`, from ten thousand rows to ten million."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import learn_data
from benchmarks.growth import Column, Curve, Figures, GrowthBar, Point, add_marginal, ratio
from benchmarks.row import Settings
from benchmarks.train_rows import NEEDS

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
QUICK_SIZES = (1_000, 10_000, 100_000)
FAR = 100_000_000
BATCH_SIZE = 8192
WORKERS = 2
ENGINES = {"embedded": "local", "spark": "spark"}


def curve(settings: Settings) -> Curve:
    sizes = QUICK_SIZES if settings.quick else SIZES
    before, largest = sizes[-2:]
    points = [
        Point(
            f"{work}, {engine}",
            size,
            f"benchmarks.growth_rows:{work}",
            {"folder": str(folder_of(settings, size)), "engine": engine},
            NEEDS[needs],
        )
        for engine, needs in ENGINES.items()
        for work in ("fit", "predict")
        for size in sizes
    ]
    series = list(dict.fromkeys(point.series for point in points))
    return Curve(
        name="growth-rows",
        title=(
            f"Parquet of {learn_data.WIDTH} floats and a label: `fit` for one epoch (MLP of 1,409 parameters, batches "
            f"of {BATCH_SIZE}) and `predict`, {WORKERS} workers"
        ),
        sizes="rows",
        contenders=tuple(points),
        columns=(
            Column("seconds", "seconds", 2),
            Column("rate", "rows a second"),
            Column("marginal", "one more row, µs", 3),
            Column("far", f"{FAR:,} rows by proportion, s"),
        ),
        bars=tuple(
            GrowthBar(
                f"{each}: one more row at {largest:,} costs at most 1.3 times what it costs at {before:,}",
                ratio("marginal", each, largest, before),
                1.3,
            )
            for each in series
        ),
        drawn="rate",
        derive=_derive,
        prepare=partial(_prepare, settings, sizes),
        rounds=3,
        note=(
            "The engine runs, and has done the same once before the clock starts, so that its processes have the "
            "memory. One more row is what was taken longer than at the size before, over the rows that were more, so "
            "that starting is not in it. "
            f"{FAR:,} rows are not measured: the last column is the largest size and the cost of every row beyond it."
        ),
    )


def fit(size: int, folder: str, engine: str) -> Figures:
    """Read the files and train for an epoch."""
    return _timed(size, folder, engine, train)


def predict(size: int, folder: str, engine: str) -> Figures:
    """Read the files and add up what the model says of every row."""
    return _timed(size, folder, engine, predict_all)


def _timed(size: int, folder: str, engine: str, work: Any) -> Figures:
    from zoo.orca import stop_orca_context

    read = start(engine)
    work(read(folder), engine)
    begun = time.perf_counter()
    work(read(folder), engine)
    seconds = time.perf_counter() - begun
    stop_orca_context()
    return {"seconds": seconds, "rate": size / seconds}


def start(engine: str) -> Callable[[str], Any]:
    """Start an engine; what reads a folder of Parquet files there."""
    from zoo.orca import OrcaContext, init_orca_context
    from zoo.orca.data import pandas as orca_pandas

    if engine == "spark":
        init_orca_context("local", cores=WORKERS, memory="4g")
        return OrcaContext.get_spark_session().read.parquet
    init_orca_context("embedded", cores=WORKERS)
    return orca_pandas.read_parquet


def _estimator() -> Any:
    from torch import nn

    from benchmarks.learn_job import Job, config_of, create_model, create_optimizer
    from zoo.orca.learn.pytorch import Estimator

    job = Job(folder="", kind="small", rows=1, batch_size=BATCH_SIZE, epochs=2)
    return Estimator.from_torch(
        model=create_model,
        optimizer=create_optimizer,
        loss=nn.MSELoss(),
        config=config_of(job),
        num_workers=WORKERS,
        backend="bigdl",
    )


def train(data: Any, engine: str) -> None:
    """One epoch of a new model."""
    names = {} if isinstance(data, dict) else {"feature_cols": learn_data.FEATURES, "label_cols": [learn_data.LABEL]}
    estimator = _estimator()
    estimator.fit(data, epochs=1, batch_size=BATCH_SIZE, **names)
    estimator.shutdown()


def predict_all(data: Any, engine: str) -> None:
    """What a new model says of every row, computed and left where it is."""
    estimator = _estimator()
    predicted = estimator.predict(data, batch_size=BATCH_SIZE, feature_cols=learn_data.FEATURES)
    if engine == "spark":
        predicted.select("prediction").write.format("noop").mode("overwrite").save()
    else:
        predicted.transform_shard(_count).collect()
    estimator.shutdown()


def _count(shard: Any) -> int:
    return len(shard["prediction"] if isinstance(shard, dict) else shard)


def _derive(measured: dict[str, dict[int, Figures]]) -> None:
    add_marginal("seconds", "marginal", 1e6)(measured)
    for sizes in measured.values():
        largest = max(sizes)
        if "marginal" in sizes[largest]:
            sizes[largest]["far"] = sizes[largest]["seconds"] + sizes[largest]["marginal"] * (FAR - largest) / 1e6


def _prepare(settings: Settings, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        learn_data.make_columns(folder_of(settings, size), size)


def folder_of(settings: Settings, size: int) -> Path:
    return settings.data / f"columns-{size}"
