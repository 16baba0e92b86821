"""What is compared: a row of contenders that do the same work, and the bars we set ourselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent

Kind = Literal["us", "peer", "limit"]
Clock = Literal["seconds", "whole", "rate", "peak"]


@dataclass(frozen=True)
class Report:
    """What a contender says of itself: seconds by its own clock, a checksum of its result, and how fast it trains.

    Attributes:
        rate: rows a second once it runs steadily, where a row asks for it.
    """

    seconds: float | None
    checksum: list[Any]
    rate: float | None = None


@dataclass(frozen=True)
class Contender:
    """One way to do the work, in a fresh process.

    Attributes:
        work: a function at module level that returns a Report, or its place "module:function" where importing it here
            would cost too much, or a command whose processes append JSON lines `{"checksum": [...]}` to the file
            named by BENCH_REPORT.
        arguments: for the function, as far as JSON can carry them.
        needs: modules without which it is shown as not installed.
    """

    name: str
    kind: Kind
    work: Callable[..., Report] | str | Sequence[str]
    arguments: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Bar:
    """A promise about ours beside a peer, in one of two ways.

    Either ours costs at most `at_most` times theirs, or ours is at least `at_least` times as good: as fast, by a time
    or by a rate, or as sparing with memory.

    Attributes:
        peer: whom ours is compared with; of several, with the best.
        us: which of ours, if not the first.
        clock: what is compared, if not what the row compares; "peak" for memory.
        within_spread: what is asked of our median is asked beside their worst round instead of their median, for
            promises of no difference, which noise would break every other time.

    Example:
        >>> Bar("at least 2 times the best on Spark", ("mapInArrow", "mapInPandas"), at_least=2)
        >>> Bar("at most half of toPandas' memory", "toPandas", at_most=0.5, clock="peak")
    """

    text: str
    peer: str | tuple[str, ...]
    at_most: float | None = None
    us: str | None = None
    clock: Clock | None = None
    at_least: float | None = None
    within_spread: bool = False

    def __post_init__(self) -> None:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError(f"A bar has either at_most or at_least: {self.text!r}.")

    @property
    def peers(self) -> tuple[str, ...]:
        """The names of those it is compared with."""
        return (self.peer,) if isinstance(self.peer, str) else self.peer

    def figure(self, ratio: float) -> float:
        """What the bar's words are about, given how many times as good ours is."""
        return ratio if self.at_most is None else 1 / ratio

    def holds(self, ratio: float) -> bool:
        """Whether it is kept where ours is `ratio` times as good."""
        figure = self.figure(ratio)
        return figure >= self.at_least if self.at_most is None else figure <= self.at_most


@dataclass(frozen=True)
class Row:
    """Contenders for one kind of work; the first of kind "us" is the one that the others are compared with.

    Attributes:
        clock: what is compared: "seconds" by the contender's own clock, the "whole" process from start to end, or the
            "rate" at which it runs once it runs, or the "peak" of its memory.
        prepare: called once before anything is measured.
        tolerance: how far numbers in the checksums may differ, as a part of them.
    """

    name: str
    title: str
    contenders: tuple[Contender, ...]
    bars: tuple[Bar, ...] = ()
    clock: Clock = "seconds"
    prepare: Callable[[], None] = lambda: None
    tolerance: float = 1e-9

    @property
    def us(self) -> Contender | None:
        """The one that ratios refer to; None where only others were asked for."""
        return next((contender for contender in self.contenders if contender.kind == "us"), None)


@dataclass(frozen=True)
class Settings:
    """How much is run: `quick` takes one round on a small part of the data."""

    rounds: int = 5
    quick: bool = False
    data: Path = ROOT / "benchmarks" / "data"
