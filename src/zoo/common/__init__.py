"""Helpers that every part of zoo shares; the same names as in `zoo.common.utils`."""

from __future__ import annotations

from typing import Any

from zoo.common import utils
from zoo.common.utils import __all__ as __all__
from zoo.orca.names import public_names


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(utils, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__dir__ = public_names(globals())
