"""Writing checkpoints while training goes on: a thread of rank 0, which also removes those that are not kept."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zoo.orca.learn.callbacks import Monitor
from zoo.orca.learn.checkpoint import Checkpoints, need_plain, remove_file, write_file

logger = logging.getLogger("zoo.orca")

LEAVE_SECONDS = 5.0


@dataclass(frozen=True)
class Parcel:
    """Files of a checkpoint that the driver is asked to write or remove, where workers do not see its disk."""

    written: list[tuple[str, bytes]]
    removed: list[str]

    def deliver(self) -> None:
        for path, content in self.written:
            write_file(path, lambda file, content=content: file.write(content))  # type: ignore[misc]
        for path in self.removed:
            remove_file(path)


@dataclass(frozen=True)
class Written:
    """A checkpoint is whole where it should be."""

    step: int
    epoch: int
    path: str
    is_best: bool


class Keeper:
    """Which checkpoints are kept: the last few, and the best by the figure that is monitored."""

    def __init__(self, checkpoints: Checkpoints):
        self._keep_last = checkpoints.keep_last
        self._monitor = None if checkpoints.monitor is None else Monitor(checkpoints.monitor, checkpoints.mode)
        self._numbers: list[int] = []
        self._best: tuple[int, float] | None = None

    def add(self, number: int, figures: dict[str, Any], complete: bool) -> bool:
        """Count a new checkpoint; tells whether it is the best so far.

        Before the figures are complete, in the first epoch, the one that is monitored may not be there yet."""
        watched = self._monitor is not None and (complete or self._monitor.name in figures)
        value = self._monitor.value(figures) if self._monitor is not None and watched else None
        self._numbers = [*(each for each in self._numbers if each != number), number]
        if self._monitor is None or value is None:
            return False
        is_best = self._monitor.better(value, self._best[1] if self._best else None)
        if is_best:
            self._best = (number, value)
        return is_best

    def drop(self) -> list[int]:
        """The checkpoints that are kept no more."""
        if self._keep_last is None:
            return []
        kept = {*self._numbers[-self._keep_last :], *([self._best[0]] if self._best else [])}
        dropped = [number for number in self._numbers if number not in kept]
        self._numbers = [number for number in self._numbers if number in kept]
        return dropped

    def state(self) -> dict[str, Any]:
        return {"numbers": list(self._numbers), "best": self._best and list(self._best)}

    def load(self, state: dict[str, Any]) -> None:
        self._numbers = list(state["numbers"])
        self._best = (state["best"][0], state["best"][1]) if state["best"] else None


class CheckpointWriter:
    """Writes one checkpoint after the other; the step waits only when the one before is not done yet.

    Args:
        send: where to send files to instead, on workers that do not see the driver's disk.
        on_written: called, in the thread, when a checkpoint is whole.
        required: whether a failure to write must end training; without, it is a warning and the last one tried.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        on_written: Callable[[Written], None],
        send: Callable[[Parcel], None] | None = None,
        required: bool = True,
    ):
        self.keeper = Keeper(checkpoints)
        self._checkpoints = checkpoints
        self._on_written = on_written
        self._send = send
        self._required = required
        self._works = True
        self._error: BaseException | None = None
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._write_all, name="orca-checkpoints", daemon=True)
        self._thread.start()

    def submit(
        self, number: int, epoch: int, state: dict[str, Any], figures: dict[str, Any], complete: bool = True
    ) -> None:
        """Write a state, which must have its own memory, under a number; figures say whether it is the best."""
        if not self._works:
            return
        try:
            need_plain(state)
            self.wait()
            if not self._works:
                return
            is_best = self.keeper.add(number, figures, complete)
        except Exception as error:
            self._fail(error)
            return
        dropped = self.keeper.drop()
        state["progress"]["keeper"] = self.keeper.state()
        written = Written(number - 1, epoch, self._checkpoints.path(number), is_best)
        self._jobs.put(lambda: self._write(number, state, dropped, written))

    @property
    def works(self) -> bool:
        """Whether checkpoints are still written."""
        return self._works

    def wait(self) -> None:
        """Until all is written; raises what went wrong."""
        self._jobs.join()
        error, self._error = self._error, None
        if error is not None:
            self._fail(error)

    def close(self) -> None:
        """End the thread, also if something else went wrong; `wait` first to be sure of what was submitted."""
        self._jobs.put(None)
        self._thread.join(LEAVE_SECONDS)

    def _fail(self, error: BaseException) -> None:
        if self._required:
            raise error
        self._works = False
        logger.warning(
            "No more checkpoints are written: %s If a worker is lost, training goes on from the last one that was.",
            str(error),
        )

    def _write_all(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException as error:
                self._error = error
            finally:
                self._jobs.task_done()

    def _write(self, number: int, state: dict[str, Any], dropped: list[int], written: Written) -> None:
        removed = [path for each in dropped for path in self._checkpoints.files(each)]
        if self._send is not None:
            self._send(Parcel(self._checkpoints.packed(number, state), removed))
        else:
            self._checkpoints.write(number, state)
            for path in removed:
                remove_file(path)
        self._on_written(written)
