"""Connections of libraries that ask for no token: ranks check them over the gang's own channel, and lock the doors.

gloo listens while it connects, and afterwards, and takes whoever comes. So when it has connected, the doors are
locked, and every rank tells the others, over connections that did ask for a token, which connections it has: one whose
other end no rank has is a stranger's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import psutil

from zoo.orca.errors import StrangerError

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker

Address = tuple[str, int]
Link = tuple[Address, Address]

#: So often ranks connect anew when a stranger was among them.
TRIES = 3
SO_ATTACH_FILTER = 26  # Python has no name for it
NOTHING_PASSES = struct.pack("HBBI", 0x06, 0, 0, 0)  # a filter of one instruction: return 0, take no byte of a packet


def doors(pids: Iterable[int | None] = (None,)) -> set[Address]:
    """Where this process listens, or those processes do."""
    return {_plain(each.laddr) for each in _sockets(pids) if each.status == psutil.CONN_LISTEN}


def links(pids: Iterable[int | None] = (None,)) -> list[Link]:
    """The connections of this process, or of those: the near end and the far end of each."""
    found = [each for each in _sockets(pids) if each.status == psutil.CONN_ESTABLISHED]
    return [(_plain(each.laddr), _plain(each.raddr)) for each in found]


def lock(mine: Iterable[Address]) -> None:
    """Let nobody in any more at these of this process's own doors; who is in stays in. Only Linux can."""
    if sys.platform != "linux":
        return
    found = [each.fd for each in _sockets() if each.status == psutil.CONN_LISTEN and _plain(each.laddr) in set(mine)]
    for descriptor in found:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as listener:
            _let_nothing_pass(listener)


def strangers(worker: Worker, opened: Iterable[Address], pids: Iterable[int | None] = (None,)) -> list[Address]:
    """Who came in at a door that some rank opened, and belongs to no rank. All ranks call it and get the same list.

    `pids` are the processes of a rank, where it has more than this one."""
    told = worker.all_gather((set(opened), links(pids)))
    all_doors = {door for theirs, _ in told for door in theirs}
    known = {link for _, theirs in told for link in theirs}
    return sorted(far for near, far in known if near in all_doors and (far, near) not in known)


def stranger_error(found: list[Address]) -> StrangerError:
    addresses = ", ".join(f"{host}:{port}" for host, port in found)
    return StrangerError(
        f"somebody else connected to the workers ({addresses}) each of the {TRIES} times they tried to connect to each "
        "other. Keep others off this network, or find out whether a scanner or a translated address (NAT) is between "
        "the workers. On one machine the backend 'bigdl' needs no connections."
    )


def _let_nothing_pass(listener: socket.socket) -> None:
    program = ctypes.create_string_buffer(NOTHING_PASSES, len(NOTHING_PASSES))
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))


def _sockets(pids: Iterable[int | None] = (None,)) -> list:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended
            found += psutil.Process(pid).net_connections("tcp")
    return found


def _plain(address: tuple) -> Address:
    return address[0].removeprefix("::ffff:"), address[1]
