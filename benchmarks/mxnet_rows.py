"""The `train-mxnet` rows: ours beside a kvstore job as one starts it by hand, scheduler, servers, workers and all."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import learn_data
from benchmarks.mxnet_job import by_hand
from benchmarks.ranks import WORKERS
from benchmarks.row import Bar, Contender, Row, Settings
from benchmarks.train_rows import ENVIRONMENT

EPOCHS = 3
NEEDS = ("mxnet",)
BY_HAND = "hand-started kvstore job"
ON_WORKERS = "hand-started, updates on the workers"


BATCH_SIZE = 256
# Few large arrays, and many small ones, of which each would be a message.
WIDTHS = {
    "mlp": (learn_data.PIXELS, 1024, 1024, learn_data.CLASSES),
    "deep": (learn_data.PIXELS, *[64] * 12, learn_data.CLASSES),
}


def rows(settings: Settings) -> list[Row]:
    return [_row(settings, "mlp", steps=120), _row(settings, "deep", steps=240)]


def _row(settings: Settings, kind: str, steps: int) -> Row:
    count = BATCH_SIZE * (steps // 10 if settings.quick else steps)  # no ragged batch: the Trainer refuses it
    job = {
        "folder": str(settings.data / f"train-mxnet-{count}"),
        "widths": WIDTHS[kind],
        "rows": count,
        "batch_size": BATCH_SIZE,
        "epochs": EPOCHS,
    }
    parameters = sum((before + 1) * after for before, after in pairwise(WIDTHS[kind]))
    return Row(
        name=f"train-mxnet-{kind}",
        title=(
            f"gluon MLP of {parameters:,} parameters in {len(WIDTHS[kind]) - 1} layers on {count:,} rows of 784 "
            f"floats, {EPOCHS} epochs, batches of {BATCH_SIZE}, {WORKERS} workers of 1 thread, {WORKERS} servers"
        ),
        contenders=(
            Contender("Estimator.from_mxnet", "us", "benchmarks.mxnet_train:ours", {"job": job}, NEEDS, ENVIRONMENT),
            _peer(BY_HAND, job, on_servers=True),
            _peer(ON_WORKERS, job, on_servers=False),
        ),
        bars=tuple(
            Bar(f"at least 0.95 of the rows a second of: {peer}", peer, at_least=0.95) for peer in (BY_HAND, ON_WORKERS)
        ),
        clock="rate",
        prepare=partial(learn_data.make_arrays, Path(job["folder"]), count, learn_data.PIXELS, learn_data.CLASSES),
    )


def _peer(name: str, job: dict[str, Any], on_servers: bool) -> Contender:
    """A script with gluon's Trainer. As it is made, servers update the weights; it can leave that to the workers."""
    return Contender(name, "peer", by_hand, {"job": job, "on_servers": on_servers}, NEEDS, ENVIRONMENT)
