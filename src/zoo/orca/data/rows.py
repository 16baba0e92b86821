"""What can be asked of one shard that has rows or items: cut it, join it, deal its rows by value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from zoo.orca.engine.base import deal
from zoo.orca.errors import InvalidArgumentError, InvalidKeyError, PreconditionError, ShardTypeError


def has_rows(shard: Any) -> bool:
    """Whether a shard can be cut by rows or items and joined again."""
    return isinstance(shard, pd.DataFrame | pd.Series | np.ndarray | list)


def length(shard: Any) -> int:
    """`len(shard)`, or 1 for what has no length."""
    return len(shard) if hasattr(shard, "__len__") else 1


def concat(shards: Sequence[Any]) -> Any:
    """Join shards of one kind, in order."""
    first = shards[0]
    if len(shards) == 1:
        return first
    if isinstance(first, pd.DataFrame | pd.Series):
        return concat_frames(shards)
    if isinstance(first, np.ndarray):
        return np.concatenate(shards)
    return [item for shard in shards for item in shard]


def join(target: int, pieces: Iterator[Any]) -> Iterator[Any]:
    """All pieces that an exchange brought to a target as one shard; none if there are none."""
    shards = list(pieces)
    if shards:
        yield concat(shards)


def concat_frames(frames: Sequence[Any]) -> Any:
    """Join pandas objects; numbered rows are numbered anew, other indices are kept."""
    numbered = all(isinstance(frame.index, pd.RangeIndex) for frame in frames)
    full = [frame for frame in frames if len(frame)] or frames[:1]  # empty ones would change dtypes
    return pd.concat(full, ignore_index=numbered)


def take(shard: Any, first: int, last: int) -> Any:
    """The rows or items from first up to last."""
    return shard.iloc[first:last] if isinstance(shard, pd.DataFrame | pd.Series) else shard[first:last]


def by_value(frame: pd.DataFrame, columns: list[Any], count: int) -> Iterator[tuple[int, pd.DataFrame]]:
    """Deal rows to count targets by the values of columns: equal values go to one target, in their order.

    Every target gets a piece, an empty one too, so that it knows the columns.
    """
    targets = _hash_rows(frame, columns) % np.uint64(count)
    order = np.argsort(targets, kind="stable")
    bounds = np.searchsorted(targets[order], np.arange(count + 1, dtype=np.uint64))
    dealt = reordered(frame, order)
    for target in range(count):
        yield target, dealt.iloc[bounds[target] : bounds[target + 1]]


def reordered(frame: pd.DataFrame, order: np.ndarray) -> pd.DataFrame:
    """Rows in another order, or a selection of them; numbered rows are numbered anew, other indices are kept."""
    picked = frame.iloc[order]
    return picked.reset_index(drop=True) if isinstance(frame.index, pd.RangeIndex) else picked


def _hash_rows(frame: pd.DataFrame, columns: list[Any]) -> np.ndarray:
    first, *others = (hash_values(frame[column]) for column in columns)
    for hashes in others:
        first = first * np.uint64(1099511628211) ^ hashes
    return first


def hash_values(values: pd.Series) -> np.ndarray:
    """A hash of each value that is the same in every process, and for 1, 1.0 and True, whatever the column's dtype."""
    values = values.astype(values.cat.categories.dtype) if isinstance(values.dtype, pd.CategoricalDtype) else values
    plain: np.ndarray
    if pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        plain = values.to_numpy(dtype=np.float64, na_value=np.nan) + 0.0  # -0.0 becomes 0.0
    elif pd.api.types.is_datetime64_any_dtype(values):
        plain = values.astype("datetime64[ns, UTC]" if values.dt.tz is not None else "datetime64[ns]").to_numpy()
    else:
        plain = values.astype(str).to_numpy(dtype=object)
    hashes = pd.util.hash_array(plain, categorize=True).copy()
    hashes[values.isna().to_numpy()] = 0
    return hashes


def select(shard: Any, key: Any) -> Any:
    """`shard[key]`, with errors that name what the shard has."""
    if not hasattr(shard, "__getitem__"):
        raise ShardTypeError(
            f"No selection operation available for this XShards: its shards are {type(shard).__name__}, "
            "and [] needs shards that have it (pandas, dict, list, ndarray)."
        )
    try:
        return shard[key]
    except (KeyError, IndexError, TypeError) as error:
        has = f" It has {list(shard)[:20]}." if isinstance(shard, pd.DataFrame | dict) else ""
        raise InvalidKeyError(
            f"Invalid key for this XShards: {key!r} is not in a {type(shard).__name__} shard.{has}"
        ) from error


def split_structure(data: Any, num_shards: int) -> list[Any]:
    """Cut every array of a nested list, tuple or dict into num_shards pieces and rebuild the structure in each."""
    sizes = {len(leaf) for leaf in _leaves(data)}
    if len(sizes) > 1:
        raise InvalidArgumentError(
            f"XShards.partition needs arrays of one length, but their first dimensions are {sorted(sizes)}. "
            "Give every array one row a record."
        )
    records = sizes.pop() if sizes else 0
    if num_shards < 1 or num_shards > records:
        raise InvalidArgumentError(
            f"The number of shards must be from 1 to the number of records, but {num_shards} shards were asked for "
            f"and there are {records} records. Pass num_shards={max(1, min(num_shards, records))} or less."
        )
    return [_rebuild(data, mine) for mine in deal(records, num_shards)]


def _leaves(data: Any) -> Iterator[Any]:
    if isinstance(data, np.ndarray | pd.DataFrame | pd.Series) and np.ndim(data) > 0:
        yield data
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _leaves(item)
    elif isinstance(data, dict):
        for item in data.values():
            yield from _leaves(item)
    else:
        raise PreconditionError(
            "XShards.partition takes an ndarray with at least one dimension, a pandas frame, or a list, tuple or dict "
            f"of them (nested as you like), but found a {type(data).__name__}. Turn it into an ndarray first."
        )


def _rebuild(data: Any, mine: range) -> Any:
    """The structure with these rows of every array."""
    if isinstance(data, dict):
        return {key: _rebuild(item, mine) for key, item in data.items()}
    if isinstance(data, list):
        return [_rebuild(item, mine) for item in data]
    if isinstance(data, tuple):
        parts = [_rebuild(item, mine) for item in data]
        return type(data)(*parts) if hasattr(data, "_fields") else tuple(parts)
    return take(data, mine.start, mine.stop)
