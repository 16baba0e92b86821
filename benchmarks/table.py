"""What a result looks like: one table in Markdown, on the screen and in docs/performance.md alike."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.row import Clock, Contender
from benchmarks.runner import Outcome, Result, Spread

GONE = "-"
CLOCKS = {"seconds": "work alone", "whole": "whole process", "rate": "rows a second"}
HEADS = ("contender", "work alone, s", "whole process, s", "ratio to us", "peak memory")
RATE_HEADS = ("contender", "rows a second", "ratio to us", *HEADS[1:])


def render(result: Result, facts: str) -> str:
    """The title, the table, what was expected of it and where it was measured."""
    lines = [f"**{result.row.title}**", "", *_table(result), ""]
    lines += [f"- bar: {text} → {verdict}" for text, verdict in verdicts(result)]
    rounds = f"{result.rounds} round{'s' if result.rounds > 1 else ''} in turn"
    lines += ["", f"Median (least to most) of {rounds}; {_judged(result)}, above 1 we are faster. {facts}"]
    return "\n".join(lines)


def _judged(result: Result) -> str:
    if result.row.clock == "rate":
        return "the first ratio is that of rows a second, the second that of work alone"
    return f"the ratio is that of {CLOCKS[result.row.clock]}"


def verdicts(result: Result) -> list[tuple[str, str]]:
    """Each bar's text, and whether we clear it."""
    words = {True: "pass", False: "**miss**", None: "not judged"}
    return [(bar.text, words[result.passes(bar)]) for bar in result.row.bars]


def _table(result: Result) -> list[str]:
    heads, cells_of = (RATE_HEADS, _rate_cells) if result.row.clock == "rate" else (HEADS, _cells)
    cells = [heads, *(cells_of(result, outcome) for outcome in result.outcomes)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def _cells(result: Result, outcome: Outcome, clock: Clock | None = None) -> tuple[str, ...]:
    name = _name(outcome.contender)
    if outcome.note:
        return name, outcome.note, GONE, GONE, GONE
    return (
        name,
        _spread(outcome.seconds),
        _spread(outcome.whole),
        _ratio(result, outcome, clock),
        GONE if outcome.peak is None else f"{outcome.peak / 2**20:,.0f} MB",
    )


def _rate_cells(result: Result, outcome: Outcome) -> tuple[str, ...]:
    """The rate and its ratio, then the times with theirs."""
    name, *times = _cells(result, outcome, "seconds")
    if outcome.note:
        return name, outcome.note, GONE, GONE, *times[1:]
    return name, _rates(outcome.rate), _ratio(result, outcome, "rate"), *times


def _ratio(result: Result, outcome: Outcome, clock: Clock | None) -> str:
    ratio = result.ratio(outcome.contender.name, clock=clock)
    return GONE if ratio is None else f"{ratio:.2f}"


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
