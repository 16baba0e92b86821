"""What a process of the embedded engine runs: wait for work on its socket, do it, answer."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import cloudpickle

from zoo.orca.engine.base import Seat
from zoo.orca.engine.recipe import Recipe, dealt_shards
from zoo.orca.engine.shelf import SHELF
from zoo.orca.engine.store import write_pieces, write_shards
from zoo.orca.engine.worker import describe_failure, sit

IMPORT_SYSTEM = "<frozen importlib._bootstrap>"


def main(descriptor: int, budget: int, folder: Path) -> None:
    SHELF.budget = budget
    # Processes of a DataLoader keep sockets there. If all of them are killed, it goes with the engine's folder.
    multiprocessing.current_process()._config["tempdir"] = str(folder)  # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver answers Ctrl-C and interrupts its processes
    signal.signal(signal.SIGUSR1, _Work.interrupt)
    threading.Thread(target=_end_with_driver, args=(descriptor,), name="orca-driver", daemon=True).start()
    with Connection(descriptor) as connection:
        while True:
            try:
                request = connection.recv_bytes()
            except EOFError:
                return
            connection.send_bytes(cloudpickle.dumps(_answer(request)))


def _end_with_driver(descriptor: int) -> None:
    """A function may run for hours; when the driver is gone, nobody wants what it returns."""
    poll = select.poll()
    poll.register(descriptor, 0)  # tells only the end of the connection
    poll.poll()
    os._exit(1)


class Interrupted(BaseException):
    """The driver wants no answer any more."""


class _Work:
    """Whether a request is being worked on, so that an interruption that comes late hits nothing."""

    is_on = False

    @classmethod
    def interrupt(cls, number: int, frame: FrameType | None) -> None:
        """The driver tries again if nothing comes of it: a module that is imported by half fails whoever needs it."""
        if cls.is_on and not _is_importing(frame):
            cls.is_on = False  # once: what answers for it is not to be interrupted
            raise Interrupted("another partition failed")


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != IMPORT_SYSTEM:
        frame = frame.f_back
    return frame is not None


def _answer(request: bytes) -> Any:
    try:
        dropped, kind, *rest = cloudpickle.loads(request)
        SHELF.drop(dropped)
        try:
            _Work.is_on = kind != "sit"  # a gang's worker is ended by its engine
            return _WORK[kind](*rest)
        finally:
            _Work.is_on = False
    except (Exception, SystemExit, Interrupted) as error:
        return describe_failure(error, None)


def _sit(seat: Seat, dealt: list[tuple[int, Recipe]]) -> str:
    sit(seat, dealt_shards(dealt))
    return "free"


def _keep(recipe: Recipe, file: Path) -> bool:
    """Whether the partition is kept in memory; else it is in the file."""
    return SHELF.keep(file, recipe.shards(borrow=True))


def _store(recipe: Recipe, file: Path) -> int:
    return write_shards(file, recipe.shards(borrow=True))


def _split(recipe: Recipe, file: Path) -> list[int]:
    return write_pieces(file, recipe.shards(borrow=True))


def _consume(recipe: Recipe, file: Path) -> int:
    return sum(1 for _ in recipe.shards(borrow=True))


_WORK: dict[str, Callable[..., Any]] = {
    "sit": _sit,
    "keep": _keep,
    "store": _store,
    "split": _split,
    "consume": _consume,
    "move": SHELF.move_to_files,
}
