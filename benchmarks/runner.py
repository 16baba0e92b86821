"""Measuring a row: rounds in turn, results compared, times boiled down to medians."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from benchmarks.process import ContenderFailedError, Run, missing, run
from benchmarks.row import Bar, Clock, Contender, Row, Settings

Item = TypeVar("Item")


class DisagreementError(RuntimeError):
    """Two contenders came to different results, so that their times say nothing."""


@dataclass(frozen=True)
class Spread:
    """The middle and the ends of several times, or rates."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, times: Sequence[float | None]) -> Spread | None:
        known = [each for each in times if each is not None]
        return cls(statistics.median(known), min(known), max(known)) if known else None


@dataclass(frozen=True)
class Outcome:
    """What came of one contender; `note` says why there are no figures."""

    contender: Contender
    seconds: Spread | None = None
    whole: Spread | None = None
    peak: int | None = None
    note: str = ""
    rate: Spread | None = None


@dataclass(frozen=True)
class Result:
    """What came of a row."""

    row: Row
    outcomes: tuple[Outcome, ...]
    rounds: int
    quick: bool = False

    def ratio(self, name: str, us: str | None = None, clock: Clock | None = None) -> float | None:
        """How many times our time a contender needs (or how many times its rate we have): above 1, we are faster."""
        clock = clock or self.row.clock
        ours, theirs = self._spread(us or (self.row.us.name if self.row.us else ""), clock), self._spread(name, clock)
        if not ours or not theirs:
            return None
        return ours.median / theirs.median if clock == "rate" else theirs.median / ours.median

    def passes(self, bar: Bar) -> bool | None:
        """Whether we clear the bar; None if there is nothing to compare with, or too little to judge by."""
        ratio = self.ratio(bar.peer, bar.us, bar.clock)
        return None if ratio is None or self.quick else 1 / ratio <= bar.at_most

    def _spread(self, name: str, clock: Clock) -> Spread | None:
        return next((getattr(each, clock) for each in self.outcomes if each.contender.name == name), None)


def in_turn(items: Sequence[Item], round_: int) -> list[Item]:
    """The order of a round: A B C, then B C A, so that none always follows the same neighbour's heat.

    >>> in_turn("ABC", 1)
    ['B', 'C', 'A']
    """
    first = round_ % len(items) if items else 0
    return [*items[first:], *items[:first]]


def measure(row: Row, settings: Settings, say: Callable[[str], None]) -> Result:
    """Run the row: a warm-up in which memory is watched, then timed rounds that nothing disturbs."""
    row.prepare()
    notes = {each.name: f"not installed: {', '.join(lacks)}" for each in row.contenders if (lacks := missing(each))}
    runs: dict[str, list[Run]] = {each.name: [] for each in row.contenders}
    rounds = 1 if settings.quick else settings.rounds
    warm_up = 0 if settings.quick else 1
    for round_ in range(rounds + warm_up):
        present = [each for each in row.contenders if each.name not in notes]
        for contender in in_turn(present, round_):
            try:
                runs[contender.name].append(run(contender, watch_memory=round_ == 0))
                say(
                    f"{row.name}, round {round_ + 1 - warm_up}: {contender.name} {runs[contender.name][-1].whole:.2f} s"
                )
            except ContenderFailedError as error:
                say(str(error))
                notes[contender.name] = "failed"
    check_agreement([(name, each.checksum) for name, done in runs.items() for each in done], row.tolerance)
    outcomes = tuple(_outcome(each, runs[each.name], warm_up, notes) for each in row.contenders)
    return Result(row, outcomes, rounds, settings.quick)


def _outcome(contender: Contender, runs: list[Run], warm_up: int, notes: dict[str, str]) -> Outcome:
    if contender.name in notes:
        return Outcome(contender, note=notes[contender.name])
    timed = runs[warm_up:]
    seconds, whole = Spread.of([each.seconds for each in timed]), Spread.of([each.whole for each in timed])
    return Outcome(contender, seconds, whole, runs[0].peak, rate=Spread.of([each.rate for each in timed]))


def check_agreement(checksums: Sequence[tuple[str, list[Any]]], tolerance: float = Row.tolerance) -> None:
    """Raise unless all results are the same, numbers up to the order in which they were added."""
    for (one, mine), (other, theirs) in pairwise(checksums):
        if not _same(mine, theirs, tolerance):
            raise DisagreementError(f"{one} came to {mine}, but {other} to {theirs}.")


def _same(mine: Any, theirs: Any, tolerance: float) -> bool:
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(
            _same(one, other, tolerance) for one, other in zip(mine, theirs, strict=True)
        )
    if isinstance(mine, float) and isinstance(theirs, float):
        return math.isclose(mine, theirs, rel_tol=tolerance)
    return mine == theirs
