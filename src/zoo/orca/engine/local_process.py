"""What a process of the embedded engine runs: wait for work on the inherited socket, do it, answer."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle

from zoo.orca.engine.base import Seat
from zoo.orca.engine.recipe import Recipe, dealt_shards
from zoo.orca.engine.worker import describe_failure, sit


def main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver answers Ctrl-C and ends its processes
    with Connection(descriptor) as connection:
        while True:
            try:
                request = connection.recv_bytes()
            except EOFError:
                return
            connection.send_bytes(cloudpickle.dumps(_answer(request)))


def _answer(request: bytes) -> Any:
    try:
        kind, *rest = cloudpickle.loads(request)
        return _WORK[kind](*rest)
    except (Exception, SystemExit) as error:
        return describe_failure(error, None)


def _sit(seat: Seat, dealt: list[tuple[int, Recipe]]) -> str:
    sit(seat, dealt_shards(dealt))
    return "free"


def _task(write: Callable[[Path, Iterator[Any]], int] | None, recipe: Recipe, file: Path) -> int:
    """Compute a partition into a file, or (with no way to write) only to see its errors."""
    if write is None:
        return sum(1 for _ in recipe.shards())
    return write(file, recipe.shards())


_WORK: dict[str, Callable[..., Any]] = {"sit": _sit, "task": _task}

if __name__ == "__main__":
    main(int(sys.argv[1]))
