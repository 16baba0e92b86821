"""A bar for each epoch, on the driver's terminal or in its notebook."""

from __future__ import annotations

import time

from zoo.orca.engine.bar import Bar
from zoo.orca.learn.callbacks.base import Callback, Run, is_measure, numbers_of


class Progress(Callback):
    """Shows a bar for each epoch, with its loss, figures and rows a second; silent where no one looks.

    Without it a fit shows one bar for all its epochs.

    Example:
        est.fit(data, epochs=10, callbacks=[Progress()])
        epoch 2/10:  62%|██████    | 310/500 steps [00:04, 00:02 left, loss=0.412, rows/s=2,400]
    """

    on_driver = True

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._epoch = 0
        self._rows = 0
        self._since = 0.0

    def on_step_end(self, run: Run) -> None:
        bar = self._bar_of(run)
        if bar.shown:
            bar.to(run.batch, figures=numbers_of({"loss": run.loss, "rows/s": self._speed(run)}))

    def on_validation_end(self, run: Run) -> None:
        self._show(run)

    def on_epoch_end(self, run: Run) -> None:
        self._show(run)
        self._close()

    def on_fit_end(self, run: Run) -> None:
        self._close()

    def _bar_of(self, run: Run) -> Bar:
        """The epoch's bar. An epoch that is taken up in its middle has one that begins there."""
        if self._bar is None or self._epoch != run.epoch:
            self._close()
            self._epoch, self._rows, self._since = run.epoch, 0, 0.0
            self._bar = Bar(f"epoch {run.epoch}/{run.last_epoch}", run.steps, start=run.batch - 1)
        return self._bar

    def _speed(self, run: Run) -> float | None:
        """Rows a second since the epoch's first step, by the worker's clock: steps are told several at a time."""
        now = time.time() if run.time is None else run.time
        if not self._since:
            self._since = now
            return run.speed
        self._rows += run.rows
        return self._rows / max(now - self._since, 1e-9)

    def _show(self, run: Run) -> None:
        if self._bar is not None and self._bar.shown:
            measures = {name: value for name, value in numbers_of(run.figures).items() if is_measure(name)}
            self._bar.to(self._bar.done, figures=measures)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
