"""The worker's side of a gang: take a seat, run the function, report, and go when told."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import queue
import socket
import sys
import threading
import traceback
from collections.abc import Iterable
from typing import Any

import cloudpickle

from zoo.orca.engine.base import Seat
from zoo.orca.engine.channel import Answer, Ask, Beat, Done, Failed, Gather, Hello, Line, Log, Report, Stacks, Welcome
from zoo.orca.engine.pickling import dumps

BEAT_SECONDS = 2.0


class Worker:
    """What a gang's function is given: who it is, who the others are, its shards, and a way to speak.

    Attributes:
        rank, world_size: this worker among all.
        local_rank, local_size: this worker among those of its host.
        peers: every rank's address.
        rendezvous: (host, port) that is free on rank 0's host, for a framework's own collective.
        attempt: 0, and one more after each restart of the gang.
        shards: the (partition, shard) pairs dealt to this rank; read once, they may be a stream.
    """

    def __init__(self, seat: Seat, welcome: Welcome, shards: Iterable[tuple[int, Any]], desk: _Desk):
        self.rank = seat.rank
        self.world_size = seat.world_size
        self.peers = welcome.peers
        host = self.peers[self.rank]
        self.local_rank = self.peers[: self.rank].count(host)
        self.local_size = self.peers.count(host)
        self.rendezvous = welcome.rendezvous
        self.attempt = welcome.attempt
        self.shards = shards
        self._desk = desk

    def report(self, step: int | None = None, total: int | None = None, **metrics: Any) -> None:
        """Tell the driver how far this rank is; the step also says where an error happened."""
        if step is not None and not self._desk.is_marked:
            self._desk.step = step
        self._desk.line.send(Report(step, total, metrics))

    def mark(self, step: int) -> None:
        """Remember the step, for an error that may happen in it; from now on that of reports does not count for it."""
        self._desk.step = step
        self._desk.is_marked = True

    def all_gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank; all ranks must call it, as often as each other."""
        self._desk.line.send(Gather(cloudpickle.dumps(value)))
        return self._gathered()

    def _gathered(self) -> list[Any]:
        with self._desk.waiting:
            gathered = self._desk.gathered.get()
        return [cloudpickle.loads(part) for part in gathered]

    def gather(self, value: Any) -> list[Any] | None:
        """Every rank's value, by rank, on rank 0; None on the others, which wait for nobody. All ranks must call it.

        For what rank 0 alone needs: sent to all, it would pass the driver as often as there are ranks."""
        self._desk.line.send(Gather(cloudpickle.dumps(value), everyone=False))
        return None if self.rank else self._gathered()

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.all_gather(None)

    def ask(self, what: str, *args: Any, timeout: float | None = None) -> Any:
        """Something of the gang's board of keys and values: "put", "get", "add", ... as `engine.board.Board` has them.

        "get" waits until all its keys are there; TimeoutError after `timeout` seconds."""
        return self._desk.ask(what, args, timeout)

    def fail(self, error: BaseException) -> None:
        """Tell the driver, from any thread, that this rank failed: it ends the gang, and this process with it.

        For a function that may be stuck in a library and cannot raise."""
        self._desk.line.send(describe_failure(error, self._desk.step))

    def waiting(self) -> Waiting:
        """Within it the function waits for other ranks, so that a stall is not this one's fault.

        >>> with worker.waiting():  # doctest: +SKIP
        ...     dist.barrier()
        """
        return self._desk.waiting

    def __repr__(self) -> str:
        return f"Worker(rank={self.rank}, world_size={self.world_size}, host={self.peers[self.rank]!r})"


class Waiting:
    """Whether the function waits for other ranks; entered thousands of times a second, so no more than a count."""

    __slots__ = ("depth",)

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *exc: object) -> None:
        self.depth -= 1


class _Desk:
    """One connection to the driver, and the thread that answers the driver while the function runs."""

    def __init__(self, seat: Seat):
        self.line = Line(seat)
        self.step: int | None = None
        self.is_marked = False
        self.waiting = Waiting()
        self.welcomed: queue.SimpleQueue[Welcome] = queue.SimpleQueue()
        self.gathered: queue.SimpleQueue[list[bytes]] = queue.SimpleQueue()
        self._asked: dict[int, queue.SimpleQueue[Any]] = {}
        self._numbers = itertools.count()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"orca-{target.__name__.strip('_')}", daemon=True)
            for target in (self._listen, self._beat)
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, what: str, args: tuple[Any, ...], timeout: float | None) -> Any:
        number = next(self._numbers)
        answer = self._asked[number] = queue.SimpleQueue()
        try:
            self.line.send(Ask(number, what, args))
            return answer.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no other rank gave {', '.join(map(str, args))} within {timeout:g} s") from None
        finally:
            del self._asked[number]

    def close(self) -> None:
        self._over.set()
        self.line.close()
        for thread in self._threads:
            thread.join()

    def _listen(self) -> None:
        try:
            while True:
                self._answer(self.line.receive())
        except (EOFError, OSError):
            self._end_process()

    def _answer(self, message: Any) -> None:
        if isinstance(message, Welcome):
            self.welcomed.put(message)
        elif isinstance(message, Gather):
            self.gathered.put(message.value)
        elif isinstance(message, Answer):
            asked = self._asked.get(message.number)
            if asked is not None:  # else whoever asked waits no longer
                asked.put(message.value)
        elif isinstance(message, Stacks):
            self.line.send(Stacks(_stacks_of_this_process(), self.waiting.depth > 0, self.step))

    def _beat(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError):
                self.line.send(Beat(self.waiting.depth > 0, self.step))

    def _end_process(self) -> None:
        """The driver is gone, or done with this gang. The function may be deep in a collective: only exit helps."""
        if not self._over.is_set():
            os._exit(1)


def sit(seat: Seat, shards: Iterable[tuple[int, Any]]) -> None:
    """Join the gang at this seat, run its function, and send what it returned or raised to the driver."""
    desk = _Desk(seat)
    try:
        with socket.socket() as reserved:  # bound and never listening: a port that stays free until all are there
            reserved.bind((desk.line.host, 0))
            desk.line.send(Hello(desk.line.host, reserved.getsockname()[1]))
            welcome = desk.welcomed.get()
        with _logs_to_driver(desk.line, welcome.log_level):
            desk.line.send(_run(seat, welcome, shards, desk))
    finally:
        desk.close()


def _run(seat: Seat, welcome: Welcome, shards: Iterable[tuple[int, Any]], desk: _Desk) -> Done | Failed:
    try:
        function, args = welcome.task.load()
        result = function(Worker(seat, welcome, shards, desk), *args)
        return Done(dumps(result, "what the function returned"))
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return describe_failure(error, desk.step)


def describe_failure(error: BaseException, step: int | None) -> Failed:
    try:
        pickled = cloudpickle.dumps(error)
        cloudpickle.loads(pickled)  # many exceptions pickle but cannot be made again
    except Exception:
        pickled = None
    description = f"{type(error).__qualname__}: {error}"
    return Failed(pickled, description, "".join(traceback.format_exception(error)), step)


def _stacks_of_this_process() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
        if not names.get(ident, "").startswith("orca-")
    ]
    return "\n".join(parts)


@contextlib.contextmanager
def _logs_to_driver(line: Line, level: int):
    """Send this process's log records to the driver while the function runs."""
    handler = _LineHandler(line, level)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(min(before, level) if before else level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


class _LineHandler(logging.Handler):
    def __init__(self, line: Line, level: int):
        super().__init__(level)
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if not self._line.is_mine:  # a forked process, such as a DataLoader's
            sys.stderr.write(f"{text}\n")
            return
        try:
            self._line.send(Log(record.levelno, record.name, text))
        except OSError:
            self.handleError(record)
