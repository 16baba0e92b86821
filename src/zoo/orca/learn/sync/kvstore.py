"""Agreement by MXNet's own parameter server: its dist_sync kvstore, with the scheduler and servers it needs."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError, WorkerLostError
from zoo.orca.learn.sync.base import Group, Sync, as_array
from zoo.orca.learn.sync.kvstore_roles import Roles, wait_until_connected
from zoo.orca.learn.sync.kvstore_sums import ArraySums, wait_for
from zoo.orca.learn.sync.network import environment, interface_of
from zoo.orca.learn.sync.sealed import TRIES, Address, doors, lock, stranger_error, strangers

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker

#: Keys from here on are ours; MXNet's own Trainer counts from 0.
FIRST_KEY = 1 << 20
#: A buffer travels in pieces of at most so many elements, whose sizes are few, for each is a key of the store.
PIECE = 1 << 20
#: Arrays from so many elements on are split over all servers.
SPLIT = "100000"
CONNECT_SECONDS = 30.0
LEAVE_SECONDS = 3.0
END_SECONDS = 10.0
JOIN_SECONDS = 120.0


class KVStoreGroup(Group):
    """All workers of the kvstore.

    Attributes:
        store: MXNet's kvstore. Its own rank is the scheduler's choice, and need not be this group's.

    Example:
        >>> with KVStoreSync().join(worker) as group:  # doctest: +SKIP
        ...     group.sum_arrays([parameter.grad() for parameter in parameters])
    """

    def __init__(self, rank: int, world_size: int, store: Any):
        super().__init__(rank, world_size)
        self.store = store
        self._keys = itertools.count(FIRST_KEY)
        self._sums = ArraySums(store, self._keys)
        self._first = ArraySums(store, self._keys)
        self._pieces: dict[tuple[Any, int, int], tuple[int, Any]] = {}

    def sum_arrays(self, arrays: Sequence[Any], first: Any = None) -> None:
        """Every one of these MXNet arrays becomes its sum over all ranks, in place.

        Shapes, types and order are the same on all ranks. They may change from call to call, on all ranks alike.

        Args:
            first: an array that is computed before the others, such as the loss before gradients. It is summed too, and
                then its sum alone is waited for: what uses the others waits for theirs on MXNet's engine.
        """
        self.start_sum(arrays, first)()

    def start_sum(self, arrays: Sequence[Any], first: Any = None) -> Callable[[], None]:
        """Begin to sum. It comes back when this rank's own part is computed; what it gives waits for the others'."""
        if first is None:
            return self._sums.start(arrays)
        own = first.copy()
        self._first.queue([first])
        self._sums.queue(arrays)
        wait_for([own])
        return lambda: wait_for([first])

    def all_reduce(self, flat: Any) -> None:
        array = as_array(flat)
        if array.dtype.kind == "f":
            self._sum(array)
            return
        # MXNet's servers add floating point numbers only. Halves of whole ones are exact in those.
        halves = np.stack([array >> 32, array & 0xFFFFFFFF]).astype(np.float64)
        self._sum(halves.reshape(-1))
        high, low = halves.astype(np.int64)
        array[:] = (high << 32) + low

    def reduce_scatter(self, flat: Any, tail: int = 0) -> None:
        self.all_reduce(flat)

    def all_gather(self, flat: Any) -> list[np.ndarray]:
        array = as_array(flat)
        mine = self.slice(len(array))
        only_mine = np.zeros_like(array)
        only_mine[mine] = array[mine]
        self._sum_bytes(only_mine, only_mine)
        return [only_mine[self.slice(len(array), rank)] for rank in range(self.world_size)]

    def broadcast(self, flat: Any) -> None:
        array = as_array(flat)
        self._sum_bytes(array if self.rank == 0 else np.zeros_like(array), array)

    def _sum_bytes(self, source: np.ndarray, target: np.ndarray) -> None:
        """Sum, as whole numbers, what is zero on all ranks but one: every type comes through as it is, to the bit."""
        size = source.nbytes
        pairs = np.zeros(-(-size // 2), np.uint16)
        pairs.view(np.uint8)[:size] = source.view(np.uint8)
        numbers = pairs.astype(np.float32)
        self._sum(numbers)
        target.view(np.uint8)[:] = numbers.astype(np.uint16).view(np.uint8)[:size]

    def _sum(self, array: np.ndarray) -> None:
        parts = [array[start : start + PIECE] for start in range(0, len(array), PIECE)]
        sums = [self._sum_piece(part, number) for number, part in enumerate(parts)]
        for part, total in zip(parts, sums, strict=True):
            part[:] = total.asnumpy()[: len(part)]

    def _sum_piece(self, part: np.ndarray, number: int) -> Any:
        """Queue the sum of a piece; the array it will be in, which may be longer."""
        size = 1 << max(6, (len(part) - 1).bit_length())
        key, array = self._piece(part.dtype, size, number)
        array[: len(part)] = part
        self.store.pushpull(key, array, out=array)
        return array

    def _piece(self, dtype: np.dtype, size: int, number: int) -> tuple[int, Any]:
        if (dtype, size, number) not in self._pieces:
            key, array = next(self._keys), _mxnet().nd.zeros((size,), dtype=dtype)
            self.store.init(key, array)
            self._pieces[dtype, size, number] = key, array
        return self._pieces[dtype, size, number]


class KVStoreSync(Sync):
    """Replicated updates, with gradients summed by MXNet's servers.

    Args:
        num_servers: how many servers there are; None for as many as workers.
    """

    def __init__(self, num_servers: int | None = None):
        if num_servers is not None and num_servers < 1:
            raise InvalidArgumentError(
                f"num_servers must be at least 1, but {num_servers} was given. Leave it out for as many as workers."
            )
        self.num_servers = num_servers

    def check(self) -> None:
        from zoo.orca.mxnet_library import check

        check()

    @contextmanager
    def join(self, worker: Worker) -> Iterator[KVStoreGroup]:
        _mxnet()
        member = _connected(worker, self.num_servers or worker.world_size)
        try:
            yield member.group
        except BaseException as error:
            member.fail(error)
            raise
        member.leave()


def _connected(worker: Worker, num_servers: int) -> _Member:
    """Bring the ranks together, and see that nobody else is among them."""
    found: list[Address] = []
    for _ in range(TRIES):
        member = _Member(worker, num_servers)
        try:
            found = member.connect()
        except BaseException:
            member.leave_at_once()
            raise
        if not found:
            return member
        member.leave_at_once()
    raise stranger_error(found)


class _Member:
    """This rank in one kvstore: its worker, in this process, and the scheduler and servers that it started."""

    def __init__(self, worker: Worker, num_servers: int):
        self._worker = worker
        self._num_servers = num_servers
        self._roles = Roles(_library(), self._tell_lost)
        self._store: Any = None

    @property
    def group(self) -> KVStoreGroup:
        return KVStoreGroup(self._worker.rank, self._worker.world_size, self._store)

    def connect(self) -> list[Address]:
        """Bring all up, and lock the doors. What it gives is who came in and does not belong to us."""
        worker, before = self._worker, doors()
        variables = self._meet()
        for number in range(worker.rank, self._num_servers, worker.world_size):
            self._roles.start(f"server {number}", variables | {"DMLC_ROLE": "server"})
        with environment(variables | {"DMLC_ROLE": "worker"}), worker.waiting(), self._in_time():
            self._store = _mxnet().kv.create("dist_sync")
        return self._seal(doors() - before)

    def _meet(self) -> dict[str, str]:
        """The environment variables of this kvstore; the scheduler listens when they are known."""
        worker = self._worker
        if worker.rank != 0:
            return _variables(worker, worker.all_gather(None)[0], self._num_servers)
        for _ in range(TRIES):
            port = _free_port(worker.rendezvous[0])
            variables = _variables(worker, port, self._num_servers) | {"DMLC_ROLE": "scheduler"}
            ended = self._roles.start_at((worker.rendezvous[0], port), "scheduler", variables)
            if ended is None:
                return _variables(worker, worker.all_gather(port)[0], self._num_servers)
        raise RuntimeError(f"{ended}, each of the {TRIES} times it was started.")

    def _seal(self, mine: set[Address]) -> list[Address]:
        """Lock all doors once everybody who belongs here is in, and look who else is."""
        servers, workers = self._num_servers, self._worker.world_size
        # Everybody connects to itself too. Workers do not connect to workers, nor servers to servers.
        expected = {"worker": servers + 2, "server": workers + 2, "scheduler": servers + workers + 1}
        opened = dict.fromkeys(mine, expected["worker"])
        for role in self._roles:
            opened |= {door: expected[role.name.split()[0]] for door in doors([role.pid])}
        pids = [os.getpid(), *(role.pid for role in self._roles)]
        wait_until_connected(opened, pids, CONNECT_SECONDS)
        lock(mine)
        self._roles.lock()
        return strangers(self._worker, opened, pids)

    def leave(self) -> None:
        """All ranks leave together: MXNet's processes say goodbye to each other and end."""
        self._roles.expect_end()
        self._worker.barrier()
        with self._worker.waiting():
            _free(self._store)
        self._roles.close(END_SECONDS)

    def leave_at_once(self) -> None:
        """Leave without a word to the others."""
        if self._store is not None:
            _free(self._store, barrier=False)
        self._roles.close(0)

    def fail(self, error: BaseException) -> None:
        """Leave after an error. Where sums are under way that nobody will answer, only the end of the process helps."""
        if _settles(LEAVE_SECONDS):
            self.leave_at_once()
            return
        self._worker.fail(error)
        threading.Event().wait()  # the driver ends the gang, and this process with it

    def _tell_lost(self, words: str) -> None:
        """The function may be deep in a sum that will never come, so this cannot be raised there."""
        rank, size = self._worker.rank, self._worker.world_size
        self._worker.fail(WorkerLostError(f"lost rank(s) {rank} of {size}: {words}.", (rank,)))

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        late = RuntimeError(
            f"MXNet's scheduler, {self._num_servers} servers and {self._worker.world_size} workers had not found each "
            f"other after {JOIN_SECONDS:.0f} s. They connect on ports of their own choice between the hosts "
            f"{', '.join(dict.fromkeys(self._worker.peers))}: see that no firewall is between them."
        )
        timer = threading.Timer(JOIN_SECONDS, self._worker.fail, (late,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _variables(worker: Worker, port: int, num_servers: int) -> dict[str, str]:
    interface = interface_of(worker.peers[worker.rank])
    return {
        "DMLC_PS_ROOT_URI": worker.rendezvous[0],
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NUM_SERVER": str(num_servers),
        "DMLC_NUM_WORKER": str(worker.world_size),
        "DMLC_NODE_HOST": worker.peers[worker.rank],
        **({"DMLC_INTERFACE": interface} if interface else {}),
        "MXNET_KVSTORE_BIGARRAY_BOUND": os.environ.get("MXNET_KVSTORE_BIGARRAY_BOUND", SPLIT),
    }


def _free_port(host: str) -> int:
    with socket.socket() as reserved:
        reserved.bind((host, 0))
        return reserved.getsockname()[1]


def _mxnet() -> Any:
    from zoo.orca.mxnet_library import load

    return load()


def _library() -> Path:
    return Path(_mxnet().libinfo.find_lib_path()[0])


def _free(store: Any, barrier: bool = True) -> None:
    """End the store's connections now, whoever may still hold the object."""
    base = _mxnet().base
    handle, store.handle = store.handle, base.KVStoreHandle()
    if not barrier:
        base.check_call(base._LIB.MXKVStoreSetBarrierBeforeExit(handle, 0))
    base.check_call(base._LIB.MXKVStoreFree(handle))


def _settles(seconds: float) -> bool:
    """Whether all that was asked of MXNet's engine comes to an end within that time."""

    def wait() -> None:
        with contextlib.suppress(Exception):  # an error of MXNet's ends them too
            _mxnet().nd.waitall()

    thread = threading.Thread(target=wait, name="orca-settle", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()
