"""The same work twice in one session: what its first query costs, and how fast it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.row import Report


def twice(work: Callable[[], list[Any]], started: float | None = None) -> Report:
    """Do the work two times; its result begins with the number of rows.

    The report's seconds are those of the first pass (from `started` on, if that was before), in which workers are
    started, packages imported, the model loaded and the JVM's code compiled; its rate is that of the second pass.

    Example:
        >>> twice(lambda: [1000, 0.5]).checksum
        [1000, 0.5]
    """
    first, checksum = _timed(work, started)
    second, again = _timed(work)
    if again[0] != checksum[0]:
        raise RuntimeError(f"The first pass had {checksum[0]:,} rows, the second {again[0]:,}.")
    return Report(first, checksum, rate=checksum[0] / second)


def _timed(work: Callable[[], list[Any]], started: float | None = None) -> tuple[float, list[Any]]:
    start = time.perf_counter() if started is None else started
    result = work()
    return time.perf_counter() - start, result
