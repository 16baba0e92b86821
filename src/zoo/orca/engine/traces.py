"""What starting Spark or Ray leaves behind in this process and on this machine, and how it is taken back."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Mapping
from types import TracebackType

import psutil

_HANDLED_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Traces:
    """What changes in this process while something starts: environment variables and signal handlers.

    Changes made by the user afterwards stay as they are.

    Example:
        with Traces({"JAVA_HOME": "/tmp/x"}) as traces:
            start()
        ...
        traces.undo()
    """

    def __init__(self, variables: Mapping[str, str] | None = None):
        self._variables = dict(variables or {})
        self._before: dict[str, str] = {}
        self._changed: dict[str, str | None] = {}
        self._handlers_before: dict[int, object] = {}
        self._handlers: dict[int, object] = {}

    def __enter__(self) -> Traces:
        self._before = dict(os.environ)
        self._handlers_before = {number: signal.getsignal(number) for number in _HANDLED_SIGNALS}
        os.environ.update(self._variables)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = dict(os.environ)
        names = self._before.keys() | now.keys()
        self._changed = {name: now.get(name) for name in names if now.get(name) != self._before.get(name)}
        self._handlers = {number: signal.getsignal(number) for number in _HANDLED_SIGNALS}
        if error is not None:
            self.undo()

    def undo_variables(self, names: Iterable[str] | None = None) -> None:
        """Give every variable (or those named) that is still as the start left it the value it had before."""
        for name in list(self._changed if names is None else self._changed.keys() & set(names)):
            left = self._changed.pop(name)
            if os.environ.get(name) != left:
                continue
            if name in self._before:
                os.environ[name] = self._before[name]
            else:
                os.environ.pop(name, None)

    def undo(self) -> None:
        """Take back variables and signal handlers; safe to call twice."""
        self.undo_variables()
        # Python lets only the main thread set handlers; elsewhere none could have been changed either.
        if threading.current_thread() is threading.main_thread():
            for number, left in self._handlers.items():
                before = self._handlers_before[number]
                if left is not before and signal.getsignal(number) is left and before is not None:
                    signal.signal(number, before)  # type: ignore[arg-type]
        self._handlers = {}


def descendants(pid: int) -> list[psutil.Process]:
    """Every process below `pid` now, itself included; none if it is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def await_end(processes: Iterable[psutil.Process], patience: float = 10.0) -> None:
    """Wait until processes that were told to stop are gone, and kill those that are not gone in time."""
    _, alive = psutil.wait_procs(list(processes), timeout=patience)
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=patience)
