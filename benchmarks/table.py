"""What a result looks like: one table in Markdown, on the screen and in docs/performance.md alike."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.row import Contender
from benchmarks.runner import Outcome, Result, Spread

GONE = "-"
CLOCKS = {"seconds": "work alone", "whole": "whole process"}
HEADS = ("contender", "work alone, s", "whole process, s", "ratio to us", "peak memory")


def render(result: Result, facts: str) -> str:
    """The title, the table, what was expected of it and where it was measured."""
    lines = [f"**{result.row.title}**", "", *_table(result), ""]
    lines += [f"- bar: {text} → {verdict}" for text, verdict in verdicts(result)]
    rounds = f"{result.rounds} round{'s' if result.rounds > 1 else ''} in turn"
    judged = CLOCKS[result.row.clock]
    lines += ["", f"Median (least to most) of {rounds}; the ratio is that of {judged}, above 1 we are faster. {facts}"]
    return "\n".join(lines)


def verdicts(result: Result) -> list[tuple[str, str]]:
    """Each bar's text, and whether we clear it."""
    words = {True: "pass", False: "**miss**", None: "not judged"}
    return [(bar.text, words[result.passes(bar)]) for bar in result.row.bars]


def _table(result: Result) -> list[str]:
    cells = [HEADS, *(_cells(result, outcome) for outcome in result.outcomes)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def _cells(result: Result, outcome: Outcome) -> tuple[str, ...]:
    name = _name(outcome.contender)
    if outcome.note:
        return name, outcome.note, GONE, GONE, GONE
    ratio = result.ratio(outcome.contender.name)
    return (
        name,
        _spread(outcome.seconds),
        _spread(outcome.whole),
        GONE if ratio is None else f"{ratio:.2f}",
        GONE if outcome.peak is None else f"{outcome.peak / 2**20:,.0f} MB",
    )


def _name(contender: Contender) -> str:
    marks = {"us": "**{}**", "peer": "{}", "limit": "{} (the limit)"}
    return marks[contender.kind].format(contender.name)


def _spread(spread: Spread | None) -> str:
    return GONE if spread is None else f"{_short(spread.median)} ({_short(spread.least)} to {_short(spread.most)})"


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
