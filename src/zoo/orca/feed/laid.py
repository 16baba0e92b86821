"""Columns laid down in files and mapped back: every epoch is views over a map, and memory is bounded by the batch.

A partition becomes one file a column, the bytes of its rows and nothing else, so that a row is found by arithmetic,
a partition can be larger than memory, and the ranks of a host share one copy. Scalar columns of one type lie side by
side in one file, so that a row of many columns is one place to look. Texts have any length, so a column of them has a
second file that says where each one ends.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from zoo.orca.engine.maps import mapped
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.structure import Spec, as_arguments, describe, flatten, unflatten
from zoo.orca.feed.text import TEXT, Texts, check_texts, encode, is_text


@dataclass(frozen=True)
class Layout:
    """What a row is: how features and labels are nested, and the type and shape of each array in them."""

    features: Spec
    labels: Spec | None
    weighted: bool
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        arrays = [
            f"{'text' if dtype == TEXT else np.dtype(dtype)}{list(shape) if shape else ''}"
            for dtype, shape in zip(self.dtypes, self.shapes, strict=True)
        ]
        count = self.features.leaves
        labels = f", labels {describe(self.labels)} of {', '.join(arrays[count:])}" if self.labels else ""
        return f"features {describe(self.features)} of {', '.join(arrays[:count])}{labels}"

    @cached_property
    def groups(self) -> list[list[int]]:
        """The columns that share a file: numbers of one type together, others alone."""
        keys = [
            (dtype, None if shape == () and dtype != TEXT else number)
            for number, (dtype, shape) in enumerate(self.columns)
        ]
        order = sorted(range(len(keys)), key=lambda number: str(keys[number]))
        return [list(group) for _, group in itertools.groupby(order, key=lambda number: keys[number])]

    @property
    def columns(self) -> list[tuple[str, tuple[int, ...]]]:
        return list(zip(self.dtypes, self.shapes, strict=True))

    def build(self, leaves: Sequence[np.ndarray]) -> tuple[tuple[Any, ...], np.ndarray | None]:
        """`(*features, target)` and the rows' weights, from one array a column."""
        weights = leaves[-1] if self.weighted else None
        count = self.features.leaves
        labels = leaves[count : len(leaves) - self.weighted]
        rows = len(leaves[0])
        target = unflatten(labels, self.labels) if self.labels else np.full(rows, -1, dtype=np.int64)
        return (*self.arguments(leaves[:count]), target), weights

    def arguments(self, leaves: Sequence[np.ndarray]) -> tuple[Any, ...]:
        """The features as the arguments of a model: a list or tuple of arrays is several."""
        return as_arguments(unflatten(leaves, self.features))


@dataclass(frozen=True)
class Laid:
    """A partition in files: where, how many rows, and what a row is (None when there are none)."""

    path: str
    rows: int
    layout: Layout | None


class Writer:
    """Appends rows to the files of one partition.

    A retried task must not write into the files of its first attempt, so each writer has a name of its own.

    Args:
        text: whether arrays of texts are let in.
    """

    def __init__(self, folder: str, partition: int, text: bool = False):
        self._text = text
        self._path = str(Path(folder) / f"{partition}-{uuid.uuid4().hex}")
        self._partition = partition
        self._layout: Layout | None = None
        self._files: list[Any] = []
        self._ends: list[int] = []
        self._rows = 0

    def append(self, features: Any, labels: Any = None, weights: np.ndarray | None = None) -> None:
        """Write rows: structures of arrays whose first dimension counts them."""
        leaves, layout = layout_of(features, labels, weights, self._text)
        if len(leaves[0]) == 0:
            return
        if self._layout is None:
            self._layout = layout
            self._files = [open(path, "wb") for path in _paths(self._path, layout)]  # noqa: SIM115
            self._ends = [0] * len(layout.groups)
        elif layout != self._layout:
            raise unlike(self._layout, layout, f"partition {self._partition}")
        files = iter(self._files)
        for number, group in enumerate(layout.groups):
            whole = leaves[group[0]] if len(group) == 1 else np.stack([leaves[each] for each in group], axis=1)
            if is_text(whole):
                whole, ends = encode(whole)
                next(files).write((ends + self._ends[number]).data)
                self._ends[number] += len(whole)
            next(files).write(np.ascontiguousarray(whole).data)
        self._rows += len(leaves[0])

    @property
    def laid(self) -> Laid:
        """What was written; whole once the writer is closed."""
        return Laid(self._path, self._rows, self._layout)

    def close(self) -> None:
        for file in self._files:
            file.close()


@contextlib.contextmanager
def writing(folder: str, partition: int, text: bool = False) -> Iterator[Writer]:
    """A writer whose files are closed whatever happens."""
    writer = Writer(folder, partition, text)
    try:
        yield writer
    finally:
        writer.close()


class Table:
    """A partition that is mapped: rows by number, in whole columns."""

    def __init__(self, laid: Laid):
        if laid.layout is None:
            raise InvalidArgumentError("a partition without rows has nothing to map.")
        self.rows = laid.rows
        self._layout = laid.layout
        self._maps = [self._map(laid, number, group) for number, group in enumerate(laid.layout.groups)]

    def _map(self, laid: Laid, number: int, group: list[int]) -> np.ndarray | Texts:
        dtype, shape = self._layout.columns[group[0]]
        shape = (len(group),) if len(group) > 1 else shape
        if 0 in shape:
            return np.empty((laid.rows, *shape), dtype)
        if dtype == TEXT:
            ends = np.frombuffer(mapped(f"{laid.path}.{number}.ends"), np.int64)
            return Texts(mapped(f"{laid.path}.{number}"), ends, shape)
        return np.frombuffer(mapped(f"{laid.path}.{number}"), dtype).reshape(laid.rows, *shape)

    @property
    def groups(self) -> list[np.ndarray | Texts]:
        return self._maps


def _paths(path: str, layout: Layout) -> list[str]:
    """The files of a partition, those with the ends of texts before the texts themselves."""
    return [
        each
        for number, group in enumerate(layout.groups)
        for each in ([f"{path}.{number}.ends"] if layout.dtypes[group[0]] == TEXT else []) + [f"{path}.{number}"]
    ]


class Rows:
    """Gathers rows of several tables into one array a column."""

    def __init__(self, layout: Layout, tables: dict[int, Table]):
        self.layout = layout
        self.tables = tables

    def blank(self, count: int) -> list[np.ndarray]:
        """Rows of zeros and empty texts, for a rank that holds none."""
        return [np.full((count, *shape), b"" if dtype == TEXT else 0, dtype) for dtype, shape in self.layout.columns]

    def gather(self, picked: Sequence[tuple[int, np.ndarray | slice]], count: int) -> list[np.ndarray]:
        """`count` rows: for each (table, numbers) the rows with those numbers, in the order given."""
        leaves: list[Any] = [None] * len(self.layout.dtypes)
        for number, group in enumerate(self.layout.groups):
            whole = self._gather_group(number, picked, count)
            for place, column in enumerate(group):
                leaves[column] = whole[:, place] if len(group) > 1 else whole
        return leaves

    def _gather_group(self, number: int, picked: Sequence[tuple[int, Any]], count: int) -> np.ndarray:
        first = self.tables[picked[0][0]].groups[number]
        out = np.empty((count, *first.shape[1:]), first.dtype)
        offset = 0
        for table, numbers in picked:
            source = self.tables[table].groups[number]
            if isinstance(source, Texts):
                texts = source.take(numbers)
                size = len(texts)
                out[offset : offset + size] = texts
            elif isinstance(numbers, slice):
                size = numbers.stop - numbers.start
                out[offset : offset + size] = source[numbers]
            else:
                size = len(numbers)
                # Clipping changes nothing, since all numbers are rows; without it numpy gathers into a buffer first.
                np.take(source, numbers, axis=0, out=out[offset : offset + size], mode="clip")
            offset += size
        return out


def common_layout(parts: Sequence[Laid]) -> Layout | None:
    """The layout that all partitions with rows have; None when no partition has rows."""
    found: Layout | None = None
    for number, part in enumerate(parts):
        if part.layout is not None and part.layout != found:
            if found is not None:
                raise unlike(found, part.layout, f"partition {number}")
            found = part.layout
    return found


def unlike(expected: Layout, found: Layout, where: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"all rows must have the same arrays, but {where} has {found}, and rows before it have {expected}. "
        "Give every shard the same keys, types and shapes (transform_shard, or cast the columns)."
    )


def forget(path: str, layout: Layout) -> None:
    """Remove a partition's files; those that are mapped live on until they are unmapped."""
    for each in _paths(path, layout):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(each)


def layout_of(
    features: Any, labels: Any, weights: np.ndarray | None, text: bool = False
) -> tuple[list[np.ndarray], Layout]:
    """The arrays in rows, and what a row is.

    Args:
        text: whether arrays of texts are let in.
    """
    leaves, feature_spec = flatten(features)
    label_leaves, label_spec = ([], None) if labels is None else flatten(labels)
    everything = [*leaves, *label_leaves, *([] if weights is None else [np.asarray(weights)])]
    _check_arrays(everything, text)
    # Files of other machines bring numbers in their byte order, which no framework takes.
    everything = [
        array if is_text(array) else array.astype(array.dtype.newbyteorder("="), copy=False) for array in everything
    ]
    dtypes = tuple(TEXT if is_text(array) else array.dtype.str for array in everything)
    shapes = tuple(array.shape[1:] for array in everything)
    return everything, Layout(feature_spec, label_spec, weights is not None, dtypes, shapes)


def _check_arrays(arrays: list[np.ndarray], text: bool) -> None:
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        raise InvalidArgumentError(
            f"features and labels of a shard must have the same number of records, but there are {sorted(lengths)}. "
            "The first dimension of every array counts the records."
        )
    for array in arrays:
        if text and is_text(array):
            check_texts(array)
        elif array.dtype.hasobject or array.dtype.kind in "USmM":
            raise InvalidArgumentError(
                f"features and labels must be numbers, but there is an array of type {array.dtype}. "
                "Turn text and dates into numbers first (codes, one-hot, timestamps)."
            )
