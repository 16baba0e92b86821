"""What the driver sends so that a worker can make its replica, and how workers of MXNet agree."""

from __future__ import annotations

import contextlib
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca import mxnet_library as library
from zoo.orca.learn.sync.base import Group, Sync, as_array
from zoo.orca.learn.sync.solo import SoloSync

if TYPE_CHECKING:
    from zoo.orca.engine.pickling import Packed
    from zoo.orca.engine.worker import Worker
    from zoo.orca.learn.mxnet.learner import MXNetLearner


@dataclass(frozen=True)
class MXNetLearning:
    """How a worker makes its replica.

    Attributes:
        recipe: a packed `MXNetRecipe`.
        cores: of a worker; None divides those of its machine.
    """

    recipe: Packed
    cores: int | None = None

    def build(self, worker: Worker, group: Group, state: dict[str, Any] | None) -> MXNetLearner:
        library.load()  # before what the user gave is unpacked, which imports it
        from zoo.orca.learn.mxnet.learner import MXNetLearner

        use_cores(self.cores or max(1, len(os.sched_getaffinity(0)) // worker.local_size))
        return MXNetLearner(self.recipe.load(), worker, group, state)


def use_cores(count: int) -> None:
    """Let MXNet's operators run on so many cores."""
    library.load()
    from mxnet.base import _LIB

    _LIB.MXSetNumOMPThreads(count)


class DriverGroup(Group):
    """Ranks that agree over their connections to the driver: slow, and there at once."""

    def __init__(self, worker: Worker):
        super().__init__(worker.rank, worker.world_size)
        self._worker = worker

    def all_reduce(self, flat: Any) -> None:
        as_array(flat)[:] = np.sum(self._worker.all_gather(as_array(flat)), axis=0)

    def reduce_scatter(self, flat: Any, tail: int = 0) -> None:
        self.all_reduce(flat)

    def all_gather(self, flat: Any) -> list[np.ndarray]:
        parts = self._worker.all_gather(as_array(flat))
        return [part[self.slice(len(part), rank)] for rank, part in enumerate(parts)]

    def broadcast(self, flat: Any) -> None:
        as_array(flat)[:] = self._worker.all_gather(as_array(flat) if self.rank == 0 else None)[0]


@dataclass(frozen=True)
class MXNetSync(Sync):
    """One worker agrees with itself; several use MXNet's own kvstore.

    Attributes:
        num_servers: servers of the kvstore; None is one for each worker.
        trains: False for workers that only measure, who have next to nothing to agree on and need no servers for it.
    """

    num_servers: int | None = None
    trains: bool = True

    def check(self) -> None:
        library.check()

    def join(self, worker: Worker) -> AbstractContextManager[Group]:
        if worker.world_size == 1:
            return SoloSync().join(worker)
        if not self.trains:
            return contextlib.nullcontext(DriverGroup(worker))
        from zoo.orca.learn.sync.kvstore import KVStoreSync

        return KVStoreSync(self.num_servers).join(worker)
