"""Contenders that are plain scripts on several ranks: under torchrun, as TensorFlow's workers, or sharing nothing.

The process that starts them imports nothing heavy, as no shell would. One rank is `python -m benchmarks.ranks
MODULE:FUNCTION JSON FOLDER`: it leaves what the function returns in a file.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.row import Report

WORKERS = 2


def under_torchrun(function: str, arguments: dict[str, Any]) -> Report:
    """`function(**arguments, marks=a folder)` on each rank; the first one returns what there is to report."""

    def launch(words: list[str]) -> None:
        torchrun = str(Path(sys.executable).with_name("torchrun"))
        _check([subprocess.Popen([torchrun, "--standalone", "--nproc-per-node", str(WORKERS), "-m", *words])])

    with tempfile.TemporaryDirectory() as marks:
        results, seconds = _collect(launch, function, arguments | {"marks": marks})
    return Report(seconds, **results[0])


def as_tensorflow_workers(function: str, arguments: dict[str, Any]) -> Report:
    """`function(**arguments, marks=a folder)` on each rank, which finds the others by TF_CONFIG, as TensorFlow's
    strategies do; the first one returns what there is to report."""

    def launch(words: list[str]) -> None:
        workers = [f"127.0.0.1:{port}" for port in _free_ports(WORKERS)]
        ranks = [
            {
                "RANK": str(rank),
                "WORLD_SIZE": str(WORKERS),
                "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}),
            }
            for rank in range(WORKERS)
        ]
        _check([subprocess.Popen([sys.executable, "-m", *words], env=os.environ | rank) for rank in ranks])

    with tempfile.TemporaryDirectory() as marks:
        results, seconds = _collect(launch, function, arguments | {"marks": marks})
    return Report(seconds, **results[0])


def as_plain_processes(function: str, arguments: dict[str, Any]) -> Report:
    """`function(**arguments)` on each rank, which returns its rate and the numbers of its checksum, to add up."""

    def launch(words: list[str]) -> None:
        ranks = [{"RANK": str(rank), "WORLD_SIZE": str(WORKERS)} for rank in range(WORKERS)]
        _check([subprocess.Popen([sys.executable, "-m", *words], env=os.environ | rank) for rank in ranks])

    results, seconds = _collect(launch, function, arguments)
    checksum = [sum(numbers) for numbers in zip(*(each["checksum"] for each in results), strict=True)]
    return Report(seconds, checksum, rate=sum(each["rate"] for each in results))


def rank_and_size() -> tuple[int, int]:
    """Who this process is."""
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _check(processes: list[subprocess.Popen[bytes]]) -> None:
    codes = [process.wait() for process in processes]
    if any(codes):
        raise RuntimeError(f"The ranks ended with the codes {codes}.")


def _collect(launch: Callable[[list[str]], None], function: str, arguments: dict[str, Any]) -> tuple[list[Any], float]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        launch(["benchmarks.ranks", function, json.dumps(arguments), folder])
        seconds = time.perf_counter() - start
        return [json.loads(Path(folder, f"rank-{rank}").read_text()) for rank in range(WORKERS)], seconds


def main(path: str, arguments: str, folder: str) -> None:
    module, _, name = path.partition(":")
    result = getattr(importlib.import_module(module), name)(**json.loads(arguments))
    Path(folder, f"rank-{rank_and_size()[0]}").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
