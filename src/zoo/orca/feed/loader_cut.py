"""Cutting what a loader loads to one rank's rows, in the loader's own worker processes."""

from __future__ import annotations

import copy
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

import numpy as np

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.loader_order import Rng
from zoo.orca.feed.plan import GHOST_ROWS, split


class Cut(NamedTuple):
    """One rank's part of a batch. The mark tells the whole batch apart from others; 0 after a process's first."""

    mark: int
    rows: int
    total: int
    batch: Any


class CutCollate(ABC):
    """A collate_fn that gives this rank's part of a batch; `collate` is the user's."""

    def __init__(self, collate: Callable[[Any], Any], rank: int, world_size: int):
        self._collate = collate
        self._rank = rank
        self._world_size = world_size
        self._is_first = True

    def __call__(self, data: Any) -> Cut:
        mark = mark_of(data) if self._is_first else 0
        self._is_first = False
        return self._cut(data, mark)

    @abstractmethod
    def _cut(self, data: Any, mark: int) -> Cut: ...

    def _part(self, rows: int) -> range:
        return split(rows, self._world_size)[self._rank]


class CutSamples(CutCollate):
    """For the samples of a batch, of which only this rank's are collated."""

    def _cut(self, data: Any, mark: int) -> Cut:
        part = self._part(len(data))
        with Rng().on():  # ranks collate different rows, but the stream behind them must go on alike
            batch = self._collate(data[slice_of(part)])
        return Cut(mark, len(part), len(data), batch)


class CutItem(CutCollate):
    """For an item that is a batch already."""

    def _cut(self, data: Any, mark: int) -> Cut:
        batch = self._collate(data)
        total = count_rows(batch)
        part = self._part(total)
        return Cut(mark, len(part), total, take(batch, slice_of(part), total))


def slice_of(part: range) -> slice:
    """Where a part lies in its batch; an empty one borrows rows, for its rank takes part in the step all the same."""
    return slice(part.start, part.stop) if part else slice(0, GHOST_ROWS)


def mark_of(value: Any) -> int:
    """A small number that tells values apart by the numbers and texts in them."""
    mark = 0
    for leaf in _leaves(value):
        if _is_array(leaf):
            mark = zlib.crc32(_numbers(leaf), mark)
        elif isinstance(leaf, bool | int | float | str | bytes):
            mark = zlib.crc32(repr(leaf).encode(), mark)
    return mark & 0xFFFFF


def _numbers(array: Any) -> bytes:
    """The numbers in an array as bytes; nothing where numpy cannot see them."""
    try:
        numbers = np.asarray(array)
    except (TypeError, RuntimeError, ValueError):
        return b""
    return numbers.tobytes() if numbers.dtype.kind in "biufc" else b""


def count_rows(batch: Any) -> int:
    """The rows of a batch made of arrays; InvalidArgumentError when they do not agree."""
    counts = {leaf.shape[0] for leaf in _leaves(batch) if _is_array(leaf) and len(leaf.shape)}
    if len(counts) != 1:
        found = f"arrays of {sorted(counts)} rows" if counts else f"a {type(batch).__qualname__} without arrays"
        raise InvalidArgumentError(
            "a DataLoader with batch_size=None must yield batches that can be cut: tensors or arrays, nested in "
            f"tuples, lists or dicts, whose first dimensions are the same, but it yields {found}. Give the loader a "
            "batch_size (and a collate_fn), and let the dataset return single rows."
        )
    return counts.pop()


def take(value: Any, part: slice, rows: int) -> Any:
    """The part of everything in value that has rows.

    >>> take({"x": np.arange(4), "names": list("abcd"), "scale": 0.5}, slice(1, 3), rows=4)
    {'x': array([1, 2]), 'names': ['b', 'c'], 'scale': 0.5}
    """
    if _is_array(value):
        return value[part] if len(value.shape) else value
    if isinstance(value, Mapping):
        taken = {key: take(each, part, rows) for key, each in value.items()}
        if type(value) is dict or not isinstance(value, MutableMapping):
            return taken
        same_kind = copy.copy(value)
        same_kind.update(taken)
        return same_kind
    if isinstance(value, list | tuple):
        if len(value) == rows and not any(map(_is_array, _leaves(value))):
            return value[part]  # a column of something else, texts for one
        parts = [take(each, part, rows) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "__getitem__")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value
