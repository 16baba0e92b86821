"""What the nursery runs: import what is asked for, fork, and tell the driver how each worker ended."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import sys
import warnings
from multiprocessing.connection import Connection

from zoo.orca.engine import local_process
from zoo.orca.engine.nursery import Birth
from zoo.orca.engine.preload import import_ahead, seed_anew

LONGEST_REQUEST = 1 << 16
MOST_DESCRIPTORS = 8


def raise_workers(door: socket.socket) -> tuple[Birth, int]:
    """Returns in every worker, with what it was asked to be and its connection; the nursery itself never does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # what the driver interrupts has not begun yet
    bell, ringer = socket.socketpair()
    bell.setblocking(False)
    ringer.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ringer.fileno(), warn_on_full_buffer=False)
    lives: dict[int, Connection] = {}
    poll = select.poll()
    poll.register(door, select.POLLIN)
    poll.register(bell, select.POLLIN)
    is_open = True
    while is_open or lives:  # workers whose driver is gone or has another nursery end by themselves
        ready = {descriptor for descriptor, _ in poll.poll()}
        if bell.fileno() in ready:
            bell.recv(LONGEST_REQUEST)
            _tell_ends(lives)
        if door.fileno() not in ready:
            continue
        message, descriptors, *_ = socket.recv_fds(door, LONGEST_REQUEST, MOST_DESCRIPTORS)
        if not message:
            poll.unregister(door)
            is_open = False
            continue
        birth: Birth = pickle.loads(message)
        import_ahead(birth.modules)
        connection, teller, *rest = descriptors
        try:
            pid = _fork()
        except OSError as error:  # as many processes as there may be: those that live go on
            with Connection(teller, readable=False) as life:
                _tell(life, error)
            for descriptor in (connection, *rest):
                os.close(descriptor)
            continue
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (bell, ringer, door):
                each.close()
            for life in lives.values():
                life.close()
            return birth, _settle(birth, descriptors)
        for descriptor in (connection, *rest):
            os.close(descriptor)
        lives[pid] = Connection(teller, readable=False)
        _tell(lives[pid], pid)
    os._exit(0)


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns of threads: the only ones here are jemalloc's, which know what a fork is.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _settle(birth: Birth, descriptors: list[int]) -> int:
    """Make the fork what a process would be that the driver started now; its connection."""
    connection, life, folder, *outputs = descriptors
    os.set_inheritable(connection, False)  # or a daemon of the user's would keep it open when this process is gone
    os.close(life)
    os.fchdir(folder)
    os.close(folder)
    for ours, theirs in zip(birth.outputs, outputs, strict=True):
        os.dup2(theirs, ours)
        os.close(theirs)
    if not sys.flags.safe_path:
        with contextlib.suppress(FileNotFoundError):  # a folder that was removed has no name
            sys.path[0] = os.getcwd()
    seed_anew()
    return connection


def _tell_ends(lives: dict[int, Connection]) -> None:
    for pid in list(lives):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with lives.pop(pid) as life:
                _tell(life, os.waitstatus_to_exitcode(status))


def _tell(life: Connection, what: int | OSError) -> None:
    with contextlib.suppress(OSError):  # the driver does not care any more
        life.send(what)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as door:
        birth, connection = raise_workers(door)
    local_process.main(connection, birth.budget, birth.folder)
