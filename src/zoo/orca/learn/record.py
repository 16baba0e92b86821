"""What the driver hears of a fit: rank 0's steps, validations, epochs and checkpoints, each once."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.orca.learn.callbacks import Callbacks, Run
from zoo.orca.learn.summary import SummaryWriter

if TYPE_CHECKING:
    from zoo.orca.engine.channel import Report

logger = logging.getLogger("zoo.orca")


@dataclass(frozen=True)
class Event:
    """Something happened after `step` iterations, in an epoch counted from 1, at a time."""

    step: int
    epoch: int
    time: float


@dataclass(frozen=True)
class StepDone(Event):
    """An iteration: its number within the epoch, of how many, its rows over all ranks and what they were a second."""

    batch: int
    steps: int | None
    world_size: int
    rows: int
    rows_in_epoch: int
    loss: float | None
    rate: float
    speed: float


@dataclass(frozen=True)
class Validated(Event):
    """Validation data was measured."""

    figures: dict[str, Any]


@dataclass(frozen=True)
class EpochDone(Event):
    """An epoch ended, with these figures over all ranks."""

    figures: dict[str, Any]


@dataclass(frozen=True)
class CheckpointDone(Event):
    """A checkpoint is whole."""

    path: str
    is_best: bool


@dataclass
class Summaries:
    """Where the figures of training go, and the last place they went to."""

    train: SummaryWriter | None = None
    validation: SummaryWriter | None = None

    def to(self, folder: Path) -> None:
        self.train = SummaryWriter(folder / "train")
        self.validation = SummaryWriter(folder / "validation")

    def step_done(self, event: StepDone) -> None:
        if self.train is None:
            return
        if event.loss is not None:
            self.train.add_scalar("Loss", event.loss, event.step, event.time)
        self.train.add_scalar("Throughput", event.speed, event.step, event.time)
        self.train.add_scalar("LearningRate", event.rate, event.step, event.time)

    def validated(self, event: Validated) -> None:
        shown = {name: value for name, value in event.figures.items() if isinstance(value, int | float)}
        logger.info("validation after step %d: %s", event.step, shown)
        for name, value in shown.items():
            if self.validation is not None:
                self.validation.add_scalar(name, value, event.step, event.time)

    def close(self) -> None:
        for each in (self.train, self.validation):
            if each is not None:
                each.close()


@dataclass
class Record:
    """Passes a fit's events on to summaries and to the callbacks of the driver, and remembers the checkpoints.

    A gang that was restarted takes some steps again: what was told of them already is not told twice.
    """

    summaries: Summaries
    callbacks: Callbacks
    run: Run
    last_checkpoint: str | None = None
    best_checkpoint: str | None = None
    _told: dict[type, int] = field(default_factory=dict)

    def begin(self) -> None:
        self.callbacks.call("on_fit_start", self.run)
        self.callbacks.call("on_epoch_start", self.run)

    def end(self, stopped: str | None = None, error: BaseException | None = None) -> None:
        """The fit is over; what it ended with is told to callbacks, even to those of a fit that failed."""
        self.run.stopped, self.run.error = stopped, error
        self.callbacks.call("on_fit_end", self.run)

    @property
    def wants_steps(self) -> bool:
        return self.summaries.train is not None or len(self.callbacks) > 0

    def on_report(self, rank: int, report: Report) -> None:
        """Handle what a rank reported on its way."""
        for parcel in report.metrics.get("parcels", ()):
            parcel.deliver()
        for event in report.metrics.get("events", ()):
            kind = type(event)
            if event.step > self._told.get(kind, -1):
                self._told[kind] = event.step
                getattr(self, self._HANDLERS[kind])(event)

    def _step_done(self, event: StepDone) -> None:
        if event.batch == 1 and event.epoch != self.run.epoch:
            self.run = self._now(event)
            self.callbacks.call("on_epoch_start", self.run)
        self.run = self._now(
            event,
            batch=event.batch,
            steps=event.steps,
            world_size=event.world_size,
            rows=event.rows,
            rows_in_epoch=event.rows_in_epoch,
            loss=event.loss,
            rate=event.rate,
            speed=event.speed,
        )
        self.summaries.step_done(event)
        self.callbacks.call("on_step_end", self.run)

    def _validated(self, event: Validated) -> None:
        self.summaries.validated(event)
        self.callbacks.call("on_validation_end", self._now(event, figures=named_for_validation(event.figures)))

    def _epoch_done(self, event: EpochDone) -> None:
        self.callbacks.call("on_epoch_end", self._now(event, figures=dict(event.figures)))

    def _checkpoint_done(self, event: CheckpointDone) -> None:
        self.last_checkpoint = event.path
        if event.is_best:
            self.best_checkpoint = event.path
        self.callbacks.call("on_checkpoint", self._now(event, checkpoint=event.path))

    def _now(self, event: Event, **changes: Any) -> Run:
        return dataclasses.replace(self.run, step=event.step, epoch=event.epoch, time=event.time, **changes)

    _HANDLERS = {
        StepDone: "_step_done",
        Validated: "_validated",
        EpochDone: "_epoch_done",
        CheckpointDone: "_checkpoint_done",
    }


def named_for_validation(figures: dict[str, Any]) -> dict[str, Any]:
    """Figures of validation data as they are called beside those of training."""
    return {f"val_{name.removeprefix('val_')}": value for name, value in figures.items()}
