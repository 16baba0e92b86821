"""The embedded engine: processes on this machine, no JVM, nothing to start by hand.

A pool of processes (`pool.py`) maps functions over partitions and sits in gangs. A partition stays in the
memory of the process that computed it (`shelf.py`), where the next function finds it without a detour, and lies in a
file of a temporary folder (`store.py`) as soon as another process needs it or memory is short.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from zoo.orca.engine.base import Launch, Placement, Seat
from zoo.orca.engine.lazy import LazyEngine, LazyPlacement
from zoo.orca.engine.pool import Pool, Process, Task
from zoo.orca.engine.recipe import Pieces, Recipe, Stored
from zoo.orca.engine.shelf import SHELF
from zoo.orca.engine.store import read_pieces, read_shards, write_shards
from zoo.orca.errors import InvalidArgumentError


class LocalEngine(LazyEngine):
    """Runs everything in processes of this machine, `cores` at once.

    Args:
        memory: how many bytes of shards the processes may keep in memory, all together; what is over lies in files.
            Half of what is free by default.

    Example:
        >>> with LocalEngine(cores=2) as engine:
        ...     engine.place([[1, 2], [3]]).map(lambda index, shards: (shard * 10 for shard in shards)).fetch()
        [[10, 20], [30]]
    """

    name = "local"

    def __init__(self, cores: int | None = None, memory: int | None = None):
        if cores is not None and cores < 1:
            raise InvalidArgumentError(f"cores must be at least 1, but is {cores}.")
        self._cores = cores or len(os.sched_getaffinity(0))
        total = psutil.virtual_memory().available // 2 if memory is None else memory
        self._folder = Path(tempfile.mkdtemp(prefix="orca-local-"))
        self._pool = Pool(self._cores, budget=total // self._cores, folder=self._folder)
        self._numbers = itertools.count()
        self._finalizer = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LocalEngine(cores={self._cores})"

    @property
    def nodes(self) -> int:
        return 1

    @property
    def cores(self) -> int:
        return self._cores

    @property
    def driver_host(self) -> str:
        return "127.0.0.1"

    @property
    def one_machine(self) -> bool:
        return True

    @property
    def pids(self) -> set[int]:
        """The processes this engine holds now."""
        return self._pool.pids

    def place(self, partitions: Sequence[Sequence[Any]]) -> LazyPlacement:
        stored = [StoredFile(self._new_file()) for _ in partitions]
        for each, shards in zip(stored, partitions, strict=True):
            write_shards(each.file, shards)
        return LazyPlacement(self, len(stored), lambda: stored)

    def share(self, value: Any) -> LocalShared:
        path = self._new_file()
        write_shards(path, [value])
        return LocalShared(path)

    def expect(self, modules: Sequence[str]) -> None:
        self._pool.expect(modules)

    def check_gang(self, most: int, least: int | None = None) -> int:
        """Processes of one machine can always be started together, on more workers than cores too."""
        return most

    def launch(self, seats: Sequence[Seat], data: Placement | None) -> LocalLaunch:
        dealt = self.deal_recipes(data, len(seats))
        self._move_to_files(stored for mine in dealt for _, recipe in mine for stored in recipe.stored())
        launch = LocalLaunch(self._pool, self._pool.take(len(seats)), keep=dealt)
        try:
            launch.seat(seats, dealt)
        except BaseException:
            launch.stop(grace=0)
            raise
        return launch

    def store(self, recipes: Sequence[Recipe]) -> list[Stored]:
        stored = [StoredFile(self._new_file()) for _ in recipes]
        tasks = self._run("keep", recipes, stored)
        for each, task in zip(stored, tasks, strict=True):
            if task.answer and task.process is not None:
                each.keep_in(task.process)
        return list(stored)

    def load(self, recipes: Sequence[Recipe]) -> list[list[Any]]:
        files: Sequence[Any] = recipes
        if all(isinstance(each, StoredFile) for each in recipes):
            self._move_to_files(stored for each in recipes for stored in each.stored())
        else:
            files = [StoredFile(self._new_file()) for _ in recipes]
            self._run("store", recipes, files)
        return [list(read_shards(each.file)) for each in files]

    def split(self, recipes: Sequence[Recipe], num_targets: int) -> list[Pieces]:
        pieces = [PieceFile(self._new_file()) for _ in recipes]
        for each, task in zip(pieces, self._run("split", recipes, pieces), strict=True):
            each.targets = task.answer
        return list(pieces)

    def consume(self, recipes: Sequence[Recipe]) -> None:
        self._run("consume", recipes, [None] * len(recipes))

    def close(self) -> None:
        self._pool.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, work: str, recipes: Sequence[Recipe], results: Sequence[_OwnedFile | None]) -> list[Task]:
        """Compute partitions, each where the shards it needs are kept."""
        tasks = []
        for number, (recipe, result) in enumerate(zip(recipes, results, strict=True)):
            kept = [stored for stored in recipe.stored() if isinstance(stored, StoredFile) and stored.owner]
            only = kept[0].owner if kept else None
            self._move_to_files(stored for stored in kept if stored.owner is not only)
            tasks.append(Task((work, recipe, result and result.file), number, only))
        self._pool.run(tasks)
        return tasks

    def _move_to_files(self, stored: Iterable[Stored]) -> None:
        """Let every process read what some keep in memory."""
        by_owner: dict[Process, list[StoredFile]] = {}
        for each in stored:
            if isinstance(each, StoredFile) and each.owner is not None:
                by_owner.setdefault(each.owner, []).append(each)
        self._pool.run([Task(("move", [e.file for e in kept]), only=owner) for owner, kept in by_owner.items()])
        for kept in by_owner.values():
            for each in kept:
                each.owner = None

    def _new_file(self) -> Path:
        self._folder.mkdir(exist_ok=True)
        return self._folder / f"{next(self._numbers)}.shards"


class _OwnedFile:
    """A file that is removed with the driver's object; copies in the workers only read it."""

    def __init__(self, file: Path):
        self.file = file
        weakref.finalize(self, file.unlink, missing_ok=True)

    def __reduce__(self):
        return _borrow, (type(self), self.file)


def _borrow(kind: type[_OwnedFile], file: Path) -> _OwnedFile:
    borrowed = kind.__new__(kind)
    borrowed.file = file
    return borrowed


class StoredFile(_OwnedFile, Stored):
    """Shards in a file, or in the memory of the process that computed them until another one needs them."""

    owner: Process | None = None
    is_pinned = False

    def keep_in(self, process: Process) -> None:
        self.owner = process
        weakref.finalize(self, process.drop_later, self.file)

    @property
    def is_lost(self) -> bool:
        return self.owner is not None and not self.owner.alive

    def last_read(self) -> Recipe:
        return self if self.is_pinned else LastRead(self)

    def pin(self) -> None:
        self.is_pinned = True

    def shards(self, borrow: bool = False) -> Iterator[Any]:
        kept = SHELF.shards(self.file, borrow)
        return read_shards(self.file) if kept is None else kept


@dataclass(frozen=True)
class LastRead(Recipe):
    """Stored shards that are read for the last time: what is kept of them is given away instead of copied."""

    source: StoredFile

    def shards(self, borrow: bool = False) -> Iterator[Any]:
        given = SHELF.take(self.source.file)
        return read_shards(self.source.file) if given is None else given

    def stored(self) -> Iterator[Stored]:
        yield self.source


class PieceFile(_OwnedFile, Pieces):
    """One source's pieces in a file."""

    def pieces(self, target: int) -> Iterator[Any]:
        return read_pieces(self.file, target)


class LocalShared:
    """A value that workers read from a file, each process once."""

    def __init__(self, path: Path):
        self._path = path

    @property
    def value(self) -> Any:
        return _shared_value(self._path)

    def unpersist(self) -> None:
        self._path.unlink(missing_ok=True)


@functools.lru_cache(maxsize=32)
def _shared_value(path: Path) -> Any:
    return next(read_shards(path))


class LocalLaunch(Launch):
    """A gang's processes, taken from the pool and given back when they have finished."""

    def __init__(self, pool: Pool, processes: list[Process], keep: object):
        self._pool = pool
        self._processes = processes
        self._keep = keep  # the files that the ranks read must outlive the gang

    def seat(self, seats: Sequence[Seat], dealt: Sequence[Any]) -> None:
        for seat, process, mine in zip(seats, self._processes, dealt, strict=True):
            with contextlib.suppress(OSError):  # it is dead, which `failure` will tell
                process.send("sit", seat, mine)

    def failure(self) -> BaseException | None:
        for rank, process in enumerate(self._processes):
            if not process.alive:
                return ChildProcessError(f"the process of rank {rank} ended ({process.end_words()})")
        return None

    def stop(self, grace: float) -> None:
        for process in self._processes:
            if process.is_free(grace):
                self._pool.give_back(process)
            else:
                self._pool.drop(process)
        self._processes = []
