"""Ray beside Spark in one driver."""

from __future__ import annotations

from zoo.ray.context import RayContext

__all__ = ["RayContext"]
