"""What the doctor found: one thing each, with the line that mends it, to be read by a person or a program."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, TextIO

State = Literal["ok", "absent", "warning", "error"]

MARKS: dict[State, str] = {"ok": "✓", "absent": "-", "warning": "!", "error": "✗"}
COLOURS: dict[State, str] = {"ok": "32", "absent": "2", "warning": "33", "error": "31"}
NAME_WIDTH = 12


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was looked at.

    Attributes:
        part: what it belongs to: "Machine", "Extras", "Engines".
        name: what was looked at.
        state: "ok", "absent" (not there, and need not be), "warning" (works, but look at it) or "error" (is broken).
        text: what was found.
        mend: what to type, if there is something to type.
        seconds: how long it took, where it was tried.
    """

    part: str
    name: str
    state: State
    text: str
    mend: str | None = None
    seconds: float | None = None

    def shown(self, colour: bool = False) -> str:
        """As lines of the report.

        >>> print(Diagnosis("Extras", "ray", "absent", "not installed", 'pip install "orca-estimator[ray]"').shown())
          - ray          not installed
                         type: pip install "orca-estimator[ray]"
        """
        mark = f"\033[{COLOURS[self.state]}m{MARKS[self.state]}\033[0m" if colour else MARKS[self.state]
        took = "" if self.seconds is None else f" ({self.seconds:.1f} s)"
        lines = [f"  {mark} {self.name:<{NAME_WIDTH}} {self.text}{took}"]
        if self.mend:
            lines.append(f"    {'':<{NAME_WIDTH}} type: {self.mend}")
        return "\n".join(lines)


def wants_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal that is to have colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
