"""Progress bars: whether they are shown, and the one bar of all calls. tqdm draws it, where somebody looks."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from zoo.orca.errors import PreconditionError

#: ORCA_PROGRESS=0 hides bars, ORCA_PROGRESS=1 shows them even where there is no terminal.
VARIABLE = "ORCA_PROGRESS"
#: A job over shards that takes less is not worth a bar.
PATIENCE = 1.0
#: So often a bar is drawn at most, and at least while somebody waits for it.
DRAW_SECONDS = 0.1
TICK_SECONDS = 0.5
#: A line of which it is known how long it goes on, and one of which it is not.
MEASURED = "{desc}: {percentage:3.0f}%|{bar:30}| {n_fmt}/{total_fmt} {unit} [{elapsed}, {remaining} left{postfix}]"
OPEN = "{desc}: {n_fmt} {unit} [{elapsed}{postfix}]"

_chosen: bool | None = None
_job: ContextVar[tuple[str, int | None] | None] = ContextVar("orca_job", default=None)


def choose(shown: bool | None) -> None:
    """Show bars or hide them, wherever this runs; None leaves it to the variable, and to whether somebody looks."""
    global _chosen
    if shown is not None and not isinstance(shown, bool):
        raise PreconditionError(f"progress_bars must be True, False, or None to look for a terminal, but is {shown!r}.")
    _chosen = shown


def chosen() -> bool | None:
    """What was chosen."""
    return _chosen


def bars_are_shown() -> bool:
    """The one place that decides: OrcaContext.progress_bars, then ORCA_PROGRESS, then whether somebody looks."""
    if _chosen is not None:
        return _chosen
    variable = os.environ.get(VARIABLE)
    if variable in ("0", "1"):
        return variable == "1"
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


@contextlib.contextmanager
def job(title: str, rows: int | None = None) -> Iterator[None]:
    """What the shard jobs within are called, and how many rows they have in all; the outermost name counts.

    Example:
        @job("collect")
        def collect(self): ...
    """
    token = _job.set((title, rows)) if _job.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _job.reset(token)


def shard_bar(total: int | None) -> Bar:
    """A bar of the job in hand over so many partitions; it appears only when that takes long, and does not stay."""
    title, rows = _job.get() or ("shards", None)
    return Bar(title, total, unit="partitions", rows=rows, delay=PATIENCE, leave=False)


class Bar:
    """How far something is, with the figures it names and the time left; it draws nothing where no one looks.

    Args:
        title: what is going on; None draws nothing.
        total: how many units there are; None while that is not known.
        rows: how many rows all units have, if known: then rows a second are shown.
        start: units that were done before.
        delay: seconds before it is drawn at all.
        leave: whether it stays to be seen when it is over.

    Example:
        with Bar("fit", total=500) as bar:
            bar.to(310, figures={"loss": 0.412})
        fit:  62%|██████▏   | 310/500 steps [00:04, 00:02 left, loss=0.412]
    """

    def __init__(
        self,
        title: str | None,
        total: int | None = None,
        *,
        unit: str = "steps",
        rows: int | None = None,
        start: int = 0,
        delay: float = 0.0,
        leave: bool = True,
    ) -> None:
        self.shown = title is not None and bars_are_shown()
        if not self.shown:
            return
        self.title, self.total, self.done = title, total, start
        self._unit, self._rows, self._start, self._leave = unit, rows, start, leave
        self._figures: dict[str, float] = {}
        self._begun = time.monotonic()
        self._drawn, self._due = 0.0, self._begun + delay
        self._line: Any = None
        if not delay:
            self._draw()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def tick_seconds(self) -> float | None:
        """So long a caller may wait before it calls `tick`; None where there is nothing to draw."""
        return TICK_SECONDS if self.shown else None

    def to(self, done: int, total: int | None = None, figures: Mapping[str, float] | None = None) -> None:
        """So many units are done, of so many if that is told now."""
        if not self.shown:
            return
        if total is not None and total != self.total:
            self.total, self._start = total, done
            if self._line is not None:
                self._line.reset(total)
                self._line.initial = done
        self.done = done
        self._figures |= figures or {}
        if self._rows is not None and self.total:
            self._figures["rows/s"] = self._rows * done / self.total / max(time.monotonic() - self._begun, 1e-9)
        self._draw_if_due(DRAW_SECONDS)

    def advance(self) -> None:
        """One more unit is done."""
        if self.shown:
            self.to(self.done + 1)

    def tick(self) -> None:
        """Nothing new: let its clock go on."""
        if self.shown:
            self._draw_if_due(TICK_SECONDS)

    def close(self) -> None:
        """It is over: a bar that stays is drawn as it ended, another is wiped away."""
        if self.shown and self._leave:
            self._draw()
        if self.shown and self._line is not None:
            self._line.close()
        self.shown = False

    def _draw_if_due(self, seconds: float) -> None:
        """Draw it, if that was not done within so many seconds."""
        if time.monotonic() >= max(self._due, self._drawn + seconds):
            self._draw()

    def _draw(self) -> None:
        if self._line is None:
            self._line = self._open()
        self._line.n = self.done
        self._line.bar_format = MEASURED if self.total else OPEN
        self._line.set_postfix_str(
            ", ".join(f"{name}={_number(value)}" for name, value in self._figures.items()), refresh=False
        )
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone, or its file is closed
            self._line.refresh()
        self._drawn = time.monotonic()

    def _open(self) -> Any:
        """A line of tqdm's that counts from when this began, with no thread of its own."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # in a notebook without ipywidgets, which then has a line of text
            # It brings asyncio and more, half of what the embedded engine imports: only who looks shall wait for it.
            from tqdm.auto import tqdm
        line = type("_Line", (tqdm,), {"monitor_interval": 0})(
            desc=self.title,
            total=self.total,
            initial=self._start,
            unit=self._unit,
            leave=self._leave,
            bar_format=MEASURED if self.total else OPEN,
            dynamic_ncols=True,
            smoothing=0,
            disable=False,
        )
        line.start_t -= time.monotonic() - self._begun
        return line


#: A bar for who wants none.
SILENT = Bar(None)


def _number(value: float) -> str:
    """A figure, short.

    >>> [_number(value) for value in (0.41237, 2412.3, 1e-7, 3)]
    ['0.412', '2,412', '1e-07', '3']
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
