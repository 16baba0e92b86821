"""Agreement by torch.distributed: gloo between CPUs, nccl between GPUs, and shared memory where CPUs share a host."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from zoo.orca.learn.sync.base import Group, Sync
from zoo.orca.learn.sync.network import environment, interface_of, others_first
from zoo.orca.learn.sync.shared_memory import shared_memory
from zoo.orca.learn.sync.solo import SoloGroup

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker

JOIN_TIMEOUT = timedelta(minutes=2)
# A rank may save a large checkpoint, or read its next part from slow storage, while the others wait for it.
COLLECTIVE_TIMEOUT = timedelta(minutes=30)


class TorchGroup(Group):
    """The default process group. With the device "cuda" it takes tensors there, too."""

    def __init__(self, rank: int, world_size: int, device: str = "cpu"):
        super().__init__(rank, world_size)
        self.device = device

    def all_reduce(self, flat: Any) -> None:
        if len(flat):
            with others_first():
                dist.all_reduce(_tensor(flat))

    def reduce_scatter(self, flat: Any, tail: int = 0) -> None:
        # Not gloo's own reduce-scatter: it takes several times as long as its all-reduce.
        self.all_reduce(flat)

    def all_gather(self, flat: Any) -> list[Any]:
        # Broadcasts of the slices take half the time of gloo's all-gather.
        parts = [flat[self.slice(len(flat), rank)] for rank in range(self.world_size)]
        with others_first():
            waits = [dist.broadcast(_bytes(part), rank, async_op=True) for rank, part in enumerate(parts) if len(part)]
            for wait in waits:
                wait.wait()
        return parts

    def broadcast(self, flat: Any) -> None:
        if len(flat):
            with others_first():
                dist.broadcast(_bytes(flat), 0)


class TorchDistributedSync(Sync):
    """Replicated updates. torch.distributed is there for the user's own code while the gang runs.

    Args:
        device: "cpu", or "cuda" where the learner keeps its tensors on GPUs.
        shared_memory: whether ranks on the CPUs of one host may combine in memory instead of over gloo.
    """

    def __init__(self, device: str = "cpu", shared_memory: bool = True):
        self.device = device
        self.shared_memory = shared_memory

    @contextmanager
    def join(self, worker: Worker) -> Iterator[Group]:
        with process_group(worker, self.device):
            if worker.world_size == 1 and self.device == "cpu":
                yield SoloGroup()
                return
            in_memory = self.shared_memory and self.device == "cpu"
            with shared_memory(worker) if in_memory else nullcontext() as group:
                yield group or TorchGroup(worker.rank, worker.world_size, self.device)


@contextmanager
def process_group(worker: Worker, device: str = "cpu") -> Iterator[None]:
    """torch.distributed's default process group, over all ranks of the gang."""
    interface = interface_of(worker.peers[worker.rank])
    with environment({"GLOO_SOCKET_IFNAME": interface} if interface else {}):
        store = _store(worker)
        dist.init_process_group(
            "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl",
            store=store,
            rank=worker.rank,
            world_size=worker.world_size,
            timeout=COLLECTIVE_TIMEOUT,
        )
        try:
            yield
            worker.barrier()  # a rank that leaves takes its connections along
        finally:
            if dist.is_initialized():  # the user's code may have left already
                dist.destroy_process_group()


def _store(worker: Worker) -> dist.TCPStore:
    """Where the ranks find each other: on rank 0's address alone, at a port that is held from the start."""
    host = worker.rendezvous[0]
    port, listener = None, None
    if worker.rank == 0:
        listener = socket.create_server((host, 0), backlog=max(128, worker.world_size))
        port = listener.getsockname()[1]
    port = worker.all_gather(port)[0]
    if listener is None:
        return dist.TCPStore(host, port, timeout=JOIN_TIMEOUT)
    return dist.TCPStore(
        host, port, is_master=True, wait_for_workers=False, timeout=JOIN_TIMEOUT, master_listen_fd=listener.detach()
    )


def _tensor(flat: Any) -> torch.Tensor:
    return torch.from_numpy(flat) if isinstance(flat, np.ndarray) else flat


def _bytes(flat: Any) -> torch.Tensor:
    """The same memory as bytes, which every backend can move whatever they mean."""
    return _tensor(flat).view(torch.uint8)
