"""Triggers: when to validate, to write a checkpoint or a summary, and to stop.

A trigger is called once after each iteration with the `TrainState`, and says whether now is the time. Text stands for
one too: "everyepoch", "1ep" (epochs), "500ba" (batches), "30s", "10min", "2h".
"""

from __future__ import annotations

import copy
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.names import public_names

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
        self.epoch_finished = False
        if self.records >= rows_in_epoch:
            self.end_epoch()
        if loss is not None:
            self.loss = loss

    def end_epoch(self) -> None:
        """All rows of the epoch have been seen."""
        self.epoch_finished = True
        self.epoch += 1
        self.records = 0


class Trigger(ABC):
    """Says after each iteration whether it is time; what it remembers is pickled and copied with it."""

    #: Whether it looks at a clock. Clocks of ranks differ, so such a trigger is asked on one rank for all.
    by_clock: bool = False

    @abstractmethod
    def __call__(self, state: TrainState) -> bool:
        """Whether it is time, in this state."""

    def get_trigger(self) -> Trigger:
        """The trigger that the training loop calls: this one."""
        return self

    def copy(self) -> Trigger:
        """A trigger that remembers the same and from now on for itself."""
        return copy.deepcopy(self)

    #: The attributes that change from call to call; None is all.
    _memory: tuple[str, ...] | None = None

    def state_dict(self) -> dict[str, Any]:
        """What it remembers, as plain data, so that training taken up again fires where it would have."""
        return copy.deepcopy({name: value for name, value in vars(self).items() if self._remembers(name)})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Remember what `state_dict` gave."""
        vars(self).update({name: copy.deepcopy(value) for name, value in state.items() if self._remembers(name)})

    def _remembers(self, name: str) -> bool:
        return self._memory is None or name in self._memory

    def __repr__(self) -> str:
        arguments = ", ".join(repr(value) for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({arguments})"

    @staticmethod
    def convert_trigger(t: Any) -> TriggerCall | None:
        """A trigger from what users give for one: None, text, a trigger, or a function of the state.

        >>> Trigger.convert_trigger("EveryEpoch")
        EveryEpoch()
        >>> Trigger.convert_trigger("10min")
        EveryTime(600)
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
            f"Expected a trigger such as EveryEpoch() or SeveralIteration(100), {_TEXTS}, or None, got {t!r}.{hint}"
        )


class EveryEpoch(Trigger):
    """Fires when the epoch differs from the one at the previous call; the first call only remembers."""

    _memory = ("_last",)

    def __init__(self) -> None:
        self._last: int | None = None

    def __call__(self, state: TrainState) -> bool:
        fires = self._last is not None and self._last != state.epoch
        self._last = state.epoch
        return fires


class SeveralIteration(Trigger):
    """Fires when the number of the next iteration is a multiple of the interval: first after interval - 1."""

    _memory = ()

    def __init__(self, interval: int) -> None:
        self.interval = _positive("interval", interval)

    def __call__(self, state: TrainState) -> bool:
        return state.neval % self.interval == 0


class EveryEpochs(Trigger):
    """Fires at the end of an epoch when so many have ended since it last fired; "3ep" as text.

    >>> every = EveryEpochs(2)
    >>> [every(TrainState(epoch=epoch, epoch_finished=True)) for epoch in (2, 3, 4, 5)]
    [False, True, False, True]
    """

    _memory = ("_ended",)

    def __init__(self, epochs: int) -> None:
        self.epochs = _positive("epochs", epochs)
        self._ended = 0

    def __call__(self, state: TrainState) -> bool:
        self._ended += state.epoch_finished
        fires = state.epoch_finished and self._ended >= self.epochs
        if fires:
            self._ended = 0
        return fires


class EveryBatches(Trigger):
    """Fires when the number of iterations done is a multiple of so many; "500ba" as text.

    >>> every = EveryBatches(2)
    >>> [every(TrainState(neval=done + 1)) for done in (1, 2, 3, 4)]
    [False, True, False, True]
    """

    _memory = ()

    def __init__(self, batches: int) -> None:
        self.batches = _positive("batches", batches)

    def __call__(self, state: TrainState) -> bool:
        return (state.neval - 1) % self.batches == 0


class EveryTime(Trigger):
    """Fires when so many seconds have passed since it last fired, or since its first call; "10min" as text.

    A copy, in this process or another, goes on with the seconds that have passed.

    >>> Trigger.convert_trigger("2h")
    EveryTime(7200)
    """

    by_clock = True

    def __init__(self, seconds: float) -> None:
        self.seconds = _seconds(seconds)
        self._since: float | None = None

    def __call__(self, state: TrainState) -> bool:
        now = time.monotonic()
        if self._since is None:
            self._since = now
        fires = now - self._since >= self.seconds
        if fires:
            self._since = now
        return fires

    def state_dict(self) -> dict[str, Any]:
        # Clocks of two processes have nothing in common, so what is kept is how far this one has come.
        return {"passed": None if self._since is None else time.monotonic() - self._since}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        passed = state.get("passed")
        self._since = None if passed is None else time.monotonic() - passed

    def __getstate__(self) -> dict[str, Any]:
        return {"seconds": self.seconds} | self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.seconds = state["seconds"]
        self.load_state_dict(state)


class MaxEpoch(Trigger):
    """Fires once so many epochs are done."""

    _memory = ()

    def __init__(self, max_epoch: int) -> None:
        self.max_epoch = _positive("max_epoch", max_epoch)

    def __call__(self, state: TrainState) -> bool:
        return state.epoch > self.max_epoch


class MaxIteration(Trigger):
    """Fires once so many iterations are done."""

    _memory = ()

    def __init__(self, max: int) -> None:
        self.max = _positive("max", max)

    def __call__(self, state: TrainState) -> bool:
        return state.neval > self.max


class MaxScore(Trigger):
    """Fires when the last validation's score is above a value."""

    _memory = ()

    def __init__(self, max: float) -> None:
        self.max = max

    def __call__(self, state: TrainState) -> bool:
        return state.score is not None and state.score > self.max


class MinLoss(Trigger):
    """Fires when the last iteration's loss is below a value."""

    _memory = ()

    def __init__(self, min: float) -> None:
        self.min = min

    def __call__(self, state: TrainState) -> bool:
        return state.loss is not None and state.loss < self.min


class _Several(Trigger):
    """Several triggers, all of which see every state: one that is asked only at times would remember wrongly."""

    def __init__(self, first: Any, *other: Any) -> None:
        self._triggers = [_required(each) for each in (first, *other)]
        self.by_clock = any(getattr(each, "by_clock", False) for each in self._triggers)

    def state_dict(self) -> dict[str, Any]:
        # A function of the state remembers nothing that could be asked for.
        return {"triggers": [each.state_dict() if isinstance(each, Trigger) else {} for each in self._triggers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for each, remembered in zip(self._triggers, state.get("triggers", ()), strict=False):
            if isinstance(each, Trigger):
                each.load_state_dict(remembered)

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


# What a trigger may be called in a string, in small letters, and the units of a count before it.
_NAMES: dict[str, Callable[[], Trigger]] = {"everyepoch": EveryEpoch}
_UNITS: dict[str, Callable[[Any], Trigger]] = {
    "ep": EveryEpochs,
    "ba": EveryBatches,
    "s": EveryTime,
    "min": lambda minutes: EveryTime(minutes * 60),
    "h": lambda hours: EveryTime(hours * 3600),
}
_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_TEXTS = "'everyepoch', '1ep' (epochs), '500ba' (batches), '30s', '10min', '2h'"


def _from_text(text: str) -> Trigger:
    """The trigger that a string names."""
    name = text.strip().lower()
    if name in _NAMES:
        return _NAMES[name]()
    count = _COUNT.fullmatch(name)
    if count is None or count[2] not in _UNITS:
        raise InvalidArgumentError(f"Expected a trigger's text, such as {_TEXTS}, got '{text}'.")
    number = float(count[1]) if "." in count[1] else int(count[1])
    try:
        return _UNITS[count[2]](number)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"Expected a trigger's text, such as {_TEXTS}, got '{text}'. {error}") from None


def _required(t: Any) -> TriggerCall:
    converted = Trigger.convert_trigger(t)
    if converted is None:
        raise InvalidArgumentError("Expected a trigger to combine, such as EveryEpoch(), got None.")
    return converted


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgumentError(f"Expected {name} to be a whole number above 0, got {value!r}")
    return value


def _seconds(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InvalidArgumentError(f"Expected seconds to be a number above 0, got {value!r}")
    return value


__dir__ = public_names(globals())
