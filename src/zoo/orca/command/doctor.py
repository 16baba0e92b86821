"""`orca doctor`: what is installed, what works, and what to type where it does not."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator

from zoo.orca.command.diagnosis import Diagnosis, wants_colour
from zoo.orca.command.engines import look_at_engines
from zoo.orca.command.extras import look_at_extras
from zoo.orca.command.machine import look_at_machine
from zoo.orca.version import __version__


def doctor(quick: bool = False, as_json: bool = False, seconds: float = 120) -> int:
    """Look at everything, tell each thing as it is found, and return 1 if something that is installed is broken."""
    findings = examine(quick, seconds)
    told = list(findings if as_json else _tell(findings))
    broken = [each for each in told if each.state == "error"]
    if as_json:
        report = {"version": __version__, "ok": not broken, "findings": [dataclasses.asdict(each) for each in told]}
        print(json.dumps(report, indent=2))
    else:
        print(f"\n{_verdict(told, quick)}")
    return 1 if broken else 0


def examine(quick: bool, seconds: float) -> Iterator[Diagnosis]:
    """Every finding, in the order of the report; no framework is imported in this process.

    Args:
        quick: whether to leave out what loads a library or starts an engine.
        seconds: how long each of those may take.
    """
    limit = None if quick else seconds
    yield from look_at_machine(limit)
    yield from look_at_extras(limit)
    yield from look_at_engines(limit)


def _tell(findings: Iterator[Diagnosis]) -> Iterator[Diagnosis]:
    """Print each finding under the title of its part, and pass it on."""
    part, colour = None, wants_colour(sys.stdout)
    for finding in findings:
        if finding.part != part:
            part = finding.part
            print(f"\n\033[1m{part}\033[0m" if colour else f"\n{part}")
        print(finding.shown(colour), flush=True)
        yield finding


def _verdict(told: list[Diagnosis], quick: bool) -> str:
    broken, odd = ([each.name for each in told if each.state == state] for state in ("error", "warning"))
    words = []
    if broken:
        words.append(f"Broken: {', '.join(broken)}. The lines to type are above.")
    if odd:
        words.append(f"To look at: {', '.join(odd)}.")
    if quick:
        words.append("Nothing was tried: leave out --quick to load every library and start every engine.")
    elif not broken:
        words.append("All that is installed works.")
    return " ".join(words)
