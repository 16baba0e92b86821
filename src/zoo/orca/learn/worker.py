"""The worker's side of fit and evaluate: a plain training loop, for every framework, engine and sync."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zoo.orca.engine.worker import Worker
from zoo.orca.feed.base import Feed, Share, Source
from zoo.orca.learn.checkpoint import Checkpoints
from zoo.orca.learn.learner import Learner, Learning
from zoo.orca.learn.sync import Group, Sync
from zoo.orca.learn.trigger import TrainState, TriggerCall

# So often a rank tells the driver how far it is.
REPORT_SECONDS = 0.25


@dataclass(frozen=True)
class Batching:
    """How a feed is cut into global batches."""

    batch_size: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False

    def open(self, feed: Feed, worker: Worker, group: Group) -> Source:
        source = feed.open(worker, self.batch_size, self.seed, self.shuffle, self.drop_last)
        if hasattr(source, "agree"):
            source.agree = _summing(group)
        return source


@dataclass(frozen=True)
class FitJob:
    """What each worker of a fit is given.

    Attributes:
        first_epoch, last_epoch: the epochs to run, counted over the estimator's life; the last one is not run.
        state: what a fit before this one, or a checkpoint, left; None starts afresh.
        train_state: where training stands, for triggers.
        summarise: whether the driver wants figures of every step.
    """

    learning: Learning
    sync: Sync
    feed: Feed
    batching: Batching
    first_epoch: int
    last_epoch: int
    state: dict[str, Any] | None = None
    train_state: TrainState = field(default_factory=TrainState)
    validation: Feed | None = None
    validation_trigger: TriggerCall | None = None
    checkpoint_trigger: TriggerCall | None = None
    checkpoints: Checkpoints | None = None
    summarise: bool = False
    profile: bool = False
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EvaluateJob:
    """What each worker of an evaluate is given."""

    learning: Learning
    sync: Sync
    feed: Feed
    batching: Batching
    state: dict[str, Any] | None = None
    num_steps: int | None = None
    info: dict[str, Any] = field(default_factory=dict)
    profile: bool = False


@dataclass(frozen=True)
class Outcome:
    """What one rank of a fit brings back: its figures of every epoch, and on rank 0 the state of all."""

    epochs: list[dict[str, Any]]
    digest: str
    train_state: TrainState
    state: dict[str, Any] | None


def fit(worker: Worker, job: FitJob) -> Outcome:
    """What each worker of a gang runs for `Estimator.fit`."""
    with job.sync.join(worker) as group, closing(job.learning.build(worker, group, job.state)) as learner:
        with closing(job.batching.open(job.feed, worker, group)) as source:
            return _Fit(worker, group, learner, job, source).run()


def evaluate(worker: Worker, job: EvaluateJob) -> dict[str, Any]:
    """What each worker of a gang runs for `Estimator.evaluate`: the figures over all ranks."""
    with job.sync.join(worker) as group, closing(job.learning.build(worker, group, job.state)) as learner:
        with closing(job.batching.open(job.feed, worker, group)) as source:
            figures = measure(worker, learner, source, job.num_steps, job.info)
        return figures | ({"profile": learner.profile()} if job.profile else {})


def measure(
    worker: Worker, learner: Learner, source: Source, num_steps: int | None = None, info: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The figures of all ranks' rows together: metrics by their state, other numbers by their rows."""
    shares = _reported(worker, itertools.islice(source.epoch(0), num_steps), num_steps or source.steps)
    figures, metrics = learner.validate(shares, info or {})
    parts = worker.all_gather((figures, {name: metric.state() for name, metric in metrics.items()}))
    for name, metric in metrics.items():
        metric.load_sum(np.sum([states[name] for _, states in parts], axis=0))
    return combine([figures for figures, _ in parts]) | {name: metric.value() for name, metric in metrics.items()}


def combine(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of several ranks as one: samples are added up, numbers averaged by them, the rest is the first's."""
    rows = [part.get("num_samples", 0) for part in parts]
    combined: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        known = [(part[name], count) for part, count in zip(parts, rows, strict=True) if name in part]
        if name == "num_samples":
            combined[name] = sum(rows)
        elif all(_is_number(value) for value, _ in known):
            weight = sum(count for _, count in known)
            shares = [(value, count) for value, count in known if count] if weight else [(v, 1) for v, _ in known]
            combined[name] = math.fsum(v * c for v, c in shares) / sum(c for _, c in shares)
        else:
            combined[name] = known[0][0]
    return combined


class _Fit:
    """The epochs of one fit, on one rank."""

    def __init__(self, worker: Worker, group: Group, learner: Learner, job: FitJob, source: Source):
        self.worker = worker
        self.group = group
        self.learner = learner
        self.job = job
        self.source = source
        self.where = job.train_state
        self._first_step = self.where.neval
        self._progress = _Progress(worker, self.source, job)
        self._rate = learner.rate
        self._score: float | None = None
        self._validated: dict[str, Any] = {}

    def run(self) -> Outcome:
        epochs = [self._epoch(epoch) for epoch in range(self.job.first_epoch, self.job.last_epoch)]
        self._progress.flush()
        state = self.learner.state()
        return Outcome(epochs, self.learner.digest(), self.where, state if self.worker.rank == 0 else None)

    def _epoch(self, epoch: int) -> dict[str, Any]:
        self.learner.start_epoch(epoch)
        self._validated = {}
        batches = _Batches(self, self.source.epoch(epoch))
        info = {"epoch_idx": epoch, "num_steps": self.source.steps} | self.job.info
        figures = self.learner.train_epoch(batches, info)
        batches.close()
        self.learner.after_epoch(batches.seen, self.learner.loss, self._score)
        if batches.last is not None:
            self._after_step(batches.last, ends_epoch=True)
        figures |= {"epoch": epoch + 1, "batch_count": batches.count, "num_samples": batches.seen}
        figures |= {f"val_{name.removeprefix('val_')}": value for name, value in self._validated.items()}
        return figures | ({"profile": self.learner.profile()} if self.job.profile else {})

    def begin_step(self) -> None:
        """Remember the step's rate for its summary, and its number for an error that may happen in it."""
        self._rate = self.learner.rate
        self.worker.mark(self.where.neval - self._first_step + 1)

    def step_done(self, share: Share) -> None:
        """A step that was not the last of its epoch is done."""
        self._after_step(share, ends_epoch=False)

    def _after_step(self, share: Share, ends_epoch: bool) -> None:
        self.learner.after_step()
        loss = self.learner.loss
        self.where.advance(share.total, 0 if ends_epoch else share.total + self.where.records + 1, loss)
        self._progress.step(self.where, share, loss, self._rate)
        if self.job.validation is not None and _fires(self.job.validation_trigger, self.where):
            self._validate(self.job.validation)
        if self.job.checkpoints is not None and _fires(self.job.checkpoint_trigger, self.where):
            self._write_checkpoint(self.job.checkpoints)

    def _validate(self, feed: Feed) -> None:
        batching = Batching(self.job.batching.batch_size, self.job.batching.seed, shuffle=False)
        with closing(batching.open(feed, self.worker, self.group)) as source:
            figures = measure(self.worker, self.learner, source, info=self.job.info)
        figures = {name: value for name, value in figures.items() if not name.startswith("last_")}
        scores = [value for name, value in figures.items() if name not in ("val_loss", "num_samples")]
        self.where.score = self._score = next(iter(scores), None)
        self._validated = figures
        self._progress.validated(self.where, figures)

    def _write_checkpoint(self, checkpoints: Checkpoints) -> None:
        state = self.learner.state() | {"epoch": self.where.epoch, "neval": self.where.neval}
        if self.worker.rank == 0:
            checkpoints.write(self.where.neval, state)


class _Batches:
    """The batches of one epoch as an operator iterates them; what comes after a step is done before the next.

    The last step is left to the epoch's end: an operator may still have something to do after it.

    Attributes:
        rows: the rows of the batch in hand that count.
        seen: this rank's rows so far.
        count: the batches so far.
        last: the share of the step whose end was not yet dealt with.
    """

    def __init__(self, fit: _Fit, shares: Iterator[Share]):
        self._fit = fit
        self._shares = shares
        self.rows = 0
        self.seen = 0
        self.count = 0
        self.last: Share | None = None

    def __iter__(self) -> Iterator[Any]:
        for share in self._shares:
            if self.last is not None:
                self._fit.step_done(self.last)
            self.last = share
            self.rows = share.rows
            self.seen += share.rows
            self.count += 1
            self._fit.begin_step()
            yield self._fit.learner.take(share)

    def __len__(self) -> int:
        if self._fit.source.steps is None:
            raise TypeError("the number of batches of a stream is not known")
        return self._fit.source.steps

    def close(self) -> None:
        close = getattr(self._shares, "close", None)
        if close is not None:
            close()


class _Progress:
    """What a rank tells the driver on the way: how far it is, and on rank 0 the figures of every step."""

    def __init__(self, worker: Worker, source: Source, job: FitJob):
        self._worker = worker
        self._total = None if source.steps is None else source.steps * (job.last_epoch - job.first_epoch)
        self._first = job.train_state.neval
        self._wanted = job.summarise and worker.rank == 0
        self._steps: list[tuple[int, float | None, float, float, float]] = []
        self._spoke = self._stepped = time.monotonic()
        self._done = 0
        self._loss: float | None = None

    def step(self, where: TrainState, share: Share, loss: float | None, rate: float) -> None:
        now = time.monotonic()
        self._done = where.neval - self._first
        self._loss = loss
        if self._wanted:
            speed = share.total / max(now - self._stepped, 1e-9)
            self._steps.append((where.neval - 1, loss, speed, rate, time.time()))
        self._stepped = now
        if now - self._spoke > REPORT_SECONDS:
            self.flush()

    def validated(self, where: TrainState, figures: dict[str, Any]) -> None:
        if self._worker.rank == 0:
            self._worker.report(validation=(where.neval - 1, figures, time.time()))
        self._stepped = time.monotonic()

    def flush(self) -> None:
        self._spoke = time.monotonic()
        shown = {} if self._loss is None or self._worker.rank else {"loss": self._loss}
        steps, self._steps = self._steps, []
        self._worker.report(self._done, self._total, **shown, **({"steps": steps} if steps else {}))


def _reported(worker: Worker, shares: Iterator[Share], total: int | None) -> Iterator[Share]:
    spoke = time.monotonic()
    for number, share in enumerate(shares):
        if time.monotonic() - spoke > REPORT_SECONDS:
            worker.report(number, total)
            spoke = time.monotonic()
        yield share


def _summing(group: Group) -> Any:
    def agree(rows: int) -> int:
        buffer = np.array([rows], dtype=np.int64)
        group.all_reduce(buffer)
        return int(buffer[0])

    return agree


def _fires(trigger: TriggerCall | None, where: TrainState) -> bool:
    return trigger is not None and trigger(where)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
