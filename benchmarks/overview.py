"""The table of all bars at the top of docs/performance.md, made of the files that the runs left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.row import Row
from benchmarks.table import GONE, grid

NAME = "bars"
HEADS = ("row", "bar", "measured", "verdict", "on")


def render_bars(known: Iterable[Row], kept: Mapping[str, Mapping[str, Any]]) -> str:
    """A line for every bar: its row, its words, the figure, whether it is cleared, and when that was seen."""
    lines = [line for row in known for line in _lines(row.name, kept.get(row.name) or _unmeasured(row))]
    names = {row.name for row in known}
    lines += [line for name, facts in kept.items() if name not in names for line in _lines(name, facts)]
    verdicts = [line[3] for line in lines]
    cleared, missed = verdicts.count("pass"), verdicts.count("**miss**")
    others = "; the others were not judged" if cleared + missed < len(lines) else ""
    counts = f"{cleared} of {len(lines)} bars are cleared, {missed} are missed{others}."
    return "\n".join([counts, "", *grid([HEADS, *lines])])


def _lines(name: str, facts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [(name, bar["text"], bar["figure"] or GONE, bar["verdict"], facts["day"]) for bar in facts["bars"]]


def _unmeasured(row: Row) -> dict[str, Any]:
    return {"day": GONE, "bars": [{"text": bar.text, "figure": "", "verdict": "not measured"} for bar in row.bars]}
