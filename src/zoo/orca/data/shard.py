"""XShards: a Python object in pieces, placed by an engine; every operation is written once, for all engines."""

from __future__ import annotations

import html
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from zoo.orca.context import OrcaContext, current_engine
from zoo.orca.data import frames, pickles, rows
from zoo.orca.data.repartition import fetch_facts, repartition
from zoo.orca.engine.bar import job
from zoo.orca.engine.base import Placement
from zoo.orca.errors import InvalidArgumentError, PreconditionError, ShardTypeError


class XShards:
    """Shards (numpy arrays, pandas frames, dicts, any objects) in partitions on the local, Spark or Ray engine.

    Example:
        >>> import numpy as np
        >>> shards = XShards.partition({"x": np.arange(6), "y": np.zeros(6)}, num_shards=2)
        >>> shards.transform_shard(lambda shard, n: shard["x"] * n, 10).collect()
        [array([ 0, 10, 20]), array([30, 40, 50])]
    """

    def __init__(self, placement: Placement, transient: bool = False):
        self.placement = placement
        self.user_cached = False
        self.eager = OrcaContext._eager_mode
        self.type: dict[str, str] = {}
        if not transient:
            self.placement.persist()
            if self.eager:
                self.compute()

    @staticmethod
    def from_placement(placement: Placement, transient: bool = False) -> XShards:
        """XShards over what an engine has placed: a SparkXShards on Spark."""
        if placement.engine.name == "spark":
            return SparkXShards(placement.rdd, transient)  # type: ignore[attr-defined]
        return XShards(placement, transient)

    @staticmethod
    def partition(data: Any, num_shards: int | None = None) -> XShards:
        """Cut an ndarray, a pandas frame, or a nested list, tuple or dict of them along the first dimension.

        Args:
            data: arrays of one length; the structure is rebuilt in each shard.
            num_shards: the engine's total cores by default.
        """
        engine = current_engine()
        pieces = rows.split_structure(data, engine.cores if num_shards is None else num_shards)
        return XShards.from_placement(engine.place([[piece] for piece in pieces]))

    @classmethod
    @job("load_pickle")
    def load_pickle(cls, path: str, minPartitions: int | None = None) -> XShards:
        """Read what `save_pickle` wrote. Pickles run code when they are loaded: read only files you trust."""
        return cls.from_placement(pickles.load(current_engine(), path, minPartitions))

    @staticmethod
    def from_spark_df(df: Any) -> XShards:
        """Pandas shards of a Spark DataFrame, one a partition, carried as Arrow."""
        from zoo.orca.data.convert import spark_frame_to_placement

        return XShards.from_placement(spark_frame_to_placement(df))

    @staticmethod
    def from_ray_dataset(dataset: Any) -> XShards:
        """Pandas shards of a Ray Dataset, one a block, carried as Arrow."""
        from zoo.orca.data.convert import ray_dataset_to_placement

        return XShards.from_placement(ray_dataset_to_placement(dataset))

    @job("transform_shard")
    def transform_shard(self, func: Callable[..., Any], *args: Any) -> XShards:
        """New shards `func(shard, *args)`, computed where the shards lie.

        A SharedValue among args is sent to each worker once and read there through `.value`.
        """
        # A generator would hold each shard until the next one is asked for, and whoever keeps it would have to copy it.
        return self._follow(self.placement.map(lambda index, shards: map(func, shards, *map(itertools.repeat, args))))

    @job("collect")
    def collect(self) -> list[Any]:
        """All shards, in order, on the driver."""
        return [shard for partition in self.placement.fetch() for shard in partition]

    def num_partitions(self) -> int:
        return self.placement.num_partitions

    def cache(self) -> XShards:
        """Keep the shards once computed, also when other XShards are made from them."""
        self.user_cached = True
        self.placement.persist()
        return self

    def uncache(self) -> XShards:
        """Give up the kept shards; they are computed again when needed."""
        self.user_cached = False
        self.placement.unpersist()
        return self

    def is_cached(self) -> bool:
        return self.placement.is_persisted

    @job("compute")
    def compute(self) -> XShards:
        """Compute all shards now."""
        self.placement.compute()
        return self

    @job("repartition")
    def repartition(self, num_partitions: int) -> XShards:
        """The same data in num_partitions partitions.

        Shards with rows or items (pandas, ndarray, list) become at most one shard a partition: shrinking joins
        neighbours in order, growing cuts ndarrays and lists in order and deals pandas rows by the value of the first
        column. Other shards are moved whole, in order.
        """
        _check_count(num_partitions)
        return self._follow(repartition(self.placement, num_partitions))

    @job("partition_by")
    def partition_by(self, cols: Any, num_partitions: int | None = None) -> XShards:
        """Deal the rows of pandas shards so that rows with one value of the column `cols` are in one partition."""
        count = self.num_partitions() if num_partitions is None else num_partitions
        _check_count(count)
        column = frames.check_column(self._schema(), cols)
        return self._follow(frames.by_value(self.placement, column, count))

    @job("unique")
    def unique(self) -> np.ndarray:
        """The distinct values of Series shards, in order of first appearance: `shards["city"].unique()`."""
        return frames.unique(self.placement)

    @job("split")
    def split(self) -> list[XShards]:
        """Shards that are lists or tuples of k items become k XShards; others are given back as they are."""
        facts = set(self._fetch_facts(lambda shard: len(shard) if isinstance(shard, list | tuple) else None))
        if None in facts or not facts:
            return [self]
        if len(facts) > 1:
            raise InvalidArgumentError(
                f"split needs shards of one length, but their lengths are {sorted(facts)}. "
                "Make every shard a list or tuple of the same number of items first (transform_shard)."
            )
        parts = [XShards.from_placement(self[part].placement) for part in range(facts.pop())]
        self._uncache_unless_users()
        return parts

    @job("zip")
    def zip(self, other: XShards) -> XShards:
        """Pairs (my shard, the other's shard)."""
        if not isinstance(other, XShards):
            raise PreconditionError(
                f"other should be a SparkXShards (or an XShards of this engine), but is a {type(other).__name__}. "
                "Make one first: XShards.partition(data)."
            )
        if other.placement.engine != self.placement.engine:
            other = XShards.from_placement(self.placement.engine.place(other.placement.fetch()))
        if other.num_partitions() != self.num_partitions():
            raise PreconditionError(
                "The two SparkXShards should have the same number of partitions, but they have "
                f"{self.num_partitions()} and {other.num_partitions()}. Repartition one of them first."
            )
        zipped = self._follow(self.placement.zip(other.placement, _pairs))
        other._uncache_unless_users()
        return zipped

    @job("apply")
    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> XShards:
        """pandas' `apply` on each shard: by row for DataFrames (axis=1 unless given), by value for Series."""

        def apply_to(shard: Any) -> Any:
            if isinstance(shard, pd.DataFrame):
                return shard.apply(func, *args, **({"axis": 1} | kwargs))
            return _need_frame(shard, "apply", pd.Series).apply(func, *args, **kwargs)

        return self.transform_shard(apply_to)

    @job("head")
    def head(self, n: int = 5) -> pd.DataFrame:
        """The first n rows of pandas shards."""
        return frames.head(self.placement, n)

    @job("to_pandas")
    def to_pandas(self) -> Any:
        """All rows of pandas shards as one frame on the driver, in order."""
        shards = [_need_frame(shard, "to_pandas", pd.DataFrame | pd.Series) for shard in self.collect()]
        return rows.concat_frames(shards or [pd.DataFrame()])

    @job("describe")
    def describe(self) -> pd.DataFrame:
        """pandas' `describe` over all rows; quartiles are exact up to 100,000 rows a shard and close beyond."""
        return frames.describe(self.placement)

    def groupby(self, by: Any) -> frames.Grouped:
        """Group rows over all shards: `shards.groupby("city").agg({"price": "mean"})` gives new XShards."""
        names = [frames.check_column(self._schema(), name) for name in (by if isinstance(by, list) else [by])]
        return frames.Grouped(self.placement, names, self._follow)

    @job("sort_values")
    def sort_values(self, by: Any, ascending: bool = True) -> XShards:
        """Rows sorted over all shards by a column or a list of columns; stable, with missing values last."""
        names = [frames.check_column(self._schema(), name) for name in (by if isinstance(by, list) else [by])]
        return self._follow(frames.sort(self.placement, names, ascending))

    @job("merge")
    def merge(self, other: XShards, on: Any, how: str = "inner") -> XShards:
        """Join the rows of two XShards of pandas frames on equal values of a column or a list of columns."""
        names = on if isinstance(on, list) else [on]
        for name in names:
            frames.check_column(self._schema(), name)
            frames.check_column(other._schema(), name)
        return self._follow(frames.merge(self.placement, other.placement, names, how))

    @job("to_spark_df")
    def to_spark_df(self) -> Any:
        """A Spark DataFrame of the rows of pandas shards, carried as Arrow."""
        from zoo.orca.data.convert import placement_to_spark_frame

        return placement_to_spark_frame(self.placement)

    @job("to_ray_dataset")
    def to_ray_dataset(self) -> Any:
        """A Ray Dataset of the rows of pandas shards, carried as Arrow."""
        from zoo.orca.data.convert import placement_to_ray_dataset

        return placement_to_ray_dataset(self.placement)

    @job("save_pickle")
    def save_pickle(self, path: str, batchSize: int = 10) -> XShards:
        """Write the shards to a new folder (any fsspec URL), a file a partition; `load_pickle` reads it on any engine.

        Args:
            batchSize: accepted as published; shards are written one by one.
        """
        pickles.save(self.placement, path)
        return self

    def __len__(self) -> int:
        return sum(self._fetch_facts(rows.length))

    def __getitem__(self, key: Any) -> XShards:
        """`shard[key]` of every shard, computed when needed."""
        return XShards.from_placement(
            self.placement.map(lambda index, shards: (rows.select(shard, key) for shard in shards), changes=False),
            transient=True,
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self.collect())

    def __repr__(self) -> str:
        state = "cached" if self.is_cached() else "not cached"
        return f"{type(self).__name__}({self.num_partitions()} partitions on {self.placement.engine.name}, {state})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the facts, and a look at the first shard if it is at hand."""
        text = f"<p><code>{html.escape(repr(self))}</code></p>"
        if not self.is_cached():
            return text
        looks = self.placement.map(_first_look, changes=False).fetch()
        return text + next((look for partition in looks for look in partition), "")

    def _for_each(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What `func` returns for each shard, or the exception it raised: an RDD on Spark, else transient XShards."""

        def attempt(shard: Any) -> Any:
            try:
                return func(shard, *args, **kwargs)
            except Exception as error:
                return error

        placement = self.placement.map(lambda index, shards: map(attempt, shards))
        return getattr(placement, "rdd", None) or XShards.from_placement(placement, transient=True)

    def _get_class_name(self) -> str:
        """The class of the first shard as `module.Class`, without the module for builtins."""
        names = self._fetch_facts(lambda shard: (type(shard).__module__, type(shard).__qualname__))
        module, name = names[0] if names else ("builtins", "NoneType")
        return name if module == "builtins" else f"{module}.{name}"

    def _schema(self) -> pd.DataFrame | None:
        """An empty frame with the columns of the first pandas shard."""
        facts = self._fetch_facts(lambda shard: _need_frame(shard, "this").iloc[:0])
        return facts[0] if facts else None

    def _fetch_facts(self, fact: Callable[[Any], Any]) -> list[Any]:
        """A small fact about each shard, in order."""
        return [each for partition in fetch_facts(self.placement, fact) for each in partition]

    def _follow(self, placement: Placement) -> XShards:
        """New XShards made from these, which are uncached unless the user cached them."""
        if self.eager and not self.user_cached:
            self.placement.give_up()
        result = XShards.from_placement(placement)
        self._uncache_unless_users()
        return result

    def _uncache_unless_users(self) -> None:
        if not self.user_cached:
            self.placement.unpersist()


class SparkXShards(XShards):
    """XShards over a PySpark RDD of shards."""

    def __init__(self, rdd: Any, transient: bool = False):
        from zoo.orca.engine.spark import SparkPlacement

        super().__init__(SparkPlacement(rdd), transient)

    @property
    def rdd(self) -> Any:
        return self.placement.rdd  # type: ignore[attr-defined]


class SharedValue:
    """A value sent to every worker once, for use in `transform_shard(func, SharedValue(table))`."""

    def __init__(self, data: Any):
        engine = current_engine()
        self._shared = engine.share(data)
        self._words = f"{type(data).__name__} on {engine.name}"

    def __repr__(self) -> str:
        return f"SharedValue({self._words})"

    @property
    def value(self) -> Any:
        return self._shared.value

    def unpersist(self) -> None:
        """Free the workers' copies."""
        self._shared.unpersist()


def _check_count(num_partitions: Any) -> None:
    if not isinstance(num_partitions, int | np.integer) or num_partitions < 1:
        raise InvalidArgumentError(f"num_partitions must be a whole number of at least 1, but is {num_partitions!r}.")


def _need_frame(shard: Any, operation: str, kinds: Any = pd.DataFrame) -> Any:
    if not isinstance(shard, kinds):
        raise ShardTypeError(
            f"{operation} needs shards of pandas DataFrames, but there is a {type(shard).__name__}. "
            "Turn each shard into a DataFrame first (transform_shard)."
        )
    return shard


def _first_look(index: int, shards: Iterator[Any]) -> Iterator[str]:
    """HTML of the first shard: the first rows of a frame, or the kinds and shapes of what else there is."""
    shard = next(shards, None) if index == 0 else None
    if isinstance(shard, pd.DataFrame | pd.Series):
        yield pd.DataFrame(shard.head()).to_html()
    elif shard is not None:
        parts = shard if isinstance(shard, dict) else {type(shard).__name__: shard}
        words = [f"{name}: {_words(each)}" for name, each in parts.items()]
        yield f"<p>the first shard has {html.escape(', '.join(words))}</p>"


def _words(part: Any) -> str:
    return f"{part.dtype} {part.shape}" if isinstance(part, np.ndarray) else type(part).__name__


def _pairs(mine: Iterator[Any], theirs: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    missing = object()
    for pair in itertools.zip_longest(mine, theirs, fillvalue=missing):
        if pair[0] is missing or pair[1] is missing:
            raise InvalidArgumentError(
                "The two SparkXShards should have the same number of elements in each partition. "
                "Make both from one XShards, or bring both to one shard a partition: repartition(n)."
            )
        yield pair
