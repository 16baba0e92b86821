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
# The peer that somebody with this engine would take instead.
PEERS = {"local": "Lightning Trainer, ddp", "spark": "Spark TorchDistributor", "ray": "Ray Train TorchTrainer"}
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
            _contender(PEERS["local"], "peer", "lightning_ddp", job, ("torch", "lightning")),
            _contender(PEERS["ray"], "peer", "ray_train", job, NEEDS["ray"]),
            _contender(PEERS["spark"], "peer", "torch_distributor", job, NEEDS["spark"]),
            torchrun(LOOP, "limit", "benchmarks.train:torchrun_rank", job),
        ),
        bars=(
            *(
                Bar(f"{us.name}: at least 0.97 of the torchrun loop's rows a second", LOOP, us=us.name, at_least=0.97)
                for us in ours
            ),
            *map(_no_slower, ENGINES),
            *(
                Bar(
                    f"{engine}: ahead of {peer}, end to end", peer, us=_name(engine, "bigdl"), clock="whole", at_least=1
                )
                for engine, peer in PEERS.items()
            ),
        ),
        clock="rate",
        prepare=partial(
            learn_data.make_arrays, Path(job["folder"]), job["rows"], learn_data.PIXELS, learn_data.CLASSES
        ),
    )


def _no_slower(engine: str) -> Bar:
    """The two ways to agree on an update do the same work, so that noise decides which median is ahead."""
    bigdl, other = (_name(engine, backend) for backend in BACKENDS)
    text = f"{engine}: bigdl no slower than torch_distributed (its median beside the other's slowest round)"
    return Bar(text, other, us=bigdl, at_least=1, within_spread=True)


def _small(settings: Settings) -> Row:
    job = _job(settings, "small", rows=200_000, epochs=3)
    return Row(
        name="train-small",
        title=f"MLP of 1,409 parameters on {job['rows']:,} rows of 20 floats, {_setting(job)}",
        contenders=(
            *(_ours(job, "local", backend) for backend in BACKENDS),
            torchrun(LOOP, "peer", "benchmarks.train:torchrun_rank", job),
        ),
        bars=tuple(
            Bar(
                f"{backend}: at least 1.3 times the rows a second of DDP on gloo",
                LOOP,
                us=_name("local", backend),
                at_least=1.3,
            )
            for backend in BACKENDS
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
    return _contender(_name(engine, backend), "us", "ours", job, NEEDS[engine], **arguments)


def _name(engine: str, backend: str) -> str:
    return f"{engine}, {backend}"


def _contender(
    name: str, kind: Kind, function: str, job: dict[str, Any], needs: tuple[str, ...], **arguments: str
) -> Contender:
    return Contender(name, kind, f"benchmarks.train:{function}", {"job": job, **arguments}, needs, ENVIRONMENT)
