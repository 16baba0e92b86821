"""The `growth-shards` curves: what a shard costs the driver, with ten shards and with ten thousand."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil

from benchmarks.growth import Column, Curve, Figures, GrowthBar, Point, ratio
from benchmarks.row import Settings
from benchmarks.train_rows import NEEDS

SIZES = (10, 100, 1000, 10_000)
QUICK_SIZES = (10, 40, 160)
ROWS = 4
WORKERS = 2
STEPS = ("partition", "transform_shard", "len", "repartition", "collect", "fit")


def curve(settings: Settings) -> Curve:
    sizes = QUICK_SIZES if settings.quick else SIZES
    before, most = sizes[-2:]
    return Curve(
        name="growth-shards",
        title=f"XShards of up to {most:,} shards of {ROWS} rows: CPU time of the driver's process, per shard",
        sizes="shards",
        contenders=tuple(
            Point(engine, size, "benchmarks.growth_shards:shards", {"engine": engine}, needs)
            for engine, needs in NEEDS.items()
            for size in sizes
        ),
        columns=(
            *(Column(step, f"{step}, µs") for step in STEPS),
            Column("all", "all, µs"),
            Column("memory", "driver, MB more", 1),
            Column("seconds", "by the clock, s", 1),
        ),
        bars=tuple(
            GrowthBar(
                f"{engine}: a shard of {most:,} costs the driver at most 1.5 times one of {before:,}",
                ratio("all", engine, most, before),
                1.5,
            )
            for engine in NEEDS
        ),
        drawn="all",
        note=(
            "All of it is done once with two shards before. Spark's driver is a JVM as well, which runs the tasks here "
            "and is not counted. `repartition` makes a tenth as many partitions, `fit` trains for ten steps."
        ),
    )


def shards(size: int, engine: str) -> Figures:
    """CPU microseconds of this process for each step, per shard, and the memory it took."""
    from zoo.orca import init_orca_context, stop_orca_context

    modes = {"local": "embedded", "spark": "local", "ray": "ray"}
    init_orca_context(modes[engine], cores=WORKERS)
    _all_steps(2, lambda name, step: step())
    before, used, begun = psutil.Process().memory_info().rss, {}, time.perf_counter()

    def count(name: str, step: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = step()
        used[name] = 1e6 * (time.process_time() - start) / size
        return result

    _all_steps(size, count)
    seconds = time.perf_counter() - begun
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / 2**20
    stop_orca_context()
    return used | {"all": sum(used.values()), "memory": memory, "seconds": seconds}


def _all_steps(size: int, count: Callable[[str, Callable[[], Any]], Any]) -> None:
    from zoo.orca.data import XShards

    x = np.arange(float(size * ROWS), dtype=np.float32).reshape(-1, 1) / (size * ROWS)
    data = {"x": x, "y": x[:, 0]}
    made = count("partition", lambda: XShards.partition(data, size))
    changed = count("transform_shard", lambda: made.transform_shard(_same)).cache()
    labels = changed["y"]
    count("len", lambda: len(labels))
    fewer = count("repartition", lambda: labels.repartition(max(1, size // 10)))
    count("collect", fewer.collect)
    estimator = _estimator()
    count("fit", lambda: estimator.fit(changed, epochs=1, batch_size=max(2, size * ROWS // 10)))
    estimator.shutdown()
    changed.uncache()


def _same(shard: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return shard


def _estimator() -> Any:
    from torch import nn

    from zoo.orca.learn.pytorch import Estimator

    return Estimator.from_torch(
        model=_model, optimizer=_optimizer, loss=nn.MSELoss(), num_workers=WORKERS, backend="bigdl"
    )


def _model(config: dict[str, Any]) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(1, 1), nn.Flatten(0))


def _optimizer(model: Any, config: dict[str, Any]) -> Any:
    import torch

    return torch.optim.SGD(model.parameters(), lr=0.1)
