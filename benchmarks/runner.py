"""Measuring a row: rounds in turn, results compared, times boiled down to medians."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from benchmarks.process import ContenderFailedError, Run, missing, run
from benchmarks.row import Bar, Clock, Contender, Row, Settings

Item = TypeVar("Item")


class DisagreementError(RuntimeError):
    """Two contenders came to different results, so that their times say nothing."""


@dataclass(frozen=True)
class Spread:
    """The middle and the ends of several times, or rates, which are kept in the order of the rounds."""

    median: float
    least: float
    most: float
    rounds: tuple[float, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, times: Sequence[float | None]) -> Spread | None:
        known = [each for each in times if each is not None]
        return cls(statistics.median(known), min(known), max(known), tuple(known)) if known else None


@dataclass(frozen=True)
class Outcome:
    """What came of one contender; `note` says why there are no figures."""

    contender: Contender
    seconds: Spread | None = None
    whole: Spread | None = None
    peak: int | None = None
    note: str = ""
    rate: Spread | None = None

    def spread(self, clock: Clock) -> Spread | None:
        """What a clock said of it; memory is looked at once."""
        return Spread.of([self.peak]) if clock == "peak" else getattr(self, clock)


@dataclass(frozen=True)
class Judged:
    """What came of a bar: the figure its words are about, the same for each round, whom it was compared with."""

    passes: bool | None
    figure: Spread | None = None
    peer: str = ""


@dataclass(frozen=True)
class Result:
    """What came of a row."""

    row: Row
    outcomes: tuple[Outcome, ...]
    rounds: int
    quick: bool = False

    def ratio(self, name: str, us: str | None = None, clock: Clock | None = None) -> float | None:
        """How many times our time a contender needs (or how many times its rate we have): above 1, we are faster."""
        spread = self.ratios(name, us, clock)
        return spread and spread.median

    def ratios(self, name: str, us: str | None = None, clock: Clock | None = None) -> Spread | None:
        """The ratio of the medians, and the least and the most of the ratios within a round."""
        clock = clock or self.row.clock
        ours = self._spread(us or (self.row.us.name if self.row.us else ""), clock)
        theirs = self._spread(name, clock)
        return compare(ours, theirs, clock) if ours and theirs else None

    def of_limit(self, outcome: Outcome, clock: Clock | None = None) -> Spread | None:
        """Which part of the limit's speed a contender reaches; None where the row has no limit."""
        limit = next((each.contender.name for each in self.outcomes if each.contender.kind == "limit"), None)
        return self.ratios(limit, outcome.contender.name, clock) if limit else None

    def passes(self, bar: Bar) -> bool | None:
        """Whether we clear the bar; None if there is nothing to compare with, or too little to judge by."""
        return self.judge(bar).passes

    def judge(self, bar: Bar) -> Judged:
        """Compare ours with the best of the bar's peers; where one of them has no figures, nobody knows the best."""
        clock = bar.clock or self.row.clock
        ratios = {name: self.ratios(name, bar.us, clock) for name in bar.peers}
        if not all(ratios.values()):
            return Judged(None)
        peer, ratio = min(ratios.items(), key=lambda pair: pair[1].median)
        ends = sorted(map(bar.figure, (ratio.least, ratio.most)))
        judged = self._beside_worst(peer, bar.us, clock) if bar.within_spread else ratio.median
        return Judged(None if self.quick else bar.holds(judged), Spread(bar.figure(ratio.median), *ends), peer)

    def _beside_worst(self, name: str, us: str | None, clock: Clock) -> float:
        """The ratio of our median to the worst of their rounds."""
        ours, theirs = self._spread(us or self.row.us.name, clock), self._spread(name, clock)
        return ours.median / theirs.least if clock == "rate" else theirs.most / ours.median

    def _spread(self, name: str, clock: Clock) -> Spread | None:
        return next((each.spread(clock) for each in self.outcomes if each.contender.name == name), None)


def compare(ours: Spread, theirs: Spread, clock: Clock) -> Spread:
    """How many times as good ours is. Rounds run in turn, so that those of one number saw the same machine.

    >>> compare(Spread.of([1.0, 2.0]), Spread.of([2.0, 6.0]), "seconds").most
    3.0
    """
    over, under = (ours, theirs) if clock == "rate" else (theirs, ours)
    each = [high / low for high, low in zip(over.rounds, under.rounds, strict=False)]
    median = over.median / under.median
    return Spread(median, min([median, *each]), max([median, *each]), tuple(each))


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
