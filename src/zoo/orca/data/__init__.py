"""Data in pieces: XShards, and the readers that make them."""

from zoo.orca.data.shard import SharedValue, SparkXShards, XShards
from zoo.orca.names import public_names

__all__ = ["SharedValue", "SparkXShards", "XShards"]

__dir__ = public_names(globals())
