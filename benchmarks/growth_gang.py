"""The `growth-gang` curve: what a gang of up to 1,000 workers costs the driver, and what its plan costs each of them.

The driver's side is the real one: `run_gang`, its channel, the board of who has said what, the writer of checkpoints.
The workers are `growth_seats`: a few processes that take all seats and speak as workers do. No torch trains here.
"""

from __future__ import annotations

import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import psutil

from benchmarks.growth import Column, Curve, Figures, GrowthBar, Point, ratio
from benchmarks.growth_seats import Seats
from benchmarks.row import ROOT, Settings
from zoo.orca.engine.base import Launch, Placement, Seat
from zoo.orca.engine.channel import Report
from zoo.orca.engine.gang import GangOptions, run_gang
from zoo.orca.engine.local import LocalEngine
from zoo.orca.errors import WorkerLostError
from zoo.orca.feed.plan import Plan, split

SIZES = (10, 100, 1000)
PROCESSES = 4
STAY_SECONDS = 4.0
REPORT_SECONDS = 0.25
BARRIERS = 5
CHECKPOINTS = 3
PARAMETERS = 1_000_000
# What a rank has for itself in a checkpoint of a model without buffers: the states of three random generators.
OWN_BYTES = 14_500
SHARDS_EACH = 10
ROWS_EACH = 32


def curve(settings: Settings) -> Curve:
    sizes = (4, 16, 64) if settings.quick else SIZES
    stay = 1.0 if settings.quick else STAY_SECONDS
    least, most = sizes[-2:]
    flat = [
        ("start_cpu", "a start costs the driver, per worker"),
        ("report_cpu", "beats and reports cost the driver, per worker"),
        ("barrier_cpu", "a barrier costs the driver, per worker"),
        ("checkpoint_cpu", "a checkpoint's gathering costs the driver, per worker"),
    ]
    return Curve(
        name="growth-gang",
        title=f"A gang of {most:,} workers, simulated: what the driver does for it, and what a plan costs a rank",
        sizes="workers",
        contenders=tuple(Point("driver", size, "benchmarks.growth_gang:gang", {"stay": stay}) for size in sizes),
        columns=(
            Column("start_seconds", "start, s", 2),
            Column("start_cpu", "start, CPU µs each"),
            Column("messages", "messages a second"),
            Column("beat_load", "beats, % of a core", 1),
            Column("report_load", "with reports, % of a core", 1),
            Column("barrier_ms", "barrier, ms", 1),
            Column("barrier_cpu", "barrier, CPU µs each"),
            Column("checkpoint_ms", "checkpoint, ms"),
            Column("checkpoint_cpu", "its gathering, CPU µs each"),
            Column("lost_ms", "loss noticed, ms", 1),
            Column("memory", "driver, MB more"),
            Column("plan_us", "plan of a step, µs a rank"),
        ),
        bars=(
            *(
                GrowthBar(
                    f"{words}: {most:,} workers at most 1.5 times {least:,}", ratio(key, "driver", most, least), 1.5
                )
                for key, words in flat
            ),
            GrowthBar(
                f"a lost worker of {most:,} is noticed within a second",
                lambda m: m["driver"][most]["lost_ms"] / 1000,
                1.0,
            ),
        ),
        drawn="barrier_cpu",
        rounds=3,
        note=(
            f"The workers are {PROCESSES} processes on the same cores, which take their part of the clock's time; CPU "
            f"is the driver's alone. Messages are beats and reports, one every {REPORT_SECONDS} s each. A checkpoint "
            f"is {OWN_BYTES / 1000:.0f} KB of every rank to rank 0, and {PARAMETERS:,} parameters written by the "
            f"driver. A plan has {SHARDS_EACH} shards a worker and batches of {ROWS_EACH} rows a worker."
        ),
    )


def gang(size: int, stay: float) -> Figures:
    """Everything about a gang of this size."""
    _warm_up()
    before = psutil.Process().memory_info().rss
    record = _Record()
    with SeatsEngine(cores=1) as engine, tempfile.TemporaryDirectory() as folder:
        record.mark("launched")
        run_gang(engine, _work, size, stay, folder, options=GangOptions(on_report=record))
        memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / 2**20
        lost = _lose_one(engine, size)
    return record.figures(size) | {"lost_ms": 1000 * lost, "memory": memory, "plan_us": _plan(size)}


class SeatsEngine(LocalEngine):
    """The embedded engine with a gang whose workers share a few processes."""

    def launch(self, seats: Sequence[Seat], data: Placement | None) -> SeatsLaunch:  # type: ignore[override]
        return SeatsLaunch(seats)


class SeatsLaunch(Launch):
    def __init__(self, seats: Sequence[Seat]):
        count = min(PROCESSES, len(seats))
        command = [sys.executable, "-m", "benchmarks.growth_seats"]
        self._processes = [subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT) for _ in range(count)]
        for number, process in enumerate(self._processes):
            if process.stdin is not None:
                with process.stdin as pipe:
                    pipe.write(pickle.dumps(list(seats[number::count])))

    def failure(self) -> BaseException | None:
        codes = [process.poll() for process in self._processes]
        return ChildProcessError(f"seats ended with {codes}") if any(codes) else None

    def stop(self, grace: float) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


class _Record:
    """When the driver heard of each mark, and how much CPU time it had taken by then."""

    def __init__(self) -> None:
        self.marks: dict[str, tuple[float, float]] = {}
        self.heard = 0
        self.counts: dict[str, int] = {}

    def __call__(self, rank: int, report: Report) -> None:
        self.heard += 1
        for parcel in report.metrics.get("parcels", ()):
            parcel.deliver()  # as `learn.record.FitRecord` does
        if "mark" in report.metrics:
            self.mark(report.metrics["mark"])

    def mark(self, name: str) -> None:
        self.marks[name] = (time.perf_counter(), time.process_time())
        self.counts[name] = self.heard

    def figures(self, size: int) -> Figures:
        beats, reports = self._between("joined", "beats"), self._between("beats", "reports")
        start, barriers = self._between("launched", "joined"), self._between("reports", "barriers")
        gathered, written = self._between("ready", "gathered"), self._between("gathered", "written")
        told = self.counts["reports"] - self.counts["beats"] + size * reports[0] / 2  # beats come every two seconds
        return {
            "start_seconds": start[0],
            "start_cpu": 1e6 * start[1] / size,
            "messages": told / reports[0],
            "beat_load": 100 * beats[1] / beats[0],
            "report_load": 100 * reports[1] / reports[0],
            "report_cpu": 1e6 * reports[1] / reports[0] / size,
            "barrier_ms": 1000 * barriers[0] / BARRIERS,
            "barrier_cpu": 1e6 * barriers[1] / BARRIERS / size,
            "checkpoint_ms": 1000 * (gathered[0] + written[0]) / CHECKPOINTS,
            "checkpoint_cpu": 1e6 * gathered[1] / CHECKPOINTS / size,
        }

    def _between(self, first: str, last: str) -> tuple[float, float]:
        (began, used), (ended, more) = self.marks[first], self.marks[last]
        return ended - began, more - used


def _work(seats: Seats, stay: float, folder: str) -> None:
    """What the workers of the gang do, phase by phase; before each mark all of them meet."""

    def meet(mark: str) -> None:
        seats.gather(lambda rank: None)
        if 0 in seats.ranks:
            seats.send(0, Report(None, None, {"mark": mark}))

    meet("joined")
    seats.stay(stay)
    meet("beats")
    seats.stay(stay, REPORT_SECONDS)
    meet("reports")
    for _ in range(BARRIERS - 1):
        seats.gather(lambda rank: None)
    meet("barriers")
    writer = _writer(seats, folder) if 0 in seats.ranks else None
    meet("ready")
    own = b"0" * OWN_BYTES
    parts = [seats.gather(lambda rank: own, everyone=False) for _ in range(CHECKPOINTS)]
    meet("gathered")
    if writer is not None:
        _write(writer, parts[0][0])
    meet("written")
    seats.finish()


def _writer(seats: Seats, folder: str) -> Any:
    """Rank 0's own writer of checkpoints, which lets the driver write them, as where workers do not see its disk."""
    import torch

    from zoo.orca.learn.checkpoint import Checkpoints
    from zoo.orca.learn.checkpoint_writer import CheckpointWriter

    torch.zeros(1)
    checkpoints = Checkpoints(folder, "Adam", keep_last=1)
    return CheckpointWriter(
        checkpoints, lambda done: None, send=lambda parcel: seats.send(0, Report(None, None, {"parcels": [parcel]}))
    )


def _write(writer: Any, ranks: list[bytes]) -> None:
    import torch

    for number in range(1, CHECKPOINTS + 1):
        state = {"models": [{"weight": torch.zeros(PARAMETERS)}], "progress": {"ranks": list(ranks)}}
        writer.submit(number, 1, state, {})
        writer.wait()
    writer.close()


def _lose_one(engine: SeatsEngine, size: int) -> float:
    """Seconds from the end of a worker's connection until the caller of `run_gang` has the error."""
    left: list[float] = []
    options = GangOptions(on_report=lambda rank, report: left.append(report.metrics["left"]))
    try:
        run_gang(engine, _leave, size, options=options)
    except WorkerLostError:
        return time.monotonic() - left[0]
    raise RuntimeError("the gang went on without one of its workers")


def _leave(seats: Seats) -> None:
    seats.gather(lambda rank: None)
    if 1 in seats.ranks:
        seats.send(1, Report(None, None, {"left": time.monotonic()}))
        seats.leave(1)
    seats.await_end()


def _plan(size: int) -> float:
    """Microseconds that a step's rows cost one rank: which of them are in the batch, and which of those are its own."""
    plan = Plan((1000,) * (SHARDS_EACH * size), ROWS_EACH * size, seed=1)
    steps = min(plan.steps, 20)
    batches = plan.batches(epoch=0)
    begun = time.process_time()
    for _ in range(steps):
        next(batches).cut(split(ROWS_EACH * size, size)[size // 2])
    return 1e6 * (time.process_time() - begun) / steps


def _warm_up() -> None:
    """Have imported what a gang imports."""
    with SeatsEngine(cores=1) as engine:
        run_gang(engine, _nothing, 1)


def _nothing(seats: Seats) -> None:
    seats.finish()
