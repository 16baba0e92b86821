"""The `train` rows: a model of 5.8 million parameters, and one so small that talking costs as much as computing.

Rows a second are those of the epochs after the first, told by the loss (`learn_job.py`), for all contenders alike.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import learn_data
from benchmarks.ranks import WORKERS, under_torchrun
from benchmarks.row import Bar, Contender, Kind, Row, Settings

BATCH_SIZE = 256
NEEDS = {"local": ("torch",), "spark": ("torch", "pyspark"), "ray": ("torch", "ray")}
ENGINES = ("local", "spark", "ray")
BACKENDS = ("bigdl", "torch_distributed")
LOOP = "torchrun, hand-written DDP loop"
# One thread a worker: torch would otherwise take every core of the machine for each of them.
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def rows(settings: Settings) -> list[Row]:
    return [_mlp(settings), _small(settings)]


def _mlp(settings: Settings) -> Row:
    job = _job(settings, "mlp", rows=60_000, epochs=2)
    ours = [_ours(job, engine, backend) for engine in ENGINES for backend in BACKENDS]
    return Row(
        name="train-mlp",
        title=f"MLP of 5,824,522 parameters on {job['rows']:,} rows of 784 floats, {_setting(job)}",
        contenders=(
            *ours,
            _contender("Lightning Trainer, ddp", "peer", "lightning_ddp", job, ("torch", "lightning")),
            _contender("Ray Train TorchTrainer", "peer", "ray_train", job, NEEDS["ray"]),
            _contender("Spark TorchDistributor", "peer", "torch_distributor", job, NEEDS["spark"]),
            torchrun(LOOP, "limit", "benchmarks.train:torchrun_rank", job),
        ),
        bars=tuple(
            Bar(f"{each.name}: at least 0.9 of the torchrun loop's rows a second", LOOP, 1 / 0.9, us=each.name)
            for each in ours
        ),
        clock="rate",
        prepare=partial(
            learn_data.make_arrays, Path(job["folder"]), job["rows"], learn_data.PIXELS, learn_data.CLASSES
        ),
    )


def _small(settings: Settings) -> Row:
    """No bar yet: the issue that drives speed sets it."""
    job = _job(settings, "small", rows=200_000, epochs=3)
    return Row(
        name="train-small",
        title=f"MLP of 1,409 parameters on {job['rows']:,} rows of 20 floats, {_setting(job)}",
        contenders=(
            *(_ours(job, "local", backend) for backend in BACKENDS),
            torchrun(LOOP, "peer", "benchmarks.train:torchrun_rank", job),
        ),
        clock="rate",
        prepare=partial(learn_data.make_arrays, Path(job["folder"]), job["rows"], learn_data.WIDTH, 0),
    )


def torchrun(name: str, kind: Kind, function: str, job: dict[str, Any]) -> Contender:
    """A script on the ranks of torchrun."""
    arguments = {"function": function, "arguments": {"job": job}}
    return Contender(name, kind, under_torchrun, arguments, NEEDS["local"], ENVIRONMENT)


def _job(settings: Settings, kind: str, rows: int, epochs: int) -> dict[str, Any]:
    """The arguments of `learn_job.Job`, whose module imports torch."""
    rows = rows // 20 if settings.quick else rows
    folder = str(settings.data / f"train-{kind}-{rows}")
    return {"folder": folder, "kind": kind, "rows": rows, "batch_size": BATCH_SIZE, "epochs": epochs}


def _setting(job: dict[str, Any]) -> str:
    return f"{job['epochs']} epochs, batches of {job['batch_size']}, {WORKERS} workers of 1 thread"


def _ours(job: dict[str, Any], engine: str, backend: str) -> Contender:
    arguments = {"engine": engine, "backend": backend}
    return _contender(f"{engine}, {backend}", "us", "ours", job, NEEDS[engine], **arguments)


def _contender(
    name: str, kind: Kind, function: str, job: dict[str, Any], needs: tuple[str, ...], **arguments: str
) -> Contender:
    return Contender(name, kind, f"benchmarks.train:{function}", {"job": job, **arguments}, needs, ENVIRONMENT)
