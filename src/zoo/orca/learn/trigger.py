"""Triggers: when to validate, to write a checkpoint or a summary, and to stop.

A trigger is called once after each iteration with the `TrainState`, and says whether now is the time.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zoo.orca.errors import InvalidArgumentError

#: What an argument called `trigger` may be after `Trigger.convert_trigger`.
TriggerCall = Callable[["TrainState"], bool]


@dataclass
class TrainState:
    """Where training stands, as triggers see it.

    Attributes:
        epoch: the epoch that the next iteration belongs to, from 1.
        neval: the number of the next iteration, from 1.
        records: rows seen in this epoch.
        loss: the last iteration's.
        score: the last validation's first metric.
        epoch_finished: whether the last iteration ended an epoch.
    """

    epoch: int = 1
    neval: int = 1
    records: int = 0
    loss: float | None = None
    score: float | None = None
    epoch_finished: bool = False

    def advance(self, rows: int, rows_in_epoch: int, loss: float | None = None) -> None:
        """Count an iteration over some rows, and the end of the epoch when all have been seen."""
        self.neval += 1
        self.records += rows
        self.epoch_finished = self.records >= rows_in_epoch
        if self.epoch_finished:
            self.epoch += 1
            self.records = 0
        if loss is not None:
            self.loss = loss


class Trigger(ABC):
    """Says after each iteration whether it is time; what it remembers is pickled and copied with it."""

    @abstractmethod
    def __call__(self, state: TrainState) -> bool:
        """Whether it is time, in this state."""

    def get_trigger(self) -> Trigger:
        """The trigger that the training loop calls: this one."""
        return self

    def copy(self) -> Trigger:
        """A trigger that remembers the same and from now on for itself."""
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        arguments = ", ".join(repr(value) for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({arguments})"

    @staticmethod
    def convert_trigger(t: Any) -> TriggerCall | None:
        """A trigger from what users give for one: None, "everyepoch", a trigger, or a function of the state.

        >>> Trigger.convert_trigger("EveryEpoch")
        EveryEpoch()
        """
        if t is None:
            return None
        if isinstance(t, str):
            return _from_text(t)
        if isinstance(t, Trigger):
            return t.get_trigger()
        if callable(t) and not isinstance(t, type):
            return t
        hint = f" Type {t.__name__}(...) to make one." if isinstance(t, type) else ""
        raise InvalidArgumentError(
            f"Expected a trigger such as EveryEpoch() or SeveralIteration(100), 'everyepoch' or None, got {t!r}.{hint}"
        )


class EveryEpoch(Trigger):
    """Fires when the epoch differs from the one at the previous call; the first call only remembers."""

    def __init__(self) -> None:
        self._last: int | None = None

    def __call__(self, state: TrainState) -> bool:
        fires = self._last is not None and self._last != state.epoch
        self._last = state.epoch
        return fires


class SeveralIteration(Trigger):
    """Fires when the number of the next iteration is a multiple of the interval: first after interval - 1."""

    def __init__(self, interval: int) -> None:
        self.interval = _positive("interval", interval)

    def __call__(self, state: TrainState) -> bool:
        return state.neval % self.interval == 0


class MaxEpoch(Trigger):
    """Fires once so many epochs are done."""

    def __init__(self, max_epoch: int) -> None:
        self.max_epoch = _positive("max_epoch", max_epoch)

    def __call__(self, state: TrainState) -> bool:
        return state.epoch > self.max_epoch


class MaxIteration(Trigger):
    """Fires once so many iterations are done."""

    def __init__(self, max: int) -> None:
        self.max = _positive("max", max)

    def __call__(self, state: TrainState) -> bool:
        return state.neval > self.max


class MaxScore(Trigger):
    """Fires when the last validation's score is above a value."""

    def __init__(self, max: float) -> None:
        self.max = max

    def __call__(self, state: TrainState) -> bool:
        return state.score is not None and state.score > self.max


class MinLoss(Trigger):
    """Fires when the last iteration's loss is below a value."""

    def __init__(self, min: float) -> None:
        self.min = min

    def __call__(self, state: TrainState) -> bool:
        return state.loss is not None and state.loss < self.min


class _Several(Trigger):
    """Several triggers, all of which see every state: one that is asked only at times would remember wrongly."""

    def __init__(self, first: Any, *other: Any) -> None:
        self._triggers = [_required(each) for each in (first, *other)]

    def _asked(self, state: TrainState) -> list[bool]:
        return [each(state) for each in self._triggers]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._triggers))})"


class TriggerAnd(_Several):
    """Fires when all of its triggers do."""

    def __call__(self, state: TrainState) -> bool:
        return all(self._asked(state))


class TriggerOr(_Several):
    """Fires when any of its triggers does."""

    def __call__(self, state: TrainState) -> bool:
        return any(self._asked(state))


# What a trigger may be called in a string, in small letters.
_NAMES: dict[str, Callable[[], Trigger]] = {"everyepoch": EveryEpoch}


def _from_text(text: str) -> Trigger:
    """The trigger that a string names."""
    name = text.strip().lower()
    if name not in _NAMES:
        raise InvalidArgumentError(f"Expected a trigger's name, one of {', '.join(_NAMES)}, got '{text}'")
    return _NAMES[name]()


def _required(t: Any) -> TriggerCall:
    converted = Trigger.convert_trigger(t)
    if converted is None:
        raise InvalidArgumentError("Expected a trigger to combine, such as EveryEpoch(), got None")
    return converted


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgumentError(f"Expected {name} to be a whole number above 0, got {value!r}")
    return value
