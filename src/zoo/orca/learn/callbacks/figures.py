"""Callbacks that add a figure to the history."""

from __future__ import annotations

import time

from zoo.orca.learn.callbacks.base import Callback, Run


class LRMonitor(Callback):
    """Adds the learning rate of an epoch's last step to its figures, as "lr".

    >>> run = Run(rate=0.1)
    >>> LRMonitor().on_epoch_end(run)
    >>> run.figures
    {'lr': 0.1}
    """

    def on_epoch_end(self, run: Run) -> None:
        run.figures["lr"] = run.rate


class Throughput(Callback):
    """Adds the rows a second of an epoch's training, over all ranks, to its figures, as "rows_per_second".

    Waiting for data counts; validation and checkpoints do not.

    Example:
        >>> throughput = Throughput()
        >>> throughput.on_epoch_start(Run())
        >>> run = Run(rows_in_epoch=640)
        >>> throughput.on_epoch_end(run)
        >>> run.figures["rows_per_second"] > 0
        True
    """

    # There is no hook for steps here: all ranks must agree after one, which small models would feel.
    rank_zero_only = True

    def __init__(self) -> None:
        self._first_rows = 0
        self._seconds = 0.0
        self._since = 0.0

    def on_epoch_start(self, run: Run) -> None:
        # An epoch that is taken up in its middle is measured from there.
        self._first_rows = run.rows_in_epoch if run.batch else 0
        self._seconds, self._since = 0.0, time.time()

    def on_validation_end(self, run: Run) -> None:
        self._count(run)

    def on_checkpoint(self, run: Run) -> None:
        self._count(run)

    def on_epoch_end(self, run: Run) -> None:
        self._count(run)
        # A clock may stand still over a short epoch.
        run.figures["rows_per_second"] = (run.rows_in_epoch - self._first_rows) / max(self._seconds, 1e-9)

    def _count(self, run: Run) -> None:
        """Count the time up to the last step; what came after it was something else."""
        now = time.time()
        self._seconds += max((now if run.time is None else run.time) - self._since, 0.0)
        self._since = now
