"""Progress bars: whether they are shown, and the one bar of all calls.

On a terminal it is a line that is drawn over and over, in a notebook a line of HTML. Elsewhere nothing is drawn.
"""

from __future__ import annotations

import contextlib
import html
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from zoo.orca.errors import PreconditionError

#: ORCA_PROGRESS=0 hides bars, ORCA_PROGRESS=1 shows them even where there is no terminal.
VARIABLE = "ORCA_PROGRESS"
#: A job over shards that takes less is not worth a bar.
PATIENCE = 1.0
#: So often a bar is drawn at most, and at least while somebody waits for it.
DRAW_SECONDS = 0.1
TICK_SECONDS = 0.5
_WIDEST = 30

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
        self._begun = self._since = time.monotonic()
        self._drawn, self._due = 0.0, self._begun + delay
        self._screen: _Screen | None = None
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
            self.total, self._start, self._since = total, done, time.monotonic()
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
        if self.shown and self._screen is not None:
            self._screen.end(self._leave)
        self.shown = False

    def _draw_if_due(self, seconds: float) -> None:
        """Draw it, if that was not done within so many seconds."""
        if time.monotonic() >= max(self._due, self._drawn + seconds):
            self._draw()

    def _draw(self) -> None:
        if self._screen is None:
            self._screen = _Cell() if _in_notebook() else _Terminal()
        self._screen.draw(self)
        self._drawn = time.monotonic()

    @property
    def share(self) -> float | None:
        """How much is done, from 0 to 1."""
        return min(1.0, self.done / self.total) if self.total else None

    def words(self) -> str:
        """What stands behind the bar."""
        of = f"/{self.total}" if self.total else ""
        times = [_clock(time.monotonic() - self._begun)]
        if self.total:
            times.append(f"{self._left()} left")
        figures = [f"{name}={_number(value)}" for name, value in self._figures.items()]
        return f"{self.done}{of} {self._unit} [{', '.join(times + figures)}]"

    def _left(self) -> str:
        taken = self.done - self._start
        if taken <= 0 or self.total is None:
            return "?"
        return _clock((time.monotonic() - self._since) / taken * max(0, self.total - self.done))


#: A bar for who wants none.
SILENT = Bar(None)


class _Screen(Protocol):
    """Where a bar is drawn."""

    def draw(self, bar: Bar) -> None: ...

    def end(self, leave: bool) -> None: ...


class _Terminal:
    """The last line of a terminal."""

    _width = 0

    def draw(self, bar: Bar) -> None:
        columns = shutil.get_terminal_size().columns - 1
        share, words = bar.share, bar.words()
        if share is None:
            line = f"{bar.title}: {words}"
        else:
            head = f"{bar.title}: {share:4.0%}|"
            line = f"{head}{_blocks(share, columns - len(head) - len(words) - 2)}| {words}"
        self._write(f"\r{line[:columns]:<{self._width}}")
        self._width = len(line[:columns])

    def end(self, leave: bool) -> None:
        self._write("\n" if leave else f"\r{'':{self._width}}\r")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone, or its file is closed
            sys.stderr.write(text)
            sys.stderr.flush()


class _Cell:
    """A line of HTML in the output of a notebook's cell."""

    _handle: Any = None

    def draw(self, bar: Bar) -> None:
        value = "" if bar.share is None else f' value="{bar.share:.4f}"'
        title, words = html.escape(str(bar.title)), html.escape(bar.words())
        self._show(
            f'<div style="font-family: monospace">{title} <progress{value}></progress> {words}</div>',
            f"{bar.title}: {bar.words()}",
        )

    def end(self, leave: bool) -> None:
        if not leave:
            self._show("", "")

    def _show(self, rich: str, plain: str) -> None:
        from IPython.display import display

        shown = {"text/html": rich, "text/plain": plain}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


def _blocks(share: float, width: int) -> str:
    """A bar of characters, a block cut into eighths where the terminal has them."""
    width = max(1, min(_WIDEST, width))
    if "utf" not in (getattr(sys.stderr, "encoding", None) or "").lower():
        return f"{'#' * int(share * width):<{width}}"
    whole, part = divmod(int(share * width * 8), 8)
    return f"{'█' * whole + ' ▏▎▍▌▋▊▉'[part] * bool(part):<{width}}"


def _clock(seconds: float) -> str:
    """
    >>> _clock(62), _clock(3723)
    ('01:02', '1:02:03')
    """
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes:02}:{rest:02}"


def _number(value: float) -> str:
    """A figure, short.

    >>> [_number(value) for value in (0.41237, 2412.3, 1e-7, 3)]
    ['0.412', '2,412', '1e-07', '3']
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
