"""The processes of the embedded engine: spawned on demand, used again, and ended without leaving anything.

A process is started as a fresh interpreter (`python -m zoo.orca.engine.local_process`), so a script needs no
`if __name__ == "__main__"`, and talks over a socket pair it inherited, so there is no port to listen on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Pipe
from typing import Any

import cloudpickle
import psutil

from zoo.orca.engine.channel import Failed
from zoo.orca.engine.gang import raise_worker_error
from zoo.orca.errors import WorkerLostError

TASK_ATTEMPTS = 3


class Process:
    """One process of the pool."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe(duplex=True)
        path = os.pathsep.join(entry for entry in sys.path if entry)
        # One thread a process unless the user said otherwise: processes are the unit of parallel work here.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zoo.orca.engine.local_process", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={"OMP_NUM_THREADS": "1"} | dict(os.environ) | {"PYTHONPATH": path},
        )
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: Any) -> None:
        self._connection.send_bytes(cloudpickle.dumps(message))

    def receive(self) -> Any:
        return cloudpickle.loads(self._connection.recv_bytes())

    def is_free(self, grace: float) -> bool:
        """Whether the process leaves its seat in good order within `grace` seconds and can be used again."""
        try:
            return self._connection.poll(grace) and self.receive() == "free"
        except (EOFError, OSError):
            return False

    def kill(self) -> None:
        """End the process and whatever it started; who waits for its answer sees the connection end."""
        if self.alive:
            for child in _children(self.pid):
                child.kill()
            self._process.kill()

    def end(self) -> None:
        self.kill()
        self._process.wait()
        self._connection.close()

    def end_words(self) -> str:
        code = self._process.poll()
        return "still running" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


class Pool:
    """Processes that are idle or busy; `run` keeps as many busy as there are cores."""

    def __init__(self, cores: int):
        self._cores = cores
        self._idle: list[Process] = []
        self._busy: set[Process] = set()
        self._lock = threading.Lock()

    @property
    def pids(self) -> set[int]:
        with self._lock:
            return {process.pid for process in [*self._idle, *self._busy]}

    def take(self, count: int) -> list[Process]:
        with self._lock:
            taken = [self._idle.pop() for _ in range(min(count, len(self._idle)))]
            taken += [Process() for _ in range(count - len(taken))]
            self._busy.update(taken)
        return taken

    def give_back(self, process: Process) -> None:
        with self._lock:
            self._busy.discard(process)
            self._idle.append(process)

    def drop(self, process: Process) -> None:
        with self._lock:
            self._busy.discard(process)
        process.end()

    def run(self, tasks: Sequence[tuple[Any, ...]]) -> None:
        """Run tasks, as many at once as there are cores; the first failure ends the others and is raised."""
        if not tasks:
            return
        job = _Job(self)
        with ThreadPoolExecutor(min(self._cores, len(tasks)), thread_name_prefix="orca-local") as threads:
            futures = [threads.submit(job.run, number, task) for number, task in enumerate(tasks)]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                job.stop()
                raise

    def close(self) -> None:
        with self._lock:
            processes = [*self._idle, *self._busy]
            self._idle, self._busy = [], set()
        for process in processes:
            process.kill()
        for process in processes:
            process.end()


class _Job:
    """Tasks that belong together: when one fails, the processes of the others are ended."""

    def __init__(self, pool: Pool):
        self._pool = pool
        self._processes: set[Process] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, number: int, task: tuple[Any, ...]) -> None:
        """Run one task in an idle process; a process that dies is replaced and the task tried again."""
        for _ in range(TASK_ATTEMPTS):
            (process,) = self._pool.take(1)
            answered, outcome = self._ask(process, task)
            if self._stopped:
                return
            if isinstance(outcome, Failed):
                raise_worker_error(outcome, f"raised while computing partition {number}")
            if answered:
                return
        raise WorkerLostError(
            f"the process that worked on partition {number} died {TASK_ATTEMPTS} times ({process.end_words()}). "
            "Most often it ran out of memory: use more, smaller shards.",
            (number,),
        )

    def _ask(self, process: Process, task: tuple[Any, ...]) -> tuple[bool, Any]:
        """Whether the process answered, and what; it goes back to the pool unless it died or was killed."""
        self._processes.add(process)
        try:
            process.send(("task", *task))
            answered, outcome = True, process.receive()
        except (EOFError, OSError):
            answered, outcome = False, None
        with self._lock:  # `stop` kills under this lock, so a process it killed is never given back
            self._processes.discard(process)
            usable = answered and not self._stopped
        if usable:
            self._pool.give_back(process)
        else:
            self._pool.drop(process)
        return answered, outcome

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._processes:
                process.kill()
