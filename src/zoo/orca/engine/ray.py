"""The Ray engine: shards in Ray's object store, functions in tasks, gangs as tasks of a placement group."""

from __future__ import annotations

import functools
import os
import pickle
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import cloudpickle
import numpy as np

from zoo.orca.engine.bar import Bar, shard_bar
from zoo.orca.engine.base import Launch, Placement, Seat, wait_for_room
from zoo.orca.engine.channel import Failed
from zoo.orca.engine.gang import raise_worker_error
from zoo.orca.engine.lazy import LazyEngine, LazyPlacement
from zoo.orca.engine.recipe import Pieces, Recipe, Stored, dealt_shards
from zoo.orca.engine.shelf import is_alone
from zoo.orca.engine.worker import describe_failure, sit
from zoo.orca.errors import NotEnoughSlotsError, WorkerLostError
from zoo.orca.optional import require

GROUP_SECONDS = 60.0
GROUP_LOOK_SECONDS = 1.0
STOP_SECONDS = 10.0
LOOK_SECONDS = 0.5
# So many tasks are Ray's at once, and about so many objects an exchange makes: the driver keeps a record of each.
AT_ONCE = 128
SPLIT_OBJECTS = 20_000
# Buffers from so many bytes on lie in the store by themselves, where they can be read without a copy.
OWN_BUFFER = 1 << 16


class RayEngine(LazyEngine):
    """Runs everything in the Ray that this driver is connected to; starting and stopping that is the context's."""

    name = "ray"

    def __init__(self) -> None:
        self._ray = require("ray", "The Ray engine")

    def __repr__(self) -> str:
        return f"RayEngine({self.nodes} nodes, {self.cores} cores)"

    @property
    def nodes(self) -> int:
        return sum(1 for node in self._ray.nodes() if node["Alive"])

    @property
    def cores(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    @property
    def driver_host(self) -> str:
        return "127.0.0.1" if self.nodes == 1 else self._ray.util.get_node_ip_address()

    @property
    def one_machine(self) -> bool:
        hosts = {node["NodeManagerAddress"] for node in self._ray.nodes() if node["Alive"]}
        return hosts == {self._ray.util.get_node_ip_address()}

    def place(self, partitions: Sequence[Sequence[Any]]) -> LazyPlacement:
        stored = [StoredObject(self._ray.put([seal(shard) for shard in shards])) for shards in partitions]
        return LazyPlacement(self, len(stored), lambda: stored)

    def share(self, value: Any) -> RayShared:
        return RayShared(self._ray.put(value))

    def check_gang(self, most: int, least: int | None = None) -> int:
        size = wait_for_room(most, least, lambda: self.cores, self._is_healing)
        if size is not None:
            return size
        needed = most if least is None else least
        raise NotEnoughSlotsError(
            f"{needed} workers must run at once, but Ray has {self.cores} CPUs on {self.nodes} node(s). "
            f"Ask for at most {self.cores} workers, or start with more: "
            f'init_orca_context("ray", cores={needed}).'
        )

    def launch(self, seats: Sequence[Seat], data: Placement | None) -> RayLaunch:
        dealt = self.deal_recipes(data, len(seats))
        group = self._reserve(len(seats))
        try:
            return RayLaunch(self._ray, group, seats, dealt)
        except BaseException:
            _remove_group(group)
            raise

    def _reserve(self, size: int) -> Any:
        """A placement group with a CPU for each worker."""
        from ray.util.placement_group import placement_group

        group = placement_group([{"CPU": 1}] * size, strategy="PACK")
        try:
            deadline = time.monotonic() + GROUP_SECONDS
            while not group.wait(GROUP_LOOK_SECONDS):
                self._check_room(size, deadline)
        except BaseException:
            _remove_group(group)
            raise
        return group

    def _check_room(self, size: int, deadline: float) -> None:
        if self.cores < size:
            raise WorkerLostError(
                f"Ray lost a node while {size} workers were to be started: it has {self.cores} CPUs left. "
                f"Add a node, or allow fewer: num_workers=(1, {size})."
            )
        if time.monotonic() > deadline:
            raise NotEnoughSlotsError(
                f"{size} workers must run at once, but Ray did not have {size} free CPUs within "
                f"{GROUP_SECONDS:.0f} s. End what else runs on it, or ask for fewer workers."
            )

    def store(self, recipes: Sequence[Recipe]) -> list[Stored]:
        return [StoredObject(ref) for (ref,) in self._submit(_compute, recipes)]

    def load(self, recipes: Sequence[Recipe]) -> list[list[Any]]:
        stored = recipes if all(isinstance(each, Stored) for each in recipes) else self.store(recipes)
        return [list(each.shards()) for each in stored]

    def split(self, recipes: Sequence[Recipe], num_targets: int) -> list[Pieces]:
        groups = max(1, min(num_targets, SPLIT_OBJECTS // max(1, len(recipes))))
        size = -(-num_targets // groups)
        split = functools.partial(_split, group_size=size, groups=groups)
        made = self._submit(split, recipes, 1 + groups)
        targets = self._ray.get([each[0] for each in made])
        return [SplitObjects(tuple(refs), mine, size) for (_, *refs), mine in zip(made, targets, strict=True)]

    def consume(self, recipes: Sequence[Recipe]) -> None:
        self._submit(_consume, recipes)

    def close(self) -> None:
        """Ray belongs to the context that started or joined it."""

    def _is_healing(self) -> bool:
        """Whether a node was lost lately, so that another may come in its place."""
        return any(not node["Alive"] for node in self._ray.nodes())

    def _submit(self, compute: Any, recipes: Sequence[Recipe], parts: int = 1) -> list[list[Any]]:
        """Start a task a partition; each gives its outcome (None or Failed) and then its objects."""
        task = self._ray.remote(_attempt).options(num_returns=1 + parts, max_retries=3)
        wish, results = Wish(), []
        running: dict[Any, int] = {}
        at_once = max(AT_ONCE, 4 * self.cores)
        with shard_bar(len(recipes)) as bar:
            try:
                for number, recipe in enumerate(recipes):
                    if len(running) == at_once:
                        self._await_one(running, bar)
                    outcome, *objects = task.remote(compute, recipe, parts, wish)
                    running[outcome] = number
                    results.append(objects)
                while running:
                    self._await_one(running, bar)
            except BaseException:
                wish.withdraw()
                raise
        return results

    def _await_one(self, running: dict[Any, int], bar: Bar) -> None:
        """Wait for one of some tasks: Ray looks at each of them every time, so that all would take too long."""
        ready: list[Any] = []
        while not ready:
            ready, _ = self._ray.wait(list(running), num_returns=1, timeout=bar.tick_seconds)
            bar.tick()
        self._raise_failure(ready[0], running.pop(ready[0]))
        bar.advance()

    def _raise_failure(self, outcome: Any, number: int) -> None:
        try:
            failed = self._ray.get(outcome)
        except self._ray.exceptions.WorkerCrashedError as error:
            raise WorkerLostError(
                f"the process that worked on partition {number} died again and again. "
                "Most often it ran out of memory: use more, smaller shards.",
                (number,),
            ) from error
        if isinstance(failed, Failed):
            raise_worker_error(failed, f"raised while computing partition {number}")


class Wish:
    """Whether the driver still wants what a job's tasks compute.

    `ray.cancel` would be the word for it, but it ends the driver's own process when a task is just about to return
    (Ray 2.60: "Tried to complete task that was not pending"). So the wish is a key in the cluster's own store, and
    the tasks look at it.
    """

    def __init__(self) -> None:
        self._key = f"orca-unwanted-{uuid.uuid4().hex}".encode()

    def withdraw(self) -> None:
        require("ray.experimental.internal_kv", "The Ray engine")._internal_kv_put(self._key, b"")

    def stands(self) -> bool:
        return not require("ray.experimental.internal_kv", "The Ray engine")._internal_kv_exists(self._key)

    def end_process_without_it(self, done: threading.Event) -> None:
        while not done.wait(LOOK_SECONDS):
            if not self.stands():
                os._exit(1)  # user code runs, for hours perhaps: only exit helps


def _attempt(compute: Any, recipe: Recipe, parts: int, wish: Wish) -> tuple[Any, ...]:
    """Run in a Ray task: what was computed behind None, or a Failed and nothing."""
    if not wish.stands():
        return (None, *[None] * parts)
    done = threading.Event()
    threading.Thread(target=wish.end_process_without_it, args=(done,), name="orca-wish", daemon=True).start()
    try:
        return (None, *compute(recipe))
    except (Exception, SystemExit) as error:
        return (describe_failure(error, None), *[None] * parts)
    finally:
        done.set()


def _compute(recipe: Recipe) -> tuple[list[Any]]:
    return ([seal(shard, is_alone(shard)) for shard in recipe.shards()],)


def _consume(recipe: Recipe) -> tuple[int]:
    return (sum(1 for _ in recipe.shards()),)


def _split(recipe: Recipe, group_size: int, groups: int) -> list[Any]:
    """The targets that there are pieces for, and the pieces by target, an object for each group of targets."""
    pieces: list[dict[int, list[Any]]] = [{} for _ in range(groups)]
    for target, piece in recipe.shards():
        pieces[target // group_size].setdefault(int(target), []).append(seal(piece, is_alone(piece)))
    return [[target for group in pieces for target in group], *pieces]


def seal(shard: Any, stays: bool = True) -> list[np.ndarray]:
    """A shard as bytes that Ray stores as they are: its pickle, and the large buffers in it, which are copied once.

    Ray's own pickler would make other classes of a script's classes, and hand out arrays that cannot be written to.

    Args:
        stays: whether the shard stays what it is until Ray has stored it. A function that fills one array again and
            again, and gives it each time, is why it may not.
    """
    buffers: list[np.ndarray] = []

    def stays_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        is_small = raw.nbytes < OWN_BUFFER
        if not is_small:
            buffers.append(np.frombuffer(raw if stays else bytes(raw), np.uint8))
        return is_small

    body = cloudpickle.dumps(shard, protocol=5, buffer_callback=stays_inside)
    return [np.frombuffer(body, np.uint8), *buffers]


def unseal(sealed: Sequence[np.ndarray], borrow: bool = False) -> Any:
    """A fresh copy of the shard, to be changed at will; or one that lies in Ray's store, for who will not."""
    body, *buffers = sealed
    return pickle.loads(body.data, buffers=[(each if borrow else each.copy()).data for each in buffers])


class StoredObject(Stored):
    """Sealed shards in Ray's object store."""

    def __init__(self, ref: Any):
        self.ref = ref

    def shards(self, borrow: bool = False) -> Iterator[Any]:
        return (unseal(sealed, borrow) for sealed in require("ray", "The Ray engine").get(self.ref))


class PlainObject(Stored):
    """A list of shards in Ray's object store as Ray keeps it, for actors of the user."""

    def __init__(self, ref: Any):
        self.ref = ref

    def shards(self, borrow: bool = False) -> Iterator[Any]:
        return (unseal(seal(shard)) for shard in require("ray", "The Ray engine").get(self.ref))


class SplitObjects(Pieces):
    """One source's sealed pieces in Ray's object store, an object for each group of so many targets."""

    def __init__(self, refs: tuple[Any, ...], targets: Sequence[int], group_size: int):
        self.refs = refs
        self.targets = targets
        self._group_size = group_size

    def only(self, target: int) -> Pieces:
        return GroupObject(self.refs[target // self._group_size], target)

    def pieces(self, target: int) -> Iterator[Any]:
        return self.only(target).pieces(target)


class GroupObject(Pieces):
    """One source's sealed pieces for a group of targets, of which one is wanted."""

    def __init__(self, ref: Any, target: int):
        self.ref = ref
        self.targets = (target,)

    def pieces(self, target: int) -> Iterator[Any]:
        return map(unseal, require("ray", "The Ray engine").get(self.ref)[target])


class RayShared:
    """A value in Ray's object store, fetched once by each process."""

    def __init__(self, ref: Any):
        self._ref = ref

    @property
    def value(self) -> Any:
        return _shared_value(self._ref)

    def unpersist(self) -> None:
        self._ref = None

    def __reduce__(self):
        # Inside a pickled function Ray does not see the reference, unless its own pickler writes it.
        return _unpack_shared, (require("ray.cloudpickle", "The Ray engine").dumps(self._ref),)


def _unpack_shared(ref: bytes) -> RayShared:
    return RayShared(require("ray.cloudpickle", "The Ray engine").loads(ref))


@functools.lru_cache(maxsize=32)
def _shared_value(ref: Any) -> Any:
    return require("ray", "The Ray engine").get(ref)


def _sit(seat: Seat, dealt: list[tuple[int, Recipe]]) -> None:
    """What a rank runs, in a process that Ray may use again: what was imported there is there for the next gang."""
    sit(seat, dealt_shards(dealt))


class RayLaunch(Launch):
    """A gang's tasks, one a bundle of a placement group."""

    def __init__(self, ray: Any, group: Any, seats: Sequence[Seat], dealt: list[list[tuple[int, Recipe]]]):
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._ray = ray
        self._group = group
        task = ray.remote(_sit)
        self._runs = [
            task.options(
                num_cpus=1,
                max_retries=0,  # the gang as a whole is started again, never one of its ranks
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=rank),
            ).remote(seat, mine)
            for rank, (seat, mine) in enumerate(zip(seats, dealt, strict=True))
        ]

    def failure(self) -> BaseException | None:
        ended, _ = self._ray.wait(self._runs, num_returns=len(self._runs), timeout=0)
        for run in ended:
            try:
                self._ray.get(run)
            except self._ray.exceptions.RayError as error:
                return error
        return None

    def stop(self, grace: float) -> None:
        self._ray.wait(self._runs, num_returns=len(self._runs), timeout=grace)
        _remove_group(self._group)  # which ends what still runs or waits there; `ray.cancel` is told of at Wish
        self._ray.wait(self._runs, num_returns=len(self._runs), timeout=STOP_SECONDS)


def _remove_group(group: Any) -> None:
    from ray.util.placement_group import remove_placement_group

    remove_placement_group(group)
