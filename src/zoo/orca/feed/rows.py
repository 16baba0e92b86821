"""Feeds over rows that were laid down as columns: arrays, frames, shards, Spark DataFrames, Ray Datasets."""

from __future__ import annotations

import itertools
import operator
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.base import Feed, Share, Source
from zoo.orca.feed.laid import Laid, Layout, Rows, Table, common_layout, forget
from zoo.orca.feed.plan import GHOST_ROWS, Batch, Piece, Plan, split
from zoo.orca.feed.shuffled import Shuffled

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine, Placement
    from zoo.orca.engine.worker import Worker
    from zoo.orca.feed.shards import Reader


class Folder:
    """A temporary folder of the driver, gone with this object."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="orca-feed-")
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class RowsFeed(Feed):
    """Partitions that lie in files of one machine, where every rank can map every one of them.

    Each global batch is cut evenly between the ranks, however ragged the partitions are.
    """

    def __init__(self, engine: Engine, parts: Sequence[Laid], folder: Folder | None, what: str = "data"):
        self.engine = engine
        self.parts = tuple(parts)
        self.layout = _need_rows(common_layout(self.parts), what)
        self.labelled = self.layout.labels is not None
        self._folder = folder

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"engine": None, "_folder": None}

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def open(
        self, worker: Worker, batch_size: int, seed: int, shuffle: bool = True, drop_last: bool = False
    ) -> RowsSource:
        plan = Plan(tuple(part.rows for part in self.parts), batch_size, seed, shuffle, drop_last)
        tables = {number: Table(part) for number, part in enumerate(self.parts) if part.rows}
        return RowsSource(plan, Rows(self.layout, tables), worker.rank, worker.world_size)

    def sample(self, count: int = GHOST_ROWS) -> tuple[Any, ...]:
        """The first rows, as `(*features, target)`."""
        number, part = next((number, part) for number, part in enumerate(self.parts) if part.rows)
        leaves = Rows(self.layout, {number: Table(part)}).gather(
            [(number, slice(0, min(count, part.rows)))], min(count, part.rows)
        )
        return self.layout.build(leaves)[0]


class DealtFeed(Feed):
    """Partitions of a cluster of several machines: each rank lays down those dealt to it, on its own disk.

    The global batches are the same as anywhere; a rank takes the rows of a batch that lie with it.
    """

    def __init__(self, placement: Placement, reader: Reader, what: str = "data"):
        self.engine = placement.engine
        self.data: Placement = placement
        self._reader = reader
        self._what = what

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"engine": None, "data": None}

    def open(
        self, worker: Worker, batch_size: int, seed: int, shuffle: bool = True, drop_last: bool = False
    ) -> RowsSource:
        with tempfile.TemporaryDirectory(prefix="orca-feed-") as folder:
            mine = self._lay(worker, folder)
            tables = {number: Table(part) for number, part in mine.items() if part.rows}
            for part in mine.values():
                if part.layout is not None:
                    forget(part.path, part.layout)
        known = [part for parts in worker.all_gather(mine) for part in sorted(parts.items())]
        rows = [0] * (1 + max((number for number, _ in known), default=-1))
        for number, part in known:
            rows[number] = part.rows
        layout = _need_rows(common_layout([part for _, part in known]), self._what)
        plan = Plan(tuple(rows), batch_size, seed, shuffle, drop_last, spread=True)
        return RowsSource(plan, Rows(layout, tables), worker.rank, worker.world_size, owned=True)

    def gathered(self) -> Feed:
        """The same rows sent whole to every rank: for a gang that is given other partitions already."""
        from zoo.orca.feed.arrays import SharedFeed

        return SharedFeed(self.data.fetch(), self._reader, self.engine, self._what)

    def _lay(self, worker: Worker, folder: str) -> dict[int, Laid]:
        """The partitions dealt to this rank; their shards come in a stream, one partition after the other."""
        from zoo.orca.feed.shards import lay

        partitions = itertools.groupby(worker.shards, key=operator.itemgetter(0))
        return {
            number: lay(folder, number, (shard for _, shard in pairs), self._reader) for number, pairs in partitions
        }


class RowsSource(Source):
    """This rank's part of every global batch of a plan."""

    def __init__(self, plan: Plan, rows: Rows, rank: int, world_size: int, owned: bool = False):
        self.plan = plan
        self.steps = plan.steps
        self.rows = plan.total
        self._rows = rows
        self._rank = rank
        self._world_size = world_size
        self._held: np.ndarray | None = None
        if owned:
            self._held = np.zeros(len(plan.rows), dtype=bool)
            self._held[list(rows.tables)] = True

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Share]:
        orders: dict[int, Shuffled | None] = {}
        for whole in self.plan.batches(epoch, start):
            mine = self._mine(whole)
            count = sum(map(len, mine))
            leaves = (
                self._rows.gather([self._numbers(piece, epoch, orders) for piece in mine], count)
                if mine
                else self._ghost()
            )
            batch, weights = self._rows.layout.build(leaves)
            yield Share(batch, count, whole.rows, weights)

    def _mine(self, batch: Batch) -> list[Piece]:
        if self._held is not None:
            return batch.of(self._held)
        return batch.cut(split(batch.rows, self._world_size)[self._rank])

    def _numbers(self, piece: Piece, epoch: int, orders: dict[int, Shuffled | None]) -> tuple[int, np.ndarray | slice]:
        if piece.shard not in orders:
            orders[piece.shard] = self.plan.order(epoch, piece.shard)
        order = orders[piece.shard]
        if order is None:
            return piece.shard, slice(piece.start, piece.stop)
        # In the order in which they lie: a batch is a set, and neighbours may share a page.
        return piece.shard, np.sort(order[piece.start : piece.stop])

    def _ghost(self) -> list[np.ndarray]:
        """Rows for a rank that got none of a batch: its first row, or zeros if it has none at all."""
        for number in self._rows.tables:
            return self._rows.gather([(number, np.zeros(GHOST_ROWS, dtype=np.int64))], GHOST_ROWS)
        return self._rows.blank(GHOST_ROWS)


def _need_rows(layout: Layout | None, what: str) -> Layout:
    if layout is None:
        raise InvalidArgumentError(
            f"{what} has no rows. Expected at least one: look at the filter or the path it came from."
        )
    return layout
