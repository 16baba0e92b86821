"""Where a replica computes: which device a worker takes, what goes there, and how GPUs agree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.pytorch.tensors import CPU
from zoo.orca.learn.sync import Group, Sync, make_sync

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker


def find_device(wanted: str | None, number: int = 0) -> torch.device:
    """The device of this machine that was asked for; processes with different numbers take different GPUs."""
    if wanted == "cpu":
        return CPU
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted is None and not count:
        return CPU
    if not count:
        raise InvalidArgumentError(
            f"device={wanted!r} was asked for, but torch {torch.__version__} finds no GPU on this machine. Leave out "
            'device (or type device="cpu"), or install a torch that is built for CUDA where there is one.'
        )
    index = torch.device(wanted or "cuda").index
    if index is not None and index >= count:
        raise InvalidArgumentError(
            f'device={wanted!r} was asked for, but there are {count} GPU(s) on this machine: "cuda:0" to '
            f'"cuda:{count - 1}". With "cuda" each worker takes one of them.'
        )
    return torch.device("cuda", number % count if index is None else index)


def follow_parameters(optimizer: torch.optim.Optimizer) -> None:
    """Move an optimizer's state to where its parameters are now."""
    if optimizer.state:
        optimizer.load_state_dict(optimizer.state_dict())


class DeviceSync(Sync):
    """The sync of a name; where every rank has a GPU of its own, tensors are combined there by nccl.

    Args:
        device: what was asked for, as `find_device` takes it.
    """

    def __init__(self, name: str, device: str | None = None):
        self.name = name
        self.device = device
        self.sharded = make_sync(name).sharded

    def check(self) -> None:
        make_sync(self.name).check()

    @contextmanager
    def join(self, worker: Worker) -> Iterator[Group]:
        sync = make_sync(self.name)
        if self.name != "horovod" and self._have_own_gpus(worker):
            torch.cuda.set_device(find_device(self.device, worker.local_rank))
            sync = make_sync("torch_distributed", device="cuda")
        with sync.join(worker) as group:
            yield group

    def _have_own_gpus(self, worker: Worker) -> bool:
        """Whether no two ranks share a GPU, and none is without; nccl would refuse that. All ranks ask together."""
        if self.device == "cpu" or worker.world_size == 1:
            return False
        device = find_device(self.device, worker.local_rank)
        taken = worker.all_gather(None if device.type == "cpu" else (worker.peers[worker.rank], device.index))
        return None not in taken and len(set(taken)) == worker.world_size and torch.distributed.is_nccl_available()
