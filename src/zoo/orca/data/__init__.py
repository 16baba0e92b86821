"""Data in pieces: XShards, and the readers that make them."""

from zoo.orca.data.shard import SharedValue, SparkXShards, XShards

__all__ = ["SharedValue", "SparkXShards", "XShards"]
