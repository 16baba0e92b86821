"""BigDL's parameter manager, in today's terms: each rank updates a slice of the weights and hands it on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from zoo.orca.learn.sync.base import Group, Sync
from zoo.orca.learn.sync.shared_memory import shared_memory
from zoo.orca.learn.sync.solo import SoloGroup

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker


class BigDLSync(Sync):
    """Sharded updates: in memory between ranks of one host, over gloo between hosts.

    Args:
        shared_memory: whether ranks of one host may combine in memory instead of over gloo.
    """

    sharded = True

    def __init__(self, shared_memory: bool = True):
        self.shared_memory = shared_memory

    @contextmanager
    def join(self, worker: Worker) -> Iterator[Group]:
        if worker.world_size == 1:
            yield SoloGroup()
            return
        with shared_memory(worker) if self.shared_memory else nullcontext() as group:
            if group is not None:
                yield group
                return
            # Only now is a framework needed for the connections between hosts.
            from zoo.orca.learn.sync.torch_distributed import TorchGroup, process_group

            with process_group(worker):
                yield TorchGroup(worker.rank, worker.world_size)
