"""The engine contract: where shards lie, where functions run, and how a gang of workers is launched.

An engine knows no framework. What all engines share (the channel, errors, retries, stalls) lives in `gang.py`, what
shards can do lives in `zoo.orca.data.shard`; an engine only places, maps, moves and launches.
"""

from __future__ import annotations

import itertools
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger("zoo.orca")

#: So long a gang waits for executors or nodes that are still joining, or being replaced.
ROOM_SECONDS = 30.0
LOOK_SECONDS = 0.2

MapFunction = Callable[[int, Iterator[Any]], Iterable[Any]]
SplitFunction = Callable[[int, Iterator[Any]], Iterable[tuple[int, Any]]]
CombineFunction = Callable[[int, Iterator[Any]], Iterable[Any]]


class Placement(ABC):
    """Partitions of shards where an engine put them: `map`, `zip`, `exchange` are lazy, `compute` and `fetch` work."""

    engine: Engine
    num_partitions: int

    @abstractmethod
    def map(self, fn: MapFunction, changes: bool = True) -> Placement:
        """Every partition i becomes what `fn(i, shards)` yields. `fn` runs where the partition lies.

        With `changes=False` it promises not to change the shards in place, which may spare a copy."""

    @abstractmethod
    def zip(self, other: Placement, fn: Callable[[Iterator[Any], Iterator[Any]], Iterable[Any]]) -> Placement:
        """Partitions i of both, on the same engine and equal in number, become what `fn(mine, others)` yields."""

    def extend(self, fn: Callable[[Any], Any], join: Callable[[Any, Any], Any]) -> Placement:
        """Every shard becomes `join(shard, fn(shard))`, where `fn` neither changes the shard nor gives parts of it.

        An engine may keep what `fn` gives alone, beside the shards that it keeps already."""

        def extend_each(index: int, shards: Iterator[Any]) -> Iterator[Any]:
            return (join(shard, fn(shard)) for shard in shards)

        return self.map(extend_each)

    @abstractmethod
    def exchange(self, split: SplitFunction, num_partitions: int, combine: CombineFunction) -> Placement:
        """Move pieces between partitions: `split(i, shards)` yields (target, piece), and target j becomes what
        `combine(j, pieces)` yields, its pieces ordered by source partition and then as they were yielded."""

    @abstractmethod
    def persist(self) -> None:
        """Keep the result of the next computation, so that it is not computed again."""

    @abstractmethod
    def unpersist(self) -> None:
        """Give up what `persist` kept; it can still be computed again."""

    def give_up(self) -> None:  # noqa: B027 - an engine that cannot use it does nothing
        """Say that what is computed next from this may use its shards up: they are unpersisted right afterwards."""

    @property
    @abstractmethod
    def is_persisted(self) -> bool: ...

    @abstractmethod
    def compute(self) -> None:
        """Compute every partition now, so that errors surface here."""

    @abstractmethod
    def fetch(self) -> list[list[Any]]:
        """Bring the shards to the driver, as one list a partition."""


@dataclass(frozen=True)
class Seat:
    """What a worker process must know to join its gang: its rank, and how to reach and convince the driver."""

    rank: int
    world_size: int
    address: tuple[str, int]
    token: bytes


class Launch(ABC):
    """The processes of one gang, as an engine sees them."""

    @abstractmethod
    def failure(self) -> BaseException | None:
        """Why the engine gave up on these processes, if it did."""

    @abstractmethod
    def stop(self, grace: float) -> None:
        """Let processes leave by themselves for `grace` seconds, end the others, and wait until they are gone."""


class Engine(ABC):
    name: str

    @property
    @abstractmethod
    def nodes(self) -> int: ...

    @property
    @abstractmethod
    def cores(self) -> int:
        """Tasks that run at once over all nodes: the default number of shards."""

    @property
    @abstractmethod
    def driver_host(self) -> str:
        """The address at which workers reach the driver: loopback when all is on one machine."""

    @property
    @abstractmethod
    def one_machine(self) -> bool:
        """Whether driver and workers see the same files, because all of them run on one machine."""

    @abstractmethod
    def place(self, partitions: Sequence[Sequence[Any]]) -> Placement:
        """Put the driver's objects where functions can be mapped over them."""

    @abstractmethod
    def share(self, value: Any) -> Any:
        """An object with `.value` (on any worker, sent there once) and `.unpersist()`."""

    def expect(self, modules: Sequence[str]) -> None:
        """What is started next needs these modules: an engine that can may have its new processes import them ahead."""
        return

    @abstractmethod
    def check_gang(self, most: int, least: int | None = None) -> int:
        """How many workers can be started together now: `most`, or what there is if that is at least `least`.

        Executors and nodes that are joining or being replaced get a short time; a typed error is raised where there
        is not even room for `least`, or, without it, not for `most`."""

    @abstractmethod
    def launch(self, seats: Sequence[Seat], data: Placement | None) -> Launch:
        """Start one process a seat, all together, each calling `worker.sit(seat, shards)`; rank r gets the
        partitions `deal(data.num_partitions, len(seats))[r]` as (partition, shard) pairs."""

    @abstractmethod
    def close(self) -> None:
        """End everything this engine started; it can be called twice."""


def wait_for_room(most: int, least: int | None, room: Callable[[], int], may_grow: Callable[[], bool]) -> int | None:
    """How many workers fit, `most` at best, after a short wait while there may be more room soon; None if too few."""
    deadline = time.monotonic() + ROOM_SECONDS
    while (slots := room()) < most and may_grow() and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    if slots >= most:
        return most
    if least is None or slots < least:
        return None
    logger.warning("There is room for %d of %d workers: going on with %d.", slots, most, slots)
    return slots


def deal(num_partitions: int, num_workers: int) -> list[range]:
    """Which partitions each rank gets: contiguous, as even as can be, a pure function of the two counts.

    >>> deal(5, 2)
    [range(0, 3), range(3, 5)]
    >>> deal(1, 2)
    [range(0, 1), range(1, 1)]
    """
    share, extra = divmod(num_partitions, num_workers)
    starts = [rank * share + min(rank, extra) for rank in range(num_workers + 1)]
    return [range(first, last) for first, last in itertools.pairwise(starts)]


def owner(partition: int, num_partitions: int, num_workers: int) -> int:
    """Which rank `deal` gives a partition, without a table of all.

    >>> [owner(partition, 5, 2) for partition in range(5)]
    [0, 0, 0, 1, 1]
    """
    share, extra = divmod(num_partitions, num_workers)
    larger = extra * (share + 1)
    return partition // (share + 1) if partition < larger else extra + (partition - larger) // share
