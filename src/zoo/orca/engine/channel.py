"""The channel between a gang's workers and the driver: framed messages over an authenticated TCP connection.

The driver listens on one address with a token made for this run. A connection that cannot prove in time that it knows
the token is dropped before anything it sent is interpreted; only then are pickled messages exchanged.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import pickle
import resource
import secrets
import selectors
import socket
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from zoo.orca.engine.base import Seat
from zoo.orca.engine.pickling import Packed
from zoo.orca.errors import NotEnoughSlotsError

_HEADER = struct.Struct("!Q")
_NONCE = 32
_HANDSHAKE = struct.Struct("!I32s32s")  # rank, the worker's nonce, proof
_HANDSHAKE_SECONDS = 10.0
_CHUNK = 1 << 20
_OTHER_FILES = 512  # that a driver may have open beside its connections


@dataclass(frozen=True)
class Hello:
    """A worker is there: the address its peers reach it at, and a free port there."""

    host: str
    port: int


@dataclass(frozen=True)
class Welcome:
    """All are there: the function to run and who the others are."""

    task: Packed
    peers: tuple[str, ...]
    rendezvous: tuple[str, int]
    attempt: int
    log_level: int


@dataclass(frozen=True)
class Report:
    """Progress of one rank, with whatever figures it names."""

    step: int | None
    total: int | None
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Log:
    """A log record of a worker."""

    level: int
    logger: str
    text: str


@dataclass(frozen=True)
class Gather:
    """One rank's part of a gathering (to the driver), or all parts by rank (to the workers).

    Attributes:
        everyone: whether every rank gets all parts, and not rank 0 alone.
    """

    value: Any
    everyone: bool = True


@dataclass(frozen=True)
class Ask:
    """A rank wants something done on the gang's board; its answers carry the number, for several threads may ask."""

    number: int
    what: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Answer:
    """What came of the question of that number."""

    number: int
    value: Any


@dataclass(frozen=True)
class Done:
    """The worker's function returned this, pickled."""

    result: bytes


@dataclass(frozen=True)
class Failed:
    """The worker's function raised."""

    error: bytes | None
    description: str
    traceback: str
    step: int | None


@dataclass(frozen=True)
class Stacks:
    """A question for the Python stacks of a worker (empty), and its answer."""

    text: str = ""
    waits: bool = False
    step: int | None = None


@dataclass(frozen=True)
class Beat:
    """Still alive, in this step, and whether the function waits for other ranks."""

    waits: bool = False
    step: int | None = None


@dataclass(frozen=True)
class Lost:
    """The connection to a worker ended (made by the driver's side, never sent)."""


def _proof(token: bytes, role: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(token, role + first + second, "sha256")


def _frame(message: Any) -> bytes:
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _HEADER.pack(len(body)) + body


@dataclass
class _Connection:
    """The driver's view of one connection, before (rank None) and after its handshake."""

    sock: socket.socket
    nonce: bytes
    deadline: float
    rank: int | None = None
    incoming: bytearray = field(default_factory=bytearray)
    #: What is still to be sent; a message for all ranks is in memory once, however many have it here.
    outgoing: deque[memoryview] = field(default_factory=deque)


class Channel:
    """The driver's side: one listener, no threads; `poll` gives what has arrived as (rank, message) pairs."""

    def __init__(self, host: str, num_workers: int):
        self.token = secrets.token_bytes(32)
        self._num_workers = num_workers
        _need_descriptors(num_workers)
        self._listener = socket.create_server((host, 0), backlog=max(128, num_workers))
        self._listener.setblocking(False)
        self.address: tuple[str, int] = (host, self._listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._connections: dict[int, _Connection] = {}
        # In the order in which they came, which is that of their deadlines.
        self._strangers: dict[socket.socket, _Connection] = {}
        #: When bytes last came from each rank.
        self.heard: dict[int, float] = {}

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def send(self, rank: int, message: Any) -> None:
        """Queue a message; it goes out during this and later polls. A rank that is gone is passed over."""
        self._send([rank], message)

    def send_all(self, message: Any) -> None:
        """Queue a message for every rank, as `send` does; it is pickled once."""
        self._send(range(self._num_workers), message)

    def _send(self, ranks: Iterable[int], message: Any) -> None:
        frame = memoryview(_frame(message))
        for rank in ranks:
            connection = self._connections.get(rank)
            if connection is not None:
                connection.outgoing.append(frame)
                self._flush(connection)

    def poll(self, timeout: float) -> list[tuple[int, Any]]:
        """Wait up to timeout seconds, move bytes both ways and return the messages that are complete."""
        events: list[tuple[int, Any]] = []
        for key, mask in self._selector.select(timeout):
            if key.fileobj is self._listener:
                self._accept()
            elif mask & selectors.EVENT_WRITE:
                self._flush(key.data)
            else:
                events += self._read(key.data)
        self._drop_silent_strangers()
        return events

    def _accept(self) -> None:
        """Let in who waits, all at once: between two polls a thousand workers may have come."""
        with contextlib.suppress(OSError):
            for _ in range(self._num_workers):
                self._let_in(self._listener.accept()[0])

    def _let_in(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(sock, secrets.token_bytes(_NONCE), time.monotonic() + _HANDSHAKE_SECONDS)
        self._selector.register(sock, selectors.EVENT_READ, connection)
        self._strangers[sock] = connection
        connection.outgoing.append(memoryview(connection.nonce))
        self._flush(connection)

    def _read(self, connection: _Connection) -> list[tuple[int, Any]]:
        try:
            chunk = connection.sock.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            return self._drop(connection)
        connection.incoming += chunk
        if connection.rank is not None:
            self.heard[connection.rank] = time.monotonic()
        if connection.rank is None and not self._shake_hands(connection):
            return []
        return list(self._messages(connection))

    def _shake_hands(self, connection: _Connection) -> bool:
        """Check the stranger's proof and give ours; tell whether the connection is a rank's now."""
        if len(connection.incoming) < _HANDSHAKE.size:
            return False
        rank, nonce, proof = _HANDSHAKE.unpack(connection.incoming[: _HANDSHAKE.size])
        expected = _proof(self.token, b"worker%d" % rank, connection.nonce, nonce)
        known = hmac.compare_digest(proof, expected) and rank < self._num_workers
        if not known or rank in self._connections:
            self._drop(connection)
            return False
        del connection.incoming[: _HANDSHAKE.size]
        connection.rank = rank
        self._connections[rank] = connection
        del self._strangers[connection.sock]
        connection.outgoing.append(memoryview(_proof(self.token, b"driver", nonce, connection.nonce)))
        self._flush(connection)
        return True

    def _messages(self, connection: _Connection):
        buffer = connection.incoming
        while len(buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(buffer)
            end = _HEADER.size + length
            if len(buffer) < end:
                return
            with memoryview(buffer) as view:
                message = pickle.loads(view[_HEADER.size : end])
            del buffer[:end]
            yield connection.rank, message

    def _flush(self, connection: _Connection) -> None:
        try:
            while connection.outgoing:
                first = connection.outgoing[0]
                sent = connection.sock.send(first[:_CHUNK])
                if sent == len(first):
                    connection.outgoing.popleft()
                else:
                    connection.outgoing[0] = first[sent:]
        except BlockingIOError:
            pass
        except OSError:
            connection.outgoing.clear()  # the reading side will see the end of the connection
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.outgoing else 0)
        if self._selector.get_key(connection.sock).events != wanted:
            self._selector.modify(connection.sock, wanted, connection)

    def _drop(self, connection: _Connection) -> list[tuple[int, Any]]:
        self._selector.unregister(connection.sock)
        connection.sock.close()
        self._strangers.pop(connection.sock, None)
        if connection.rank is None:
            return []
        del self._connections[connection.rank]
        return [(connection.rank, Lost())]

    def _drop_silent_strangers(self) -> None:
        now = time.monotonic()
        while self._strangers and (oldest := next(iter(self._strangers.values()))).deadline < now:
            self._drop(oldest)


def _need_descriptors(num_workers: int) -> None:
    """Let this process have a connection to every worker: many systems allow 1,024 open files unless one asks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = num_workers + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise NotEnoughSlotsError(
            f"a gang of {num_workers} workers needs as many connections to the driver, but this process may open no "
            f"more than {hard} files. Raise the limit before starting Python (ulimit -n {needed}), or ask for fewer."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


_lines: weakref.WeakSet[Line] = weakref.WeakSet()


def _forget_lines() -> None:
    for line in list(_lines):
        line.forget()


os.register_at_fork(after_in_child=_forget_lines)


class Line:
    """The worker's side: a blocking connection to the driver that any thread may send on."""

    def __init__(self, seat: Seat, timeout: float = 30.0):
        self._sock = socket.create_connection(seat.address, timeout=timeout)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._shake_hands(seat)
        self._sock.settimeout(None)
        _lines.add(self)

    @property
    def host(self) -> str:
        """The address of this worker as seen on the way to the driver: peers reach it there."""
        return self._sock.getsockname()[0]

    @property
    def is_mine(self) -> bool:
        """Whether this process opened it, and not one that it was forked from."""
        return self._pid == os.getpid()

    def fileno(self) -> int:
        """For whoever waits for several lines at once."""
        return self._sock.fileno()

    def send(self, message: Any) -> None:
        frame = _frame(message)
        with self._lock:
            self._sock.sendall(frame)

    def forget(self) -> None:
        """Let go of it in a forked process: while that held it, the driver would not see the worker end."""
        self._sock.close()

    def receive(self) -> Any:
        """The next message; EOFError when the driver is gone."""
        (length,) = _HEADER.unpack(self._read(_HEADER.size))
        return pickle.loads(self._read(length))

    def close(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the driver closed first
        self._sock.close()

    def _shake_hands(self, seat: Seat) -> None:
        theirs, mine = bytes(self._read(_NONCE)), secrets.token_bytes(_NONCE)
        proof = _proof(seat.token, b"worker%d" % seat.rank, theirs, mine)
        self._sock.sendall(_HANDSHAKE.pack(seat.rank, mine, proof))
        if not hmac.compare_digest(self._read(_NONCE), _proof(seat.token, b"driver", mine, theirs)):
            raise ConnectionRefusedError("whoever listens at the driver's address does not know this run's token")

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view, got = memoryview(data), 0
        while got < size:
            count = self._sock.recv_into(view[got:], min(size - got, _CHUNK))
            if count == 0:
                raise EOFError("the driver closed the connection")
            got += count
        return data
