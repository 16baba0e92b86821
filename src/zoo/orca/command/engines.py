"""Which engines really start: each is started in a process of its own, given a small job, and stopped."""

from __future__ import annotations

from collections.abc import Iterator

from zoo.orca.command import MODE_OF
from zoo.orca.command.apart import Failure, run_apart
from zoo.orca.command.diagnosis import Diagnosis
from zoo.orca.command.extras import pip_line
from zoo.orca.optional import INSTALL_LINES, installed

# What an engine is made of, where it is not ours.
PACKAGE_OF = {"spark": "pyspark", "ray": "ray"}


def look_at_engines(seconds: float | None) -> Iterator[Diagnosis]:
    """A finding for each engine.

    Args:
        seconds: how long one may take to start, to work and to stop; None starts none.
    """
    for name in MODE_OF:
        package = PACKAGE_OF.get(name)
        if package is not None and not installed(package):
            yield Diagnosis("Engines", name, "absent", "not installed", pip_line(INSTALL_LINES[package]))
        elif seconds is None:
            yield Diagnosis("Engines", name, "absent", "not tried (--quick)")
        else:
            yield _try(name, seconds)


def _try(name: str, seconds: float) -> Diagnosis:
    tried = run_apart(["engine", name], seconds)
    if isinstance(tried, Failure):
        return Diagnosis("Engines", name, "error", str(tried), f"{tried.command}    # shows all")
    return Diagnosis("Engines", name, "ok", f"{tried['workers']} workers worked", seconds=tried["seconds"])
