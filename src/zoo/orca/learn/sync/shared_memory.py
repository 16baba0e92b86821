"""The collective of ranks that share a host: each sums its slice of everybody's buffer, right in memory.

The memory is an anonymous file (memfd) of rank 0 that the others open through /proc, so nothing has a name and nothing
is left when processes are killed. Its first pages hold a line for each rank: how many barriers it has reached, and what
it meant to do there. Then comes the scratch memory, through which buffers of the caller's own pass in pieces; then the
buffers that `empty` gave out, which need no copy. Every sum is made in the order of ranks, so all ranks, on every
engine, get the same bits.
"""

from __future__ import annotations

import mmap
import os
import platform
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.sync.base import Group, as_array

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker

PAGE = mmap.ALLOCATIONGRANULARITY
TOKEN_BYTES = 16
LINE = 16  # int64 a line: two cache lines, for processors fetch them in pairs
SCRATCH = 1 << 20  # bytes a rank, twice
SMALL = 1 << 14  # bytes up to which every rank sums all: one barrier instead of two
BLOCK = 1 << 16  # bytes summed at a time, so that they stay in the cache
SPINS = 2000
FIRST_SLEEP, LONGEST_SLEEP = 50e-6, 500e-6

# What a rank writes must be seen before its count. x86 keeps stores in order and loads in order. Elsewhere a system
# call into the scheduler does it: Linux runs a full memory barrier there.
ORDERED = platform.machine() in ("x86_64", "AMD64")

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, EMPTY = range(5)


@contextmanager
def shared_memory(worker: Worker) -> Iterator[SharedMemoryGroup | None]:
    """The group of all ranks, or None for all of them where they cannot share memory."""
    descriptor = _open(worker) if worker.local_size == worker.world_size else None
    if descriptor is None:
        yield None
        return
    group = SharedMemoryGroup(worker.rank, worker.world_size, descriptor)
    try:
        yield group
    finally:
        group.close()


def _open(worker: Worker) -> int | None:
    """A descriptor of rank 0's anonymous file, if every rank got one."""
    descriptor, offer = None, None
    if worker.rank == 0 and hasattr(os, "memfd_create"):
        descriptor, token = os.memfd_create("orca-sync"), secrets.token_bytes(TOKEN_BYTES)
        os.ftruncate(descriptor, _head_bytes(worker.world_size) + 2 * worker.world_size * SCRATCH)
        os.pwrite(descriptor, token, 0)
        offer = (os.getpid(), descriptor, token)
    offer = worker.all_gather(offer)[0]
    if worker.rank != 0 and offer is not None:
        descriptor = _open_offered(*offer)
    if all(worker.all_gather(descriptor is not None)):
        return descriptor
    if descriptor is not None:
        os.close(descriptor)
    return None


def _open_offered(pid: int, number: int, token: bytes) -> int | None:
    """Another process's file, known by the token in it: in another container the pid may be somebody else's."""
    try:
        descriptor = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.pread(descriptor, TOKEN_BYTES, 0) == token:
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _head_bytes(world_size: int) -> int:
    return _rounded((world_size + 1) * LINE * 8)


def _rounded(size: int) -> int:
    return -(-size // PAGE) * PAGE


class Given(NamedTuple):
    """A buffer that `empty` gave out: the how manieth it was, and every rank's region of it."""

    number: int
    regions: list[np.ndarray]


class SharedMemoryGroup(Group):
    """The ranks of one host. A rank's region of a buffer is its own but between the barriers of a collective."""

    def __init__(self, rank: int, world_size: int, descriptor: int):
        super().__init__(rank, world_size)
        self._descriptor = descriptor
        self._head = mmap.mmap(descriptor, _head_bytes(world_size))
        self._lines = memoryview(self._head).cast("q")
        # The token lies before the first line.
        self._mine = (rank + 1) * LINE
        self._others = [(peer + 1) * LINE for peer in range(world_size) if peer != rank]
        self._count = 0
        self._end = _head_bytes(world_size)
        # Two, in turn: a rank that is already in the next collective leaves alone what others may still read.
        self._scratch = [self._map(SCRATCH), self._map(SCRATCH)]
        self._given: dict[int, Given] = {}

    def close(self) -> None:
        """Leave; buffers that are still in use keep their memory until they are not."""
        self._given.clear()
        self._scratch.clear()
        self._lines.release()
        self._head.close()
        os.close(self._descriptor)

    def empty(self, length: int, dtype: Any) -> np.ndarray:
        dtype = np.dtype(dtype)
        if length == 0:
            return np.zeros(0, dtype)
        size = length * dtype.itemsize
        if self.rank == 0:
            os.ftruncate(self._descriptor, self._end + self.world_size * _rounded(size))
        self._meet(EMPTY, size)
        regions = self._map(size)
        self._given[_address(regions[self.rank])] = Given(len(self._given) + 1, regions)
        return regions[self.rank].view(dtype)

    def all_reduce(self, flat: Any) -> None:
        flat = as_array(flat)
        if flat.nbytes <= SMALL:
            return self._sum_small(flat)
        given = self._given_for(flat)
        if given is not None:
            return self._sum_everywhere(given)
        step = SCRATCH // flat.itemsize
        for start in range(0, len(flat), step):
            part = flat[start : start + step]
            passing = Given(0, _typed(self._next_scratch(), part))
            passing.regions[self.rank][:] = part
            self._sum_everywhere(passing)
            part[:] = passing.regions[self.rank]
        return None

    def reduce_scatter(self, flat: Any, tail: int = 0) -> None:
        flat = as_array(flat)
        given = self._given_for(flat)
        if given is None:
            return self.all_reduce(flat)
        number, regions = given
        self._meet(REDUCE_SCATTER, flat.nbytes, number)
        for block in self._blocks(self.slice(len(flat) - tail), flat.itemsize):
            _sum([region[block] for region in regions], regions[self.rank][block])
        last = _sum([region[len(flat) - tail :] for region in regions])
        self._meet(REDUCE_SCATTER, flat.nbytes, number)
        regions[self.rank][len(flat) - tail :] = last
        return None

    def all_gather(self, flat: Any) -> list[np.ndarray]:
        flat = as_array(flat)
        slices = [self.slice(len(flat), rank) for rank in range(self.world_size)]
        given = self._given_for(flat)
        if given is not None:
            self._meet(ALL_GATHER, flat.nbytes, given.number)
            return [region[part] for region, part in zip(given.regions, slices, strict=True)]
        parts = [flat[part] for part in slices]
        step = SCRATCH // flat.itemsize
        for start in range(0, max(map(len, parts)), step):
            pieces = [part[start : start + step] for part in parts]
            scratch = self._next_scratch()
            places = [_typed([memory], piece)[0] for memory, piece in zip(scratch, pieces, strict=True)]
            places[self.rank][:] = pieces[self.rank]
            self._meet(ALL_GATHER, flat.nbytes)
            for piece, place in zip(pieces, places, strict=True):
                if piece is not pieces[self.rank]:
                    piece[:] = place
        return parts

    def broadcast(self, flat: Any) -> None:
        flat = as_array(flat)
        step = SCRATCH // flat.itemsize
        for start in range(0, len(flat), step):
            part = flat[start : start + step]
            (place,) = _typed(self._next_scratch()[:1], part)
            if self.rank == 0:
                place[:] = part
            self._meet(BROADCAST, flat.nbytes)
            if self.rank != 0:
                part[:] = place

    def _sum_small(self, flat: np.ndarray) -> None:
        regions = _typed(self._next_scratch(), flat)
        regions[self.rank][:] = flat
        self._meet(ALL_REDUCE, flat.nbytes)
        flat[:] = _sum(regions)

    def _sum_everywhere(self, given: Given) -> None:
        """My slice of everybody's region becomes the sum of them all, while the others do the same with theirs."""
        number, regions = given
        first = regions[0]
        self._meet(ALL_REDUCE, first.nbytes, number)
        for block in self._blocks(self.slice(len(first)), first.itemsize):
            parts = [region[block] for region in regions]
            total = _sum(parts, parts[self.rank])
            for part in parts:
                if part is not total:
                    part[:] = total
        self._meet(ALL_REDUCE, first.nbytes, number)

    def _blocks(self, part: slice, itemsize: int) -> Iterator[slice]:
        step = BLOCK // itemsize
        for start in range(part.start, part.stop, step):
            yield slice(start, min(start + step, part.stop))

    def _map(self, size: int) -> list[np.ndarray]:
        """The next bytes of the file, as one region for each rank."""
        stride = _rounded(size)
        memory = mmap.mmap(self._descriptor, stride * self.world_size, offset=self._end)
        self._end += stride * self.world_size
        return [np.frombuffer(memory, np.uint8, size, rank * stride) for rank in range(self.world_size)]

    def _given_for(self, flat: np.ndarray) -> Given | None:
        """Every rank's region, if the buffer is one that `empty` gave out, or its beginning."""
        given = self._given.get(_address(flat))
        if given is None or len(flat) == 0 or flat.nbytes > len(given.regions[0]):
            return None
        return Given(given.number, _typed(given.regions, flat))

    def _next_scratch(self) -> list[np.ndarray]:
        self._scratch.reverse()
        return self._scratch[0]

    def _meet(self, what: int, size: int, number: int = 0) -> None:
        """Wait until every rank is here, and see that all came for the same, with the same buffer."""
        self._count = count = self._count + 1
        lines, intent, purpose = self._lines, 1 + (count & 1), (number % (1 << 16) << 3 | what) << 44 | size
        lines[self._mine + intent] = purpose
        if not ORDERED:
            os.sched_yield()
        lines[self._mine] = count
        for line in self._others:
            if lines[line] < count:
                self._wait(line, count)
        if not ORDERED:
            os.sched_yield()
        for line in self._others:
            if lines[line + intent] != purpose:
                raise InvalidArgumentError(
                    f"rank {self.rank} and rank {line // LINE - 1} disagree about what to combine: all ranks must make "
                    "the same steps in the same order. Call optimizer.step() on every rank or on none."
                )

    def _wait(self, line: int, count: int) -> None:
        """Give way to whoever can run; where that takes long, sleep, for the others may need this core."""
        lines = self._lines
        for _ in range(SPINS):
            os.sched_yield()
            if lines[line] >= count:
                return
        pause = FIRST_SLEEP
        while lines[line] < count:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_SLEEP)


def _typed(regions: list[np.ndarray], like: np.ndarray) -> list[np.ndarray]:
    """The beginnings of the regions, as arrays like that one."""
    return [region[: like.nbytes].view(like.dtype) for region in regions]


def _sum(parts: list[np.ndarray], out: np.ndarray | None = None) -> np.ndarray:
    """The sum in the order of ranks, always, so that it does not depend on who makes it."""
    if len(parts) == 2:
        return np.add(parts[0], parts[1], out=out)
    total = parts[0] + parts[1]
    for part in parts[2:-1]:
        np.add(total, part, out=total)
    return np.add(total, parts[-1], out=out)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
