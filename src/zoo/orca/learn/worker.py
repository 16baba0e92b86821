"""The worker's side of fit and evaluate: a plain training loop, for every framework, engine and sync."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zoo.orca.engine.garbage import long_lived
from zoo.orca.engine.worker import Worker
from zoo.orca.errors import CheckpointError, InvalidArgumentError, PreconditionError
from zoo.orca.feed.base import Feed, Share, Source
from zoo.orca.learn.callbacks import Callbacks, Run
from zoo.orca.learn.callbacks.base import numbers_of
from zoo.orca.learn.checkpoint import Checkpoints, as_plain
from zoo.orca.learn.checkpoint_writer import CheckpointWriter, Parcel, Written
from zoo.orca.learn.learner import Learner, Learning
from zoo.orca.learn.record import CheckpointDone, EpochDone, Event, StepDone, Validated, named_for_validation
from zoo.orca.learn.result import PHASES
from zoo.orca.learn.sync import Group, Sync
from zoo.orca.learn.sync.timed import TimedGroup
from zoo.orca.learn.trigger import TrainState
from zoo.orca.learn.watch import Watch

# So often a rank tells the driver how far it is.
REPORT_SECONDS = 0.25
_END = object()


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
class Saving:
    """When and where a fit writes checkpoints.

    Attributes:
        trigger: when; None is never.
        required: whether the user asked for them, so that one that cannot be written ends the fit.
        at_end: whether there is to be one of the end, too.
        send: whether their files go to the driver, which writes them.
    """

    checkpoints: Checkpoints
    trigger: Any = None
    required: bool = True
    at_end: bool = False
    send: bool = False


@dataclass(frozen=True)
class FitJob:
    """What each worker of a fit is given.

    Attributes:
        first_epoch, last_epoch: the epochs to run, counted over the estimator's life; the last one is not run.
        state: what a fit before this one, or a checkpoint, left; None starts afresh. With a "progress" in it the fit
            goes on where that stands.
        first_batch: the batch of the first epoch to begin with.
        train_state: where training stands, for triggers.
        callbacks: those that run on workers.
        tell_steps: whether the driver wants figures of every step.
    """

    learning: Learning
    sync: Sync
    feed: Feed
    batching: Batching
    first_epoch: int
    last_epoch: int
    first_batch: int = 0
    state: dict[str, Any] | None = None
    train_state: TrainState = field(default_factory=TrainState)
    validation: Feed | None = None
    validation_trigger: Any = None
    saving: Saving | None = None
    callbacks: Callbacks = field(default_factory=Callbacks)
    tell_steps: bool = False
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
    """What one rank of a fit brings back.

    Attributes:
        epochs: this rank's figures of every epoch.
        history: those of all ranks together.
        phases: the seconds that went into each part of the work.
        rows: the rows of all ranks, over all epochs.
        stopped: why a callback ended the fit before its time.
        state: the state of all, from rank 0.
        callbacks: what rank 0's callbacks remember.
    """

    epochs: list[dict[str, Any]]
    history: list[dict[str, Any]]
    digest: str
    train_state: TrainState
    phases: dict[str, float]
    rows: int
    stopped: str | None
    state: dict[str, Any] | None
    callbacks: dict[str, dict[str, Any]] = field(default_factory=dict)


def fit(worker: Worker, job: FitJob) -> Outcome:
    """What each worker of a gang runs for `Estimator.fit`."""
    with job.sync.join(worker) as joined:
        group = TimedGroup(joined, worker)
        with closing(job.learning.build(worker, group, job.state)) as learner:
            with closing(job.batching.open(job.feed, worker, group)) as source:
                need_end(source, "data", "steps_per_epoch")
                if source.steps == 0:
                    raise InvalidArgumentError(
                        f"data has no whole batch of {job.batching.batch_size} rows, and what is less is dropped. Use "
                        "a smaller batch_size, or leave out drop_last."
                    )
                with closing(_Fit(worker, group, learner, job, source)) as running, long_lived():
                    return running.run()


def evaluate(worker: Worker, job: EvaluateJob) -> dict[str, Any]:
    """What each worker of a gang runs for `Estimator.evaluate`: the figures over all ranks."""
    with job.sync.join(worker) as group, closing(job.learning.build(worker, group, job.state)) as learner:
        with closing(job.batching.open(job.feed, worker, group)) as source:
            if job.num_steps is None:
                need_end(source, "data", "num_steps")
            figures = measure(worker, learner, source, job.num_steps, job.info)
        return figures | ({"profile": learner.profile()} if job.profile else {})


def need_end(source: Source | Feed, what: str, argument: str) -> None:
    """Raise a typed error for a dataset that repeats without end; of a creator's only the worker knows."""
    if getattr(source, "infinite", False):
        raise PreconditionError(
            f"{what} is a dataset that repeats without end, so an epoch of it would never be over. Pass {argument}, or "
            "leave out .repeat()."
        )


def measure(
    worker: Worker,
    learner: Learner,
    source: Source,
    num_steps: int | None = None,
    info: dict[str, Any] | None = None,
    within_fit: bool = False,
) -> dict[str, Any]:
    """The figures of all ranks' rows together: metrics by their state, other numbers by their rows."""
    shares: Iterator[Share] = itertools.islice(source.epoch(0), num_steps)
    shares = _speaking(worker, shares) if within_fit else _reported(worker, learner, shares, num_steps or source.steps)
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


def combine_epoch(workers: list[dict[str, Any]]) -> dict[str, Any]:
    """An epoch's figures over all workers; counts that are the same everywhere stay what they are."""
    same = {name: workers[0][name] for name in ("epoch", "batch_count")}
    validated = {name: value for name, value in workers[0].items() if name.startswith("val_")}
    return combine(workers) | same | validated


class _Fit:
    """The epochs of one fit, on one rank."""

    def __init__(self, worker: Worker, group: TimedGroup, learner: Learner, job: FitJob, source: Source):
        self.worker = worker
        self.group = group
        self.learner = learner
        self.job = job
        self.source = source
        self.where = job.train_state
        self.clock = _Clock(group)
        self.callbacks = job.callbacks.for_rank(worker.rank)
        self.moment = Run(
            last_epoch=job.last_epoch,
            steps=source.steps,
            rank=worker.rank,
            world_size=worker.world_size,
            validates=job.validation is not None,
            model=learner.native,
            gather=worker.all_gather,
            so_far=learner.so_far,
        )
        self.epochs: list[dict[str, Any]] = []
        self.history: list[dict[str, Any]] = []
        self.stopped: str | None = None
        self._validated: dict[str, Any] = {}
        self._figures: dict[str, Any] = {}
        self.seen = 0
        self._batch = 0
        self._rows = 0
        self._score: float | None = None
        self._saved: int | None = None
        self._measured: int | None = None
        self._resumed: dict[str, Any] | None = None
        self._progress = _Progress(worker, source, job)
        self._writer = self._make_writer()
        self._when_to_validate = Watch(job.validation_trigger, group)
        self._when_to_save = Watch(job.saving.trigger if job.saving else None, group)

    def run(self) -> Outcome:
        first, batch = self._take_up()
        self._call("on_fit_start")
        for epoch in range(first, self.job.last_epoch):
            if self.stopped is not None:
                break
            self._epoch(epoch, batch)
            batch = 0
        self.callbacks.call("on_fit_end", self._now(stopped=self.stopped))
        # What callbacks changed in the end, such as weights put back to the best ones, is to be in it.
        if self.job.saving is not None and self.job.saving.at_end and self._saved != self.where.neval:
            self._save()
        if self._writer is not None:
            self._writer.wait()
        self._progress.flush()
        state = self.learner.state()
        return Outcome(
            epochs=self.epochs,
            history=self.history,
            digest=self.learner.digest(),
            train_state=self.where,
            phases=self.clock.phases(),
            rows=self._rows,
            stopped=self.stopped,
            state=state if self.worker.rank == 0 else None,
            callbacks=self.callbacks.state() if self.worker.rank == 0 else {},
        )

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _epoch(self, epoch: int, first: int) -> None:
        self.learner.start_epoch(epoch)
        if self._resumed is not None:
            self._take_up_epoch(self._resumed)
        if not first:
            self._validated, self.seen, self.where.records = {}, 0, 0
        self.moment = self._now(epoch=epoch + 1, batch=first, rows_in_epoch=self.where.records)
        self._call("on_epoch_start")
        if self.stopped is not None:
            return
        batches = _Batches(self, self.source.epoch(epoch, first), first)
        info = {"epoch_idx": epoch, "num_steps": self.source.steps} | self.job.info
        with self.clock.training():
            figures = self.learner.train_epoch(batches, info)
            batches.close()
            self.learner.after_epoch(self.seen, self.learner.loss, self._score)
        if batches.last is not None:
            self._count(batches.last, batches.count, ends_epoch=True)
        elif self.stopped is None and batches.count:  # a loader may give fewer batches than its length says
            self.where.end_epoch()
            self._validate_if_due()
        self._batch = batches.count if self.where.epoch == epoch + 1 else 0
        figures |= {"epoch": epoch + 1, "batch_count": batches.count, "num_samples": self.seen}
        figures |= named_for_validation(self._validated)
        figures |= {"profile": self.learner.profile()} if self.job.profile else {}
        self._end_epoch(figures)
        self._save_if_due()

    def _end_epoch(self, figures: dict[str, Any]) -> None:
        """Put all ranks' figures of an epoch together; rank 0's callbacks may add to them."""
        combined = combine_epoch(self.worker.all_gather(figures))
        self.moment = self._now(epoch=figures["epoch"], batch=figures["batch_count"], figures=combined)
        self._call("on_epoch_end")
        self._figures |= combined
        self.epochs.append(figures)
        self.history.append(combined)
        self._progress.tell(EpochDone(self.where.neval - 1, figures["epoch"], time.time(), combined))

    def begin_step(self, share: Share) -> None:
        """Remember the step's rate for its summary, and its number for an error that may happen in it."""
        self.seen += share.rows
        self.moment.rate = self.learner.rate
        self.worker.mark(self.where.neval)
        if self.job.callbacks.overrides("on_step_start"):
            with self.clock.pause():
                self._call("on_step_start")

    def step_done(self, share: Share, batch: int) -> bool:
        """A step that was not the last of its epoch is done; tells whether there is to be another."""
        with self.clock.pause():
            self._count(share, batch, ends_epoch=False)
            self._batch = batch
            if self.stopped is None:  # else the epoch's end sees to it
                self._save_if_due()
        return self.stopped is None

    def _count(self, share: Share, batch: int, ends_epoch: bool) -> None:
        self.learner.after_step()
        loss, epoch = self.learner.loss, self.where.epoch
        in_epoch = self.where.records + share.total
        self.where.advance(share.total, 0 if ends_epoch else in_epoch + 1, loss)
        self._rows += share.total
        moment = self.moment
        moment.epoch, moment.step, moment.batch = epoch, self.where.neval - 1, batch
        moment.loss, moment.rows, moment.rows_in_epoch = loss, share.total, in_epoch
        self._progress.step(moment)
        self._call("on_step_end")
        self._validate_if_due()

    def _validate_if_due(self) -> None:
        if self.job.validation is None or not self._when_to_validate.fires(self.where):
            return
        if self._measured != self.where.neval:
            self._measured = self.where.neval
            with self.clock.phase("validation"):
                self._validate(self.job.validation)

    def _validate(self, feed: Feed) -> None:
        self._call("on_validation_start")
        batching = Batching(self.job.batching.batch_size, self.job.batching.seed, shuffle=False)
        with closing(batching.open(feed, self.worker, self.group)) as source:
            need_end(source, "validation_data", "validation_steps")
            figures = measure(self.worker, self.learner, source, info=self.job.info, within_fit=True)
        figures = {name: value for name, value in figures.items() if not name.startswith("last_")}
        scores = [value for name, value in figures.items() if name not in ("val_loss", "num_samples")]
        self.where.score = self._score = next(iter(scores), None)
        self.learner.after_validation(self._score)
        self._validated = figures
        named = named_for_validation(figures)
        self._figures |= named
        self._progress.tell(Validated(self.moment.step, self.moment.epoch, time.time(), figures))
        self.moment.figures = named
        self._call("on_validation_end")
        self._progress.pause_over()

    def _call(self, hook: str) -> None:
        """Call a hook of this rank's callbacks, and let all ranks stop if one of any rank asked for it."""
        if not self.job.callbacks.overrides(hook):
            return
        self.callbacks.call(hook, self.moment)
        if self.stopped is not None:
            return
        asked = np.array([self.moment.stopped is not None], dtype=np.int64)
        self.group.all_reduce(asked)
        if asked[0]:
            reasons = self.worker.all_gather(self.moment.stopped)
            self.stopped = next(reason for reason in reasons if reason is not None)

    def _now(self, **changes: Any) -> Run:
        return dataclasses.replace(self.moment, **changes)

    def _make_writer(self) -> CheckpointWriter | None:
        saving = self.job.saving
        if saving is None or self.worker.rank != 0:
            return None
        if self.worker.attempt and not saving.send:
            saving.checkpoints.tidy()
        send = self._progress.send if saving.send else None
        return CheckpointWriter(saving.checkpoints, self._progress.checkpoint_written, send, saving.required)

    def _save_if_due(self) -> None:
        if self.job.saving is not None and self._when_to_save.fires(self.where):
            self._save()

    def _save(self) -> None:
        """Hand all that training is to the writer."""
        saving = self.job.saving
        if saving is None:
            return
        number = self.where.neval
        self._progress.flush()  # a fit that goes on from here will not take these steps again
        with self.clock.phase("checkpoint"):
            state = self.learner.state() | {"epoch": self.where.epoch, "neval": number}
            ranks = self.worker.gather(self._mine())
            if self._writer is not None:
                state["progress"] = self._shared() | {"ranks": ranks}
                self._writer.submit(number, self.moment.epoch, state, self._figures, complete=bool(self.history))
        self._saved = number
        if self.job.callbacks.overrides("on_checkpoint") and self._is_written():
            self.moment.checkpoint = saving.checkpoints.path(number)
            self._call("on_checkpoint")
        self._progress.pause_over()

    def _is_written(self) -> bool:
        """Wait until the checkpoint is there, on all ranks; tells whether it is."""
        if self._writer is not None:
            self._writer.wait()
        return self.worker.all_gather(self._writer is not None and self._writer.works)[0]

    def _mine(self) -> dict[str, Any]:
        """What a checkpoint must hold of this rank."""
        return {
            "learner": self.learner.local_state(),
            "phases": self.clock.phases(),
            "epochs": as_plain(self.epochs),
            "seen": self.seen,
            "callbacks": self.callbacks.state(),
        }

    def _shared(self) -> dict[str, Any]:
        """What a checkpoint must hold beside the learner's state, the same on all ranks."""
        return {
            "batch": self._batch,
            "score": self._score,
            "where": dataclasses.asdict(self.where),
            "history": as_plain(self.history),
            "validated": as_plain(self._validated),
            "figures": as_plain(self._figures),
            "rows": self._rows,
            "rows_of_epoch": self.source.rows,
            "stopped": self.stopped,
            "last_epoch": self.job.last_epoch,
            "triggers": [self._when_to_validate.state(), self._when_to_save.state()],
        }

    def _take_up(self) -> tuple[int, int]:
        """The epoch and the batch in it to begin with: where a checkpoint stands, if there is one."""
        progress = (self.job.state or {}).get("progress")
        if progress is None:
            return self.job.first_epoch, self.job.first_batch
        if progress["rows_of_epoch"] != self.source.rows:
            raise CheckpointError(
                f"the checkpoint was made while training on {progress['rows_of_epoch']} rows, but the data has "
                f"{self.source.rows} now, so that the fit cannot go on in the middle of it. Give the same data, or "
                "leave out resume to begin anew."
            )
        for name, value in progress["where"].items():
            setattr(self.where, name, value)
        self._saved = self.where.neval
        self._rows, self._validated, self._figures = progress["rows"], progress["validated"], progress["figures"]
        self._batch, self._score, self.history = progress["batch"], progress["score"], progress["history"]
        mine = self._resumed = self._my_part(progress)
        self.epochs = mine["epochs"]
        if progress["last_epoch"] == self.job.last_epoch:
            self.stopped = progress["stopped"]
        elif progress["stopped"] is not None:
            self._begin_epoch_again()
        self.clock.add(mine["phases"])
        self.callbacks.load(mine["callbacks"])
        for watch, state in zip((self._when_to_validate, self._when_to_save), progress["triggers"], strict=True):
            watch.load(state)
        if self._writer is not None and "keeper" in progress:
            self._writer.keeper.load(progress["keeper"])
        return self.where.epoch - 1, self._batch

    def _my_part(self, progress: dict[str, Any]) -> dict[str, Any]:
        """What the checkpoint holds of this rank; a gang of another size shares out what can be shared."""
        ranks = progress["ranks"]
        if len(ranks) == self.worker.world_size:
            return ranks[self.worker.rank]
        seen = sum(each["seen"] for each in ranks) if self.worker.rank == 0 else 0
        figures = [each["learner"] for each in ranks] if self.worker.rank == 0 else []
        epochs = list(progress["history"])
        return ranks[0] | {"learner": {}, "phases": {}, "epochs": epochs, "seen": seen, "figures": figures}

    def _begin_epoch_again(self) -> None:
        """A fit that a callback stopped is given more epochs: the one it was stopped in is run from its beginning."""
        if self._batch:
            self._batch = 0
            self.epochs.pop()
            self.history.pop()

    def _take_up_epoch(self, mine: dict[str, Any]) -> None:
        """Go on with what this rank had for itself when the checkpoint was taken."""
        self._resumed = None
        self.seen = mine["seen"]
        if mine["learner"]:
            self.learner.load_local(mine["learner"], within_epoch=self._batch > 0)
        elif self._batch:
            self.learner.load_figures(mine["figures"])


class _Batches:
    """The batches of one epoch as an operator iterates them; what comes after a step is done before the next.

    The last step is left to the epoch's end: an operator may still have something to do after it.

    Attributes:
        first: the place of the first batch in the epoch.
        rows: the rows of the batch in hand that count.
        count: the batches of the epoch so far.
        last: the share of the last step, whose end is not dealt with here; None before it.
    """

    def __init__(self, fit: _Fit, shares: Iterator[Share], first: int):
        self._fit = fit
        self._shares = shares
        self._ahead: Any = None
        self.first = first
        self.rows = 0
        self.count = first
        self.last: Share | None = None

    def __iter__(self) -> Iterator[Any]:
        share = self._next()
        while share is not _END:
            self.count += 1
            is_last = self._is_last()
            self.rows = share.rows
            self._fit.begin_step(share)
            yield self._fit.learner.take(share, is_last)
            if is_last:
                self.last = share
                share = self._next()  # a loader may give more batches than its length says
                if share is _END:
                    return
                done, self.last = self.last, None
                goes_on = self._fit.step_done(done, self.count)
            else:
                goes_on = self._fit.step_done(share, self.count)
                share = self._next() if goes_on else _END
            if not goes_on:
                return

    def __len__(self) -> int:
        if self._fit.source.steps is None:
            raise TypeError("the number of batches of a stream is not known")
        return self._fit.source.steps

    def close(self) -> None:
        close = getattr(self._shares, "close", None)
        if close is not None:
            close()

    def _is_last(self) -> bool:
        """By the length, where there is one. Streams are asked for one batch more: they draw no random numbers of
        ours, while an indexed loader of this process may, which must come after what a checkpoint holds."""
        steps = self._fit.source.steps
        if steps is not None:
            return self.count == steps
        self._ahead = self._fetch()
        return self._ahead is _END

    def _next(self) -> Any:
        if self._ahead is not None:
            share, self._ahead = self._ahead, None
            return share
        return self._fetch()

    def _fetch(self) -> Any:
        with self._fit.clock.phase("data_wait"):
            return next(self._shares, _END)


class _Clock:
    """Where a rank's time goes: what is measured by name, collectives, and the rest of training, which computes."""

    def __init__(self, group: TimedGroup):
        self._group = group
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._depth = 0

    def phases(self) -> dict[str, float]:
        return dict(self._seconds)

    def add(self, phases: dict[str, float]) -> None:
        """Count what passed before this gang was started."""
        for name, seconds in phases.items():
            self._seconds[name] += seconds

    @contextmanager
    def training(self) -> Iterator[None]:
        """All of an epoch's training; what other phases take within it is theirs."""
        self._elsewhere = self._synced_elsewhere = 0.0
        started, synced = time.perf_counter(), self._group.seconds
        yield
        synced = self._group.seconds - synced - self._synced_elsewhere
        self._seconds["sync"] += synced
        self._seconds["compute"] += time.perf_counter() - started - self._elsewhere - synced

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """One phase, within training or not."""
        started = time.perf_counter()
        with self.pause():
            yield
        self._seconds[name] += time.perf_counter() - started

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Something that is not training, and of which only the phases within it count."""
        self._depth += 1
        started, synced = time.perf_counter(), self._group.seconds
        try:
            yield
        finally:
            self._depth -= 1
        if self._depth == 0:
            self._elsewhere += time.perf_counter() - started
            self._synced_elsewhere += self._group.seconds - synced


class _Progress:
    """What a rank tells the driver on the way: how far it is, and on rank 0 what happened."""

    def __init__(self, worker: Worker, source: Source, job: FitJob):
        self._worker = worker
        self._total = None if source.steps is None else source.steps * (job.last_epoch - job.first_epoch)
        self._first = job.train_state.neval
        self._tells_steps = job.tell_steps and worker.rank == 0
        self._events: list[Event] = []
        self._spoke = self._stepped = time.monotonic()
        self._done = self._rows = 0
        self._seconds = 0.0
        self._loss: float | None = None

    def step(self, moment: Run) -> None:
        now = time.monotonic()
        self._done = moment.step - self._first + 1
        self._loss = moment.loss
        self._rows += moment.rows
        self._seconds += now - self._stepped
        moment.speed = moment.rows / max(now - self._stepped, 1e-9)
        moment.time = time.time()
        self._stepped = now
        if self._tells_steps:
            self._events.append(
                StepDone(
                    step=moment.step,
                    epoch=moment.epoch,
                    time=moment.time,
                    batch=moment.batch,
                    steps=moment.steps,
                    world_size=moment.world_size,
                    rows=moment.rows,
                    rows_in_epoch=moment.rows_in_epoch,
                    loss=moment.loss,
                    rate=moment.rate,
                    speed=moment.speed,
                )
            )
        if now - self._spoke > REPORT_SECONDS:
            self.flush()

    def tell(self, event: Event) -> None:
        """Tell the driver at once, after the steps before."""
        if self._worker.rank == 0:
            self._events.append(event)
            self.flush()

    def pause_over(self) -> None:
        """What was done since the last step was not part of the next one."""
        self._stepped = time.monotonic()

    def checkpoint_written(self, written: Written) -> None:
        done = CheckpointDone(written.step, written.epoch, time.time(), written.path, written.is_best)
        self._worker.report(events=[done])

    def send(self, parcel: Parcel) -> None:
        self._worker.report(parcels=[parcel])

    def flush(self) -> None:
        self._spoke = time.monotonic()
        shown = {} if self._loss is None or self._worker.rank else {"loss": self._loss}
        if self._seconds and not self._worker.rank:
            shown["rows/s"] = self._rows / self._seconds
        events, self._events = self._events, []
        self._worker.report(self._done, self._total, **shown, **({"events": events} if events else {}))


def _reported(worker: Worker, learner: Learner, shares: Iterator[Share], total: int | None) -> Iterator[Share]:
    """The shares, and now and then a word of how far this rank is with them, and what their loss is."""
    begun = spoke = time.monotonic()
    rows = 0
    for number, share in enumerate(shares):
        now = time.monotonic()
        if now - spoke > REPORT_SECONDS:
            shown = {"loss": learner.measured_loss(), "rows/s": rows / (now - begun)} if number else {}
            worker.report(number, total, **({} if worker.rank else numbers_of(shown)))
            spoke = now
        rows += share.total
        yield share


def _speaking(worker: Worker, shares: Iterator[Share]) -> Iterator[Share]:
    """The shares, and now and then a word that this rank is alive; how far the fit is stays as it was."""
    spoke = time.monotonic()
    for share in shares:
        if time.monotonic() - spoke > REPORT_SECONDS:
            worker.report()
            spoke = time.monotonic()
        yield share


def _summing(group: Group) -> Any:
    def agree(rows: int) -> int:
        buffer = np.array([rows], dtype=np.int64)
        group.all_reduce(buffer)
        return int(buffer[0])

    return agree


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
