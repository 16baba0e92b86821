"""The sync contract: how the ranks of a gang combine flat buffers of numbers.

A `Sync` is a description, made on the driver and sent to the workers. There `join` gives a `Group`, on which all ranks
call the same things in the same order. A buffer is one-dimensional, contiguous, and lies in CPU memory: a numpy array
or a torch tensor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker


class Group(ABC):
    """The ranks that agree, as one of them sees it. Sums are over float32, float64 or int64, moves over any dtype."""

    #: Where buffers for this group lie: "cpu", or "cuda" for torch tensors on GPUs.
    device = "cpu"

    def __init__(self, rank: int, world_size: int):
        self.rank = rank
        self.world_size = world_size

    def slice(self, length: int, rank: int | None = None) -> slice:
        """The part of a buffer that belongs to a rank, this one by default; parts differ by one element at most."""
        rank = self.rank if rank is None else rank
        return slice(length * rank // self.world_size, length * (rank + 1) // self.world_size)

    def empty(self, length: int, dtype: Any) -> np.ndarray:
        """A zeroed buffer where this group likes it best, for as long as it is used. All ranks call it together."""
        return np.zeros(length, dtype)

    @abstractmethod
    def all_reduce(self, flat: Any) -> None:
        """Every rank's buffer becomes the sum over all ranks."""

    @abstractmethod
    def reduce_scatter(self, flat: Any, tail: int = 0) -> None:
        """This rank's slice of the buffer becomes the sum over all ranks; the other slices are undefined afterwards.

        The last `tail` elements belong to no slice: they become the sum on every rank."""

    @abstractmethod
    def all_gather(self, flat: Any) -> list[np.ndarray]:
        """Every rank's slice of the buffer, by rank, to be read before the next collective and not to be written.

        They may be views of the ranks' own buffers, so a rank leaves its slice as it is until the next collective."""

    @abstractmethod
    def broadcast(self, flat: Any) -> None:
        """Every rank's buffer becomes rank 0's."""


class Sync(ABC):
    """How a gang's ranks agree. It holds settings alone, so that it can be sent to the workers.

    Attributes:
        sharded: whether each rank updates its slice of the weights and hands it to the others.
    """

    sharded = False

    def check(self) -> None:  # noqa: B027 - most need nothing
        """On the driver: raise a `MissingPackageError` if a package is needed and not installed."""

    @abstractmethod
    def join(self, worker: Worker) -> AbstractContextManager[Group]:
        """On a worker: the group of all ranks, while the context lasts. It leaves nothing behind."""


def as_array(flat: Any) -> np.ndarray:
    """The buffer as a numpy array on the same memory."""
    return flat if isinstance(flat, np.ndarray) else flat.detach().numpy()
