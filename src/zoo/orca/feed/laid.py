"""Columns laid down in files and mapped back: every epoch is views over a map, and memory is bounded by the batch.

A partition becomes one file a column, the bytes of its rows and nothing else, so that a row is found by arithmetic,
a partition can be larger than memory, and the ranks of a host share one copy. Scalar columns of one type lie side by
side in one file, so that a row of many columns is one place to look.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.structure import Spec, as_arguments, describe, flatten, unflatten


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
            f"{np.dtype(dtype)}{list(shape) if shape else ''}"
            for dtype, shape in zip(self.dtypes, self.shapes, strict=True)
        ]
        count = self.features.leaves
        labels = f", labels {describe(self.labels)} of {', '.join(arrays[count:])}" if self.labels else ""
        return f"features {describe(self.features)} of {', '.join(arrays[:count])}{labels}"

    @cached_property
    def groups(self) -> list[list[int]]:
        """The columns that share a file: scalars of one type together, others alone."""
        keys = [(dtype, None if shape == () else number) for number, (dtype, shape) in enumerate(self.columns)]
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
    """

    def __init__(self, folder: str, partition: int):
        self._path = str(Path(folder) / f"{partition}-{uuid.uuid4().hex}")
        self._partition = partition
        self._layout: Layout | None = None
        self._files: list[Any] = []
        self._rows = 0

    def append(self, features: Any, labels: Any = None, weights: np.ndarray | None = None) -> None:
        """Write rows: structures of arrays whose first dimension counts them."""
        leaves, layout = layout_of(features, labels, weights)
        if len(leaves[0]) == 0:
            return
        if self._layout is None:
            self._layout = layout
            self._files = [open(f"{self._path}.{number}", "wb") for number in range(len(layout.groups))]  # noqa: SIM115
        elif layout != self._layout:
            raise unlike(self._layout, layout, f"partition {self._partition}")
        for file, group in zip(self._files, layout.groups, strict=True):
            whole = leaves[group[0]] if len(group) == 1 else np.stack([leaves[number] for number in group], axis=1)
            file.write(np.ascontiguousarray(whole).data)
        self._rows += len(leaves[0])

    @property
    def laid(self) -> Laid:
        """What was written; whole once the writer is closed."""
        return Laid(self._path, self._rows, self._layout)

    def close(self) -> None:
        for file in self._files:
            file.close()


@contextlib.contextmanager
def writing(folder: str, partition: int) -> Iterator[Writer]:
    """A writer whose files are closed whatever happens."""
    writer = Writer(folder, partition)
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

    def _map(self, laid: Laid, number: int, group: list[int]) -> np.ndarray:
        dtype, shape = self._layout.columns[group[0]]
        shape = (len(group),) if len(group) > 1 else shape
        if 0 in shape:
            return np.empty((laid.rows, *shape), dtype)
        with open(f"{laid.path}.{number}", "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, dtype).reshape(laid.rows, *shape)

    @property
    def groups(self) -> list[np.ndarray]:
        return self._maps


class Rows:
    """Gathers rows of several tables into one array a column."""

    def __init__(self, layout: Layout, tables: dict[int, Table]):
        self.layout = layout
        self.tables = tables

    def blank(self, count: int) -> list[np.ndarray]:
        """Rows of zeros, for a rank that holds none."""
        return [np.zeros((count, *shape), dtype) for dtype, shape in self.layout.columns]

    def gather(self, picked: Sequence[tuple[int, np.ndarray | slice]], count: int) -> list[np.ndarray]:
        """`count` rows: for each (table, numbers) the rows with those numbers, in the order given."""
        leaves: list[Any] = [None] * len(self.layout.dtypes)
        for number, group in enumerate(self.layout.groups):
            whole = self._gather_group(number, picked, count)
            for place, column in enumerate(group):
                leaves[column] = whole[:, place] if len(group) > 1 else whole
        return leaves

    def _gather_group(self, number: int, picked: Sequence[tuple[int, Any]], count: int) -> np.ndarray:
        source = self.tables[picked[0][0]].groups[number]
        out = np.empty((count, *source.shape[1:]), source.dtype)
        offset = 0
        for table, numbers in picked:
            source = self.tables[table].groups[number]
            if isinstance(numbers, slice):
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
    for number in range(len(layout.groups)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}.{number}")


def layout_of(features: Any, labels: Any, weights: np.ndarray | None) -> tuple[list[np.ndarray], Layout]:
    leaves, feature_spec = flatten(features)
    label_leaves, label_spec = ([], None) if labels is None else flatten(labels)
    everything = [*leaves, *label_leaves, *([] if weights is None else [np.asarray(weights)])]
    _check_arrays(everything)
    # Files of other machines bring numbers in their byte order, which no framework takes.
    everything = [array.astype(array.dtype.newbyteorder("="), copy=False) for array in everything]
    dtypes = tuple(array.dtype.str for array in everything)
    shapes = tuple(array.shape[1:] for array in everything)
    return everything, Layout(feature_spec, label_spec, weights is not None, dtypes, shapes)


def _check_arrays(arrays: list[np.ndarray]) -> None:
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        raise InvalidArgumentError(
            f"features and labels of a shard must have the same number of records, but there are {sorted(lengths)}. "
            "The first dimension of every array counts the records."
        )
    for array in arrays:
        if array.dtype.hasobject or array.dtype.kind in "USmM":
            raise InvalidArgumentError(
                f"features and labels must be numbers, but there is an array of type {array.dtype}. "
                "Turn text and dates into numbers first (codes, one-hot, timestamps)."
            )
