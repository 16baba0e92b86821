"""One rank agrees with itself: the undistributed case is no special case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.sync.base import Group, Sync, as_array

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker


class SoloGroup(Group):
    """A group of one."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def all_reduce(self, flat: Any) -> None:
        pass

    def reduce_scatter(self, flat: Any, tail: int = 0) -> None:
        pass

    def all_gather(self, flat: Any) -> list[np.ndarray]:
        return [as_array(flat)]

    def broadcast(self, flat: Any) -> None:
        pass


class SoloSync(Sync):
    """For gangs of one worker."""

    @contextmanager
    def join(self, worker: Worker) -> Iterator[Group]:
        if worker.world_size != 1:
            raise InvalidArgumentError(
                f"the sync 'solo' is for one worker, but there are {worker.world_size}: choose 'bigdl', "
                "'torch_distributed' or 'horovod'."
            )
        yield SoloGroup()
