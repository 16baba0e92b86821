"""A few rows of any data as a feed, without going through all of it: what a check before a fit looks at.

The first rows are taken, and of data that lies in memory also those with the smallest and the largest label, for a
label out of range may lie anywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed import arrays_as_shard, kind_of, need_columns
from zoo.orca.feed.base import Feed, Share
from zoo.orca.feed.columns import column_to_numpy, select_for_arrow
from zoo.orca.feed.creator import CreatorFeed
from zoo.orca.feed.laid import layout_of
from zoo.orca.feed.loader import LoaderFeed
from zoo.orca.feed.loader_cut import count_rows
from zoo.orca.feed.rows import Folder, RowsFeed
from zoo.orca.feed.shards import Columns, lay, one_or_all
from zoo.orca.feed.structure import flatten, unflatten
from zoo.orca.feed.tf_data import feed_of_dataset
from zoo.orca.feed.tf_shards import SliceReader, feed_of_rows
from zoo.orca.optional import require

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.engine.worker import Worker

#: Features, labels and weights of some rows, as `Columns` reads them off a shard.
Triple = tuple[Any, Any, "np.ndarray | None"]


class Alone:
    """A worker that is a gang of its own, in this process: what is opened or built for it sees one rank."""

    rank = local_rank = attempt = 0
    world_size = local_size = 1
    peers = ("127.0.0.1",)
    shards: tuple[Any, ...] = ()

    def all_gather(self, value: Any) -> list[Any]:
        return [value]

    def barrier(self) -> None:
        """All of one are here."""

    def report(self, step: int | None = None, total: int | None = None, **metrics: Any) -> None:
        """There is nobody to tell."""


@dataclass(frozen=True)
class Taste:
    """A few rows of some data.

    Attributes:
        feed: of those rows alone; a loader's is of all its rows.
        rows: how many there are in all, where that is known without reading them.
    """

    feed: Feed
    rows: int | None = None

    @property
    def is_labelled(self) -> bool:
        """Whether there are labels; loaders and creators know best."""
        return self.feed.labelled

    def share(self, batch_size: int, seed: int) -> Share:
        """A batch: all rows that were tasted, or the first batch of a loader."""
        if isinstance(self.feed, RowsFeed):
            batch_size = self.feed.rows
        else:
            batch = self.feed.sample()
            if batch is not None:
                rows = _rows_of(batch)
                return Share(batch, rows, rows)
        with closing(self.feed.open(cast("Worker", Alone()), batch_size, seed, shuffle=False)) as source:
            with closing(cast(Any, source.epoch(0))) as shares:
                first = next(shares, None)
        if first is None:
            raise InvalidArgumentError("the data gives no batches. Expected at least one: look at its sampler.")
        return first

    def describe(self, share: Share) -> str:
        """What a row is, in words."""
        if isinstance(self.feed, RowsFeed):
            return f"{'' if self.rows is None else f'{self.rows:,} rows: '}{self.feed.layout}"
        return f"batches of {share.total} rows: {', '.join(_shapes(share.batch))}"


def taste(
    data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str = "data", count: int = 32
) -> Taste:
    """About `count` rows of any data that estimators take; errors are those of `as_feed`.

    Of a Spark DataFrame or a Ray Dataset only so much is read as it takes to find the first rows.
    """
    return _TASTERS[kind_of(data)](data, columns, config, engine, what, count)


def _of_shards(data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str, count: int) -> Taste:
    is_there = data.is_cached()  # else the first shard of each partition has to do, for it is computed for this
    each = -(-count // max(1, data.num_partitions()))

    def pick_all(index: int, shards: Iterator[Any]) -> list[Any]:
        return [[pick(shard, columns, each) for shard in itertools.islice(shards, None if is_there else 1)]]

    found = [part for (part,) in data.placement.map(pick_all, changes=False).fetch()]
    rows = sum(rows for part in found for rows, _ in part) if is_there else None
    return Taste(_feed([[triple for _, triple in part] for part in found], engine, what), rows)


def _of_spark_frame(
    data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str, count: int
) -> Taste:
    chosen = select_for_arrow(data, need_columns(columns, data.columns, what).names, columns.text)
    types = require("pyspark.sql.pandas.types", "A Spark DataFrame")
    # `take` reads one partition, and more only while rows are missing.
    rows = [row.asDict() for row in chosen.take(count)]
    table = pa.Table.from_pylist(rows, schema=types.to_arrow_schema(chosen.schema))
    arrays = {name: column_to_numpy(table.column(name), name, accept_text=columns.text) for name in table.column_names}
    labels = [arrays[name] for name in columns.labels]
    triple = (
        [arrays[name] for name in columns.features],
        one_or_all(labels) if labels else None,
        arrays[columns.weight] if columns.weight else None,
    )
    return Taste(_feed([[triple]], engine, what))


def _of_ray_dataset(
    data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str, count: int
) -> Taste:
    chosen = need_columns(columns, data.columns() or [], what)
    tables = require("ray", "A Ray Dataset").get(data.select_columns(chosen.names).limit(count).to_arrow_refs())
    return Taste(_feed([[pick(table.to_pandas(), chosen, count)[1]] for table in tables], engine, what))


def _of_loader(data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str, count: int) -> Taste:
    return Taste(LoaderFeed(data, engine))


def _of_creator(data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str, count: int) -> Taste:
    return Taste(CreatorFeed(data, engine, config, what))


def _of_tf_dataset(data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str, count: int) -> Taste:
    first = feed_of_dataset(data.take(1), engine, what)
    batched = getattr(first, "batched", False)
    return Taste(first if batched else feed_of_dataset(data.take(count), engine, what))


def _of_orca_dataset(
    data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str, count: int
) -> Taste:
    reader = SliceReader(data.slices)

    def first_shard(index: int, shards: Iterator[Any]) -> list[Any]:
        return [[_first_rows(reader(shard)[0], count) for shard in itertools.islice(shards, 1)]]

    found = [part for (part,) in data.xshards.placement.map(first_shard, changes=False).fetch()]
    rows = _feed([[(records, None, None) for records in part] for part in found], engine, what)
    return Taste(feed_of_rows(rows))


def _first_rows(records: Any, count: int) -> Any:
    leaves, spec = flatten(records)
    return unflatten([leaf[:count] for leaf in leaves], spec)


def _of_frame(
    data: pd.DataFrame, columns: Columns, config: dict[str, Any], engine: Engine, what: str, count: int
) -> Taste:
    chosen = need_columns(columns, list(data.columns), what)
    rows, triple = pick(data, chosen, count)
    return Taste(_feed([[triple]], engine, what), rows)


def _of_arrays(data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str, count: int) -> Taste:
    rows, triple = pick(arrays_as_shard(data), columns, count)
    return Taste(_feed([[triple]], engine, what), rows)


_TASTERS: dict[str, Callable[..., Taste]] = {
    "XShards": _of_shards,
    "Spark DataFrame": _of_spark_frame,
    "Ray Dataset": _of_ray_dataset,
    "DataLoader": _of_loader,
    "tf.data.Dataset": _of_tf_dataset,
    "orca.data.tf.Dataset": _of_orca_dataset,
    "creator": _of_creator,
    "pandas DataFrame": _of_frame,
    "arrays": _of_arrays,
}


def pick(shard: Any, columns: Columns, count: int) -> tuple[int, Triple]:
    """The rows of a shard, and a few of them: the first, and those with the smallest and the largest label."""
    if isinstance(shard, pd.DataFrame):
        known = [shard[name] for name in columns.labels if name in shard.columns]
        labels = [each.to_numpy() for each in known if isinstance(each, pd.Series)]
        return len(shard), columns(shard.iloc[_numbers(len(shard), labels, count)])
    leaves, layout = layout_of(*columns(shard), columns.text)
    of_features, of_weights = layout.features.leaves, len(leaves) - layout.weighted
    numbers = _numbers(len(leaves[0]), leaves[of_features:of_weights], count)
    few = [leaf[numbers] for leaf in leaves]
    return len(leaves[0]), (
        unflatten(few[:of_features], layout.features),
        unflatten(few[of_features:of_weights], layout.labels) if layout.labels else None,
        few[-1] if layout.weighted else None,
    )


def _numbers(rows: int, labels: list[np.ndarray], count: int) -> np.ndarray:
    picked = set(range(min(count, rows)))
    for label in labels:
        if label.dtype.kind in "iu" and label.size:
            width = label.size // rows
            picked |= {int(label.argmin()) // width, int(label.argmax()) // width}
    return np.array(sorted(picked), dtype=np.int64)


def _feed(partitions: list[list[Triple]], engine: Engine, what: str) -> RowsFeed:
    """A feed of rows that lie here, wherever the engine's machines are."""
    folder = Folder()
    parts = [lay(folder.path, number, iter(each), _AsItIs()) for number, each in enumerate(partitions)]
    return RowsFeed(engine, parts, folder, what)


class _AsItIs:
    """Reads what was read already; whether text is let in was asked then."""

    text = True

    def __call__(self, triple: Any) -> Any:
        return triple


def _rows_of(batch: Any) -> int:
    """The rows of what a user's loader yields; 1 where that cannot be told."""
    try:
        return count_rows(batch)
    except InvalidArgumentError:
        return 1


def _shapes(batch: Any) -> Iterator[str]:
    """The types and shapes of rows, however the arrays in a batch are nested."""
    if isinstance(batch, list | tuple | dict):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from _shapes(part)
    elif hasattr(batch, "shape") and hasattr(batch, "dtype"):
        yield f"{str(batch.dtype).removeprefix('torch.')}{list(batch.shape[1:]) or ''}"
    else:
        yield type(batch).__name__
