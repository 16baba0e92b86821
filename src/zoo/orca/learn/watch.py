"""Triggers as a gang asks them: all ranks get the same answer, also from a clock."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from zoo.orca.learn.sync import Group
from zoo.orca.learn.trigger import EveryTime, TrainState, Trigger, TriggerCall

# A clock is looked at about so often; in between nobody has to agree on anything.
LOOK_SECONDS = 1.0
MOST_STEPS = 1000


class Watch:
    """One trigger, asked by every rank after each step. Of a clock rank 0 decides for all."""

    def __init__(self, trigger: TriggerCall | None, group: Group):
        self._trigger = trigger
        self._group = group
        self._by_clock = bool(getattr(trigger, "by_clock", False)) and group.world_size > 1
        self._pauses = isinstance(trigger, EveryTime)
        self._steps = 0
        self._next = 1
        self._looked = time.monotonic()

    def fires(self, where: TrainState) -> bool:
        """Whether it is time, after a step."""
        if self._trigger is None:
            return False
        if not self._by_clock:
            return self._trigger(where)
        self._steps += 1
        if self._steps < self._next:
            return False
        answer = np.zeros(2, np.int64)
        if self._group.rank == 0:
            answer[:] = self._trigger(where), self._pause()
        self._group.broadcast(answer)
        self._steps, self._next = 0, int(answer[1])
        return bool(answer[0])

    def state(self) -> dict[str, Any]:
        return self._trigger.state_dict() if isinstance(self._trigger, Trigger) else {}

    def load(self, state: dict[str, Any]) -> None:
        if isinstance(self._trigger, Trigger):
            self._trigger.load_state_dict(state)

    def _pause(self) -> int:
        """After how many steps to look again; a trigger that does not only look at the clock must see every step."""
        now = time.monotonic()
        each = (now - self._looked) / max(self._steps, 1)
        self._looked = now
        return min(MOST_STEPS, max(1, int(LOOK_SECONDS / max(each, 1e-9)))) if self._pauses else 1
