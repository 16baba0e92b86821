"""Arrays and frames of the driver as a feed: one shard that every rank can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo.orca.feed.base import Feed
from zoo.orca.feed.rows import Folder, RowsFeed
from zoo.orca.feed.shards import Columns, Reader, lay

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.engine.worker import Worker
    from zoo.orca.feed.rows import RowsSource


def feed_of_arrays(shard: Any, columns: Columns, engine: Engine, what: str) -> Feed:
    """A feed of one dict or pandas shard that lies with the driver."""
    if not engine.one_machine:
        return SharedFeed([[shard]], columns, engine, what)
    folder = Folder()
    return RowsFeed(engine, [lay(folder.path, 0, iter([shard]), columns)], folder, what)


class SharedFeed(Feed):
    """Partitions of the driver for workers on other machines: they travel whole, and are laid down there."""

    def __init__(self, partitions: list[list[Any]], reader: Reader, engine: Engine, what: str):
        self.engine = engine
        self._reader = reader
        self._what = what
        self._partitions = partitions

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"engine": None}

    def open(
        self, worker: Worker, batch_size: int, seed: int, shuffle: bool = True, drop_last: bool = False
    ) -> RowsSource:
        folder = Folder()
        parts = [lay(folder.path, number, iter(each), self._reader) for number, each in enumerate(self._partitions)]
        feed = RowsFeed(self.engine, parts, folder, self._what)
        return feed.open(worker, batch_size, seed, shuffle, drop_last)
