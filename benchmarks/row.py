"""What is compared: a row of contenders that do the same work, and the bars we set ourselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent

Kind = Literal["us", "peer", "limit"]
Clock = Literal["seconds", "whole", "rate"]


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
    """Our time must be at most `at_most` times that of a peer (or their rate that many times ours).

    Attributes:
        us: which of ours, if not the first.
        clock: what is compared, if not what the row compares.
    """

    text: str
    peer: str
    at_most: float
    us: str | None = None
    clock: Clock | None = None


@dataclass(frozen=True)
class Row:
    """Contenders for one kind of work; the first of kind "us" is the one that the others are compared with.

    Attributes:
        clock: what is compared: "seconds" by the contender's own clock, the "whole" process from start to end, or the
            "rate" at which it runs once it runs.
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
