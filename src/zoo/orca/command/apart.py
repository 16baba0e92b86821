"""Trying something in a process of its own, which may fail, crash or hang without harm to this one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import psutil

TRIAL = ("-m", "zoo.orca.command.trial")
# -P: a file torch.py where the user happens to be is no library.
PYTHON_OPTIONS = ("-P", "-W", "ignore")


@dataclass(frozen=True)
class Failure:
    """Why a trial did not work out.

    Attributes:
        text: in one line.
        command: what to type to see all of it.
    """

    text: str
    command: str

    def __str__(self) -> str:
        return self.text


def run_apart(arguments: list[str], seconds: float) -> dict[str, Any] | Failure:
    """What a trial tells (see `trial.py`), or why it tells nothing; whatever it started is gone when this returns.

    >>> run_apart(["load", "json"], seconds=60)["seconds"] < 60
    True
    """
    command = f"{sys.executable} {' '.join(TRIAL)} {' '.join(arguments)}"
    process = subprocess.Popen(
        [sys.executable, *PYTHON_OPTIONS, *TRIAL, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        stdout, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return Failure(f"did not answer within {seconds:g} s", command)
    finally:
        _end(process)
    answer = _answer(stdout)
    if process.returncode == 0:
        return answer
    return Failure(answer.get("error") or _ending(process.returncode), command)


def _answer(stdout: str) -> dict[str, Any]:
    """What a trial told: the last of its lines that is a JSON object, for libraries print what they like."""
    lines = [line for line in stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def _ending(code: int) -> str:
    return (
        f"the process was ended by {signal.Signals(-code).name}" if code < 0 else f"the process ended with code {code}"
    )


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a process that is still there, and those that it started."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.kill()
    for each in family:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            pass
    process.communicate()
