"""Curves: what one thing costs at several sizes, each measured in a fresh process, with bars about how it grows.

A row of contenders (`row.py`) asks who is faster; a curve asks whether ten times as much costs ten times as much.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.child import report
from benchmarks.process import LONGEST_SECONDS, TAIL, ContenderFailedError, missing
from benchmarks.row import ROOT, Settings
from benchmarks.table import GONE, WORDS, grid

Figures = dict[str, float]
#: What is known of each series (an engine, say) at each size.
Measured = Mapping[str, Mapping[int, Figures]]


@dataclass(frozen=True)
class Point:
    """One size of one series.

    Attributes:
        work: "module:function" of what is called, in a fresh process, with the size and the arguments; it returns
            figures by name.
        needs: modules without which it is shown as not installed.
    """

    series: str
    size: int
    work: str
    arguments: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.series}, {self.size:,}"


@dataclass(frozen=True)
class Column:
    """One figure of a table, and how many digits after the point it is shown with."""

    key: str
    head: str
    digits: int = 0


@dataclass(frozen=True)
class GrowthBar:
    """A figure made of what was measured must be at most so much."""

    text: str
    figure: Callable[[Measured], float | None]
    at_most: float


@dataclass(frozen=True)
class Curve:
    """Points in the order in which they are run.

    Attributes:
        sizes: what the sizes count, such as "rows".
        contenders: the points, called so as those of a row are.
        derive: adds figures that follow from those of several sizes.
        drawn: the column that the plot shows.
        rounds: how often each point is measured, at most.
        note: a sentence below the table.
    """

    name: str
    title: str
    sizes: str
    contenders: tuple[Point, ...]
    columns: tuple[Column, ...]
    bars: tuple[GrowthBar, ...]
    drawn: str
    derive: Callable[[dict[str, dict[int, Figures]]], None] = lambda measured: None
    prepare: Callable[[], None] = lambda: None
    rounds: int = 1
    note: str = ""


@dataclass(frozen=True)
class CurveResult:
    """What came of a curve; `notes` says, by a point's name, why it has no figures."""

    row: Curve
    measured: Measured
    notes: Mapping[str, str]
    rounds: int
    quick: bool = False

    def figure(self, bar: GrowthBar) -> float | None:
        """What the bar is about; None where points are missing that it needs."""
        try:
            return bar.figure(self.measured)
        except (KeyError, ZeroDivisionError, ValueError, IndexError):
            return None

    def passes(self, bar: GrowthBar) -> bool | None:
        figure = self.figure(bar)
        return None if figure is None or self.quick else figure <= bar.at_most

    @property
    def is_good(self) -> bool:
        failed = "failed" in self.notes.values()
        return not failed and all(self.passes(bar) is not False for bar in self.row.bars)


def measure(curve: Curve, settings: Settings, say: Callable[[str], None]) -> CurveResult:
    """Run every point, round by round; figures are medians of the rounds."""
    curve.prepare()
    rounds = 1 if settings.quick else min(curve.rounds, settings.rounds)
    taken: dict[str, list[Figures]] = {point.name: [] for point in curve.contenders}
    notes: dict[str, str] = {}
    for point in curve.contenders:
        if absent := missing(point):  # type: ignore[arg-type] - it has `needs` as contenders have
            notes[point.name] = f"not installed: {', '.join(absent)}"
    for round_ in range(rounds):
        for point in curve.contenders:
            if point.name in notes:
                continue
            try:
                taken[point.name].append(run(point))
                say(f"{curve.name}, round {round_ + 1}: {point.name} {_short(taken[point.name][-1])}")
            except ContenderFailedError as error:
                say(str(error))
                notes[point.name] = "failed"
    measured: dict[str, dict[int, Figures]] = {}
    for point in curve.contenders:
        if point.name not in notes:
            measured.setdefault(point.series, {})[point.size] = _medians(taken[point.name])
    curve.derive(measured)
    return CurveResult(curve, measured, notes, rounds, settings.quick)


def run(point: Point) -> Figures:
    """The figures of a point, measured in a process of its own with temporary files that go afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        told = Path(folder, "report")
        environment = {"BENCH_REPORT": str(told), "TMPDIR": folder, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.growth", point.work]
        command += [json.dumps(point.arguments | {"size": point.size})]
        with Path(folder, "log").open("wb") as log:
            try:
                code = subprocess.run(
                    command,
                    cwd=ROOT,
                    env=os.environ | environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=LONGEST_SECONDS,
                ).returncode
            except subprocess.TimeoutExpired:
                code = -1
        if code or not told.exists():
            end = Path(folder, "log").read_text(errors="replace")[-TAIL:]
            raise ContenderFailedError(f"{point.name} ended with code {code} and wrote:\n{end}")
        return json.loads(told.read_text())["figures"]


def render(result: CurveResult, facts: str, plot: str = "") -> str:
    """The title, the plot, the table, the bars and where it was measured, as `table.render` has them for rows."""
    curve = result.row
    lines = [f"**{curve.title}**", "", *([plot, ""] if plot else [])]
    lines += [*grid([("", curve.sizes, *(column.head for column in curve.columns)), *_lines(result)]), ""]
    for bar in curve.bars:
        figure = result.figure(bar)
        words = "" if figure is None else f": {figure:.2f}"
        lines.append(f"- bar: {bar.text} → {WORDS[result.passes(bar)]}{words}")
    rounds = "One run" if result.rounds == 1 else f"Median of {result.rounds} rounds in turn"
    lines += ["", " ".join(part for part in (f"{rounds}.", curve.note, facts) if part)]
    return "\n".join(lines)


def facts_of(result: CurveResult, facts: str, day: str) -> dict[str, Any]:
    """What is kept of it as JSON, with the keys that `results.py` asks for."""
    bars = [
        {
            "text": bar.text,
            "figure": "" if (figure := result.figure(bar)) is None else f"{figure:.2f}",
            "verdict": WORDS[result.passes(bar)],
        }
        for bar in result.row.bars
    ]
    points = {series: {str(size): each for size, each in sizes.items()} for series, sizes in result.measured.items()}
    known = {"name": result.row.name, "title": result.row.title, "day": day, "measured": facts, "bars": bars}
    return known | {"rounds": result.rounds, "points": points, "notes": dict(result.notes)}


def load(facts: Mapping[str, Any], curve: Curve) -> CurveResult:
    """What was kept, judged by the curve's bars of today."""
    measured = {series: {int(size): each for size, each in sizes.items()} for series, sizes in facts["points"].items()}
    return CurveResult(curve, measured, facts["notes"], facts["rounds"])


def draw(result: CurveResult, folder: Path | None = None) -> str:
    """A line for each series over the sizes, in `folder`/NAME.svg; returns the line of Markdown that shows it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from benchmarks import plots

    column = next(each for each in result.row.columns if each.key == result.row.drawn)
    with mpl.rc_context(plots.STYLE):
        figure = Figure(figsize=(7.5, 3), layout="constrained")
        axes = figure.add_subplot()
        for series, sizes in result.measured.items():
            known = [(size, each[column.key]) for size, each in sorted(sizes.items()) if column.key in each]
            if known:
                axes.plot(*zip(*known, strict=True), marker="o", markersize=3, linewidth=1.2, label=series)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(result.row.sizes)
        axes.set_ylabel(column.head)
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        plots.save(figure, (folder or plots.FOLDER) / f"{result.row.name}.svg")
    return plots.shown(result.row.name, f"{result.row.title}: {column.head} over {result.row.sizes}")


def ratio(key: str, series: str, larger: int, smaller: int) -> Callable[[Measured], float | None]:
    """How many times a figure at one size is that at another."""
    return lambda measured: measured[series][larger][key] / measured[series][smaller][key]


def add_marginal(key: str, into: str, scale: float) -> Callable[[dict[str, dict[int, Figures]]], None]:
    """Between each size and the one before: what one more costs, which is without what it costs to begin at all."""

    def derive(measured: dict[str, dict[int, Figures]]) -> None:
        for sizes in measured.values():
            known = sorted(sizes)
            for before, size in pairwise(known):
                more = sizes[size][key] - sizes[before][key]
                sizes[size][into] = scale * more / (size - before)

    return derive


def _lines(result: CurveResult) -> list[Sequence[str]]:
    return [_cells(result, point) for point in result.row.contenders]


def _cells(result: CurveResult, point: Point) -> Sequence[str]:
    columns = result.row.columns
    if point.name in result.notes:
        return [point.series, f"{point.size:,}", result.notes[point.name], *[GONE] * (len(columns) - 1)]
    figures = result.measured.get(point.series, {}).get(point.size, {})
    return [point.series, f"{point.size:,}", *(_cell(figures.get(each.key), each.digits) for each in columns)]


def _cell(figure: float | None, digits: int) -> str:
    return GONE if figure is None or math.isnan(figure) else f"{figure:,.{digits}f}"


def _short(figures: Figures) -> str:
    return ", ".join(f"{name} {figure:.4g}" for name, figure in figures.items())


def _medians(runs: Sequence[Figures]) -> Figures:
    return {key: float(f"{statistics.median(run[key] for run in runs):.6g}") for key in runs[0]}


def _child(place: str, arguments: str) -> None:
    module, _, name = place.partition(":")
    report(figures=getattr(importlib.import_module(module), name)(**json.loads(arguments)))


if __name__ == "__main__":
    _child(*sys.argv[1:])
