"""Elements of datasets as TensorFlow's users write them, (features, label) and the like, as batches of a feed.

Here are also the feeds of elements that were laid down as columns: those of datasets that call Python functions, which
only the driver can run, and those of an `orca.data.tf.Dataset`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zoo.orca.feed.base import Feed, Share, Source
from zoo.orca.feed.structure import as_arguments

if TYPE_CHECKING:
    from zoo.orca.engine.base import Placement
    from zoo.orca.engine.worker import Worker


def as_batch(element: Any) -> tuple[tuple[Any, ...], Any]:
    """An element, or a batch of elements, as `(*features, target)` and the rows' weights.

    (features, label) and (features, label, weights) are taken apart, other tuples are what they are, and anything else
    is features alone.

    >>> as_batch((("x1", "x2"), "y", "w"))
    (('x1', 'x2', 'y'), 'w')
    >>> as_batch({"x": 1})
    (({'x': 1},), None)
    """
    if not isinstance(element, tuple | list):
        return (element,), None
    if len(element) in (2, 3):
        return (*as_arguments(element[0]), element[1]), element[2] if len(element) == 3 else None
    return tuple(element), None


def is_labelled(element: Any) -> bool:
    """Whether an element has a target: it is a tuple of at least two."""
    return isinstance(element, tuple | list) and len(element) > 1


class ElementsFeed(Feed):
    """A feed of rows, each of them the whole of an element.

    Attributes:
        batched: whether the dataset had batches, which were taken apart.
        infinite: False; what was laid down has an end.

    Args:
        batch_size: the rows of a global batch, if the dataset itself says it.
        shuffles: whether epochs may have an order of their own.
        drops: whether the rows that are left at the end of an epoch, too few for a batch, are left out.
    """

    infinite = False

    def __init__(
        self,
        feed: Feed,
        labelled: bool,
        batched: bool = False,
        batch_size: int | None = None,
        shuffles: bool = True,
        drops: bool = False,
    ):
        self.engine = feed.engine
        self.data: Placement | None = feed.data
        self.labelled = labelled
        self.batched = batched
        self._feed = feed
        self._batch_size = batch_size
        self._shuffles = shuffles
        self._drops = drops

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"engine": None, "data": None}

    def sample(self) -> Any | None:
        batch = self._feed.sample()
        return None if batch is None else _reshaped(batch)[0]

    def gathered(self) -> Feed:
        feed = self._feed.gathered()
        return ElementsFeed(feed, self.labelled, self.batched, self._batch_size, self._shuffles, self._drops)

    def open(self, worker: Worker, batch_size: int, seed: int, shuffle: bool = True, drop_last: bool = False) -> Source:
        size = self._batch_size or batch_size
        source = self._feed.open(worker, size, seed, shuffle and self._shuffles, drop_last or self._drops)
        return ElementsSource(source)


class ElementsSource(Source):
    """Rows of a source as elements."""

    def __init__(self, source: Source):
        self.steps = source.steps
        self.rows = source.rows
        self._source = source

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Share]:
        for share in self._source.epoch(epoch, start):
            batch, weights = _reshaped(share.batch)
            yield Share(batch, share.rows, share.total, weights)

    def close(self) -> None:
        self._source.close()


def _reshaped(batch: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
    """Rows are `(*parts of the element, -1)`, where one part is an element that is no tuple."""
    parts = batch[:-1]
    return as_batch(parts) if len(parts) > 1 else ((parts[0],), None)


class _ReadElement:
    """Reads a batch of elements as rows: a reader of `feed.shards.lay`, which lets text in."""

    text = True

    def __call__(self, element: Any) -> tuple[Any, Any, Any]:
        return element, None, None


read_element = _ReadElement()
