"""Models of other libraries as layers (`Net`), graphs of layers, and the names of `zoo.tfpark` that were here first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo.orca.names import public_names
from zoo.orca.optional import require
from zoo.pipeline.api.net.net_load import Net
from zoo.tfpark import TFDataset, TFNet, TFOptimizer, TFPredictor

if TYPE_CHECKING:
    from zoo.pipeline.api.net.graph_net import GraphNet

__all__ = ["GraphNet", "Net", "TFDataset", "TFNet", "TFOptimizer", "TFPredictor"]


def __getattr__(name: str) -> Any:
    """Load torch when a graph is asked for, not before."""
    if name != "GraphNet":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("torch", "GraphNet")
    from zoo.pipeline.api.net.graph_net import GraphNet

    return GraphNet


__dir__ = public_names(globals())
