"""The processes of MXNet's kvstore that are no workers: its scheduler and servers, started and watched by the ranks.

Rank 0 starts the scheduler, and each rank its share of the servers. Such a process loads MXNet's library alone, so it
is there in a moment, and it unpickles nothing: MXNet's own servers would run whatever pickle they are sent. It ends
with the rank that started it, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from zoo.orca.learn.sync.sealed import Address, doors, links, lock

logger = logging.getLogger("zoo.orca")

PR_SET_PDEATHSIG = 1  # from Linux's <sys/prctl.h>
TAIL = 2000  # so many bytes of a process's last words are told


class Role:
    """One process beside the workers, watched by a thread.

    Args:
        name: what users read, such as "server 1".
        library: MXNet's shared library.
        variables: the environment variables that tell it its part.
        on_end: called with this, from the thread, when the process has ended.
    """

    def __init__(self, name: str, library: Path, variables: Mapping[str, str], on_end: Callable[[Role], None]):
        self.name = name
        self._tail = b""
        self._on_end = on_end
        self._line, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "zoo.orca.learn.sync.kvstore_roles", str(library)],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the driver: it ends the ranks, and they end these
                env=_environment(variables),
            )
        self._thread = threading.Thread(target=self._watch, name=f"orca-kvstore-{name}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def end_code(self) -> int | None:
        """What it ended with; None while it runs."""
        return self._process.poll()

    @property
    def end_words(self) -> str:
        """How it ended, and what it said last."""
        code = self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        said = self._tail.decode(errors="replace").strip()
        return f"MXNet's {self.name} ended ({how})" + (f": {said}" if said else "")

    def opens(self, door: Address) -> bool:
        """Wait until it listens there; False if it ended instead."""
        while self.end_code is None:
            if door in doors([self.pid]):
                return True
            time.sleep(0.005)
        return False

    def lock(self) -> None:
        """Let nobody in any more at its doors."""
        with contextlib.suppress(OSError):  # it is dead, which the watch tells
            self._line.sendall(b"lock")
            self._line.recv(100)

    def wait(self, deadline: float) -> None:
        """Wait, until then at most, for it to end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self._thread.join()
        self._line.close()

    def _watch(self) -> None:
        # Its end closes the pipe. It has no reason to say much, but who does not listen could hold it up.
        with self._process.stderr as said:  # type: ignore[union-attr]
            while words := os.read(said.fileno(), 1 << 16):
                self._tail = (self._tail + words)[-TAIL:]
                logger.debug("MXNet's %s: %s", self.name, words.decode(errors="replace").rstrip())
        self._process.wait()
        self._on_end(self)


class Roles:
    """The scheduler and servers that this rank started.

    Args:
        library: MXNet's shared library.
        on_lost: called from a thread with the words for a process that should not have ended.
    """

    def __init__(self, library: Path, on_lost: Callable[[str], None]):
        self._library = library
        self._on_lost = on_lost
        self._roles: list[Role] = []
        self._may_leave = False
        self._closing = False

    def __iter__(self) -> Iterator[Role]:
        return iter(self._roles)

    def start(self, name: str, variables: Mapping[str, str]) -> Role:
        """Start a process whose end is told from now on."""
        role = Role(name, self._library, variables, self._on_end)
        self._roles.append(role)
        return role

    def start_at(self, door: Address, name: str, variables: Mapping[str, str]) -> str | None:
        """Start a process that listens there, and wait until it does; words for its end if it could not."""
        role = Role(name, self._library, variables, self._on_end)
        if not role.opens(door):
            role.close()
            return role.end_words
        self._roles.append(role)
        if role.end_code is not None:
            self._on_end(role)  # after all: its thread did not find it among the roles
        return None

    def lock(self) -> None:
        """Let nobody in any more at their doors."""
        for role in self._roles:
            role.lock()

    def expect_end(self) -> None:
        """From now on they may end, if they end well."""
        self._may_leave = True

    def close(self, grace: float) -> None:
        """Wait so long for them to end by themselves, then end them."""
        deadline = time.monotonic() + grace
        for role in self._roles if grace else []:
            role.wait(deadline)
        self._closing = True  # who is ended by us is not lost
        for role in self._roles:
            role.close()

    def _on_end(self, role: Role) -> None:
        well = self._may_leave and role.end_code == 0
        if role in self._roles and not well and not self._closing:
            self._on_lost(role.end_words)


def wait_until_connected(expected: Mapping[Address, int], pids: list[int], patience: float) -> None:
    """Wait until as many connections as that have come in at each door of these processes.

    MXNet makes them in the background, and none could be made after the doors are locked."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        came_in = [near for near, _ in links(pids)]
        if all(came_in.count(door) >= count for door, count in expected.items()):
            return
        time.sleep(0.005)
    logger.warning(
        "MXNet's processes had not all connected to each other after %.0f s; going on all the same.", patience
    )


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {"OMP_NUM_THREADS": "1"} | dict(os.environ) | {"PYTHONPATH": path} | dict(variables)


def main(arguments: Iterable[str]) -> None:
    """Run the part that the environment variables name until the workers are done, or whoever started this is gone."""
    (library,) = arguments
    _end_with_parent()
    threading.Thread(target=_obey, daemon=True).start()
    mxnet, handle = ctypes.CDLL(library), ctypes.c_void_p()
    refuse = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    _check(mxnet, mxnet.MXKVStoreCreate(b"dist", ctypes.byref(handle)))
    _check(mxnet, mxnet.MXKVStoreRunServer(handle, refuse, None))
    _check(mxnet, mxnet.MXKVStoreFree(handle))


def _end_with_parent() -> None:
    """Even where the pipe to it stays open, because processes that it forked hold it too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _obey() -> None:
    """Lock the doors when told, and end when whoever started this is gone."""
    try:
        while os.read(0, 100):
            lock(doors())
            os.write(1, b"locked")
    finally:
        os._exit(1)


def _check(mxnet: ctypes.CDLL, code: int) -> None:
    if code:
        mxnet.MXGetLastError.restype = ctypes.c_char_p
        raise RuntimeError(mxnet.MXGetLastError().decode(errors="replace"))


if __name__ == "__main__":
    main(sys.argv[1:])
