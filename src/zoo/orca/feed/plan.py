"""Which rows make which global batch: plain arithmetic over the sizes of shards, with no framework and no engine in it.

The global batches are a pure function of (rows of every shard, batch_size, seed, epoch). How many workers there are
only decides who takes which part of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from zoo.orca.engine.base import deal
from zoo.orca.feed.shuffled import Shuffled

#: Rows lent to a rank that has none of a batch: two, for layers that normalise over the batch cannot train on one.
GHOST_ROWS = 2

# What a random stream is for: so that no two of them are the same.
_BATCHES, _ROWS = 0, 1


@dataclass(frozen=True)
class Piece:
    """Rows of one shard: places `start` to `stop` of the shard's order in this epoch."""

    shard: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, eq=False)
class Batch:
    """The rows of a global batch: of each of these shards `counts` places from `starts` on.

    Arrays, for a rank looks at its own part of them alone, however many shards and ranks there are.

    Example:
        >>> batch = Batch(np.array([4, 7]), np.array([0, 10]), np.array([3, 2]))
        >>> batch.cut(range(2, 5))
        [Piece(shard=4, start=2, stop=3), Piece(shard=7, start=10, stop=12)]
    """

    shards: np.ndarray
    starts: np.ndarray
    counts: np.ndarray

    @cached_property
    def rows(self) -> int:
        """How many there are."""
        return int(self.counts.sum())

    def __iter__(self) -> Iterator[Piece]:
        return iter(self.cut(range(self.rows)))

    def cut(self, part: range) -> list[Piece]:
        """The pieces that make rows `part` of it."""
        ends = np.cumsum(self.counts)
        first, last = (int(each) for each in np.searchsorted(ends, [part.start, part.stop - 1], side="right"))
        offsets = ends - self.counts
        return [
            Piece(
                int(self.shards[at]),
                int(self.starts[at] + max(part.start - offsets[at], 0)),
                int(self.starts[at] + min(part.stop - offsets[at], self.counts[at])),
            )
            for at in range(first, last + 1 if part else first)
        ]

    def of(self, held: np.ndarray) -> list[Piece]:
        """The pieces from shards whose numbers are marked in `held`."""
        chosen = held[self.shards]
        stops = self.starts + self.counts
        numbers = (each[chosen].tolist() for each in (self.shards, self.starts, stops))
        return [Piece(*each) for each in zip(*numbers, strict=True)]


@dataclass(frozen=True)
class Plan:
    """The global batches of every epoch.

    Args:
        rows: the rows of each shard; empty shards have a number, but make no difference to the batches.
        batch_size: rows of a global batch; the last one of an epoch has what is left.
        shuffle: rows in another order each epoch; each batch takes from all shards in proportion to what they have.
        spread: whether each batch takes from all shards although nothing is shuffled, so that workers who hold
            different shards all have work.

    Example:
        >>> plan = Plan(rows=(3, 0, 2), batch_size=2, seed=1, shuffle=False)
        >>> [[(piece.shard, piece.start, piece.stop) for piece in batch] for batch in plan.batches(epoch=0)]
        [[(0, 0, 2)], [(0, 2, 3), (2, 0, 1)], [(2, 1, 2)]]
    """

    rows: tuple[int, ...]
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    spread: bool = False

    @cached_property
    def total(self) -> int:
        """The rows of an epoch."""
        return self.steps * self.batch_size if self.drop_last else sum(self.rows)

    @cached_property
    def steps(self) -> int:
        """The global batches of an epoch."""
        whole, rest = divmod(sum(self.rows), self.batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The epoch's global batches, from step `start` on."""
        random = np.random.default_rng([self.seed, epoch, _BATCHES])
        order = random.permutation(self._filled) if self.shuffle else self._filled
        sizes = np.array(self.rows, dtype=np.int64)[order]
        taken = np.zeros_like(sizes)
        for step in range(self.steps):
            left = sizes - taken
            size = min(self.batch_size, int(left.sum()))
            takes = _in_proportion(left, size, random) if self.shuffle or self.spread else _in_turn(left, size)
            if step >= start:
                places = np.flatnonzero(takes)
                yield Batch(order[places], taken[places], takes[places])
            taken += takes

    def order(self, epoch: int, shard: int) -> Shuffled | None:
        """The order of a shard's rows in an epoch; None when they keep their own."""
        if not self.shuffle:
            return None
        place = int(np.searchsorted(self._filled, shard))
        return Shuffled(self.rows[shard], np.random.default_rng([self.seed, epoch, _ROWS, place]))

    @cached_property
    def _filled(self) -> np.ndarray:
        """The shards with rows. Only their order counts, since not everyone who counts shards sees the empty ones."""
        return np.flatnonzero(self.rows)


def _in_proportion(left: np.ndarray, size: int, random: np.random.Generator) -> np.ndarray:
    """`size` rows from all shards, each giving its due share of what is left, rounded at random places."""
    all_left = int(left.sum())
    ends = (np.cumsum(left) * size + random.integers(all_left)) // all_left
    return np.diff(ends, prepend=0)


def _in_turn(left: np.ndarray, size: int) -> np.ndarray:
    """`size` rows from the first shards that have some."""
    return np.diff(np.minimum(np.cumsum(left), size), prepend=0)


def split(rows: int, world_size: int) -> list[range]:
    """The part of a batch that each rank takes: contiguous and even, and at least two rows for those that get any.

    Two, because layers that normalise over the batch cannot train on one.

    >>> split(7, 3), split(3, 2)
    ([range(0, 3), range(3, 5), range(5, 7)], [range(0, 3), range(3, 3)])
    """
    ranks = max(1, min(world_size, rows // 2))
    return [*deal(rows, ranks), *[range(rows, rows)] * (world_size - ranks)]
