"""What the estimators of TensorFlow 1 ask of their arguments, in the words that existing code looks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.orca.context import OrcaContext
from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.feed import kind_of
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.callbacks import Callback, Run
from zoo.orca.learn.estimator import DEFAULT_BATCH_SIZE
from zoo.orca.learn.optimizers import Optimizer
from zoo.orca.learn.trigger import EveryEpoch, MaxEpoch, MaxIteration, TrainState, Trigger, TriggerCall

WITH_COLUMNS = ("Spark DataFrame", "pandas DataFrame", "Ray Dataset")
# More epochs than anybody will wait for.
ENDLESS = 2**31


def need_columns(data: Any, columns: Columns, doing: str, needs_labels: bool = True) -> None:
    """Raise a typed error if data has columns and nobody said which; `doing` is "training" or the like."""
    if kind_of(data) not in WITH_COLUMNS and not (columns.features or columns.labels or _is_of_frames(data)):
        return
    for what, found, needed in (("feature", columns.features, True), ("label", columns.labels, needs_labels)):
        if needed and not found:
            raise PreconditionError(
                f"{what} columns is None; it should not be None in {doing}. The data has columns: say which are the "
                f'{what}s, as {what}_cols=["name", ...].'
            )


def _is_of_frames(data: Any) -> bool:
    return kind_of(data) == "XShards" and data._get_class_name() == "pandas.core.frame.DataFrame"


def need_records(feed: Any, what: str) -> None:
    """Raise a typed error for a tf.data.Dataset whose elements are not single records, each once."""
    if getattr(feed, "batched", None):
        raise PreconditionError(
            f"{what} must be a tf.data.Dataset of single records, but its elements are batches. Leave out .batch(...), "
            "and say batch_size=... here: batches are made over all workers. For one that cannot be made anew: "
            ".unbatch()."
        )
    if getattr(feed, "infinite", None):
        raise PreconditionError(
            f"{what} must be a tf.data.Dataset that ends, but it repeats its records for ever. Leave out .repeat(), "
            "and say epochs=... here."
        )


def check_backend(backend: Any) -> None:
    if backend != "bigdl":
        raise PreconditionError(f'backend must be "bigdl" for estimators of zoo.orca.learn.tf, but is {backend!r}.')


def is_orca(optimizer: Any) -> bool:
    """Whether it is an orca optimizer, or a dict of them by the prefix of variables' names."""
    return isinstance(optimizer, Optimizer | Mapping)


def check_disk_trigger(trigger: Any) -> None:
    """With training data on disk, a slice at a time, the published interface takes some triggers alone."""
    if not OrcaContext.train_data_store.startswith("DISK"):
        return
    converted = Trigger.convert_trigger(trigger)
    if converted is None or isinstance(converted, EveryEpoch) or getattr(converted, "slice_aware", False):
        return
    raise InvalidArgumentError(
        "Please use a trigger defined in zoo.util.triggers, or EveryEpoch(), as checkpoint_trigger when "
        f"OrcaContext.train_data_store is {OrcaContext.train_data_store!r}, but it is {trigger!r}. Type "
        "from zoo.util.triggers import SeveralIteration."
    )


def first_batch(where: TrainState, batch_size: int | None) -> int:
    """The batch to go on with in an epoch that training was stopped in: the rows before it have been seen.

    >>> first_batch(TrainState(epoch=2, neval=8, records=16), 8)
    2
    """
    return where.records // (batch_size or DEFAULT_BATCH_SIZE)


def epochs_until(trigger: TriggerCall, where: TrainState) -> tuple[range, list[Callback]]:
    """The epochs to run from where training stands until a trigger fires, and what ends them before their time."""
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
