"""A bar for each epoch, on the driver's terminal or in its notebook."""

from __future__ import annotations

import time

from tqdm.auto import tqdm

from zoo.orca.learn.callbacks.base import Callback, Run, is_measure, numbers_of


class Progress(Callback):
    """Shows a bar for each epoch, with its loss, figures and rows a second; silent where no one looks.

    Example:
        est.fit(data, epochs=10, callbacks=[Progress()])
        epoch 2/10:  62%|######    | 310/500 [00:04<00:02, 74.1it/s, loss=0.412, rows/s=2.4e+3]
    """

    on_driver = True

    def __init__(self) -> None:
        self._bar: _Bar | None = None
        self._epoch = 0
        self._shown: dict[str, float] = {}
        self._rows = 0
        self._since = 0.0

    def on_step_end(self, run: Run) -> None:
        bar = self._bar_of(run)
        if bar.disable:
            return
        self._shown |= numbers_of({"loss": run.loss, "rows/s": self._speed(run)})
        bar.set_postfix(self._shown, refresh=False)
        bar.update(run.batch - bar.n)

    def on_validation_end(self, run: Run) -> None:
        self._show(run)

    def on_epoch_end(self, run: Run) -> None:
        self._show(run)
        self._close()

    def on_fit_end(self, run: Run) -> None:
        self._close()

    def _bar_of(self, run: Run) -> _Bar:
        """The epoch's bar. An epoch that is taken up in its middle has one that begins there."""
        if self._bar is None or self._epoch != run.epoch:
            self._close()
            self._epoch, self._shown, self._rows, self._since = run.epoch, {}, 0, 0.0
            title = f"epoch {run.epoch}/{run.last_epoch}"
            self._bar = _Bar(desc=title, total=run.steps, initial=run.batch - 1, disable=_hidden())
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
        if self._bar is not None and not self._bar.disable:
            self._shown |= {name: value for name, value in numbers_of(run.figures).items() if is_measure(name)}
            self._bar.set_postfix(self._shown)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _Bar(tqdm):
    """A bar without a thread of its own."""

    monitor_interval = 0


def _hidden() -> bool | None:
    """None lets the bar look for a terminal. A notebook's output is none, and still shows bars."""
    in_notebook = any(base.__module__ == "tqdm.notebook" for base in tqdm.__mro__)
    return False if in_notebook else None
