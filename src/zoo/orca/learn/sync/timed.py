"""A group that knows how long its ranks spent in collectives, and tells the driver when it waits for others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.learn.sync.base import Group

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker


class TimedGroup(Group):
    """The same group, counting the seconds spent in its collectives, waiting for others included.

    Attributes:
        seconds: so long this rank was in collectives.

    Example:
        >>> with sync.join(worker) as group:  # doctest: +SKIP
        ...     timed = TimedGroup(group, worker)
        ...     timed.all_reduce(gradients)
        ...     timed.seconds
        0.00021
    """

    def __init__(self, group: Group, worker: Worker):
        super().__init__(group.rank, group.world_size)
        self.device = group.device
        self.seconds = 0.0
        self._group = group
        self._waiting = worker.waiting()

    def empty(self, length: int, dtype: Any) -> np.ndarray:
        started = time.perf_counter()
        with self._waiting:
            buffer = self._group.empty(length, dtype)
        self.seconds += time.perf_counter() - started
        return buffer

    def all_reduce(self, flat: Any) -> None:
        started = time.perf_counter()
        with self._waiting:
            self._group.all_reduce(flat)
        self.seconds += time.perf_counter() - started

    def reduce_scatter(self, flat: Any, tail: int = 0) -> None:
        started = time.perf_counter()
        with self._waiting:
            self._group.reduce_scatter(flat, tail)
        self.seconds += time.perf_counter() - started

    def all_gather(self, flat: Any) -> list[np.ndarray]:
        started = time.perf_counter()
        with self._waiting:
            parts = self._group.all_gather(flat)
        self.seconds += time.perf_counter() - started
        return parts

    def broadcast(self, flat: Any) -> None:
        started = time.perf_counter()
        with self._waiting:
            self._group.broadcast(flat)
        self.seconds += time.perf_counter() - started

    def sum_arrays(self, arrays: Sequence[Any], first: Any = None) -> None:
        """For groups that have it, such as MXNet's: what is still computed of the arrays is no time of theirs."""
        finish = self._group.start_sum(arrays, first)  # type: ignore[attr-defined]
        started = time.perf_counter()
        with self._waiting:
            finish()
        self.seconds += time.perf_counter() - started
