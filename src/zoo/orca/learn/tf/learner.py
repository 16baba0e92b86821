"""A TensorFlow 1 graph as a learner: one replica on a worker, which trains with the others, measures, gives its state.

A step is one run for the loss, the gradients and the updates of a batch, one sum over all ranks, and one run of what
takes the gradients.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from zoo.orca.learn.learner import Learner
from zoo.orca.learn.summed import RowMean
from zoo.orca.learn.tf.combined import Combined
from zoo.orca.learn.tf.metrics import CountedMetric
from zoo.orca.learn.tf.opened import OpenGraph
from zoo.orca.learn.tf.parcel import Parcel, Training
from zoo.orca.learn.tf.torch_update import TorchUpdate
from zoo.orca.learn.tf.values import pack_values, unpack_values

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker
    from zoo.orca.feed.base import Share
    from zoo.orca.learn.sync import Group


@dataclass(frozen=True)
class Batch:
    """A share as the graph takes it: what is fed, the rows that count, and those of all ranks."""

    feeds: dict[str, Any]
    rows: int
    total: int


class GraphLearner(Learner):
    """One rank's session."""

    def __init__(self, parcel: Parcel, worker: Worker, group: Group, state: dict[str, Any] | None):
        state = state or {}
        (values,) = state.get("models") or [{}]
        self._threads = max(1, len(os.sched_getaffinity(0)) // worker.local_size)
        self.parcel = parcel
        self.group = group
        self.rank = worker.rank
        self.opened = OpenGraph(parcel, unpack_values(values), worker.rank, self._threads)
        self._names = [each.name for each in parcel.variables]
        self._training = {name: pair[0] for name, pair in parcel.constants.items()}
        self._otherwise = {name: pair[1] for name, pair in parcel.constants.items()}
        self._combined: Combined | None = None
        self._update: TorchUpdate | None = None
        if parcel.training is not None:
            self._prepare(parcel.training, state)
        self._loss: float | None = (state.get("operator") or {}).get("loss")
        self._rate: float | None = None
        self._epoch = self._batch = self._rows = 0
        self._loss_sum, self._counted = 0.0, 0
        self._measured = RowMean()
        self._has_own = False

    def _prepare(self, training: Training, state: dict[str, Any]) -> None:
        self._combined = Combined(self.group, training.gradients, self.opened)
        if training.method is not None:
            torch.set_num_threads(self._threads)
            names = [each.variable for each in training.gradients]
            self._update = TorchUpdate(training.method, names, list(self.opened.read(names).values()))
            for known in state.get("optimizers") or []:
                if known:
                    self._update.load(known)

    @property
    def training(self) -> Training:
        assert self.parcel.training is not None  # evaluate trains nothing
        return self.parcel.training

    def start_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._batch = self._rows = 0
        self._loss_sum, self._counted = 0.0, 0
        self._has_own = True

    def take(self, share: Share, last: bool = False) -> Batch:
        feeds = self.parcel.feeds(share.batch, share.weights) if share.rows else {}
        return Batch(feeds, share.rows, share.total)

    def train_epoch(self, batches: Iterable[Batch], info: dict[str, Any]) -> dict[str, Any]:
        self._batch = getattr(batches, "first", 0)
        for batch in batches:
            self._step(batch)
        return {"train_loss": self._loss_sum / self._counted if self._counted else 0.0}

    def _step(self, batch: Batch) -> None:
        training, combined = self.training, self._combined
        assert combined is not None
        if batch.rows:
            fetched = self.opened.run(
                [training.loss, *combined.fetches, *training.updates, *training.steady],
                self._training | batch.feeds,
                hash((self.parcel.seed, self._epoch, self._batch, self.rank)),
            )
            loss = float(fetched[0])
            combined.fill(fetched[1 : 1 + len(combined.fetches)], batch.rows / batch.total, loss)
            self._loss_sum += loss * batch.rows
        else:  # rows that count for nothing are not looked at
            if training.steady:
                self.opened.run(training.steady, self._training)
            combined.fill_nothing()
        self._batch += 1
        self._rows += batch.rows
        self._counted += batch.rows
        self._loss = combined.agree()
        training.clip.apply(combined.gradients)
        self._apply(batch, combined)

    def _apply(self, batch: Batch, combined: Combined) -> None:
        training = self.training
        if self._update is not None:
            names = [each.variable for each in training.gradients]
            if training.is_written:
                self._update.set_values(list(self.opened.read(names).values()))
            values = self._update.step(combined.gradients, self._loss)
            self.opened.write(dict(zip(names, values, strict=True)))
            return
        known = self._training | batch.feeds
        needed = {name: known[name] for name in training.apply_needs if name in known}
        self.opened.run([str(training.apply)], needed | combined.feeds())

    def after_step(self) -> None:
        self._rate = None

    def after_epoch(self, rows: int, loss: float | None, score: float | None) -> None:
        self.opened.write(self._agreed())
        self._has_own = False
        if self._update is not None:
            self._update.end_epoch(loss, score)

    def validate(self, shares: Iterable[Share], info: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        means = {each.name: RowMean() for each in self.parcel.metrics if not each.variables}
        counted = {each.name: CountedMetric(each, self.opened) for each in self.parcel.metrics if each.variables}
        loss = self._measured = RowMean()
        with self._agreeing():
            rows = self._measure(shares, means, loss)
        metrics: dict[str, Any] = {
            each.name: means.get(each.name) or counted[each.name] for each in self.parcel.metrics
        }
        return {"num_samples": rows}, metrics | ({} if self.parcel.loss is None else {"val_loss": loss})

    def measured_loss(self) -> float | None:
        return None if self.parcel.loss is None else self._measured.value()

    def _measure(self, shares: Iterable[Share], means: dict[str, RowMean], loss: RowMean) -> int:
        metrics, wanted = self.parcel.metrics, self.parcel.loss
        self.opened.run([name for each in metrics for name in each.resets], {})
        tensors = [each.value for each in metrics if not each.variables] + ([] if wanted is None else [wanted])
        updates = list(dict.fromkeys(name for each in metrics for name in each.updates))
        sums = [*means.values(), loss]
        rows = 0
        for number, share in enumerate(shares):
            if not share.rows:
                continue
            feeds = self._otherwise | self.parcel.feeds(share.batch, share.weights, "the data to measure")
            values = self.opened.run([*tensors, *updates], feeds, hash((self.parcel.seed, number, self.rank)))
            for each, value in zip(sums, values[: len(tensors)], strict=False):
                each.add(value, share.rows)
            rows += share.rows
        return rows

    @property
    def loss(self) -> float | None:
        return self._loss

    @property
    def rate(self) -> float:
        if self._update is not None:
            return self._update.rate
        if self._rate is None:
            rate = self.training.rate
            self._rate = rate if isinstance(rate, float) else float(self.opened.run([rate], self._training)[0])
        return self._rate

    @property
    def native(self) -> Any:
        return self.opened.sess

    def profile(self) -> dict[str, Any]:
        return {}

    def state(self) -> dict[str, Any]:
        return {
            "models": [pack_values(self._values())],
            "optimizers": [{} if self._update is None else self._update.state()],
            "schedulers": [],
            "operator": {"loss": self._loss},
        }

    def local_state(self) -> dict[str, Any]:
        return {
            "own": pack_values(self._own()),
            "batch": self._batch,
            "rows": self._rows,
            "loss_sum": self._loss_sum,
            "counted": self._counted,
        }

    def load_local(self, state: dict[str, Any], within_epoch: bool) -> None:
        self.opened.write(unpack_values(state["own"]))
        if within_epoch:
            self._batch, self._rows = state["batch"], state["rows"]
            self._loss_sum, self._counted = state["loss_sum"], state["counted"]

    def load_figures(self, states: list[dict[str, Any]]) -> None:
        for state in states:
            self._loss_sum += state["loss_sum"]
            self._counted += state["counted"]

    def digest(self) -> str:
        digest = hashlib.sha256()
        for name, value in self._values().items():
            digest.update(f"{name} {value.dtype} {value.shape}\n".encode())
            digest.update(repr(value.tolist()).encode() if value.dtype == object else value.tobytes())
        return digest.hexdigest()

    def close(self) -> None:
        if self._combined is not None:
            self._combined.close()
        self.opened.close()

    def _values(self) -> dict[str, np.ndarray]:
        """All values, those that ranks have for themselves as they would agree on them now."""
        return self.opened.read(self._names) | self._agreed()

    def _own(self) -> dict[str, np.ndarray]:
        """What updates changed on this rank alone."""
        return self.opened.read(() if self.parcel.training is None else self.training.own)

    def _agreed(self) -> dict[str, np.ndarray]:
        """What ranks agree on of that: the mean by rows of numbers, the largest of counters. All call it together."""
        own = self._own() if self._has_own and self.group.world_size > 1 else {}
        return average(self.group, own, self._rows)

    @contextmanager
    def _agreeing(self) -> Iterator[None]:
        """In the middle of an epoch: measure with what ranks would agree on, and let each have its own again."""
        own = self._own() if self._has_own else {}
        self.opened.write(self._agreed())
        try:
            yield
        finally:
            self.opened.write(own)


def average(group: Group, own: Mapping[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """The mean over ranks, weighted by rows, of floating values; the largest of whole numbers; others stay.

    What is equal on all ranks stays as it is, to the bit."""
    floats = {name: value for name, value in own.items() if _is_float(value)}
    wholes = {name: value for name, value in own.items() if value.dtype.kind in "iu"}
    found: dict[str, np.ndarray] = {}
    if floats:
        mine = np.concatenate([value.astype(np.float64).ravel() for value in floats.values()])
        first = mine.copy()
        group.broadcast(first)
        differences = np.zeros(len(mine) + 1)
        if rows:
            differences[:-1] = (mine - first) * rows
            differences[-1] = rows
        group.all_reduce(differences)
        if differences[-1] > 0:
            found |= _cut(floats, first + differences[:-1] / differences[-1])
    if wholes:
        table = np.zeros((group.world_size, sum(value.size for value in wholes.values())), np.int64)
        table[group.rank] = np.concatenate([value.astype(np.int64).ravel() for value in wholes.values()])
        group.all_reduce(table.ravel())
        found |= _cut(wholes, table.max(axis=0))
    return found


def _cut(like: Mapping[str, np.ndarray], flat: np.ndarray) -> dict[str, np.ndarray]:
    found, start = {}, 0
    for name, value in like.items():
        found[name] = flat[start : start + value.size].reshape(value.shape).astype(value.dtype)
        start += value.size
    return found


def _is_float(value: np.ndarray) -> bool:
    return value.dtype.kind == "f" or value.dtype.name == "bfloat16"
