"""The figures of a row as a JSON file, so that its table and its plot can be made again without measuring.

Keys that the table of all bars needs, and that every kind of benchmark writes: `name`, `title`, `day`, `measured`
(where and when, in words) and `bars`, a list of `{"text", "figure", "verdict"}`. A row of contenders adds the times of
every round.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.row import ROOT, Contender, Row
from benchmarks.runner import Outcome, Result, Spread
from benchmarks.table import figure_words, verdicts

FOLDER = ROOT / "benchmarks" / "results"


def save(result: Result, facts: str, day: str, folder: Path | None = None) -> None:
    """Keep what was measured of a row, and what came of its bars."""
    keep(
        {
            "name": result.row.name,
            "title": result.row.title,
            "day": day,
            "measured": facts,
            "bars": [
                {"text": text, "figure": figure_words(result.judge(bar)), "verdict": verdict}
                for bar, (text, verdict) in zip(result.row.bars, verdicts(result), strict=True)
            ],
            "clock": result.row.clock,
            "rounds": result.rounds,
            "contenders": [_facts_of(outcome) for outcome in result.outcomes],
        },
        folder,
    )


def keep(facts: dict[str, Any], folder: Path | None = None) -> None:
    """Write the file of the benchmark that `facts["name"]` names."""
    folder = folder or FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    Path(folder, f"{facts['name']}.json").write_text(json.dumps(facts, indent=1) + "\n")


def kept(folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """What there is, by the names of the benchmarks."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((folder or FOLDER).glob("*.json"))}


def load(facts: dict[str, Any], known: Iterable[Row]) -> Result:
    """A row's result from its file, judged by the bars that the row of this name has today."""
    contenders = tuple(Contender(each["name"], each["kind"], ()) for each in facts["contenders"])
    today = next((row for row in known if row.name == facts["name"]), Row(facts["name"], facts["title"], ()))
    row = replace(today, title=facts["title"], contenders=contenders, clock=facts["clock"])
    outcomes = map(_outcome_of, contenders, facts["contenders"])
    return Result(row, tuple(outcomes), facts["rounds"])


def _facts_of(outcome: Outcome) -> dict[str, Any]:
    clocks = {name: getattr(outcome, name) for name in ("seconds", "whole", "rate")}
    return {
        "name": outcome.contender.name,
        "kind": outcome.contender.kind,
        "note": outcome.note,
        "peak": outcome.peak,
        **{name: spread and [float(f"{each:.6g}") for each in spread.rounds] for name, spread in clocks.items()},
    }


def _outcome_of(contender: Contender, facts: dict[str, Any]) -> Outcome:
    seconds, whole, rate = (Spread.of(facts[name] or []) for name in ("seconds", "whole", "rate"))
    return Outcome(contender, seconds, whole, facts["peak"], facts["note"], rate)
