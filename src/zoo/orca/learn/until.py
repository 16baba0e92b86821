"""How long to train when a trigger decides: the epochs to run, and what ends them before their time."""

from __future__ import annotations

from typing import Any

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.callbacks import Callback, Run
from zoo.orca.learn.estimator import DEFAULT_BATCH_SIZE
from zoo.orca.learn.trigger import MaxEpoch, MaxIteration, TrainState, Trigger, TriggerCall

# More epochs than anybody will wait for.
ENDLESS = 2**31


def first_batch(where: TrainState, batch_size: int | None) -> int:
    """The batch to go on with in an epoch that training was stopped in: the rows before it have been seen.

    >>> first_batch(TrainState(epoch=2, neval=8, records=16), 8)
    2
    """
    return where.records // (batch_size or DEFAULT_BATCH_SIZE)


def epochs_until(end_trigger: Any, where: TrainState) -> tuple[range, list[Callback]]:
    """The epochs to run from where training stands until a trigger fires, and what ends them before their time."""
    trigger = Trigger.convert_trigger(end_trigger)
    if trigger is None:
        raise InvalidArgumentError("end_trigger must be given, such as MaxEpoch(1).")
    done = where.epoch - 1
    if trigger(where):
        return range(done, done), []
    if isinstance(trigger, MaxEpoch):
        return range(done, trigger.max_epoch), []
    most = trigger.max - where.neval + 1 if isinstance(trigger, MaxIteration) else ENDLESS - done
    return range(done, done + most), [StopWhen(trigger)]


class StopWhen(Callback):
    """Ends a fit when a trigger fires.

    >>> run = Run(step=3, epoch=1)
    >>> StopWhen(MaxIteration(3)).on_step_end(run)
    >>> run.stopped
    'MaxIteration(3)'
    """

    def __init__(self, trigger: TriggerCall):
        self._trigger = trigger
        self._score: float | None = None

    def on_validation_end(self, run: Run) -> None:
        scores = [value for name, value in run.figures.items() if name not in ("val_loss", "val_num_samples")]
        self._score = next(iter(scores), None)

    def on_step_end(self, run: Run) -> None:
        self._ask(run, is_over=run.steps is not None and run.batch >= run.steps)

    def on_epoch_end(self, run: Run) -> None:
        if run.steps is None:  # else its last step was known for what it is
            self._ask(run, is_over=True)

    def _ask(self, run: Run, is_over: bool) -> None:
        state = TrainState(
            epoch=run.epoch + is_over, neval=run.step + 1, loss=run.loss, score=self._score, epoch_finished=is_over
        )
        if self._trigger(state):
            run.stop(repr(self._trigger))

    def state_dict(self) -> dict[str, Any]:
        remembered = self._trigger.state_dict() if isinstance(self._trigger, Trigger) else {}
        return {"score": self._score, "trigger": remembered}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._score = state["score"]
        if isinstance(self._trigger, Trigger):
            self._trigger.load_state_dict(state["trigger"])
