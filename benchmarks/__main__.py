"""`python -m benchmarks [names] [--rounds N] [--quick] [--write]`: measure, print the tables, say pass or miss."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from datetime import date

from benchmarks import (
    csv_row,
    gang_rows,
    growth,
    growth_gang,
    growth_memory,
    growth_rows,
    growth_shards,
    ingest_row,
    keras_rows,
    mxnet_rows,
    nnframes_rows,
    openvino_rows,
    overview,
    predict_rows,
    train_rows,
)
from benchmarks.growth import Curve, CurveResult
from benchmarks.machine import describe
from benchmarks.plots import draw
from benchmarks.results import keep, kept, load, save
from benchmarks.row import ROOT, Row, Settings
from benchmarks.runner import DisagreementError, Result, measure
from benchmarks.table import render, write

PAGE = ROOT / "docs" / "performance.md"


def main(arguments: list[str]) -> int:
    """Run what was asked for; 0 if every bar was cleared and nothing failed."""
    options = _parse(arguments)
    if options.replot:
        replot(options.asked)
        return 0
    facts = describe()
    results = []
    for row in options.asked:
        try:
            result = _measure(row, options.settings, lambda line: print(line, file=sys.stderr, flush=True))
        except DisagreementError as error:
            print(f"{row.name}: {error}", file=sys.stderr)
            return 1
        results.append(result)
        print(f"\n{_render(result, facts)}\n", flush=True)
        if options.write:
            publish(result, facts, str(date.today()))
    return 0 if all(map(_is_good, results)) else 1


def publish(result: Result | CurveResult, facts: str, day: str) -> None:
    """Keep the figures, draw them, and put the table and that of all bars into the page."""
    if isinstance(result, CurveResult):
        keep(growth.facts_of(result, facts, day))
    else:
        save(result, facts, day)
    plot = growth.draw(result) if isinstance(result, CurveResult) else draw(result)
    write(PAGE, result.row.name, _render(result, facts, plot))
    write(PAGE, overview.NAME, overview.render_bars(rows(Settings()), kept()))


def replot(asked: list[Row | Curve]) -> None:
    """The plots and tables of these rows again, from the figures that were kept, by the bars of today."""
    for row in asked:
        if (facts := kept().get(row.name)) is not None:
            result = growth.load(facts, row) if isinstance(row, Curve) else load(facts, asked)
            publish(result, facts["measured"], facts["day"])
            print(row.name)
    write(PAGE, overview.NAME, overview.render_bars(rows(Settings()), kept()))


def rows(settings: Settings) -> list[Row | Curve]:
    """Every row and every curve, in the order in which they are run."""
    return [
        csv_row.row(settings),
        *gang_rows.start_rows(),
        *gang_rows.gang_rows(),
        *train_rows.rows(settings),
        *keras_rows.train_rows(settings),
        *mxnet_rows.rows(settings),
        ingest_row.row(settings),
        *predict_rows.rows(settings),
        *keras_rows.predict_rows(settings),
        *openvino_rows.rows(settings),
        *nnframes_rows.rows(settings),
        growth_rows.curve(settings),
        growth_shards.curve(settings),
        growth_gang.curve(settings),
        growth_memory.curve(settings),
    ]


def select(known: list[Row | Curve], names: list[str]) -> list[Row | Curve]:
    """The rows of these names; "start" stands for "start-bare", "start-torch" and so on, and nothing for all.

    Raises ValueError for a name that no row has.
    """
    for name in names:
        if not any(_is_called(row, name) for row in known):
            raise ValueError(f"no benchmark is called {name!r}; there are {', '.join(row.name for row in known)}")
    return [row for row in known if not names or any(_is_called(row, name) for name in names)]


def narrow(row: Row | Curve, words: list[str]) -> Row | Curve:
    """The row with those contenders alone whose names hold one of the words; all of them without any."""
    kept = [each for each in row.contenders if not words or any(word.lower() in each.name.lower() for word in words)]
    return dataclasses.replace(row, contenders=tuple(kept))


def _parse(arguments: list[str]) -> argparse.Namespace:
    """The options, with the rows that were `asked` for and the `settings` for them."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.quick and options.write:
        parser.error("--write keeps figures for others to read, which --quick does not give: leave out one of them")
    if options.only and options.write:
        parser.error("--write keeps whole tables, which --only does not give: leave out one of them")
    if options.replot and (options.quick or options.only or options.write):
        parser.error("--replot measures nothing, so that --quick, --only and --write say nothing to it: leave them out")
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, but is {options.rounds}")
    options.settings = Settings(options.rounds, options.quick)
    try:
        asked = [narrow(row, options.only) for row in select(rows(options.settings), options.names)]
    except ValueError as error:
        parser.error(str(error))
    options.asked = [row for row in asked if row.contenders]
    if not options.asked:
        parser.error(f"no contender of these rows has any of {options.only} in its name")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        help="rows, or groups of them: csv, start, gang, train, ingest, predict, nnframes, growth, memory; else all",
    )
    parser.add_argument("--rounds", type=int, default=Settings.rounds, help="timed rounds, after one to warm up")
    parser.add_argument("--quick", action="store_true", help="one round, no warm-up, on a small part of the data")
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORD", help="contenders with WORD in their names"
    )
    page = "docs/performance.md"
    parser.add_argument("--write", action="store_true", help=f"put the tables and plots into {page}")
    parser.add_argument("--replot", action="store_true", help=f"measure nothing: what was kept, into {page} again")
    return parser


def _is_called(row: Row | Curve, name: str) -> bool:
    return row.name == name or row.name.startswith(f"{name}-")


def _measure(row: Row | Curve, settings: Settings, say: Callable[[str], None]) -> Result | CurveResult:
    return growth.measure(row, settings, say) if isinstance(row, Curve) else measure(row, settings, say)


def _render(result: Result | CurveResult, facts: str, plot: str = "") -> str:
    return (growth.render if isinstance(result, CurveResult) else render)(result, facts, plot)


def _is_good(result: Result | CurveResult) -> bool:
    if isinstance(result, CurveResult):
        return result.is_good
    failed = any(outcome.note == "failed" for outcome in result.outcomes)
    return not failed and all(result.passes(bar) is not False for bar in result.row.bars)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
