"""Agreement by torch.distributed: gloo between CPUs, nccl between GPUs, and shared memory where CPUs share a host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from zoo.orca.learn.sync.base import Group, Sync
from zoo.orca.learn.sync.network import environment, interface_of, others_first
from zoo.orca.learn.sync.sealed import TRIES, doors, lock, stranger_error, strangers
from zoo.orca.learn.sync.shared_memory import shared_memory
from zoo.orca.learn.sync.solo import SoloGroup

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker

JOIN_TIMEOUT = timedelta(minutes=2)
# The driver says when a rank is silent for too long, and which one; torch itself only that somebody is.
COLLECTIVE_TIMEOUT = timedelta(days=1)


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
    store = GangStore(worker)  # held here: torch would keep only the part of it that is not Python
    with environment(_variables(worker.peers[worker.rank], device)):
        with worker.waiting():
            _connect(worker, device, store)
        try:
            yield
            worker.barrier()  # a rank that leaves takes its connections along
        finally:
            if dist.is_initialized():  # the user's code may have left already
                dist.destroy_process_group()


def _connect(worker: Worker, device: str, store: GangStore) -> None:
    """Bring the ranks together, and see that nobody else is among them."""
    number = worker.ask("add", f"torch/{worker.rank}", 1)  # a gang may join several times
    found = []
    for turn in range(TRIES):
        before = doors()
        dist.init_process_group(
            "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl",
            store=dist.PrefixStore(f"torch/{number}/{turn}", store),
            rank=worker.rank,
            world_size=worker.world_size,
            timeout=COLLECTIVE_TIMEOUT,
        )
        opened = doors() - before
        lock(opened)
        found = strangers(worker, opened)
        if not found:
            return
        dist.destroy_process_group()
    raise stranger_error(found)


def _variables(address: str, device: str) -> dict[str, str]:
    """On which network interface the libraries make their connections, unless the user has said so."""
    interface = interface_of(address)
    if interface is None:
        return {}
    wanted = {"GLOO_SOCKET_IFNAME": interface} | ({} if device == "cpu" else {"NCCL_SOCKET_IFNAME": f"={interface}"})
    return {name: value for name, value in wanted.items() if name not in os.environ}


class GangStore(dist.Store):
    """The store in which torch's ranks find each other: the gang's own board, so that nothing has to listen for it."""

    def __init__(self, worker: Worker):
        super().__init__()
        self._worker = worker
        self.set_timeout(JOIN_TIMEOUT)

    def set(self, key: str, value: bytes) -> None:
        self._worker.ask("put", key, value)

    def get(self, key: str) -> bytes:
        return self._get([key], self.timeout)[0]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return self._get(keys, self.timeout)

    def multi_set(self, keys: list[str], values: list[bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._get(keys, timeout or self.timeout)

    def check(self, keys: list[str]) -> bool:
        return self._worker.ask("check", keys)

    def add(self, key: str, amount: int) -> int:
        return self._worker.ask("add", key, amount)

    def append(self, key: str, value: bytes) -> None:
        self._worker.ask("append", key, value)

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        return self._worker.ask("swap", key, expected, desired)

    def delete_key(self, key: str) -> bool:
        return self._worker.ask("remove", key)

    def num_keys(self) -> int:
        return self._worker.ask("count")

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> GangStore:
        return self  # any thread may ask

    # The names by which torch asks for these two.
    deleteKey = delete_key
    getNumKeys = num_keys

    def _get(self, keys: list[str], timeout: timedelta) -> list[bytes]:
        try:
            return self._worker.ask("get", keys, timeout=timeout.total_seconds())
        except TimeoutError as error:
            raise dist.DistStoreError(str(error)) from error


def _tensor(flat: Any) -> torch.Tensor:
    return torch.from_numpy(flat) if isinstance(flat, np.ndarray) else flat


def _bytes(flat: Any) -> torch.Tensor:
    """The same memory as bytes, which every backend can move whatever they mean."""
    return _tensor(flat).view(torch.uint8)
