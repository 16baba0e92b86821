"""The processes of the embedded engine: forked on demand, used again, and ended without leaving anything.

A process is a fork of the nursery (`nursery.py`), and talks over a socket pair, so there is no port to listen on.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Pipe, wait
from pathlib import Path
from typing import Any

import cloudpickle
import psutil

from zoo.orca.engine.bar import shard_bar
from zoo.orca.engine.channel import Failed
from zoo.orca.engine.gang import raise_worker_error
from zoo.orca.engine.nursery import Nursery
from zoo.orca.errors import ShardsLostError, WorkerLostError

TASK_ATTEMPTS = 3
BUSY_SECONDS = 0.01
INTERRUPT_SECONDS = 2.0
INTERRUPT_AGAIN = 0.2


class Process:
    """One process of the pool; it may keep shards in its memory."""

    def __init__(self, nursery: Nursery, budget: int, folder: Path, modules: Iterable[str]) -> None:
        self.connection, theirs = Pipe(duplex=True)
        self._dropped: list[Path] = []
        with theirs:
            self._process = nursery.fork(theirs, budget, folder, modules)

    @property
    def pid(self) -> int | None:
        """None as long as the process is not there yet."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, *message: Any) -> None:
        dropped, self._dropped = self._dropped, []
        self.connection.send_bytes(cloudpickle.dumps((dropped, *message)))

    def receive(self) -> Any:
        return cloudpickle.loads(self.connection.recv_bytes())

    def drop_later(self, file: Path) -> None:
        """What is kept for the file is dropped with the next message: this may be called at any moment."""
        self._dropped.append(file)

    def is_free(self, grace: float) -> bool:
        """Whether the process leaves its seat in good order within `grace` seconds and can be used again."""
        try:
            return self.connection.poll(grace) and self.receive() == "free"
        except (EOFError, OSError):
            return False

    def interrupt(self) -> None:
        """Let the function that runs there end with an exception."""
        if self.alive:
            self._process.send_signal(signal.SIGUSR1)

    def stops_by(self, deadline: float) -> bool:
        """Whether an interrupted process answers in time, whatever it says."""
        try:
            while not self.connection.poll(min(INTERRUPT_AGAIN, max(0.0, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    return False
                self.interrupt()  # again, for the function may not have begun yet
            self.connection.recv_bytes()
        except (EOFError, OSError):
            return False
        return True

    def kill(self) -> None:
        """End the process and whatever it started."""
        if self.alive and self.pid is not None:
            for child in _children(self.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            self._process.kill()

    def end(self) -> None:
        self.kill()
        self.connection.close()  # one that is not there yet will find nothing to do
        self._process.wait()

    def end_words(self) -> str:
        code = self._process.poll()
        if self._process.refusal is not None:
            return f"it could not be started: {self._process.refusal}"
        return "still running" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@dataclass
class Task:
    """A message for a process, and the one process that can do it, if only one can."""

    message: tuple[Any, ...]
    number: int = 0
    only: Process | None = None
    process: Process | None = None
    answer: Any = None
    deaths: int = 0


class Pool:
    """Processes that are idle or busy; `run` keeps as many busy as there are cores."""

    def __init__(self, cores: int, budget: int, folder: Path):
        self._cores = cores
        self._budget = budget
        self._folder = folder
        self._idle: list[Process] = []
        self._busy: set[Process] = set()
        self._lock = threading.Lock()
        self._nurseries: list[Nursery] = []
        self._modules: tuple[str, ...] = ()

    @property
    def pids(self) -> set[int]:
        """All processes: those that work or could, and the nurseries that they come from."""
        with self._lock:
            held: list[Process | Nursery] = [*self._idle, *self._busy, *self._nurseries]
            return {each.pid for each in held if each.alive and each.pid is not None}

    def expect(self, modules: Sequence[str]) -> None:
        """Have processes that are new from now on come with these modules."""
        self._modules = tuple(modules)

    def take(self, count: int) -> list[Process]:
        """Idle processes, and new ones where they do not suffice."""
        with self._lock:
            # An idle process says nothing: what can be read from it is its end.
            for died in [process for process in self._idle if process.connection.poll()]:
                self._idle.remove(died)
                died.end()
            taken = [self._idle.pop(0) for _ in range(min(count, len(self._idle)))]
            taken += [self._new() for _ in range(count - len(taken))]
            self._busy.update(taken)
        return taken

    def _new(self) -> Process:
        nursery = next((each for each in reversed(self._nurseries) if each.fits), None)
        if nursery is None:
            # The last one is kept: variables that were set for one call are often taken back after it.
            for former in self._nurseries[:-1]:
                former.retire()
            nursery = Nursery()
            self._nurseries = [*(each for each in self._nurseries if each.alive), nursery]
        return Process(nursery, self._budget, self._folder, self._modules)

    def _take_this(self, process: Process) -> bool:
        with self._lock:
            if process not in self._idle:
                return False
            self._idle.remove(process)
            self._busy.add(process)
        return True

    def give_back(self, process: Process) -> None:
        with self._lock:
            self._busy.discard(process)
            self._idle.append(process)

    def drop(self, process: Process) -> None:
        with self._lock:
            self._busy.discard(process)
        process.end()

    def run(self, tasks: Sequence[Task]) -> None:
        """Do the tasks, as many at once as there are cores; the first failure ends the others and is raised."""
        waiting: dict[Process | None, deque[Task]] = {}
        for task in tasks:
            waiting.setdefault(task.only, deque()).append(task)
        working: dict[Any, Task] = {}
        with shard_bar(len(tasks)) as bar:
            try:
                while working or any(waiting.values()):
                    self._start_what_can_be(waiting, working)
                    if not working:
                        time.sleep(BUSY_SECONDS)  # another thread's job has the process that is needed
                    for connection in wait(list(working), bar.tick_seconds):
                        task = working.pop(connection)
                        if self._finish(task):
                            bar.advance()
                        else:
                            waiting.setdefault(task.only, deque()).appendleft(task)
                    bar.tick()
            except BaseException:
                self._stop([task.process for task in working.values() if task.process])
                raise

    def _start_what_can_be(self, waiting: dict[Process | None, deque[Task]], working: dict[Any, Task]) -> None:
        for only, queue in waiting.items():
            while queue and len(working) < self._cores and (process := self._process_for(only)):
                task = queue.popleft()
                task.process = process
                working[process.connection] = task
                with contextlib.suppress(OSError):  # it is dead, which reading from it will show
                    process.send(*task.message)

    def _process_for(self, only: Process | None) -> Process | None:
        if only is None:
            return self.take(1)[0]
        if not only.alive:
            raise ShardsLostError(f"shards were lost with the process that kept them ({only.end_words()}).")
        return only if self._take_this(only) else None

    def _finish(self, task: Task) -> bool:
        """Whether the task is done; if its process died, it is to be done again by another."""
        process = task.process
        if process is None:
            raise AssertionError("a task that is being done has a process")
        try:
            task.answer = process.receive()
        except (EOFError, OSError):
            self.drop(process)
            task.deaths += 1
            if task.deaths == TASK_ATTEMPTS:
                raise WorkerLostError(
                    f"the process that computed partition {task.number} died {TASK_ATTEMPTS} times "
                    f"({process.end_words()}). Most often it ran out of memory: use more, smaller shards.",
                    (task.number,),
                ) from None
            return False
        self.give_back(process)
        if isinstance(task.answer, Failed):
            raise_worker_error(task.answer, f"raised while computing partition {task.number}")
        return True

    def _stop(self, processes: list[Process]) -> None:
        """Interrupt what runs, so that the shards kept there survive; what does not answer in time is killed."""
        for process in processes:
            process.interrupt()
        deadline = time.monotonic() + INTERRUPT_SECONDS
        for process in processes:
            if process.stops_by(deadline):
                self.give_back(process)
            else:
                self.drop(process)

    def close(self) -> None:
        with self._lock:
            processes, nurseries = [*self._idle, *self._busy], self._nurseries
            self._idle, self._busy, self._nurseries = [], set(), []
        for process in processes:
            process.kill()
            process.connection.close()
        for nursery in nurseries:
            nursery.close()
        for process in processes:
            process.end()
