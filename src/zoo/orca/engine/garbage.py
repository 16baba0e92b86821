"""What Python need not look at when it looks for garbage: frameworks are hundreds of thousands of objects that stay."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# So many new modules are worth it: TensorFlow has some 4,000, torch a thousand.
MANY_MODULES = 100

_known_modules = 0


def leave_modules_out() -> None:
    """Called where a Spark task begins, when there is little but modules in its process.

    Spark collects garbage after every task: with torch loaded that takes 0.2 s, as long as many a task."""
    global _known_modules
    if len(sys.modules) >= _known_modules + MANY_MODULES:
        gc.freeze()
        _known_modules = len(sys.modules)


@contextmanager
def long_lived() -> Iterator[None]:
    """What is there before the first step of a fit, frameworks and all, stays as long as it lasts.

    Every look at it would stop a step of this rank, and so of all."""
    global _known_modules
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        _known_modules = 0


@contextmanager
def paused() -> Iterator[None]:
    """While a large package is imported, which makes much and throws little away: TensorFlow takes a sixth less."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
