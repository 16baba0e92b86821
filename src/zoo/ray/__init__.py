"""Ray beside Spark in one driver."""

from __future__ import annotations

from zoo.orca.names import public_names
from zoo.ray.context import RayContext

__all__ = ["RayContext"]

__dir__ = public_names(globals())
