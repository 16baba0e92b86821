"""The driver's side of the nursery: one process that has imported what the embedded engine's workers need.

Every worker is a fork of it. Importing torch takes two seconds of a core and TensorFlow six; a fork takes some
milliseconds and shares the memory, so that the second worker, and one that takes a lost one's place, cost next to
nothing. A fresh interpreter rather than the driver is what is forked: it has no threads and no state of the user's, so
a script needs no `if __name__ == "__main__"`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from zoo.orca.engine.bar import VARIABLE

END_SECONDS = 0.3  # four times what workers with torch in their memory took


@dataclass(frozen=True)
class Birth:
    """What the nursery is asked for; descriptors travel beside it.

    These are: the worker's connection, the pipe that tells of its life, the driver's folder, and those of `outputs`."""

    modules: tuple[str, ...]
    budget: int
    folder: Path
    outputs: tuple[int, ...]


class Nursery:
    """The process itself, started now and ended with `close`, or with the driver and the workers it left behind."""

    def __init__(self) -> None:
        self._environment = _environment()
        self._is_retired = False
        self._door, theirs = map(_beside_outputs, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "zoo.orca.engine.nursery_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=_standard_outputs()[1],
                stderr=_standard_outputs()[2],
                env=self._environment,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def fits(self) -> bool:
        """Whether a fork is what a fresh process would be: many a variable is read only while a library is loaded."""
        return not self._is_retired and self.alive and self._environment == _environment()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, connection: Connection, budget: int, folder: Path, modules: Iterable[str]) -> Forked:
        """A worker that serves the connection; asked for, and not waited for."""
        life, theirs = Pipe(duplex=False)
        here = os.open(".", os.O_PATH)
        outputs = tuple(number for number, output in _standard_outputs().items() if output is None)
        birth = Birth(tuple(modules), budget, folder, outputs)
        try:
            with contextlib.suppress(OSError):  # it is dead, and the life ends before it began
                descriptors = [connection.fileno(), theirs.fileno(), here, *outputs]
                socket.send_fds(self._door, [pickle.dumps(birth)], descriptors)
        finally:
            theirs.close()
            os.close(here)
        return Forked(life)

    def retire(self) -> None:
        """Fork no more, and go when the last worker has."""
        self._is_retired = True
        self._door.close()

    def close(self) -> None:
        """End it, when it has seen its workers end: nobody else would."""
        self.retire()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self._process.kill()
        self._process.wait()


class Forked:
    """A worker that the nursery forked, with what `subprocess.Popen` offers for one that it started.

    Attributes:
        refusal: why the system would not let it be.
    """

    def __init__(self, life: Connection) -> None:
        self._life = life
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._code: int | None = None
        self.refusal: OSError | None = None

    @property
    def pid(self) -> int | None:
        """None as long as it is not born: the nursery may be importing what it needs."""
        self.poll()
        return self._pid

    def poll(self) -> int | None:
        with self._lock:
            while self._code is None and self._life.poll():
                self._hear()
            return self._code

    def wait(self) -> int:
        with self._lock:
            while self._code is None:
                self._hear()
            self._life.close()
            return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None and self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _hear(self) -> None:
        """The nursery tells the process's number first, or why there is none, and how it ended last."""
        try:
            told = self._life.recv()
        except (EOFError, OSError):  # the nursery is gone, and a worker that nobody would see end goes with it
            if self._pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
            self._code = -signal.SIGKILL
            return
        if isinstance(told, OSError):
            self.refusal = told
            self._code = told.errno
        elif self._pid is None:
            self._pid = told
        else:
            self._code = told


def _environment() -> dict[str, str]:
    """A worker's variables: the driver's, and its path.

    One thread a process unless the user said otherwise: processes are the unit of parallel work here. And only the
    driver draws bars, though all have its terminal."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {"OMP_NUM_THREADS": "1"} | dict(os.environ) | {"PYTHONPATH": path, VARIABLE: "0"}


def _beside_outputs(door: socket.socket) -> socket.socket:
    """The same with a descriptor that is not one of the three that programs read and write without being asked."""
    with door:
        return socket.socket(fileno=fcntl.fcntl(door, fcntl.F_DUPFD_CLOEXEC, 3))


def _standard_outputs() -> dict[int, int | None]:
    """By descriptor: None for one that a worker is to have too, or nowhere.

    A driver may have been started without, and something else have the number now."""
    started = {1: sys.__stdout__, 2: sys.__stderr__}
    return {
        number: None if output is not None and _is_open(number) else subprocess.DEVNULL
        for number, output in started.items()
    }


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
