"""A tf.data.Dataset as one rank reads it: some records, some rows of every batch, or what its own files hold."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.base import Share, Source
from zoo.orca.feed.elements import as_batch
from zoo.orca.feed.loader_cut import slice_of
from zoo.orca.feed.plan import GHOST_ROWS, split
from zoo.orca.feed.tf_graph import eagerly, tensorflow
from zoo.orca.feed.tf_pipeline import Pipeline

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker

INFINITE, UNKNOWN = -1, -2
#: Batches that are made ready while a step is taken.
AHEAD = 2
_UNLIKE = re.compile(r"batch tensors with different shapes.*shape (\[.*?\]).* had shape (\[.*?\])")


class DatasetSource(Source):
    """Read in the thread that trains, while TensorFlow's threads make the next batches ready.

    Attributes:
        agree: sums a whole number below 2**31 over all ranks, which call it together. Without one the driver is asked,
            which is slow.
        made_from: the dataset itself, if it was made in this process: Python functions live as long as it does.
        infinite: whether an epoch has no end.
    """

    agree: Callable[[int], int] | None = None
    made_from: Any = None
    infinite = False

    def __init__(self, pipeline: Pipeline, worker: Worker, what: str):
        self._pipeline = pipeline
        self._worker = worker
        self._what = what

    def _sum(self, value: int) -> int:
        if self._worker.world_size == 1:
            return value
        return sum(self._worker.all_gather(value)) if self.agree is None else self.agree(value)

    def _in_step(self, batches: Iterator[Any], start: int, least: int = 1) -> Iterator[Share]:
        """This rank's batches, and after its last one some that count for nothing until all ranks have ended.

        Args:
            least: the rows that a global batch must have to be one.
        """
        last: Any = None
        for step in itertools.count(start):
            batch = next(batches, None)
            rows = 0 if batch is None else rows_of(batch)
            total = self._sum(rows)
            if total < least:
                if step == 0 and total == 0:
                    raise self._no_rows()
                return
            last = self._ghost(last) if batch is None else batch
            yield _share(last, rows, total)

    def _ghost(self, last: Any) -> Any:
        """Rows for a rank that got none of a batch."""
        whole = self._first() if last is None else last
        return _cut(whole, slice(GHOST_ROWS))

    def _first(self) -> Any:
        """The first records of the whole dataset, as a batch; blank ones if it has none on this rank."""
        with eagerly():
            dataset = self._batch_of(self._pipeline.whole(0))
            found = next(iter(dataset), None)
        return _map(_blank, dataset.element_spec) if found is None else to_arrays(found)

    def _batch_of(self, dataset: Any) -> Any:
        """Some elements of a dataset as a batch."""
        return dataset.take(GHOST_ROWS).batch(GHOST_ROWS)

    def _no_rows(self) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"{self._what} has no rows: the tf.data.Dataset gives no element. Expected at least one: look at the "
            "filter or the files it came from."
        )

    def close(self) -> None:
        """Let go of what is cached."""
        self._pipeline.close()


class RecordsSource(DatasetSource):
    """Elements are records: a rank takes every n-th of them, so that each global batch is dealt evenly."""

    def __init__(self, pipeline: Pipeline, worker: Worker, batch_size: int, drop_last: bool, what: str):
        super().__init__(pipeline, worker, what)
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._ranks = sum(map(bool, split(batch_size, worker.world_size)))
        with eagerly():
            self._count = pipeline.cardinality
        if self._count == 0:
            raise self._no_rows()
        self.infinite = self._count == INFINITE
        self.rows = self.steps = None
        if self._count > 0:
            whole = self._count // batch_size
            self.steps = whole if drop_last else -(-self._count // batch_size)
            self.rows = whole * batch_size if drop_last else self._count

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Share]:
        batches = self._batches(epoch, start)
        if self._count == UNKNOWN:
            return self._in_step(batches, start, self._batch_size if self._drop_last else 1)
        return self._counted(batches, start)

    def _counted(self, batches: Iterator[Any], start: int) -> Iterator[Share]:
        """Where it is known how many records there are, everyone knows what the others have."""
        last: Any = None
        for step in itertools.count(start) if self.steps is None else range(start, self.steps):
            first = step * self._batch_size
            stop = first + self._batch_size if self.rows is None else min(first + self._batch_size, self.rows)
            rows = self._mine(first, stop)
            batch = next(batches, None) if rows else None
            if (0 if batch is None else rows_of(batch)) != rows:
                raise InvalidArgumentError(
                    f"{self._what} ended after fewer than the {self._count:,} elements that the tf.data.Dataset said "
                    "it has. Look at assert_cardinality and ignore_errors in it."
                )
            last = self._ghost(last) if batch is None else batch
            yield _share(last, rows, stop - first)
        if self.rows == self._count:
            next(batches, None)  # a cache() keeps what it was given only once its end was asked for

    def _mine(self, first: int, stop: int) -> int:
        """How many of the records from first to stop are this rank's."""
        rank = self._worker.rank
        return 0 if rank >= self._ranks else len(range(first + (rank - first) % self._ranks, stop, self._ranks))

    def _batches(self, epoch: int, start: int) -> Iterator[Any]:
        rank, size, ranks = self._worker.rank, self._batch_size, self._ranks
        if rank >= ranks:
            return iter(())
        # After so many steps the numbers of records that a rank has of them come again.
        period = ranks // math.gcd(size, ranks)
        sizes = [self._mine(step * size, (step + 1) * size) for step in range(start, start + period)]
        with eagerly():
            mine = self._pipeline.part(epoch, ranks, rank, skip=self._mine(0, start * size))
            mine = mine.batch(max(sizes))
            if len(set(sizes)) > 1:
                mine = mine.rebatch(tensorflow().constant(sizes, "int64"))
            return read(mine)


class BatchesSource(DatasetSource):
    """Elements are batches, the global ones: every rank makes them all, and keeps its rows."""

    def __init__(self, pipeline: Pipeline, worker: Worker, what: str):
        super().__init__(pipeline, worker, what)
        with eagerly():
            count = pipeline.cardinality
        if count == 0:
            raise self._no_rows()
        self.infinite = count == INFINITE
        self.steps = count if count > 0 else None
        self.rows = None

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Share]:
        with eagerly():
            batches = read(self._pipeline.whole(epoch).skip(start))
        step = start
        for batch in batches:
            total = rows_of(batch)
            part = split(total, self._worker.world_size)[self._worker.rank]
            yield _share(_cut(batch, slice_of(part)), len(part), total)
            step += 1
        if step == 0:
            raise self._no_rows()


class OwnSource(DatasetSource):
    """A dataset that is this rank's alone: ranks agree at every step on the rows that they have together.

    Args:
        batched: whether its elements are batches of this rank's.
        whole: the dataset of all ranks, where there is one.
        size: the rows that this rank takes at a time at most; None takes batches as they are.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        worker: Worker,
        what: str,
        size: int | None,
        batched: bool,
        whole: Pipeline | None = None,
    ):
        super().__init__(whole or pipeline, worker, what)
        with eagerly():
            self.infinite = pipeline.cardinality == INFINITE
        self._mine = pipeline
        self._size = size
        self._batched = batched
        self.steps = self.rows = None

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Share]:
        return self._in_step(itertools.islice(self._batches(epoch), start, None), start)

    def _batches(self, epoch: int) -> Iterator[Any]:
        with eagerly():
            mine = self._mine.whole(epoch)
            batches = read(mine if self._batched else mine.batch(self._size or 1))
        for batch in batches:
            rows = rows_of(batch)
            size = self._size or rows
            for first in range(0, rows, size):
                yield _cut(batch, slice(first, first + size))

    def _batch_of(self, dataset: Any) -> Any:
        return dataset.take(1) if self._batched else super()._batch_of(dataset)

    def close(self) -> None:
        super().close()
        self._mine.close()


def read(dataset: Any) -> Iterator[Any]:
    """The elements of a dataset as arrays; what TensorFlow says about rows that do not fit together is explained."""
    tf = tensorflow()
    with eagerly():
        iterator = iter(dataset.prefetch(AHEAD))
    return _arrays(tf, iterator)


def _arrays(tf: Any, iterator: Any) -> Iterator[Any]:
    while True:
        try:
            with eagerly():
                element = next(iterator, None)
        except tf.errors.InvalidArgumentError as error:
            shapes = _UNLIKE.search(str(error))
            if shapes is None:
                raise
            raise InvalidArgumentError(
                "the elements of the tf.data.Dataset must have one shape to be put into a batch, but there are the "
                f"shapes {shapes[1]} and {shapes[2]}. Pad or cut them to one shape in a map first."
            ) from error
        if element is None:
            return
        yield to_arrays(element)


def to_arrays(element: Any) -> Any:
    """Tensors as arrays, which share their memory; texts are arrays of bytes."""
    return _map(np.asarray, element)


def _blank(spec: Any) -> np.ndarray:
    """Rows of zeros or empty texts, where a batch is described; sizes that are not known are 1."""
    shape = [size or 1 for size in spec.shape[1:]] if spec.shape.rank else []
    is_text = spec.dtype == tensorflow().string
    return np.full((GHOST_ROWS, *shape), b"" if is_text else 0, object if is_text else spec.dtype.as_numpy_dtype)


def rows_of(batch: Any) -> int:
    """The rows of a batch of arrays, which all have as many."""
    leaves = tensorflow().nest.flatten(batch)
    counts = {len(leaf) if leaf.ndim else None for leaf in leaves}
    if len(counts) != 1 or None in counts:
        raise InvalidArgumentError(
            "the arrays in a batch of the tf.data.Dataset must have as many rows each, but their shapes are "
            f"{', '.join(str(leaf.shape) for leaf in leaves)}."
        )
    return counts.pop()  # type: ignore[return-value]


def _share(batch: Any, rows: int, total: int) -> Share:
    arrays, weights = as_batch(batch)
    return Share(arrays, rows, total, weights)


def _cut(batch: Any, rows: slice) -> Any:
    return _map(lambda array: array[rows], batch)


def _map(function: Callable[[Any], Any], structure: Any) -> Any:
    return tensorflow().nest.map_structure(function, structure)
