"""Summaries that the user made: written when their triggers say so, under BigDL's names."""

from __future__ import annotations

import dataclasses
from typing import Any

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.estimator import Estimator
from zoo.orca.learn.record import StepDone, Summaries, Validated
from zoo.orca.learn.summary import TrainSummary, ValidationSummary
from zoo.orca.learn.trigger import TrainState


class UserSummaries(Summaries):
    """Where a TrainSummary and a ValidationSummary are written to."""

    def step_done(self, event: StepDone) -> None:
        if not isinstance(self.train, TrainSummary):
            super().step_done(event)
            return
        is_over = event.batch == event.steps
        state = TrainState(event.epoch + is_over, event.step + 1, loss=event.loss, epoch_finished=is_over)
        figures = {"Loss": event.loss, "Throughput": event.speed, "LearningRate": event.rate}
        for name in self.train.due(state):
            value = figures.get(name)
            if value is not None:
                self.train.add_scalar(name, value, event.step, event.time)

    def validated(self, event: Validated) -> None:
        renamed = {"Loss" if name == "val_loss" else name: value for name, value in event.figures.items()}
        super().validated(dataclasses.replace(event, figures=renamed))


def use_train_summary(estimator: Estimator, summary: TrainSummary) -> None:
    """Let an estimator write the figures of training where a summary says."""
    _check(summary, TrainSummary)
    _use(estimator, UserSummaries(summary, estimator._summaries.validation))


def use_validation_summary(estimator: Estimator, summary: ValidationSummary) -> None:
    """Let an estimator write the figures of validation data where a summary says."""
    _check(summary, ValidationSummary)
    _use(estimator, UserSummaries(estimator._summaries.train, summary))


def _use(estimator: Estimator, summaries: Summaries) -> None:
    estimator._wants_summaries = True
    estimator._summaries = summaries


def _check(summary: Any, kind: type) -> None:
    if not isinstance(summary, kind):
        raise InvalidArgumentError(
            f'Expected a {kind.__name__}, such as {kind.__name__}("/tmp/logs", "app"), got {summary!r}.'
        )
