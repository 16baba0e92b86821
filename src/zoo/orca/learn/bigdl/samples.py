"""Samples one by one, in an RDD or on another engine, as training data; workers that only read data need no torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from zoo.orca.data.shard import XShards
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.shards import Columns, one_or_all
from zoo.orca.learn.records import batches, placement_of, stack

# So many records, or so many bytes of them, become one shard: enough to stack at once, few enough to hold beside the
# shards they become. Images are large, rows of a table are not.
SHARD_ROWS = 1024
SHARD_BYTES = 64 << 20

Arrays = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]


def sample_data(samples: Any, what: str = "training_rdd") -> tuple[XShards, Columns]:
    """What an estimator takes, and its columns, for an RDD (Records, a list) of Samples, partition by partition."""
    shards = placement_of(samples, what).map(_shards, changes=False)
    return XShards.from_placement(shards, transient=True), Columns()


def arrays_of(sample: Any) -> Arrays:
    """The features and the labels of a sample; an array is one without labels."""
    if isinstance(sample, np.ndarray):
        return (sample,), ()
    if not (hasattr(sample, "features") and hasattr(sample, "labels")):
        raise InvalidArgumentError(
            f"Expected records that are Samples, got a {type(sample).__name__}. Make them with "
            "Sample.from_ndarray(features, labels) of bigdl.util.common."
        )
    return tuple(map(_as_array, sample.features)), tuple(map(_as_array, sample.labels))


def _shards(index: int, records: Iterable[Any]) -> Iterator[dict[str, Any]]:
    rows = map(arrays_of, records)
    first = next(rows, None)
    if first is None:
        return
    size = sum(array.nbytes for side in first for array in side)
    count = max(1, min(SHARD_ROWS, SHARD_BYTES // max(1, size)))
    yield from map(_shard, batches(itertools.chain([first], rows), count))


def _shard(rows: Sequence[Arrays]) -> dict[str, Any]:
    """Features under "x" and labels, if there are any, under "y"; several arrays are a list."""
    for what, side in (("features", 0), ("labels", 1)):
        counts = sorted({len(row[side]) for row in rows})
        if len(counts) > 1:
            raise InvalidArgumentError(
                f"Samples must have as many arrays each, but some have {' and others '.join(map(str, counts))} {what}."
            )
    features, labels = zip(*rows, strict=True)
    shard = {"x": one_or_all(list(stack(features)))}
    return shard | {"y": one_or_all(list(stack(labels)))} if labels[0] else shard


def _as_array(tensor: Any) -> np.ndarray:
    return tensor if isinstance(tensor, np.ndarray) else tensor.to_ndarray()
