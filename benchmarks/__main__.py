"""`python -m benchmarks [names] [--rounds N] [--quick] [--write]`: measure, print the tables, say pass or miss."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from benchmarks import csv_row, gang_rows, ingest_row, keras_rows, nnframes_rows, predict_rows, train_rows
from benchmarks.machine import describe
from benchmarks.row import ROOT, Row, Settings
from benchmarks.runner import DisagreementError, Result, measure
from benchmarks.table import render, write

PAGE = ROOT / "docs" / "performance.md"


def main(arguments: list[str]) -> int:
    """Run what was asked for; 0 if every bar was cleared and nothing failed."""
    asked, settings, to_page = _parse(arguments)
    facts = describe()
    results = []
    for row in asked:
        try:
            result = measure(row, settings, lambda line: print(line, file=sys.stderr, flush=True))
        except DisagreementError as error:
            print(f"{row.name}: {error}", file=sys.stderr)
            return 1
        results.append(result)
        text = render(result, facts)
        print(f"\n{text}\n", flush=True)
        if to_page:
            write(PAGE, row.name, text)
    return 0 if all(map(_is_good, results)) else 1


def rows(settings: Settings) -> list[Row]:
    """Every row, in the order in which they are run."""
    return [
        csv_row.row(settings),
        *gang_rows.start_rows(),
        *gang_rows.gang_rows(),
        *train_rows.rows(settings),
        *keras_rows.train_rows(settings),
        ingest_row.row(settings),
        *predict_rows.rows(settings),
        *keras_rows.predict_rows(settings),
        *nnframes_rows.rows(settings),
    ]


def select(known: list[Row], names: list[str]) -> list[Row]:
    """The rows of these names; "start" stands for "start-bare", "start-torch" and so on, and nothing for all.

    Raises ValueError for a name that no row has.
    """
    for name in names:
        if not any(_is_called(row, name) for row in known):
            raise ValueError(f"no benchmark is called {name!r}; there are {', '.join(row.name for row in known)}")
    return [row for row in known if not names or any(_is_called(row, name) for name in names)]


def narrow(row: Row, words: list[str]) -> Row:
    """The row with those contenders alone whose names hold one of the words; all of them without any."""
    kept = [each for each in row.contenders if not words or any(word.lower() in each.name.lower() for word in words)]
    return dataclasses.replace(row, contenders=tuple(kept))


def _parse(arguments: list[str]) -> tuple[list[Row], Settings, bool]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        help="which rows, or groups of rows: csv, start, gang, train, ingest, predict, nnframes; all by default",
    )
    parser.add_argument("--rounds", type=int, default=Settings.rounds, help="timed rounds, after one to warm up")
    parser.add_argument("--quick", action="store_true", help="one round, no warm-up, on a small part of the data")
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORD", help="contenders with WORD in their names"
    )
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    if options.quick and options.write:
        parser.error("--write keeps figures for others to read, which --quick does not give: leave out one of them")
    if options.only and options.write:
        parser.error("--write keeps whole tables, which --only does not give: leave out one of them")
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, but is {options.rounds}")
    settings = Settings(options.rounds, options.quick)
    try:
        asked = [narrow(row, options.only) for row in select(rows(settings), options.names)]
    except ValueError as error:
        parser.error(str(error))
    asked = [row for row in asked if row.contenders]
    if not asked:
        parser.error(f"no contender of these rows has any of {options.only} in its name")
    return asked, settings, options.write


def _is_called(row: Row, name: str) -> bool:
    return row.name == name or row.name.startswith(f"{name}-")


def _is_good(result: Result) -> bool:
    failed = any(outcome.note == "failed" for outcome in result.outcomes)
    return not failed and all(result.passes(bar) is not False for bar in result.row.bars)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
