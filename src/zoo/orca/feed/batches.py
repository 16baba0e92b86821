"""Batches that the driver has made, kept as they are: each rank reads every one of them, and takes its rows."""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.engine.maps import mapped
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.base import Feed, Share, Source
from zoo.orca.feed.elements import as_batch
from zoo.orca.feed.loader_cut import slice_of
from zoo.orca.feed.plan import GHOST_ROWS, split
from zoo.orca.feed.rows import Folder
from zoo.orca.feed.structure import flatten, unflatten

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.engine.worker import Worker


class BatchesFeed(Feed):
    """Global batches of elements, which may have other sizes and shapes from batch to batch.

    Attributes:
        batched: True.
        infinite: False; what was kept has an end.

    Args:
        batches: batches of arrays, each with the number of its rows.
        shuffles: whether epochs may have an order of their own.
    """

    batched = True
    infinite = False

    def __init__(
        self,
        batches: Iterable[tuple[int, Any]],
        engine: Engine,
        labelled: bool,
        shuffles: bool = True,
        what: str = "data",
    ):
        self.engine = engine
        self.labelled = labelled
        self._shuffles = shuffles
        self._folder: Folder | None = Folder()
        self._path = os.path.join(self._folder.path, "batches")
        self._body: bytes | None = None
        self._is_seen = engine.one_machine  # whether workers see the driver's files
        self._rows, self._ends = _write(self._path, batches)
        if not self._rows:
            raise InvalidArgumentError(
                f"{what} has no rows. Expected at least one: look at the filter or the path it came from."
            )

    def __getstate__(self) -> dict[str, Any]:
        body = None if self._is_seen else Path(self._path).read_bytes()
        return vars(self) | {"engine": None, "_folder": None, "_body": body}

    def sample(self) -> Any:
        return as_batch(_read(self._bytes(), 0, self._ends[0], slice(GHOST_ROWS)))[0]

    def open(self, worker: Worker, batch_size: int, seed: int, shuffle: bool = True, drop_last: bool = False) -> Source:
        """This rank's view. How large batches are, and which of them are left out, was decided when they were made."""
        return KeptSource(self._bytes(), self._rows, self._ends, worker, seed if shuffle and self._shuffles else None)

    def _bytes(self) -> Any:
        if self._body is not None:
            return memoryview(self._body)
        return mapped(self._path)


class KeptSource(Source):
    """This rank's rows of every batch.

    Args:
        seed: what the order of batches follows from, beside the epoch; None keeps it.
    """

    def __init__(self, kept: Any, rows: list[int], ends: list[int], worker: Worker, seed: int | None):
        self.steps = len(rows)
        self.rows = sum(rows)
        self._kept = kept
        self._sizes = rows
        self._ends = ends
        self._worker = worker
        self._seed = seed

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Share]:
        order = np.arange(len(self._sizes))
        if self._seed is not None:
            np.random.default_rng((self._seed, epoch)).shuffle(order)
        for number in order[start:]:
            total = self._sizes[number]
            part = split(total, self._worker.world_size)[self._worker.rank]
            first = self._ends[number - 1] if number else 0
            batch, weights = as_batch(_read(self._kept, first, self._ends[number], slice_of(part)))
            yield Share(batch, len(part), total, weights)


def _write(path: str, batches: Iterable[tuple[int, Any]]) -> tuple[list[int], list[int]]:
    """Write batches one after the other; the rows of each, and where it ends."""
    rows, lengths = [], []
    with open(path, "wb") as file:
        for count, batch in batches:
            if count:
                rows.append(count)
                lengths.append(file.write(pickle.dumps(flatten(batch), protocol=5)))
    return rows, list(itertools.accumulate(lengths))


def _read(kept: Any, first: int, end: int, rows: slice) -> Any:
    leaves, spec = pickle.loads(kept[first:end])
    return unflatten([leaf[rows] for leaf in leaves], spec)
