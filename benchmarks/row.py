"""What is compared: a row of contenders that do the same work, and the bars we set ourselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent

Kind = Literal["us", "peer", "limit"]
Clock = Literal["seconds", "whole"]


@dataclass(frozen=True)
class Report:
    """What a contender says of itself: seconds by its own clock, and a checksum of its result."""

    seconds: float | None
    checksum: list[Any]


@dataclass(frozen=True)
class Contender:
    """One way to do the work, in a fresh process.

    Attributes:
        work: a function at module level that returns a Report, or a command whose processes append JSON lines
            `{"checksum": [...]}` to the file named by BENCH_REPORT.
        arguments: for the function, as far as JSON can carry them.
        needs: modules without which it is shown as not installed.
    """

    name: str
    kind: Kind
    work: Callable[..., Report] | Sequence[str]
    arguments: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Bar:
    """Our time must be at most `at_most` times that of a peer."""

    text: str
    peer: str
    at_most: float


@dataclass(frozen=True)
class Row:
    """Contenders for one kind of work; the first of kind "us" is the one that the others are compared with.

    Attributes:
        clock: what is compared: "seconds" by the contender's own clock, or the "whole" process from start to end.
        prepare: called once before anything is measured.
    """

    name: str
    title: str
    contenders: tuple[Contender, ...]
    bars: tuple[Bar, ...] = ()
    clock: Clock = "seconds"
    prepare: Callable[[], None] = lambda: None

    @property
    def us(self) -> Contender:
        return next(contender for contender in self.contenders if contender.kind == "us")


@dataclass(frozen=True)
class Settings:
    """How much is run: `quick` takes one round on a twentieth of the data."""

    rounds: int = 5
    quick: bool = False
    data: Path = ROOT / "benchmarks" / "data"
