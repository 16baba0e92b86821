"""A tf.data.Dataset over XShards, made where the shards lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.names import public_names
from zoo.orca.optional import require

if TYPE_CHECKING:
    import tensorflow as tf

    from zoo.orca.data.shard import XShards


_AT_ONCE = 256


@dataclass(frozen=True)
class Slices:
    """How a shard becomes a tf.data.Dataset. It has no data in it, so it can be sent to the workers."""

    maps: tuple[Callable[..., Any], ...] = ()

    def __call__(self, shard: Any) -> tf.data.Dataset:
        """Slice a shard, any structure that tf.data accepts, along the first dimension, and apply the maps."""
        tf = require("tensorflow", "zoo.orca.data.tf.data.Dataset")
        dataset = tf.data.Dataset.from_tensor_slices(_without_ragged_lists(tf, shard))
        for func in self.maps:
            dataset = dataset.map(func)
        return dataset

    def arrays(self, shard: Any) -> Any:
        """The records of a shard as arrays, nested as the records are; texts are arrays of bytes."""
        tf = require("tensorflow", "zoo.orca.data.tf.data.Dataset")
        records = self(shard)
        _check_records(tf, records.element_spec)
        batches = [tf.nest.map_structure(np.asarray, batch) for batch in records.batch(_AT_ONCE)]
        if not batches:
            return np.empty(0, np.float32)
        return tf.nest.map_structure(lambda *parts: np.concatenate(parts), *batches)


@dataclass(frozen=True)
class Dataset:
    """Records of XShards as TensorFlow sees them; the estimators take it. It is lazy, and never changes."""

    xshards: XShards
    slices: Slices = field(default_factory=Slices)

    @staticmethod
    def from_tensor_slices(xshards: XShards) -> Dataset:
        """A Dataset of the records in XShards, each shard sliced along its first dimension.

        Example: ``Dataset.from_tensor_slices(XShards.partition({"x": x, "y": y}))``
        """
        from zoo.orca.data.shard import XShards

        if not isinstance(xshards, XShards):
            raise PreconditionError(
                f"Expected XShards (SparkXShards or those of another engine), got {type(xshards).__name__}. "
                "Make some with XShards.partition(data)"
            )
        return Dataset(xshards)

    def map(self, func: Callable[..., Any]) -> Dataset:
        """A new Dataset of what func, made of TensorFlow operations, returns for each record.

        Example: ``dataset.map(lambda record: (record["x"] / 255, record["y"]))``
        """
        return Dataset(self.xshards, Slices((*self.slices.maps, func)))

    def num_partitions(self) -> int:
        """The number of partitions of the XShards."""
        return self.xshards.num_partitions()

    def as_xshards(self) -> XShards:
        """The records as XShards of {"x": records}: arrays with a row for each record, nested as the records are.

        Example: ``predictions = estimator.predict(dataset.as_xshards())``
        """
        slices = self.slices
        return self.xshards.transform_shard(lambda shard: {"x": slices.arrays(shard)})

    def of_shard(self, shard: Any) -> tf.data.Dataset:
        """The tf.data.Dataset of one shard; `slices` does the same on a worker, without the XShards."""
        return self.slices(shard)


def _check_records(tf: Any, spec: Any) -> None:
    for each in tf.nest.flatten(spec):
        if not isinstance(each, tf.TensorSpec):
            raise InvalidArgumentError(
                "the records of an orca.data.tf.Dataset must be tensors of one shape to be put into batches, but there "
                f"is a {type(each).__name__.removesuffix('Spec')} in them. Make a tensor of it with map() first "
                "(ragged.to_tensor(shape=...), tf.sparse.to_dense)."
            )


def _without_ragged_lists(tf: Any, value: Any) -> Any:
    """Turn lists of arrays that differ in their first dimension, which tf.data refuses, into ragged tensors."""
    if isinstance(value, dict):
        return {key: _without_ragged_lists(tf, part) for key, part in value.items()}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_without_ragged_lists(tf, part) for part in value)
    if isinstance(value, list) and value and all(isinstance(item, np.ndarray) and item.ndim for item in value):
        return tf.RaggedTensor.from_row_lengths(np.concatenate(value), [len(item) for item in value])
    return value


__dir__ = public_names(globals())
