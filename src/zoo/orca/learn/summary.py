"""Summaries of training and validation, for TensorBoard and to be read back."""

from __future__ import annotations

import os
import socket
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.learn.event_file import (
    Histogram,
    histogram_event,
    read_records,
    record,
    scalar_event,
    scalars_of,
    version_event,
)
from zoo.orca.learn.trigger import TrainState, Trigger, TriggerCall
from zoo.orca.names import public_names

LOSS, THROUGHPUT, LEARNING_RATE, PARAMETERS = "Loss", "Throughput", "LearningRate", "Parameters"


class SummaryWriter:
    """Appends to one event file of a folder, made when the first event is written.

    Each event is with the operating system when the call returns, so that a crash loses none. After `close` the next
    event opens the file again. A pickled writer writes to a file of its own.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = _local(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path: Path | None = None
        self._descriptor: int | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    def add_scalar(self, tag: str, value: float, iteration: int, wall_time: float | None = None) -> None:
        """Write a number."""
        now = time.time() if wall_time is None else wall_time
        self._write(scalar_event(tag, float(value), iteration, now))

    def add_histogram(
        self, tag: str, values: np.ndarray | Histogram, iteration: int, wall_time: float | None = None
    ) -> None:
        """Write the histogram of an array, or one that was made where the array is."""
        histogram = values if isinstance(values, Histogram) else Histogram.of(values)
        now = time.time() if wall_time is None else wall_time
        self._write(histogram_event(tag, histogram, iteration, now))

    def read_scalar(self, tag: str) -> list[list[Any]]:
        """The numbers written to the folder under a tag, as [iteration, value, time]."""
        return read_scalar(self.folder, tag)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, event: bytes) -> None:
        # One call to the system an event, and no buffer of ours: a file cut by a crash is whole up to its last event.
        os.write(self._open(), record(event))

    def _open(self) -> int:
        if self._descriptor is not None:
            return self._descriptor
        is_new = self._path is None
        if self._path is None:
            # Fixed width, so that files sort by the time they were begun, also those of one second.
            stamp = f"{time.time():017.6f}"
            self._path = self.folder / f"events.out.tfevents.{stamp}.{socket.gethostname()}.{uuid.uuid4().hex[:8]}"
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        if is_new:
            os.write(self._descriptor, record(version_event(time.time())))
        return self._descriptor

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_path": None, "_descriptor": None}


class TrainSummary(SummaryWriter):
    """What is written while training, to log_dir/app_name/train: "Loss" and "Throughput" at every iteration.

    "LearningRate" and "Parameters" are written when their trigger says so, if `set_summary_trigger` gave them one.
    """

    def __init__(self, log_dir: str, app_name: str) -> None:
        super().__init__(_local(log_dir) / app_name / "train")
        self.triggers: dict[str, TriggerCall | None] = {
            LOSS: None,
            THROUGHPUT: None,
            LEARNING_RATE: _never,
            PARAMETERS: _never,
        }

    def set_summary_trigger(self, name: str, trigger: Any) -> TrainSummary:
        """Write one of the summaries only when a trigger says so."""
        if name not in self.triggers:
            raise InvalidArgumentError(f"Expected a summary's name, one of {', '.join(self.triggers)}, got {name!r}")
        converted = Trigger.convert_trigger(trigger)
        if converted is None:
            raise InvalidArgumentError(f"Expected a trigger for {name}, such as EveryEpoch(), got None.")
        self.triggers[name] = converted
        return self

    def due(self, state: TrainState) -> list[str]:
        """The summaries to write now; to be asked once after each iteration, for triggers remember."""
        return [name for name, trigger in self.triggers.items() if trigger is None or trigger(state)]


class ValidationSummary(SummaryWriter):
    """What validation found, metric by metric, in log_dir/app_name/validation."""

    def __init__(self, log_dir: str, app_name: str) -> None:
        super().__init__(_local(log_dir) / app_name / "validation")


def read_scalar(folder: str | os.PathLike[str], tag: str) -> list[list[Any]]:
    """The numbers that a folder's event files hold under a tag, as [iteration, value, time]."""
    found = []
    for path in sorted(_local(folder).glob("*tfevents*")):
        with path.open("rb") as file:
            for event in read_records(file):
                found += [[each.step, each.value, each.wall_time] for each in scalars_of(event) if each.tag == tag]
    return found


def _never(state: TrainState) -> bool:
    return False


def _local(folder: str | os.PathLike[str]) -> Path:
    """A folder on this machine; event files grow event by event, which object stores cannot."""
    text = os.fspath(folder)
    scheme, separator, rest = text.partition("://")
    if separator and scheme != "file":
        raise NotOfferedError(f"Summaries are written to a folder of this machine, not to {text}. Give a local path.")
    return Path(rest if separator else text)


__dir__ = public_names(globals())
