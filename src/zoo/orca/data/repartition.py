"""The same data in another number of partitions: nothing lost, nothing doubled, order kept where it is promised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import numpy as np
import pandas as pd

from zoo.orca.data import frames, rows
from zoo.orca.engine.base import Placement, deal


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
    owner = {source: target for target, mine in enumerate(deal(placement.num_partitions, count)) for source in mine}
    return placement.exchange(lambda index, shards: ((owner[index], shard) for shard in shards), count, rows.join)


def _deal_rows(placement: Placement, sizes: list[list[int]], count: int) -> Placement:
    """Rows or items are cut into count contiguous runs over all shards, in order."""
    starts = _starts([sum(partition) for partition in sizes])
    bounds = np.linspace(0, sum(map(sum, sizes)), count + 1).astype(int).tolist()

    def split(index: int, shards: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        first = starts[index]
        for shard in shards:
            for target in range(count):
                begin, end = max(first, bounds[target]), min(first + len(shard), bounds[target + 1])
                if begin < end:
                    yield target, rows.take(shard, begin - first, end - first)
            first += len(shard)

    return placement.exchange(split, count, rows.join)


def _deal_whole(placement: Placement, counts: list[int], partitions: int) -> Placement:
    """Whole shards are dealt to partitions, in order."""
    starts = _starts(counts)
    owner = {position: target for target, mine in enumerate(deal(sum(counts), partitions)) for position in mine}

    def split(index: int, shards: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        for position, shard in enumerate(shards, starts[index]):
            yield owner[position], shard

    return placement.exchange(split, partitions, lambda target, pieces: pieces)


def _starts(sizes: list[int]) -> list[int]:
    """The position of each partition's first row."""
    return list(accumulate(sizes, initial=0))[:-1]
