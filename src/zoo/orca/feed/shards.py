"""Shards as rows: what an estimator takes from a dict or pandas shard, and laying shards down where they lie."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from zoo.orca.engine.base import Placement
from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.feed.base import Feed
from zoo.orca.feed.columns import frame_columns
from zoo.orca.feed.laid import Laid, writing
from zoo.orca.feed.rows import DealtFeed, Folder, RowsFeed

Reader = Callable[[Any], tuple[Any, Any, "np.ndarray | None"]]


@dataclass(frozen=True)
class Columns:
    """Which columns are features, labels and the rows' weights; also reads shards by them.

    Args:
        text: whether columns and arrays of texts are let in.

    >>> Columns(("a",), ("b",))(pd.DataFrame({"a": [1, 2], "b": [3, 4]}))
    ([array([1, 2])], array([3, 4]), None)
    """

    features: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    weight: str | None = None
    text: bool = False

    @property
    def names(self) -> list[str]:
        return [*self.features, *self.labels, *([self.weight] if self.weight else [])]

    def __call__(self, shard: Any) -> tuple[Any, Any, np.ndarray | None]:
        """(features, labels, weights) of a shard: a dict with "x" and "y", or a pandas frame."""
        if isinstance(shard, pd.DataFrame):
            return self._of_frame(shard)
        check_shard(shard)
        return shard["x"], shard.get("y"), shard.get("weight")

    def _of_frame(self, frame: pd.DataFrame) -> tuple[Any, Any, np.ndarray | None]:
        if not self.features:
            raise PreconditionError(
                "feature_cols must be given for shards of pandas DataFrames: a list of column names. "
                f"The shard has {list(frame.columns)}."
            )
        weight = frame_columns(frame, [self.weight])[0] if self.weight else None
        return (
            frame_columns(frame, self.features, self.text),
            one_or_all(frame_columns(frame, self.labels, self.text)) if self.labels else None,
            weight,
        )


def one_or_all(arrays: list[Any]) -> Any:
    """A single array stands for itself."""
    return arrays[0] if len(arrays) == 1 else arrays


def check_shard(shard: Any) -> None:
    if not isinstance(shard, dict):
        raise PreconditionError(
            'each shard should be an dict with the keys "x" (features) and "y" (labels), or a pandas DataFrame '
            f"together with feature_cols, but there is a {type(shard).__name__}. Turn it into one (transform_shard)."
        )
    if "x" not in shard:
        raise PreconditionError(
            f"key x should in each shard, but the keys are {sorted(map(str, shard))}. "
            "Call the features 'x' and the labels 'y' (transform_shard)."
        )
    for key in ("x", "y"):
        if shard.get(key) is not None and not isinstance(shard[key], np.ndarray | tuple | list | dict):
            raise InvalidArgumentError(
                f'value of "{key}" should be an ndarray, or a tuple, list or dict of ndarrays, but is a '
                f"{type(shard[key]).__name__}."
            )


def lay(folder: str, partition: int, shards: Iterator[Any], reader: Reader) -> Laid:
    """Write a partition's shards down as columns; texts too, if the reader has a `text` that is true."""
    with writing(folder, partition, getattr(reader, "text", False)) as writer:
        for shard in shards:
            writer.append(*reader(shard))
    return writer.laid


# Files of data that its owner keeps cached are used again by the next fit.
_kept: weakref.WeakKeyDictionary[Any, dict[Any, RowsFeed]] = weakref.WeakKeyDictionary()


def kept(owner: Any, is_cached: bool, key: Any, make: Callable[[], Feed]) -> Feed:
    """The feed made before from the same cached data, or a new one."""
    if not is_cached:
        _kept.pop(owner, None)
        return make()
    feeds = _kept.setdefault(owner, {})
    if key not in feeds:
        feed = make()
        if not isinstance(feed, RowsFeed):
            return feed
        feeds[key] = feed
    return feeds[key]


def feed_of_shards(shards: Any, columns: Columns, what: str) -> Feed:
    """A feed of an XShards."""
    return kept(
        shards.placement, shards.is_cached(), columns, lambda: feed_of_placement(shards.placement, columns, what)
    )


def feed_of_placement(placement: Placement, reader: Reader, what: str) -> Feed:
    """Lay every partition down where it lies; on several machines that waits until a gang has its shards."""
    if not placement.engine.one_machine:
        return DealtFeed(placement, reader, what)
    folder = Folder()
    path = folder.path
    laid = placement.map(lambda index, shards: [lay(path, index, shards, reader)], changes=False).fetch()
    return RowsFeed(placement.engine, [part for (part,) in laid], folder, what)
