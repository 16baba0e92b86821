"""The same data in another number of partitions: nothing lost, nothing doubled, order kept where it is promised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from zoo.orca.data import frames, rows
from zoo.orca.engine.base import Placement, owner


def fetch_facts(placement: Placement, fact: Callable[[Any], Any]) -> list[list[Any]]:
    """A small fact about each shard, by partition."""
    return placement.map(lambda index, shards: (fact(shard) for shard in shards), changes=False).fetch()


def repartition(placement: Placement, count: int) -> Placement:
    """Join, cut or deal, as the shards allow (see `XShards.repartition`)."""
    facts = fetch_facts(placement, _size_and_kind)
    kinds = {kind for partition in facts for _, kind in partition}
    if not kinds or "whole" in kinds:
        return _deal_whole(placement, [len(partition) for partition in facts], count)
    if count <= placement.num_partitions:
        return _join_neighbours(placement, count)
    if kinds == {"frame"}:
        return frames.by_value(placement, None, count)
    return _deal_rows(placement, [[size for size, _ in partition] for partition in facts], count)


def _size_and_kind(shard: Any) -> tuple[int, str]:
    if not rows.has_rows(shard):
        return 1, "whole"
    return len(shard), "frame" if isinstance(shard, pd.DataFrame) and len(shard.columns) else "items"


def _join_neighbours(placement: Placement, count: int) -> Placement:
    """Neighbouring partitions are joined into one shard each."""
    sources = placement.num_partitions
    return placement.exchange(
        lambda index, shards: ((owner(index, sources, count), shard) for shard in shards), count, rows.join
    )


def _deal_rows(placement: Placement, sizes: list[list[int]], count: int) -> Placement:
    """Rows or items are cut into count contiguous runs over all shards, in order."""
    starts, total = _starts([sum(partition) for partition in sizes]), sum(map(sum, sizes))

    def split(index: int, shards: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        bounds = np.linspace(0, total, count + 1).astype(int)
        first = int(starts[index])
        for shard in shards:
            last = first + len(shard)
            lowest, above = np.searchsorted(bounds, first, side="right") - 1, np.searchsorted(bounds, last)
            for target in range(int(lowest), int(above)):
                begin, end = max(first, int(bounds[target])), min(last, int(bounds[target + 1]))
                if begin < end:
                    yield target, rows.take(shard, begin - first, end - first)
            first = last

    return placement.exchange(split, count, rows.join)


def _deal_whole(placement: Placement, counts: list[int], partitions: int) -> Placement:
    """Whole shards are dealt to partitions, in order."""
    starts, total = _starts(counts), sum(counts)

    def split(index: int, shards: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        for position, shard in enumerate(shards, int(starts[index])):
            yield owner(position, total, partitions), shard

    return placement.exchange(split, partitions, lambda target, pieces: pieces)


def _starts(sizes: list[int]) -> np.ndarray:
    """The position of each partition's first row: an array, for it travels with every partition's task."""
    return np.cumsum([0, *sizes])[:-1]
