"""An orca.data.tf.Dataset as a feed: every shard is sliced where it lies, into columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo.orca.feed.base import Feed
from zoo.orca.feed.elements import ElementsFeed, is_labelled
from zoo.orca.feed.rows import RowsFeed
from zoo.orca.feed.shards import feed_of_placement

if TYPE_CHECKING:
    from zoo.orca.data.tf.data import Dataset, Slices


class SliceReader:
    """Reads a shard as the records of its tf.data.Dataset."""

    text = True

    def __init__(self, slices: Slices):
        self._slices = slices

    def __call__(self, shard: Any) -> tuple[Any, Any, Any]:
        return self._slices.arrays(shard), None, None


def feed_of_orca_dataset(dataset: Dataset, what: str) -> Feed:
    """A feed of the records."""
    return feed_of_rows(feed_of_placement(dataset.xshards.placement, SliceReader(dataset.slices), what))


def feed_of_rows(feed: Feed) -> ElementsFeed:
    """A feed of rows that are records; on several machines only a gang finds out whether they have labels."""
    spec = feed.layout.features if isinstance(feed, RowsFeed) else None
    return ElementsFeed(feed, spec is None or (spec.kind in ("tuple", "list") and is_labelled(spec.parts)))
