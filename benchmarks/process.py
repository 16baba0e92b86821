"""Running one contender in a fresh process: its time, its report and the memory of all its processes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.row import ROOT, Contender

SAMPLE_SECONDS = 0.1
LONGEST_SECONDS = 900.0
TAIL = 2000


class ContenderFailedError(RuntimeError):
    """A contender ended badly; the message holds the end of what it wrote."""


@dataclass(frozen=True)
class Run:
    """One run of a contender; `peak` is in bytes and known only where memory was watched."""

    seconds: float | None
    whole: float
    checksum: list[Any]
    peak: int | None
    rate: float | None = None


def missing(contender: Contender) -> list[str]:
    """The packages it needs that are not installed."""
    return [name for name in contender.needs if importlib.util.find_spec(name) is None]


def run(contender: Contender, watch_memory: bool) -> Run:
    """Run it once, with temporary files in a folder that goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        report, log = Path(folder, "report"), Path(folder, "log")
        with log.open("wb") as output:
            environment = os.environ | {"BENCH_REPORT": str(report), "TMPDIR": folder, "PYTHONPATH": str(ROOT)}
            started = time.perf_counter()
            process = subprocess.Popen(
                _command(contender),
                cwd=ROOT,
                env=environment | contender.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            code, peak = _wait(process, watch_memory)
            whole = time.perf_counter() - started
        if code or not report.exists():
            end = log.read_text(errors="replace")[-TAIL:]
            raise ContenderFailedError(f"{contender.name} ended with code {code} and wrote:\n{end}")
        return _read(report, whole, peak)


def _command(contender: Contender) -> list[str]:
    if isinstance(contender.work, str):
        path = contender.work
    elif callable(contender.work):
        path = f"{contender.work.__module__}:{contender.work.__qualname__}"
    else:
        return list(contender.work)
    return [sys.executable, "-m", "benchmarks.child", path, json.dumps(contender.arguments)]


def _wait(process: subprocess.Popen[bytes], watch_memory: bool) -> tuple[int, int | None]:
    """Wait without polling, which would blur short times; a process that takes far too long is ended."""
    peak = _Peak(process.pid) if watch_memory else None
    alarm = threading.Timer(LONGEST_SECONDS, _kill, [process.pid])
    alarm.start()
    try:
        return process.wait(), peak.stop() if peak else None
    except BaseException:
        _kill(process.pid)
        process.wait()
        raise
    finally:
        alarm.cancel()
        if peak:
            peak.stop()


def _kill(pid: int) -> None:
    for process in _tree(pid):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


class _Peak:
    """Watches the memory of a process and its descendants, in which a page that several share counts once."""

    def __init__(self, pid: int):
        self._pid, self._bytes = pid, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._bytes

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self._bytes = max(self._bytes, sum(map(_proportional, _tree(self._pid))))


def _proportional(process: psutil.Process) -> int:
    """The bytes it holds, of shared pages its part (Linux: PSS)."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _read(report: Path, whole: float, peak: int | None) -> Run:
    """One line is the report as it is; the lines of several processes are joined and sorted."""
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    if len(lines) == 1:
        return Run(lines[0].get("seconds"), whole, lines[0]["checksum"], peak, lines[0].get("rate"))
    times = [line["seconds"] for line in lines if line.get("seconds") is not None]
    checksum = sorted(value for line in lines for value in line["checksum"])
    return Run(max(times, default=None), whole, checksum, peak)
