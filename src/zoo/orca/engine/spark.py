"""The Spark engine: shards in an RDD of Python objects, gangs in barrier stages.

A barrier stage must have exactly as many partitions as workers, so data with another number of partitions is dealt
by an exchange of whole shards first.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import functools
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import cloudpickle

from zoo.orca.engine.bar import Bar, bars_are_shown, shard_bar
from zoo.orca.engine.base import (
    CombineFunction,
    Engine,
    Launch,
    MapFunction,
    Placement,
    Seat,
    SplitFunction,
    deal,
    wait_for_room,
)
from zoo.orca.engine.channel import Failed
from zoo.orca.engine.gang import raise_worker_error
from zoo.orca.engine.garbage import leave_modules_out
from zoo.orca.engine.pickling import Packed, pack
from zoo.orca.engine.spark_settings import DAEMON, IMPORTS
from zoo.orca.engine.worker import describe_failure, sit
from zoo.orca.errors import DynamicAllocationError, NotEnoughSlotsError, OrcaError

CANCEL_SECONDS = 30.0
SLOT_LOOK_SECONDS = 1.0
_CARRIED = re.compile(r"\[orca:([A-Za-z0-9+/=]+)\]")
_job_numbers = itertools.count()


class SparkEngine(Engine):
    """Runs everything in a running SparkContext; starting and stopping that is the context's business."""

    name = "spark"

    def __init__(self, sc: Any):
        self.sc = sc

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SparkEngine) and other.sc is self.sc

    def __hash__(self) -> int:
        return id(self.sc)

    def __repr__(self) -> str:
        return f"SparkEngine({self.sc.master!r}, {self.cores} cores)"

    @property
    def is_local(self) -> bool:
        return self.sc.master.startswith("local") and not self.sc.master.startswith("local-cluster")

    @property
    def nodes(self) -> int:
        """Executors, or 1 when Spark runs in one process."""
        known = self.sc._jsc.sc().getExecutorMemoryStatus().size()  # the driver is among them
        return 1 if self.is_local else max(1, known - 1)

    @property
    def cores(self) -> int:
        return self.sc.defaultParallelism

    @property
    def driver_host(self) -> str:
        return "127.0.0.1" if self.is_local else self.sc.getConf().get("spark.driver.host")

    @property
    def one_machine(self) -> bool:
        """Whether every executor is on the driver's host."""
        known = self.sc._jsc.sc().getExecutorMemoryStatus().keys().toList()
        return self.is_local or len({known.apply(number).rpartition(":")[0] for number in range(known.size())}) == 1

    def place(self, partitions: Sequence[Sequence[Any]]) -> SparkPlacement:
        if not partitions:
            return SparkPlacement(self.sc.emptyRDD())
        packed = [pack(list(shards), "a shard") for shards in partitions]
        return SparkPlacement(self.sc.parallelize(packed, len(packed)).flatMap(Packed.load))

    def share(self, value: Any) -> Any:
        return self.sc.broadcast(value)

    def read_pickle_file(self, path: str, at_least: int | None) -> SparkPlacement:
        """A Hadoop sequence file of pickles, as `RDD.saveAsPickleFile` writes it."""
        return SparkPlacement(self.sc.pickleFile(path, at_least))

    @functools.cached_property
    def _imports_ahead(self) -> bool:
        return self.sc.getConf().get("spark.python.daemon.module") == DAEMON

    def expect(self, modules: Sequence[str]) -> None:
        """Tasks with other variables get workers of another daemon; those of one that knows less end when they idle."""
        known = self.sc.environment.get(IMPORTS, "").split(",")
        if self._imports_ahead and not set(modules).issubset(known):
            self.sc.environment[IMPORTS] = ",".join(filter(None, dict.fromkeys([*known, *modules])))

    def check_gang(self, most: int, least: int | None = None) -> int:
        if self.sc.getConf().get("spark.dynamicAllocation.enabled", "false") == "true" and not self.is_local:
            raise DynamicAllocationError(
                "workers must start together, and Spark cannot do that while it adds and removes executors: "
                "expected spark.dynamicAllocation.enabled=false, but it is true. Start with "
                'init_orca_context(..., conf={"spark.dynamicAllocation.enabled": "false"}) and a fixed num_nodes.'
            )
        size = wait_for_room(most, least, self.slots, lambda: self._expected_slots() >= most)
        if size is not None:
            return size
        needed, slots = most if least is None else least, self.slots()
        raise NotEnoughSlotsError(
            f"{needed} workers must run at once, but Spark ({self.sc.master}) has {slots} free task slots. "
            f"Ask for at most {slots} workers, or start with more: init_orca_context(..., cores={needed}) "
            "(cores are per node), or more num_nodes."
        )

    def launch(self, seats: Sequence[Seat], data: Placement | None) -> SparkLaunch:
        placed = data if isinstance(data, SparkPlacement) else self.place([[] for _ in seats])
        rdd = _deal(placed, len(seats)).rdd
        seats_by_rank = list(seats)

        def take_seat(rank: int, shards: Iterator[tuple[int, Any]]) -> Iterator[Any]:
            leave_modules_out()
            sit(seats_by_rank[rank], shards)
            # Spark uses a Python worker again, with all it has loaded, only if it has read its input to the end.
            collections.deque(shards, maxlen=0)
            return iter(())

        return SparkLaunch(self, rdd.barrier().mapPartitionsWithIndex(take_seat), len(seats))

    def close(self) -> None:
        """The SparkContext belongs to the context that started it."""

    def slots(self) -> int:
        """Tasks that the executors of this moment can run at once."""
        context = self.sc._jsc.sc()
        return context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile())

    def _expected_slots(self) -> int:
        """The slots of all executors that were asked for, as far as is known: those that are missing may still come."""
        conf = self.sc.getConf()
        asked_for = int(conf.get("spark.executor.instances", "0")) * int(conf.get("spark.executor.cores", "1"))
        if asked_for:
            return asked_for
        known = self.sc._jsc.sc().statusStore().executorList(False)
        lost = [each.totalCores() for each in map(known.apply, range(known.size())) if not each.isActive()]
        return self.slots() + max(lost, default=0)


def _deal(data: SparkPlacement, num_workers: int) -> SparkPlacement:
    """(partition, shard) pairs, a partition for each worker."""
    owner = {source: rank for rank, mine in enumerate(deal(data.num_partitions, num_workers)) for source in mine}
    if len(owner) == num_workers:
        return data.map(lambda index, shards: ((index, shard) for shard in shards))
    return data.exchange(
        lambda index, shards: ((owner[index], (index, shard)) for shard in shards),
        num_workers,
        lambda target, pieces: pieces,
    )


class SparkLaunch(Launch):
    """A barrier job that runs in a thread of its own and can be cancelled."""

    def __init__(self, engine: SparkEngine, rdd: Any, size: int):
        from pyspark import InheritableThread

        self._engine = engine
        self._sc = engine.sc
        self._size = size
        self._looked = time.monotonic()
        self._group = f"orca-gang-{next(_job_numbers)}"
        self._error: BaseException | None = None
        self._thread: threading.Thread = InheritableThread(target=self._run, args=(rdd,), name=self._group, daemon=True)
        self._thread.start()

    def _run(self, rdd: Any) -> None:
        self._sc.setJobGroup(self._group, "a gang of Orca workers", interruptOnCancel=True)
        try:
            rdd.collect()
        except Exception as error:
            self._error = error

    def failure(self) -> BaseException | None:
        return self._missing_slots() if self._thread.is_alive() else self._error

    def _missing_slots(self) -> BaseException | None:
        """A gang that no longer fits lost an executor. Spark itself would wait for ten minutes to start it."""
        if time.monotonic() - self._looked < SLOT_LOOK_SECONDS:
            return None
        self._looked = time.monotonic()
        slots = self._engine.slots()
        return None if slots >= self._size else ChildProcessError(f"an executor was lost, {slots} task slots are left")

    def stop(self, grace: float) -> None:
        self._thread.join(grace)
        if self._thread.is_alive():
            self._sc.cancelJobGroup(self._group)
        self._thread.join(CANCEL_SECONDS)


class SparkPlacement(Placement):
    """An RDD whose elements are shards."""

    def __init__(self, rdd: Any):
        self.rdd = rdd
        self.engine: SparkEngine = SparkEngine(rdd.context)

    @property
    def num_partitions(self) -> int:  # type: ignore[override]
        return self.rdd.getNumPartitions()

    def map(self, fn: MapFunction, changes: bool = True) -> SparkPlacement:
        return SparkPlacement(self.rdd.mapPartitionsWithIndex(_carrying_errors(fn)))

    def zip(self, other: Placement, fn: Callable[[Iterator[Any], Iterator[Any]], Iterable[Any]]) -> SparkPlacement:
        theirs = other.rdd  # type: ignore[attr-defined]
        pairs = self.rdd.glom().zip(theirs.glom())  # a partition each, so counts of shards may differ
        carrying = _carrying_errors(lambda index, lists: fn(*(iter(each) for each in next(lists))))
        return SparkPlacement(pairs.mapPartitionsWithIndex(carrying))

    def exchange(self, split: SplitFunction, num_partitions: int, combine: CombineFunction) -> SparkPlacement:
        def send(index: int, shards: Iterator[Any]) -> Iterator[tuple[int, tuple[int, int, Any]]]:
            for number, (target, piece) in enumerate(split(index, shards)):
                yield int(target), (index, number, piece)

        def receive(target: int, sent: Iterator[tuple[int, tuple[int, int, Any]]]) -> Iterable[Any]:
            pieces = sorted((piece for _, piece in sent), key=lambda piece: piece[:2])
            return combine(target, (piece for _, _, piece in pieces))

        sent = self.rdd.mapPartitionsWithIndex(_carrying_errors(send)).partitionBy(num_partitions, int)
        return SparkPlacement(sent.mapPartitionsWithIndex(_carrying_errors(receive)))

    def persist(self) -> None:
        from pyspark import StorageLevel

        if not self.rdd.is_cached:
            self.rdd.persist(StorageLevel.MEMORY_AND_DISK)

    def unpersist(self) -> None:
        if self.rdd.is_cached:
            self.rdd.unpersist()

    @property
    def is_persisted(self) -> bool:
        return self.rdd.is_cached

    def compute(self) -> None:
        with _errors_brought_back(), _bar_beside(self.engine.sc):
            self.rdd.count()

    def fetch(self) -> list[list[Any]]:
        # Pickled by cloudpickle and not by Spark's copy of it, so that classes of the script stay the same classes.
        with _errors_brought_back(), _bar_beside(self.engine.sc):
            partitions = self.rdd.map(_pickle).glom().collect()
        return [[cloudpickle.loads(shard) for shard in partition] for partition in partitions]


@contextlib.contextmanager
def _bar_beside(sc: Any) -> Iterator[None]:
    """A bar of the stages that run, drawn by a thread while this one waits for Spark."""
    if not bars_are_shown():
        yield
        return
    from pyspark import InheritableThread

    over = threading.Event()
    with shard_bar(None) as bar:
        thread = InheritableThread(target=_follow_stages, args=(sc, bar, over), name="orca-bar", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _follow_stages(sc: Any, bar: Bar, over: threading.Event) -> None:
    tracker = sc.statusTracker()
    while not over.wait(bar.tick_seconds):
        stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
        if stages:
            bar.to(sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages))
        else:
            bar.tick()


def _pickle(shard: Any) -> bytes:
    return cloudpickle.dumps(shard, protocol=5)


class ShardError(OrcaError, RuntimeError):
    """A function over shards failed in a Spark task; the text ends with the error itself, packed for the driver."""


def _carrying_errors(fn: MapFunction) -> Callable[[int, Iterator[Any]], Iterator[Any]]:
    """Spark hands the driver only a text, so the error travels inside it."""
    packed = pack(fn)

    def carrying(index: int, shards: Iterator[Any]) -> Iterator[Any]:
        leave_modules_out()
        try:
            yield from packed.load_once()(index, shards)
        except ShardError:
            raise
        except Exception as error:
            failed = describe_failure(error, None)
            carried = base64.b64encode(cloudpickle.dumps((index, failed))).decode()
            raise ShardError(f"{failed.description} (partition {index}) [orca:{carried}]") from error

    return carrying


@contextlib.contextmanager
def _errors_brought_back() -> Iterator[None]:
    """Raise what a function over shards raised, as its own type, instead of Spark's text about it."""
    try:
        yield
    except Exception as error:
        carried = _CARRIED.search(str(error))
        if carried is None:
            raise
        index, failed = cloudpickle.loads(base64.b64decode(carried.group(1)))
        if isinstance(failed, Failed):
            raise_worker_error(failed, f"raised while computing partition {index}")
