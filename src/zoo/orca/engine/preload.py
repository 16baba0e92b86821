"""Importing ahead, in a process whose forks will need it."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Iterable, Iterator

from zoo.orca.engine.garbage import paused


def import_ahead(modules: Iterable[str]) -> None:
    """Import what is not here yet; what cannot be imported is the fork's to complain about, if it needs it."""
    missing = [name for name in modules if name not in sys.modules]
    if not missing:
        return
    with _said_to_nobody(), paused():
        for name in missing:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    gc.freeze()  # looking through it for garbage would copy every page that the forks share


def seed_anew() -> None:
    """In a fork: numbers of its own, as a fresh process would draw. Python's `random` sees to itself."""
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


@contextlib.contextmanager
def _said_to_nobody() -> Iterator[None]:
    """The driver has imported most of it, and heard what it has to say; TensorFlow it keeps quiet as well."""
    kept = {}
    with open(os.devnull, "w") as nowhere:
        for each in (1, 2):
            with contextlib.suppress(OSError):  # the driver has none
                kept[each] = os.dup(each)
                os.dup2(nowhere.fileno(), each)
    try:
        yield
    finally:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        for each, before in kept.items():
            os.dup2(before, each)
            os.close(before)
