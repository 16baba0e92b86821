"""The driver's side of a gang: start N workers together, follow them, and end them all when one fails."""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from zoo.orca.engine.bar import PATIENCE, Bar
from zoo.orca.engine.base import Engine, Launch, Placement, Seat
from zoo.orca.engine.board import Board
from zoo.orca.engine.channel import Ask, Beat, Channel, Done, Failed, Gather, Hello, Log, Lost, Report, Stacks, Welcome
from zoo.orca.engine.pickling import Packed, pack
from zoo.orca.engine.worker import BEAT_SECONDS
from zoo.orca.errors import (
    GangStalledError,
    InvalidArgumentError,
    WorkerError,
    WorkerLostError,
)

logger = logging.getLogger("zoo.orca")

POLL_SECONDS = 0.1
# A killed worker's peers may report broken collectives a moment before its own connection is seen to end.
FIRST_CAUSE_SECONDS = 0.3
SILENT_SECONDS = 60 * BEAT_SECONDS
STACKS_SECONDS = 3.0
LEAVE_SECONDS = 5.0


@dataclass(frozen=True)
class GangOptions:
    """How a gang is watched.

    Attributes:
        max_failures: how many times the gang is restarted after a worker's process was lost.
        start_timeout: seconds in which all workers must have joined.
        stall_timeout: seconds without a word from a rank's function after which the gang is ended; None waits for ever.
        description: the title of the progress bar; None shows no bar.
        leave: whether the bar stays to be seen; one that does not appears only when the gang takes longer.
        on_report: called with (rank, Report) for each report.
        again: called with what was lost before each restart; gives the arguments of the next attempt. None sends the
            same again.
    """

    max_failures: int = 0
    start_timeout: float = 180.0
    stall_timeout: float | None = None
    description: str | None = None
    leave: bool = True
    on_report: Callable[[int, Report], None] | None = None
    again: Callable[[WorkerLostError], tuple[Any, ...]] | None = None


def run_gang(
    engine: Engine,
    function: Callable[..., Any],
    num_workers: int | tuple[int, int],
    *args: Any,
    data: Placement | None = None,
    options: GangOptions = GangOptions(),  # noqa: B008 - frozen, so sharing it is safe
) -> list[Any]:
    """Run `function(worker, *args)` on num_workers workers at once and return their results by rank.

    What a worker raises is raised here with its own type, with the attributes `rank`, `step` and
    `remote_traceback`, and with a `WorkerError` as its cause. A lost process restarts the gang, `max_failures` times.
    Where num_workers is a pair (least, most), each attempt has as many workers as there is room for.

    Example:
        >>> from zoo.orca.engine.local import LocalEngine
        >>> with LocalEngine(cores=2) as engine:
        ...     run_gang(engine, lambda worker: worker.rank * 10, 2)
        [0, 10]
    """
    least, most = num_workers if isinstance(num_workers, tuple) else (None, num_workers)
    if most < 1 or (least is not None and not 1 <= least <= most):
        raise InvalidArgumentError(
            f"a gang needs at least 1 worker, but num_workers is {num_workers}. Give a number, or (least, most)."
        )
    task = pack((function, args), "the function for the workers")
    size = engine.check_gang(most, least)
    for attempt in itertools.count():
        try:
            return _Gang(engine, size, task, attempt, options).run(data)
        except WorkerLostError as lost:
            if attempt == options.max_failures:
                raise
            # As text: whoever keeps the record would keep the frames of the error, and the data in them.
            logger.warning("%s Restarting the gang (%d of %d times).", str(lost), attempt + 1, options.max_failures)
            if options.again is not None:
                task = pack((function, options.again(lost)), "the function for the workers")
            size = engine.check_gang(most, least)
    raise AssertionError("unreachable: the last attempt returns or raises")


@dataclass
class _Member:
    """What the driver knows of one rank."""

    hello: Hello | None = None
    result: Done | None = None
    failed: bool = False
    step: int | None = None
    at: int | None = None
    waits: bool = False
    spoke: float = field(default_factory=time.monotonic)
    beat: float = field(default_factory=time.monotonic)
    gathered: deque[Gather] = field(default_factory=deque)
    stacks: str | None = None

    @property
    def place(self) -> int | None:
        """The step that it marked, or else the last that it reported."""
        return self.step if self.at is None else self.at


class _Gang:
    """One attempt at running a gang."""

    def __init__(self, engine: Engine, size: int, task: Packed, attempt: int, options: GangOptions):
        self.engine = engine
        self.task = task
        self.attempt = attempt
        self.options = options
        self.members = [_Member() for _ in range(size)]
        # Ranks that have not joined, not finished, or given a part of a gathering: every message would otherwise be a
        # reason to look at every rank.
        self.absent = set(range(size))
        self.unfinished = set(range(size))
        self.givers: set[int] = set()
        self.welcomed = False
        self.board = Board()
        self.failed: tuple[int, Failed] | None = None

    def run(self, data: Placement | None) -> list[Any]:
        size = len(self.members)
        with Channel(self.engine.driver_host, size) as self.channel:
            seats = [Seat(rank, size, self.channel.address, self.channel.token) for rank in range(size)]
            self.engine.expect(self.task.slow_imports)
            launch = self.engine.launch(seats, data)
            with self._make_bar() as self.bar:
                try:
                    self._follow(launch)
                    launch.stop(grace=LEAVE_SECONDS)
                except BaseException:
                    launch.stop(grace=0)
                    raise
        return [cloudpickle.loads(member.result.result) for member in self.members if member.result]

    def _follow(self, launch: Launch) -> None:
        """Handle what the workers say until all are done, one has failed, or they are late."""
        started = looked = time.monotonic()
        while self.unfinished:
            polled = time.monotonic()
            self._handle(self.channel.poll(POLL_SECONDS))
            now = time.monotonic()
            self._excuse(now - polled - POLL_SECONDS)
            if self.failed is not None:
                self._raise_first_cause(*self.failed)
            if now - looked >= POLL_SECONDS:  # many ranks speak far more often
                looked = now
                self._look(launch, started)
                self.bar.tick()

    def _look(self, launch: Launch, started: float) -> None:
        """See whether the engine gave up, or ranks are late."""
        if (reason := launch.failure()) is not None:
            self._raise_launch_failure(reason)
        if not self.welcomed:
            self._check_started(started)
        else:
            self._check_alive()

    def _excuse(self, late: float) -> None:
        """The driver was busy with what it heard, or asleep: for so long nobody could have been heard."""
        if late > 0:
            for member in self.members:
                member.beat += late
                member.spoke += late

    def _handle(self, events: list[tuple[int, Any]]) -> None:
        for rank, message in events:
            member = self.members[rank]
            member.beat = time.monotonic()
            handle = self._HANDLERS.get(type(message))
            if handle is not None:
                handle(self, rank, member, message)

    def _on_hello(self, rank: int, member: _Member, hello: Hello) -> None:
        member.hello = hello
        self.absent.discard(rank)
        if self.absent or self.welcomed:
            return
        self.welcomed = True
        hellos = [each.hello for each in self.members]
        first = hellos[0]
        welcome = Welcome(
            self.task,
            tuple(hello.host for hello in hellos if hello),
            (first.host, first.port) if first else ("", 0),
            self.attempt,
            logger.getEffectiveLevel(),
        )
        self.channel.send_all(welcome)
        for each in self.members:
            each.spoke = time.monotonic()

    def _on_report(self, rank: int, member: _Member, report: Report) -> None:
        member.spoke = time.monotonic()
        if report.step is not None:
            member.step = report.step
        self._show(report)
        if self.options.on_report is not None:
            self.options.on_report(rank, report)

    def _on_gather(self, rank: int, member: _Member, gather: Gather) -> None:
        member.spoke = time.monotonic()
        member.gathered.append(gather)
        self.givers.add(rank)
        if len(self.givers) < len(self.members):
            return
        parts = [each.gathered.popleft() for each in self.members]
        self.givers = {rank for rank, each in enumerate(self.members) if each.gathered}
        everyones = Gather([part.value for part in parts])
        if parts[0].everyone:
            self.channel.send_all(everyones)
        else:
            self.channel.send(0, everyones)

    def _on_ask(self, rank: int, member: _Member, ask: Ask) -> None:
        for asker, answer in self.board.ask(rank, ask):
            self.channel.send(asker, answer)

    def _on_log(self, rank: int, member: _Member, log: Log) -> None:
        logging.getLogger(log.logger).log(log.level, "[rank %d] %s", rank, log.text)

    def _on_done(self, rank: int, member: _Member, done: Done) -> None:
        member.result = done
        self.unfinished.discard(rank)
        if not self.unfinished and self.bar.shown:
            self.bar.to(max(each.step or 0 for each in self.members))

    def _on_failed(self, rank: int, member: _Member, failed: Failed) -> None:
        member.failed = True
        self.failed = self.failed or (rank, failed)

    def _on_beat(self, rank: int, member: _Member, beat: Beat) -> None:
        member.waits = beat.waits
        member.at = beat.step or member.at

    def _on_stacks(self, rank: int, member: _Member, stacks: Stacks) -> None:
        member.stacks = stacks.text
        member.waits = stacks.waits
        member.at = stacks.step or member.at

    def _on_lost(self, rank: int, member: _Member, lost: Lost) -> None:
        if member.result is None and not member.failed:
            self._raise_lost([rank], "its process ended without a result (killed, out of memory, or its node was lost)")

    _HANDLERS: dict[type, Callable[..., None]] = {
        Hello: _on_hello,
        Report: _on_report,
        Gather: _on_gather,
        Ask: _on_ask,
        Log: _on_log,
        Done: _on_done,
        Failed: _on_failed,
        Beat: _on_beat,
        Stacks: _on_stacks,
        Lost: _on_lost,
    }

    def _make_bar(self) -> Bar:
        leave = self.options.leave
        return Bar(self.options.description, leave=leave, delay=0.0 if leave else PATIENCE)

    def _show(self, report: Report) -> None:
        """One bar for the gang: it is as far as its slowest rank."""
        if self.bar.shown:
            slowest = min((member.step or 0) for member in self.members)
            figures = {name: value for name, value in report.metrics.items() if isinstance(value, int | float)}
            self.bar.to(slowest, report.total, figures)

    def _check_started(self, started: float) -> None:
        waited = time.monotonic() - started
        if waited < self.options.start_timeout:
            return
        missing = tuple(rank for rank, member in enumerate(self.members) if member.hello is None)
        raise GangStalledError(
            f"rank(s) {_listed(missing)} of {len(self.members)} had not joined after {waited:.0f} s on the "
            f"{self.engine.name} engine. Free its slots (other jobs?), ask for fewer workers, or raise start_timeout.",
            missing,
        )

    def _check_alive(self) -> None:
        now = time.monotonic()
        heard = self.channel.heard  # a large message takes its time, and its sender says nothing else meanwhile
        silence = {rank: now - max(member.beat, heard.get(rank, 0.0)) for rank, member in self._working()}
        unheard = [rank for rank, seconds in silence.items() if seconds > SILENT_SECONDS]
        if unheard:
            self._raise_lost(unheard, f"nothing was heard from it for {SILENT_SECONDS:.0f} s (node or network lost)")
        if self._to_blame():
            # What a rank does at this moment counts, not what it did at its last beat.
            self._ask_for_stacks()
            if blamed := self._to_blame():
                self._raise_stalled(blamed)

    def _working(self) -> list[tuple[int, _Member]]:
        return [(rank, self.members[rank]) for rank in sorted(self.unfinished)]

    def _to_blame(self) -> tuple[int, ...]:
        """The ranks that hold the gang up: silent for too long, and not because they wait for others.

        Where every rank waits, and has been silent for too long, all are to blame."""
        limit = self.options.stall_timeout
        if limit is None:
            return ()
        now, working = time.monotonic(), self._working()
        silent = [(rank, member) for rank, member in working if now - member.spoke > limit]
        blamed = [rank for rank, _ in silent if not self._waits(rank)]
        if not blamed and len(silent) == len(working):
            blamed = [rank for rank, _ in silent]
        return tuple(blamed)

    def _ask_for_stacks(self) -> None:
        """Let every rank tell where it is and whether it waits, as far as it still answers."""
        for member in self.members:
            member.stacks = None
        self.channel.send_all(Stacks())
        deadline = time.monotonic() + STACKS_SECONDS
        while time.monotonic() < deadline and any(member.stacks is None for _, member in self._working()):
            self._handle(self.channel.poll(POLL_SECONDS))
        for _, member in self._working():
            member.waits = member.waits and member.stacks is not None

    def _raise_stalled(self, blamed: tuple[int, ...]) -> None:
        stacks = {
            rank: member.stacks or "no answer: the process does not run Python code (stuck in native code, or stopped)"
            for rank, member in self._working()
        }
        states = ", ".join(f"rank {rank}: {self._state_words(rank)}" for rank in range(len(self.members)))
        shown = "\n".join(f"--- rank {rank} ---\n{text}" for rank, text in stacks.items())
        raise GangStalledError(
            f"rank(s) {_listed(blamed)} reported nothing for {self.options.stall_timeout:g} s, so the gang was ended "
            f"({states}). If such a pause is expected, raise stall_timeout. Python stacks:\n{shown}",
            blamed,
            stacks,
        )

    def _state_words(self, rank: int) -> str:
        member = self.members[rank]
        if member.result is not None:
            return "finished"
        return _step_words(member.place) + (", waits for others" if self._waits(rank) else "")

    def _waits(self, rank: int) -> bool:
        """Whether a rank waits for others; who gave a part that only rank 0 wants does not."""
        member = self.members[rank]
        return member.waits or any(part.everyone or rank == 0 for part in member.gathered)

    def _raise_first_cause(self, rank: int, failed: Failed) -> None:
        deadline = time.monotonic() + FIRST_CAUSE_SECONDS
        while time.monotonic() < deadline:
            self._handle(self.channel.poll(POLL_SECONDS))  # raises WorkerLostError if a rank was lost before this
        self._raise_failed(rank, failed)

    def _raise_failed(self, rank: int, failed: Failed) -> None:
        raise_worker_error(failed, f"raised on rank {rank}, {_step_words(failed.step)}", rank)

    def _raise_launch_failure(self, reason: BaseException) -> None:
        """The engine gave up: let the workers' own words come first, if there are any."""
        deadline = time.monotonic() + FIRST_CAUSE_SECONDS
        while time.monotonic() < deadline:
            self._handle(self.channel.poll(POLL_SECONDS))
        if self.failed is not None:
            self._raise_failed(*self.failed)
        if not self.unfinished:
            return
        pending = [rank for rank, member in enumerate(self.members) if member.result is None]
        self._raise_lost(pending, f"the {self.engine.name} engine gave it up: {reason}", reason)

    def _raise_lost(self, ranks: list[int], why: str, cause: BaseException | None = None) -> None:
        steps = ", ".join(f"rank {rank}: {_step_words(self.members[rank].place)}" for rank in ranks)
        raise WorkerLostError(
            f"lost rank(s) {_listed(ranks)} of {len(self.members)} on the {self.engine.name} engine ({steps}): {why}.",
            tuple(ranks),
        ) from cause


def raise_worker_error(failed: Failed, where: str, rank: int | None = None) -> None:
    """Raise what a worker raised, as its own type, telling where it happened."""
    cause = WorkerError(f"{failed.description} ({where})\n{failed.traceback}", rank, failed.step, failed.traceback)
    error = None
    # Its class may be one that only workers can import.
    with contextlib.suppress(Exception):
        error = None if failed.error is None else cloudpickle.loads(failed.error)
    if error is None:
        raise cause
    error.add_note(f"{where}; its traceback there is shown above.")
    with contextlib.suppress(AttributeError):  # an exception may have slots
        error.rank, error.step, error.remote_traceback = rank, failed.step, failed.traceback
    raise error from cause


def _step_words(step: int | None) -> str:
    return "no step known yet" if step is None else f"step {step}"


def _listed(ranks: Any) -> str:
    return ", ".join(str(rank) for rank in ranks)
