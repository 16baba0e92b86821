"""A plot for each row: how many times our time every contender needs, as bars to the right and to the left of ours.

The SVG is the same for the same figures: no date in it, no random names. Its text is grey, which can be read on white
and on black, and stays text, which keeps the file small.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.row import ROOT
from benchmarks.runner import Result, Spread
from benchmarks.table import CLOCKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOLDER = ROOT / "docs" / "plots"
GREY = "#767676"
COLOURS = {"us": "#2a78d6", "peer": "#b4b4b4", "limit": "#1b9e77"}
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
STYLE = {
    "svg.hashsalt": "benchmarks",
    "svg.fonttype": "none",
    "font.size": 9,
    "text.color": GREY,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}


def draw(result: Result, folder: Path | None = None) -> str:
    """Draw a row into `folder`/NAME.svg; returns the line of Markdown that shows it, or nothing where nothing can be
    drawn: ours has no figures, or it has nobody beside it."""
    ratios = {each.contender.name: result.ratios(each.contender.name) for each in result.outcomes}
    if sum(ratio is not None for ratio in ratios.values()) < 2:
        return ""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(7.5, 0.8 + 0.26 * len(ratios)), layout="constrained")
        axes = figure.add_subplot()
        for place, outcome in enumerate(result.outcomes):
            _bar(axes, place, outcome.contender.kind, ratios[outcome.contender.name], outcome.note)
        _required(axes, result)
        _frame(axes, result, [ratio for ratio in ratios.values() if ratio])
        save(figure, (folder or FOLDER) / f"{result.row.name}.svg")
    return shown(result.row.name, f"{result.row.title}: how many times our time each contender needs")


def save(figure: Any, path: Path) -> None:
    """Write an SVG that depends on nothing but what is drawn."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})


def shown(name: str, words: str) -> str:
    """The line that shows a plot on the page."""
    return f"![{words}](plots/{name}.svg)"


def _bar(axes: Axes, place: int, kind: str, ratio: Spread | None, note: str) -> None:
    """From ours, which is 1, to theirs, with the least and the most of the rounds, and the figure behind it."""
    if ratio is None:
        axes.text(1, place, f" {note or 'not measured'}", va="center", style="italic")
        return
    axes.barh(place, ratio.median - 1, left=1, height=0.6, color=COLOURS[kind])
    ends = [[ratio.median - ratio.least], [ratio.most - ratio.median]]
    axes.errorbar(ratio.median, place, xerr=ends, fmt="|", color=COLOURS[kind], ecolor=GREY, capsize=2, markersize=9)
    axes.text(max(ratio.most, 1), place, f"  {ratio.median:.2f}", va="center")


def _required(axes: Axes, result: Result) -> None:
    """A mark at what a bar asks of the ratio to a peer, where the bar is about what is drawn."""
    places = {each.contender.name: place for place, each in enumerate(result.outcomes)}
    ours = result.row.us and result.row.us.name
    for bar in result.row.bars:
        if (bar.us or ours) == ours and (bar.clock or result.row.clock) == result.row.clock:
            least = bar.at_least if bar.at_most is None else 1 / bar.at_most
            for place in (places[peer] for peer in bar.peers if peer in places):
                axes.plot([least, least], [place - 0.42, place + 0.42], color="#d6452a", linewidth=1.6)


def _frame(axes: Axes, result: Result, ratios: list[Spread]) -> None:
    axes.set_xscale("log")
    left, right = min(each.least for each in ratios), max(each.most for each in ratios)
    axes.set_xlim(min(left, 0.8) / 1.1, max(right, 1.25) * 1.35)
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.set_xlim(min(left, 0.8) / 1.1, max(right, 1.25) * 1.35)  # ticks beyond it have widened it
    axes.axvline(1, color=COLOURS["us"], linewidth=1)
    axes.set_yticks(range(len(result.outcomes)), [each.contender.name for each in result.outcomes])
    axes.invert_yaxis()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    axes.set_xlabel(f"{CLOCKS[result.row.clock]} beside ours: right of 1 we are faster; red: what a bar asks for")
