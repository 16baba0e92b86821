"""Orca: one Estimator and one XShards for a laptop, a Spark cluster and Ray."""

from __future__ import annotations

from zoo.orca.context import OrcaContext, init_orca_context, stop_orca_context

__all__ = ["OrcaContext", "init_orca_context", "stop_orca_context"]
