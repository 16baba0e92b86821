"""What a result looks like: one table in Markdown, on the screen and in docs/performance.md alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.row import Contender
from benchmarks.runner import Judged, Outcome, Result, Spread

GONE = "-"
CLOCKS = {"seconds": "work alone", "whole": "whole process", "rate": "rows a second", "peak": "peak memory"}
RATIO, TIMES, MEMORY, LIMIT = "ratio to us", ("work alone, s", "whole process, s"), "peak memory", "of the limit"
WORDS = {True: "pass", False: "**miss**", None: "not judged"}


def render(result: Result, facts: str, plot: str = "") -> str:
    """The title, the plot, the table, what was expected of it and where it was measured."""
    lines = [f"**{result.row.title}**", "", *([plot, ""] if plot else []), *_table(result), ""]
    for bar, (text, verdict) in zip(result.row.bars, verdicts(result), strict=True):
        figure = figure_words(result.judge(bar))
        lines.append(f"- bar: {text} → {verdict}{figure and ': '}{figure}")
    rounds = f"{result.rounds} round{'s' if result.rounds > 1 else ''} in turn"
    lines += ["", f"Median (least to most) of {rounds}; {_judged(result)}. {facts}"]
    return "\n".join(lines)


def _judged(result: Result) -> str:
    clock = result.row.clock
    words = f"the ratio is that of {CLOCKS[clock]}"
    if clock == "rate":
        words = "the first ratio is that of rows a second, the second that of work alone"
    limit = (
        f"; of the limit's {'rate' if clock == 'rate' else 'speed'}, by {CLOCKS[clock]}" if has_limit(result) else ""
    )
    return f"{words}, above 1 we are faster{limit}"


def has_limit(result: Result) -> bool:
    """Whether one of the contenders is what the machine can give."""
    return any(outcome.contender.kind == "limit" for outcome in result.outcomes)


def verdicts(result: Result) -> list[tuple[str, str]]:
    """Each bar's text, and whether we clear it."""
    return [(bar.text, WORDS[result.passes(bar)]) for bar in result.row.bars]


def figure_words(judged: Judged) -> str:
    """The figure of a bar with its spread, and of several peers the one it is beside."""
    return "" if judged.figure is None else f"{_ratio(judged.figure)} beside {judged.peer}"


def grid(cells: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown, the heads first, its columns as wide as what they hold."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def _table(result: Result) -> list[str]:
    rate = ("rows a second", RATIO) if result.row.clock == "rate" else ()
    heads = ("contender", *rate, *TIMES, RATIO, *((LIMIT,) if has_limit(result) else ()), MEMORY)
    return grid([heads, *(_cells(result, outcome, len(heads)) for outcome in result.outcomes)])


def _cells(result: Result, outcome: Outcome, count: int) -> list[str]:
    name = _name(outcome.contender)
    if outcome.note:
        return [name, outcome.note, *[GONE] * (count - 2)]
    is_rate = result.row.clock == "rate"
    rate = [_rates(outcome.rate), _ratio(result.ratios(outcome.contender.name))] if is_rate else []
    ratio = result.ratios(outcome.contender.name, clock="seconds" if is_rate else None)
    limit = [_ratio(result.of_limit(outcome))] if has_limit(result) else []
    memory = GONE if outcome.peak is None else f"{outcome.peak / 2**20:,.0f} MB"
    return [name, *rate, _spread(outcome.seconds), _spread(outcome.whole), _ratio(ratio), *limit, memory]


def _ratio(ratio: Spread | None) -> str:
    """With its ends, where they are others.

    >>> _ratio(Spread(1.5, 1.4, 1.6)), _ratio(Spread(2.0, 2.0, 2.0))
    ('1.50 (1.40 to 1.60)', '2.00')
    """
    if ratio is None:
        return GONE
    middle, least, most = (f"{each:.2f}" for each in (ratio.median, ratio.least, ratio.most))
    return middle if least == most else f"{middle} ({least} to {most})"


def _name(contender: Contender) -> str:
    marks = {"us": "**{}**", "peer": "{}", "limit": "{} (the limit)"}
    return marks[contender.kind].format(contender.name)


def _spread(spread: Spread | None) -> str:
    return GONE if spread is None else f"{_short(spread.median)} ({_short(spread.least)} to {_short(spread.most)})"


def _rates(spread: Spread | None) -> str:
    return GONE if spread is None else f"{spread.median:,.0f} ({spread.least:,.0f} to {spread.most:,.0f})"


def _short(seconds: float) -> str:
    """Three digits that mean something: 0.0123, 1.23, 12.3.

    >>> _short(0.01234), _short(1.234), _short(123.4)
    ('0.0123', '1.23', '123')
    """
    return f"{seconds:.4f}" if seconds < 0.1 else f"{seconds:.3g}" if seconds < 100 else f"{seconds:.0f}"


def write(page: Path, name: str, text: str) -> None:
    """Put the text between the marks `<!-- bench:NAME -->` and `<!-- /bench -->` of a page."""
    marks = re.compile(rf"(<!-- bench:{re.escape(name)} -->\n).*?(<!-- /bench -->)", re.DOTALL)
    before = page.read_text()
    if not marks.search(before):
        raise ValueError(f"{page} has no marks for {name}. Add the lines <!-- bench:{name} --> and <!-- /bench -->.")
    page.write_text(marks.sub(lambda found: f"{found[1]}{text}\n{found[2]}", before))
