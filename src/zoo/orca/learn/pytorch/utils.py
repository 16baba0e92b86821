"""Meters and timers that training operators keep, and a free port."""

from __future__ import annotations

import math
import socket
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def find_free_port() -> int:
    """A port that nothing on this machine listens at now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


class AverageMeter:
    """A number's last value and its average, weighted by how much each value stands for.

    Of what is no number (a text, a dict) the last value stands for all.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all values."""
        self.val: Any = 0.0
        self.avg: Any = 0.0
        self.sum: float = 0.0
        self.count: float = 0

    def update(self, val: Any, n: float = 1) -> None:
        """Count a value that stands for n of them."""
        if hasattr(val, "item") and math.prod(getattr(val, "shape", ())) == 1:
            val = val.item()  # a tensor or an array of one number
        self.val = val
        if not isinstance(val, int | float):
            self.avg = val
            return
        self.sum += val * n
        self.count += n
        if self.count:
            self.avg = self.sum / self.count

    def state(self) -> dict[str, Any]:
        """All of it, as far as it is plain data; what is no number comes with the next value."""
        is_number = isinstance(self.val, int | float) and isinstance(self.avg, int | float)
        values = {"val": self.val, "avg": self.avg} if is_number else {}
        return {"sum": self.sum, "count": self.count} | values

    def load(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def add(self, state: dict[str, Any]) -> None:
        """Count what another one counted."""
        self.val = state.get("val", self.val)
        self.sum += state["sum"]
        self.count += state["count"]
        if self.count:
            self.avg = self.sum / self.count


class AverageMeterCollection:
    """An average for each number that batches report."""

    def __init__(self) -> None:
        self._batches = 0
        self.n: float = 0
        self._meters: defaultdict[str, AverageMeter] = defaultdict(AverageMeter)

    def update(self, metrics: Mapping[str, Any], n: float = 1) -> None:
        """Count a batch's numbers, which stand for n rows."""
        self._batches += 1
        self.n += n
        for name, value in metrics.items():
            self._meters[name].update(value, n=n)

    def state(self) -> dict[str, Any]:
        """All that was counted, as plain data."""
        meters = {name: meter.state() for name, meter in self._meters.items()}
        return {"batches": self._batches, "n": self.n, "meters": meters}

    def load(self, state: dict[str, Any]) -> None:
        """Go on counting from what `state` gave."""
        self._batches, self.n = state["batches"], state["n"]
        self._meters.clear()
        for name, known in state["meters"].items():
            self._meters[name].load(known)

    def add(self, state: dict[str, Any]) -> None:
        """Count what another one counted of the same batches."""
        self._batches = max(self._batches, state["batches"])
        self.n += state["n"]
        for name, known in state["meters"].items():
            self._meters[name].add(known)

    def averages(self) -> dict[str, Any]:
        """Each number's average."""
        return {name: meter.avg for name, meter in self._meters.items()}

    def summary(self) -> dict[str, Any]:
        """How many batches there were, and each number's average and, as `last_...`, its last value."""
        found: dict[str, Any] = {"batch_count": self._batches}
        for name, meter in self._meters.items():
            found[name] = meter.avg
            found[f"last_{name}"] = meter.val
        return found


class TimerStat:
    """How long something takes, as a context manager around it, over the last times it was done.

    >>> timer = TimerStat()
    >>> with timer:
    ...     pass
    >>> timer.count
    1
    """

    def __init__(self, window_size: int = 10) -> None:
        self._window_size = window_size
        self._started: float | None = None
        self.reset()

    def reset(self) -> None:
        """Forget all durations."""
        self._seconds: list[float] = []
        self._units: list[float] = []
        self.count = 0
        self.last = 0.0

    def __enter__(self) -> TimerStat:
        self._started = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        if self._started is not None:
            self.push(time.perf_counter() - self._started)
            self._started = None

    def push(self, seconds: float) -> None:
        """Count a duration that was measured elsewhere."""
        self._seconds = [*self._seconds, seconds][-self._window_size :]
        self.last = seconds
        self.count += 1

    def push_units_processed(self, n: float) -> None:
        """Count how much was done in the last duration."""
        self._units = [*self._units, n][-self._window_size :]

    def has_units_processed(self) -> bool:
        """Whether it is known how much was done."""
        return bool(self._units)

    @property
    def mean(self) -> float:
        """The average duration in seconds."""
        return sum(self._seconds) / len(self._seconds) if self._seconds else 0.0

    @property
    def mean_units_processed(self) -> float:
        """How much is done each time, on average."""
        return sum(self._units) / len(self._units) if self._units else 0.0

    @property
    def mean_throughput(self) -> float:
        """How much is done in a second, on average."""
        seconds = sum(self._seconds)
        return sum(self._units) / seconds if seconds else 0.0


class TimerCollection:
    """A timer for each part of the work, by name; it can be switched off, and then costs nothing."""

    def __init__(self) -> None:
        self._timers: defaultdict[str, TimerStat] = defaultdict(TimerStat)
        self._enabled = True

    @contextmanager
    def record(self, name: str) -> Iterator[None]:
        """Time what is done inside the `with` block."""
        if not self._enabled:
            yield
            return
        with self._timers[name]:
            yield

    def stats(self) -> dict[str, float]:
        """For each part its average and its last duration in seconds, as `mean_..._s` and `last_..._s`."""
        found = {}
        for name, timer in self._timers.items():
            found[f"mean_{name}_s"] = timer.mean
            found[f"last_{name}_s"] = timer.last
        return found

    def reset(self) -> None:
        """Forget all durations."""
        self._timers.clear()

    def enable(self) -> None:
        """Time from now on."""
        self._enabled = True

    def disable(self) -> None:
        """Time nothing from now on."""
        self._enabled = False
