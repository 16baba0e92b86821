"""The contract: a `Callback` has hooks, a `Run` is what they are given, `Callbacks` are those of one fit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zoo.orca.errors import InvalidArgumentError, NotOfferedError

logger = logging.getLogger("zoo.orca")

HOOKS = (
    "on_fit_start",
    "on_epoch_start",
    "on_step_start",
    "on_step_end",
    "on_validation_start",
    "on_validation_end",
    "on_epoch_end",
    "on_checkpoint",
    "on_fit_end",
)

# Figures that count something, and a profile of the time.
_COUNTS = ("epoch", "batch_count", "num_samples", "profile")


@dataclass
class Run:
    """Where a fit stands, as its callbacks see it.

    Attributes:
        epoch: the epoch in hand, from 1; in `on_epoch_end` the one that ended.
        step: iterations done over the estimator's life.
        batch: iterations done in this epoch.
        steps: iterations of an epoch, if known.
        last_epoch: the epoch that this fit ends with.
        rank, world_size: who this is among how many; the driver is 0.
        loss: the last step's, over all ranks.
        rate: the last step's learning rate.
        rows: rows of the last global batch.
        rows_in_epoch: rows seen in this epoch over all ranks.
        speed: rows a second in the last step over all ranks, if known; validation and checkpoints do not count.
        time: when the last step ended, in seconds since 1970; on the driver, when what it is told of happened; None is
            now.
        figures: in `on_validation_end` that validation's, in `on_epoch_end` the epoch's. A figure added in
            `on_epoch_end` goes into the history, if rank 0 adds it.
        validates: whether there is validation data, if known.
        model: the framework's model on this rank; None on the driver.
        checkpoint: in `on_checkpoint`, where it was written.
        driver: whether this is the driver.
        stopped: the reason of the first `stop`.
        error: in `on_fit_end` on the driver, what ended the fit before its time.
        gather: on workers, gives every rank's value of what each rank hands in, by rank; all ranks call it together.
        so_far: on workers, gives the figures of the epoch so far over all ranks, where the framework counts them by
            batch; all ranks call it together.
    """

    epoch: int = 1
    step: int = 0
    batch: int = 0
    steps: int | None = None
    last_epoch: int = 1
    rank: int = 0
    world_size: int = 1
    loss: float | None = None
    rate: float = 0.0
    rows: int = 0
    rows_in_epoch: int = 0
    speed: float | None = None
    time: float | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    validates: bool | None = None
    model: Any = None
    checkpoint: str | None = None
    driver: bool = False
    stopped: str | None = None
    error: BaseException | None = None
    gather: Callable[[Any], list[Any]] | None = None
    so_far: Callable[[], dict[str, Any]] | None = None

    def stop(self, reason: str) -> None:
        """End training after this step, on all ranks, even if only one asks; the first reason counts."""
        if self.driver:
            raise NotOfferedError(
                "a callback with on_driver = True cannot stop training: the driver hears of a step when the workers "
                "are further on. Leave out on_driver, so that the callback runs on the workers."
            )
        if not isinstance(reason, str) or not reason:
            raise InvalidArgumentError(f"Expected the reason to stop, as text, got {reason!r}")
        self.stopped = self.stopped or reason


class Callback:
    """Something to do while an estimator trains: override the hooks that matter.

    A callback is sent to the workers, and each rank has its own copy. With `rank_zero_only` only rank 0 has one. With
    `on_driver` it stays in this process and hears of rank 0's steps, each once and within about a quarter of a
    second; it has no model there and cannot stop training.

    Example:
        >>> class StopAtLoss(Callback):
        ...     def __init__(self, loss):
        ...         self.loss = loss
        ...     def on_step_end(self, run):
        ...         if run.loss is not None and run.loss < self.loss:
        ...             run.stop(f"the loss is below {self.loss}")
        >>> run = Run(loss=0.05)
        >>> StopAtLoss(0.1).on_step_end(run)
        >>> run.stopped
        'the loss is below 0.1'
    """

    #: Whether, among the workers, only rank 0 has it.
    rank_zero_only: bool = False
    #: Whether it is called in the driver's process instead.
    on_driver: bool = False

    def on_fit_start(self, run: Run) -> None:
        """Called before the first step of a fit, and again, with what it remembers, when workers were started anew."""

    def on_epoch_start(self, run: Run) -> None:
        """Called before the first step of an epoch, and when an epoch is taken up again in its middle."""

    def on_step_start(self, run: Run) -> None:
        """Called before each step, on workers; `run.batch` counts the steps of the epoch before it."""

    def on_step_end(self, run: Run) -> None:
        """Called after each step."""

    def on_validation_start(self, run: Run) -> None:
        """Called before validation data is measured, on workers."""

    def on_validation_end(self, run: Run) -> None:
        """Called after validation data was measured; its figures are in `run.figures`."""

    def on_epoch_end(self, run: Run) -> None:
        """Called after an epoch; its figures are in `run.figures`."""

    def on_checkpoint(self, run: Run) -> None:
        """Called when a checkpoint is there, at `run.checkpoint`. On workers, training waits for it to be written."""

    def on_fit_end(self, run: Run) -> None:
        """Called at the end of a fit; on the driver also when it failed, with `run.error`."""

    def state_dict(self) -> dict[str, Any]:
        """What to remember in checkpoints: numbers, text, lists, dicts, tensors. Of callbacks on workers only."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave, after the gang was started again."""

    def come_home(self, state: dict[str, Any]) -> None:
        """On the driver, when a fit is over: take what rank 0's copy remembers in the end."""

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({facts})"


class Callbacks:
    """The callbacks of one fit, in the user's order.

    Each has a key, of its position and class, under which its state is kept; it is the same on every rank.

    >>> Callbacks(None).overrides("on_step_end")
    False
    """

    def __init__(self, callbacks: Sequence[Callback] | None = None) -> None:
        given = _checked(callbacks)
        self._keyed = {f"{number}:{type(each).__name__}": each for number, each in enumerate(given)}

    def __repr__(self) -> str:
        return f"Callbacks({list(self)})"

    def __iter__(self):
        return iter(self._keyed.values())

    def __len__(self) -> int:
        return len(self._keyed)

    def on_driver(self) -> Callbacks:
        """Those that are called in the driver's process."""
        return self._those(lambda each: each.on_driver)

    def on_workers(self) -> Callbacks:
        """Those that are sent to the workers."""
        return self._those(lambda each: not each.on_driver)

    def for_rank(self, rank: int) -> Callbacks:
        """Those that a rank has."""
        return self._those(lambda each: not each.on_driver and not (each.rank_zero_only and rank))

    def overrides(self, hook: str) -> bool:
        """Whether any has something to do in a hook."""
        return any(_overrides(each, hook) for each in self)

    def call(self, hook: str, run: Run) -> None:
        """Call a hook of all, in order; `on_fit_end` of all, even if one raises."""
        if hook == "on_fit_end":
            self._end(run)
            return
        for callback in self:
            getattr(callback, hook)(run)

    def state(self) -> dict[str, dict[str, Any]]:
        """What the callbacks remember, those that remember nothing left out."""
        states = {key: each.state_dict() for key, each in self._keyed.items()}
        wrong = next((key for key, state in states.items() if not isinstance(state, dict)), None)
        if wrong is not None:
            raise InvalidArgumentError(
                f"Expected state_dict() of {type(self._keyed[wrong]).__name__} to give a dict, got {states[wrong]!r}"
            )
        return {key: state for key, state in states.items() if state}

    def load(self, state: dict[str, dict[str, Any]]) -> None:
        """Give back what `state` gathered, to the callbacks that are still in the same place."""
        for key, callback in self._keyed.items():
            if key in state:
                callback.load_state_dict(state[key])

    def come_home(self, state: dict[str, dict[str, Any]]) -> None:
        """Tell the driver's callbacks what rank 0's copies remember."""
        for key, callback in self._keyed.items():
            if key in state:
                callback.come_home(state[key])

    def _those(self, are_wanted: Callable[[Callback], bool]) -> Callbacks:
        some = Callbacks()
        some._keyed = {key: each for key, each in self._keyed.items() if are_wanted(each)}
        return some

    def _end(self, run: Run) -> None:
        """Let all end what they began. What ended the fit is what the user must see, so it is never covered up."""
        errors = []
        for callback in self:
            try:
                callback.on_fit_end(run)
            except Exception as error:
                errors.append(error)
        if errors and run.error is None:
            raise errors[0]
        for each in errors:
            logger.warning("a callback failed at the end of a fit that had failed already: %r", each)


def numbers_of(figures: Mapping[str, Any]) -> dict[str, float]:
    """The figures that are numbers, of whatever library.

    >>> numbers_of({"loss": 1, "profile": {}, "name": "x", "score": None})
    {'loss': 1.0}
    """
    return {name: float(value) for name, value in figures.items() if is_number(value)}


def is_measure(name: str) -> bool:
    """Whether a figure measures how good training is, and so belongs where curves are shown.

    >>> [name for name in ("epoch", "train_loss", "last_train_loss", "val_num_samples", "val_auc") if is_measure(name)]
    ['train_loss', 'val_auc']
    """
    return not name.startswith("last_") and name.removeprefix("val_") not in _COUNTS


def is_number(value: Any) -> bool:
    """Whether something is a number, of whatever library."""
    return not isinstance(value, bool | str | bytes) and hasattr(value, "__float__") and not getattr(value, "shape", ())


def _overrides(callback: Callback, hook: str) -> bool:
    return getattr(getattr(callback, hook), "__func__", None) is not getattr(Callback, hook)


def _checked(callbacks: Any) -> list[Callback]:
    if callbacks is None:
        return []
    if not isinstance(callbacks, list | tuple):
        hint = f" Type callbacks=[{type(callbacks).__name__}(...)]." if isinstance(callbacks, Callback) else ""
        raise InvalidArgumentError(f"Expected callbacks to be a list of callbacks or None, got {callbacks!r}.{hint}")
    for each in callbacks:
        if not isinstance(each, Callback):
            is_class = isinstance(each, type) and issubclass(each, Callback)
            hint = (
                f"Type {each.__name__}(...)" if is_class else "Derive its class from zoo.orca.learn.callbacks.Callback"
            )
            raise InvalidArgumentError(f"Expected callbacks to be a list of callbacks, but {each!r} is none. {hint}.")
    if len({id(each) for each in callbacks}) < len(callbacks):
        raise InvalidArgumentError("Expected each callback once, but one object is in callbacks twice.")
    return list(callbacks)
