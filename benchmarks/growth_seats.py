"""Workers of a simulated gang: `python -m benchmarks.growth_seats` takes many seats in one process, without torch.

They speak with the driver as `zoo.orca.engine.worker` does, over its own `Line`s: the handshake, hellos, beats,
reports, gatherings and results are the real ones. What is missing is the work between them.
"""

from __future__ import annotations

import contextlib
import pickle
import selectors
import sys
import time
from collections.abc import Callable
from typing import Any

import cloudpickle

from zoo.orca.engine.base import Seat
from zoo.orca.engine.channel import Beat, Done, Gather, Hello, Line, Report, Welcome
from zoo.orca.engine.worker import BEAT_SECONDS


class Seats:
    """The seats of this process, served in turn."""

    def __init__(self, seats: list[Seat]):
        self._lines = {seat.rank: Line(seat) for seat in seats}
        self._selector = selectors.DefaultSelector()
        for rank, line in self._lines.items():
            self._selector.register(line, selectors.EVENT_READ, rank)
        now = time.monotonic()
        # Beats of a thousand processes are spread over their interval, as they did not start in the same moment.
        self._beats = {rank: now + BEAT_SECONDS * (rank % 997) / 997 for rank in self._lines}

    @property
    def ranks(self) -> list[int]:
        return list(self._lines)

    def join(self) -> Welcome:
        """Say hello from every seat; what the driver answers when all of the gang are there."""
        for line in self._lines.values():
            line.send(Hello(line.host, 1))
        return self._receive(Welcome)[self.ranks[0]]

    def tell(self, make: Callable[[int], Any]) -> None:
        """Send a message from every seat."""
        for rank, line in self._lines.items():
            line.send(make(rank))

    def send(self, rank: int, message: Any) -> None:
        self._lines[rank].send(message)

    def gather(self, make: Callable[[int], Any], everyone: bool = True) -> dict[int, Any]:
        """What `Worker.all_gather` or `Worker.gather` does, for all seats: the parts of all ranks, where they come."""
        self.tell(lambda rank: Gather(cloudpickle.dumps(make(rank)), everyone))
        answered = self._receive(Gather, None if everyone else {0} & set(self._lines))
        return {rank: message.value for rank, message in answered.items()}

    def stay(self, seconds: float, report_every: float | None = None) -> None:
        """Do what workers do while their functions run: beat, and report where one asks for it."""
        began = time.monotonic()
        reports = {
            rank: began + (report_every or seconds + 1) * (1 + (rank % 991) / 991) - (report_every or 0)
            for rank in self._lines
        }
        while (now := time.monotonic()) < began + seconds:
            self._beat(now)
            for rank, due in reports.items():
                if due <= now and report_every:
                    reports[rank] = due + report_every
                    self._lines[rank].send(Report(int(now - began), 1000, {}))
            time.sleep(0.005)

    def leave(self, rank: int) -> None:
        """End one seat's connection as the death of its process would."""
        self._selector.unregister(self._lines[rank])
        self._lines.pop(rank).close()

    def await_end(self) -> None:
        """Stay until the driver is gone."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._beat(time.monotonic())
                for key, _ in self._selector.select(0.05):
                    self._lines[key.data].receive()

    def finish(self) -> None:
        self.tell(lambda rank: Done(cloudpickle.dumps(rank)))
        self.await_end()

    def _receive(self, kind: type, ranks: set[int] | None = None) -> dict[int, Any]:
        """One message of this kind for each of the ranks."""
        waiting, found = set(self._lines) if ranks is None else set(ranks), {}
        while waiting:
            self._beat(time.monotonic())
            for key, _ in self._selector.select(0.05):
                message = self._lines[key.data].receive()
                if isinstance(message, kind):
                    waiting.discard(key.data)
                    found[key.data] = message
        return found

    def _beat(self, now: float) -> None:
        for rank, due in self._beats.items():
            if due <= now and rank in self._lines:
                self._beats[rank] = due + BEAT_SECONDS
                self._lines[rank].send(Beat(False, 1))


def main() -> None:
    seats = Seats(pickle.load(sys.stdin.buffer))
    script, args = seats.join().task.load()
    script(seats, *args)


if __name__ == "__main__":
    main()
