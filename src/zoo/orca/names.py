"""What tab completion shows of a module: its public names, and not what it imports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def public_names(module: dict[str, Any], brought_along: Iterable[str] = ()) -> Callable[[], list[str]]:
    """A module's `__dir__`: what `__all__` lists, or else what it defines itself; and its packages.

    Args:
        brought_along: names of other modules that star imports have always had, and nobody looks for here.

    Example:
        __dir__ = public_names(globals())
    """

    def names() -> list[str]:
        home = module["__name__"]
        found = set(module.get("__all__") or (name for name, value in module.items() if _is_own(home, name, value)))
        found -= set(brought_along)
        return sorted(found | {name for name, value in module.items() if _is_package(home, name, value)})

    return names


def _is_own(home: str, name: str, value: Any) -> bool:
    return not name.startswith("_") and not hasattr(value, "__path__") and getattr(value, "__module__", None) == home


def _is_package(home: str, name: str, value: Any) -> bool:
    return hasattr(value, "__path__") and getattr(value, "__name__", None) == f"{home}.{name}"
