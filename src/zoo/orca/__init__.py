"""Orca: one Estimator and one XShards for a laptop, a Spark cluster and Ray."""

from __future__ import annotations

from zoo.orca.context import OrcaContext, init_orca_context, stop_orca_context
from zoo.orca.names import public_names

__all__ = ["OrcaContext", "init_orca_context", "stop_orca_context"]

__dir__ = public_names(globals())
