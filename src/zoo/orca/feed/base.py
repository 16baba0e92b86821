"""The feed contract: how any input becomes this rank's part of every global batch.

A `Feed` is made on the driver and travels to the workers, where `open` turns it into a `Source`. What a batch holds is
numpy arrays (or whatever a user's own loader yields): turning them into tensors is the learner's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine, Placement
    from zoo.orca.engine.worker import Worker


@dataclass(frozen=True)
class Share:
    """One rank's part of one global batch.

    Attributes:
        batch: `(*features, target)` of ndarrays (nested in lists or dicts as the user's shards are), or what the
            user's loader yields. A rank that got no rows is handed some all the same, so that it can take part in
            the step; they count for nothing.
        rows: how many of the rows count: the rows of the batch, or 0.
        total: the rows of the whole global batch, over all ranks.
        weights: a weight for each row, when the user gave a weight column.
    """

    batch: Any
    rows: int
    total: int
    weights: np.ndarray | None = None


class Source(ABC):
    """A feed as one rank reads it."""

    #: Steps in an epoch, the same on every rank; None for streams, which agree step by step.
    steps: int | None
    #: Rows in an epoch over all ranks; None for streams.
    rows: int | None

    @abstractmethod
    def epoch(self, epoch: int, start: int = 0) -> Iterator[Share]:
        """This rank's shares of the epoch's global batches, from step `start` on."""

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Give back what `open` took (processes, maps)."""


class Feed(ABC):
    """Data as an estimator takes it: what it is was asked once, by `as_feed`.

    Attributes:
        engine: where it lies, and so where it is used.
        data: what a gang must be given for it; None when the feed itself carries all that a worker needs.
        labelled: whether batches carry a target of the user's.
    """

    engine: Engine
    data: Placement | None = None
    labelled: bool = True

    def sample(self) -> Any | None:
        """A few rows as a batch, on the driver; None where that would be a job of its own."""
        return None

    def gathered(self) -> Feed:
        """This feed as one that carries all that a worker needs."""
        return self

    @abstractmethod
    def open(self, worker: Worker, batch_size: int, seed: int, shuffle: bool = True, drop_last: bool = False) -> Source:
        """On a worker: this rank's view. All ranks call it together; it may talk to them through `worker`."""
