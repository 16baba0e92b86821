"""The Analytics Zoo interface: everything of `zoo.common.nncontext`, loaded when it is first asked for."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # Sub-packages are found by the import system itself; asking nncontext for one would load it too early.
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from zoo.common import nncontext

    if name == "__all__":
        return list(nncontext.__all__)
    if name in nncontext.__all__:
        return getattr(nncontext, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from zoo.common import nncontext

    packages = ("common", "feature", "models", "orca", "pipeline", "ray", "tfpark", "util")
    return sorted({*dir(nncontext), *(name for name in packages if name in globals())})
