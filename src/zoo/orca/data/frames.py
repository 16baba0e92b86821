"""Operations over the rows of all pandas shards: dealing by value, unique, describe, sort, merge, group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from zoo.orca.data import rows
from zoo.orca.engine.base import Placement
from zoo.orca.errors import InvalidArgumentError, InvalidKeyError, PreconditionError, ShardTypeError

EXACT_ROWS = 100_000
PERCENTILES = (0.25, 0.5, 0.75)
JOINS = ("inner", "left", "right", "outer")
# Aggregations that can be done shard by shard and then once more over the parts.
DECOMPOSED = {"sum": "sum", "min": "min", "max": "max", "count": "sum"}


def check_column(schema: pd.DataFrame | None, name: Any) -> Any:
    """The name, if the shards have such a column."""
    if isinstance(name, list | tuple | dict | set):
        raise InvalidArgumentError(f"expected the name of one column, but got {name!r}. Pass a name such as 'city'.")
    if schema is not None and name not in schema.columns:
        raise InvalidKeyError(f"there is no column {name!r}; the shards have {list(schema.columns)}.")
    return name


def by_value(placement: Placement, column: Any, count: int) -> Placement:
    """Rows with one value of the column (None: the first column) are brought into one partition."""

    def split(index: int, shards: Iterator[pd.DataFrame]) -> Iterator[tuple[int, pd.DataFrame]]:
        for shard in shards:
            pieces = rows.by_value(shard, [shard.columns[0] if column is None else column], count)
            yield from ((target, piece) for target, piece in pieces if len(piece))

    return placement.exchange(split, count, rows.join)


def unique(placement: Placement) -> np.ndarray:
    """Distinct values of Series shards, in order of first appearance."""

    def distinct(index: int, shards: Iterator[Any]) -> Iterator[pd.Series]:
        for shard in shards:
            if not isinstance(shard, pd.Series):
                raise ShardTypeError(
                    f"unique needs shards of pandas Series, but there is a {type(shard).__name__}. "
                    'Select a column first: shards["column"].unique().'
                )
            yield shard.drop_duplicates()

    found = [series for partition in placement.map(distinct, changes=False).fetch() for series in partition]
    return np.asarray(pd.concat(found).unique()) if found else np.array([])


def head(placement: Placement, count: int) -> pd.DataFrame:
    """The first rows over all shards."""

    def first_rows(index: int, shards: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        wanted = count
        for shard in shards:
            yield shard.head(wanted)
            wanted -= min(wanted, len(shard))
            if not wanted:
                return

    found = [frame for partition in placement.map(first_rows, changes=False).fetch() for frame in partition]
    return rows.concat_frames(found).head(count) if found else pd.DataFrame()


def describe(placement: Placement) -> pd.DataFrame:
    """Count, mean, standard deviation, least, quartiles and greatest of every numeric column, over all rows."""
    parts = [part for partition in placement.map(_summaries, changes=False).fetch() for part in partition]
    columns = list(dict.fromkeys(name for part in parts for name in part))
    return pd.DataFrame({name: _describe_column([part[name] for part in parts if name in part]) for name in columns})


def _summaries(index: int, shards: Iterator[pd.DataFrame]) -> Iterator[dict[Any, tuple[int, float, float, np.ndarray]]]:
    """For each numeric column of a shard: count, mean, sum of squared deviations, sorted values (thinned if many)."""
    for shard in shards:
        numeric = shard.select_dtypes("number")
        yield {name: _summary(numeric[name].dropna().to_numpy(dtype=np.float64)) for name in numeric.columns}


def _summary(values: np.ndarray) -> tuple[int, float, float, np.ndarray]:
    if not len(values):
        return 0, 0.0, 0.0, values
    mean = float(values.mean())
    ordered = np.sort(values)
    if len(ordered) > EXACT_ROWS:
        ordered = ordered[np.linspace(0, len(ordered) - 1, EXACT_ROWS).round().astype(int)]
    return len(values), mean, float(np.square(values - mean).sum()), ordered


def _describe_column(parts: list[tuple[int, float, float, np.ndarray]]) -> pd.Series:
    """Put the shards' summaries together by their state, never as a mean of means."""
    count, mean, squares = 0, 0.0, 0.0
    for more, its_mean, its_squares, _ in parts:
        if more:
            gap, total = its_mean - mean, count + more
            squares += its_squares + gap * gap * count * more / total
            mean += gap * more / total
            count = total
    std = np.sqrt(squares / (count - 1)) if count > 1 else np.nan
    quartiles = _quantiles([(more, ordered) for more, _, _, ordered in parts if more])
    least, *middle, greatest = quartiles if count else [np.nan] * (len(PERCENTILES) + 2)
    names = ["count", "mean", "std", "min", *(f"{share:.0%}" for share in PERCENTILES), "max"]
    return pd.Series([count, mean if count else np.nan, std, least, *middle, greatest], index=names, dtype=np.float64)


def _quantiles(parts: list[tuple[int, np.ndarray]]) -> list[float]:
    """Least, quartiles and greatest of sorted values, each standing for count / len(values) rows."""
    if not parts:
        return []
    values = np.concatenate([ordered for _, ordered in parts])
    weights = np.concatenate([np.full(len(ordered), count / len(ordered)) for count, ordered in parts])
    shares = [0.0, *PERCENTILES, 1.0]
    if (weights == 1).all():
        return np.quantile(values, shares).tolist()
    order = np.argsort(values)
    ranks = np.cumsum(weights[order]) - weights[order] / 2
    return np.interp(np.array(shares) * ranks[-1], ranks, values[order]).tolist()


def sort(placement: Placement, names: list[Any], ascending: bool) -> Placement:
    """Range-partition by the first column, then sort each partition."""
    count = placement.num_partitions
    bounds = _range_bounds(placement, names[0], count)

    def split(index: int, shards: Iterator[pd.DataFrame]) -> Iterator[tuple[int, pd.DataFrame]]:
        for shard in shards:
            keys = shard[names[0]]
            targets = np.full(len(shard), count - 1)
            known = keys.notna().to_numpy()
            ranges = np.searchsorted(bounds, keys[known].to_numpy(), side="right")
            targets[known] = ranges if ascending else len(bounds) - ranges
            for target in np.unique(targets).tolist():
                yield target, rows.reordered(shard, np.flatnonzero(targets == target))

    def combine(target: int, pieces: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for joined in rows.join(target, pieces):
            numbered = isinstance(joined.index, pd.RangeIndex)
            yield joined.sort_values(names, ascending=ascending, kind="stable", ignore_index=numbered)

    return placement.exchange(split, count, combine)


def _range_bounds(placement: Placement, name: Any, count: int, samples: int = 200) -> np.ndarray:
    """Values that cut the column into about even ranges, from an even sample of each shard's sorted values."""

    def sample(index: int, shards: Iterator[pd.DataFrame]) -> Iterator[np.ndarray]:
        for shard in shards:
            ordered = np.sort(shard[name].dropna().to_numpy())
            if len(ordered):
                yield ordered[np.linspace(0, len(ordered) - 1, min(samples, len(ordered))).astype(int)]

    parts = [part for partition in placement.map(sample, changes=False).fetch() for part in partition]
    if not parts or count == 1:
        return np.array([])
    ordered = np.sort(np.concatenate(parts))
    return np.unique(ordered[np.linspace(0, len(ordered) - 1, count + 1).astype(int)[1:-1]])


def merge(mine: Placement, theirs: Placement, names: list[Any], how: str) -> Placement:
    """Bring equal keys of both sides into one partition, and merge partition by partition."""
    if how not in JOINS:
        raise InvalidArgumentError(f"how must be one of {JOINS}, but is {how!r}.")
    if theirs.engine != mine.engine:
        raise PreconditionError(
            f"both XShards must be on one engine, but they are on {mine.engine.name} and {theirs.engine.name}. "
            "Convert one first (to_spark_df, to_ray_dataset, or collect and partition)."
        )
    count = max(mine.num_partitions, theirs.num_partitions)

    def split(index: int, shards: Iterator[pd.DataFrame]) -> Iterator[tuple[int, pd.DataFrame]]:
        for shard in shards:
            yield from rows.by_value(shard, names, count)

    def merge_partition(left: Iterator[pd.DataFrame], right: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        one, other = next(left, None), next(right, None)
        if one is not None and other is not None:
            yield one.merge(other, on=names, how=how)  # type: ignore[arg-type]

    dealt = mine.exchange(split, count, rows.join)
    return dealt.zip(theirs.exchange(split, count, rows.join), merge_partition)


class Grouped:
    """Rows of all shards grouped by columns, as `XShards.groupby` gives them."""

    def __init__(self, placement: Placement, names: list[Any], follow: Callable[[Placement], Any]):
        self._placement = placement
        self._names = names
        self._follow = follow

    def __repr__(self) -> str:
        return f"Grouped(by={self._names}, {self._placement.num_partitions} partitions)"

    def agg(self, spec: Any) -> Any:
        """pandas' `groupby(...).agg(spec)` over all shards, as XShards: each group is in exactly one shard.

        Args:
            spec: a dict of column to name ("sum", "mean", "median", ...) or function, or one for all columns.
        """
        names = self._names
        if not isinstance(spec, dict) or not all(map(self._is_decomposed, spec.keys(), spec.values())):
            return self._aggregate(self._placement, spec)
        parts = self._placement.map(
            lambda index, shards: (_aggregate(shard, names, spec).reset_index() for shard in shards)
        )
        return self._aggregate(parts, {column: DECOMPOSED[how] for column, how in spec.items()})

    def sum(self) -> Any:
        return self.agg("sum")

    def mean(self) -> Any:
        return self.agg("mean")

    def count(self) -> Any:
        return self.agg("count")

    def min(self) -> Any:
        return self.agg("min")

    def max(self) -> Any:
        return self.agg("max")

    def size(self) -> Any:
        """How many rows each group has, as shards of Series."""
        return self.agg("size")

    def _is_decomposed(self, column: Any, how: Any) -> bool:
        return isinstance(how, str) and how in DECOMPOSED and column not in self._names

    def _aggregate(self, placement: Placement, spec: Any) -> Any:
        """Bring each group into one partition and aggregate there."""
        names, count = self._names, placement.num_partitions

        def split(index: int, shards: Iterator[pd.DataFrame]) -> Iterator[tuple[int, pd.DataFrame]]:
            for shard in shards:
                yield from ((target, piece) for target, piece in rows.by_value(shard, names, count) if len(piece))

        def combine(target: int, pieces: Iterator[pd.DataFrame]) -> Iterator[Any]:
            frames = list(pieces)
            if frames:
                yield _aggregate(rows.concat_frames(frames), names, spec)

        return self._follow(placement.exchange(split, count, combine))


def _aggregate(frame: pd.DataFrame, names: list[Any], spec: Any) -> Any:
    grouped = frame.groupby(names if len(names) > 1 else names[0])
    return grouped.size() if spec == "size" else grouped.agg(spec)
