"""Epochs of so many steps, whatever the data's size: it is gone through again and again, or in part."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from zoo.orca.feed.base import Feed, Share, Source

if TYPE_CHECKING:
    from zoo.orca.engine.base import Placement
    from zoo.orca.engine.worker import Worker


class StepsFeed(Feed):
    """A feed whose epochs have a given number of steps.

    An epoch begins where the one before it ended, so that every row has its turn.

    Args:
        first_epoch: the epoch with which data of unknown length begins.
        goes_on: False lets every epoch take the first steps of the data instead.
    """

    def __init__(self, feed: Feed, steps: int, first_epoch: int = 0, goes_on: bool = True):
        self.engine = feed.engine
        self.data: Placement | None = feed.data
        self.labelled = feed.labelled
        self._feed = feed
        self._steps = steps
        self._first_epoch = first_epoch
        self._goes_on = goes_on

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"engine": None, "data": None}

    def sample(self) -> Any | None:
        return self._feed.sample()

    def gathered(self) -> Feed:
        return StepsFeed(self._feed.gathered(), self._steps, self._first_epoch, self._goes_on)

    def open(self, worker: Worker, batch_size: int, seed: int, shuffle: bool = True, drop_last: bool = False) -> Source:
        source = self._feed.open(worker, batch_size, seed, shuffle, drop_last)
        return StepsSource(source, self._steps, self._first_epoch, self._goes_on)


class StepsSource(Source):
    """Passes over a source, cut into epochs of so many steps."""

    def __init__(self, source: Source, steps: int, first_epoch: int, goes_on: bool):
        self.steps: int | None = steps
        self._steps = steps
        self.rows: int | None = None
        self._source = source
        self._first_epoch = first_epoch
        self._goes_on = goes_on
        self._stream: Iterator[Share] | None = None
        self._place = 0

    @property
    def agree(self) -> Callable[[int], int] | None:
        """How ranks agree on the rows of a step, where the source needs it."""
        return getattr(self._source, "agree", None)

    @agree.setter
    def agree(self, agree: Callable[[int], int]) -> None:
        if hasattr(self._source, "agree"):
            self._source.agree = agree

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Share]:
        if not self._goes_on:
            return itertools.islice(self._source.epoch(0, start), self._steps - start)
        if self._source.steps:
            return itertools.islice(self._passes(epoch * self._steps + start), self._steps - start)
        return self._of_stream((epoch - self._first_epoch) * self._steps + start, self._steps - start)

    def close(self) -> None:
        self._stream = None
        self._source.close()

    def _passes(self, place: int) -> Iterator[Share]:
        """Pass after pass over the data, from a step on, without an end."""
        number, skip = divmod(place, self._source.steps or 1)
        while True:
            yield from self._source.epoch(number, skip)
            number, skip = number + 1, 0

    def _of_stream(self, place: int, count: int) -> Iterator[Share]:
        """Some steps of data of unknown length, which is read on from where it stands, if that is the place."""
        if self._stream is None or self._place != place:
            self._stream, self._place = itertools.islice(self._endless(), place, None), place
        for share in itertools.islice(self._stream, count):
            self._place += 1
            yield share

    def _endless(self) -> Iterator[Share]:
        for number in itertools.count(self._first_epoch):
            share = None
            for share in self._source.epoch(number):
                yield share
            if share is None:
                return
