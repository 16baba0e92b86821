"""How test processes share one run: which tests each gets, who runs alone, and what goes when one of them dies.

pytest-xdist starts the processes (`make test`); each has an environment mark and a folder of its own, by which it
tells its own traces from those of the others. Without it nothing here does anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

MARK = "ORCA_TEST_RUN"
NAME = os.environ.get("PYTEST_XDIST_WORKER", "")
NO_ENGINE = "none"
# Their tests share nothing, and take long: each may go to another process.
DEALT_ONE_BY_ONE = ("tests/test_docs.py",)


def scope_of(item: pytest.Item) -> str:
    """Tests of one scope run in one process: those of a file on one engine, so that they share its fixtures."""
    callspec = getattr(item, "callspec", None)
    engine = callspec.params.get("engine", NO_ENGINE) if callspec is not None else NO_ENGINE
    path = item.nodeid if item.nodeid.startswith(DEALT_ONE_BY_ONE) else item.nodeid.partition("::")[0]
    return f"{engine} {path}"


def write_scopes(folder: Path, items: list[pytest.Item]) -> None:
    """Tell the process that deals, which sees no items but only their names."""
    path = folder / f"scopes-{NAME}"
    path.write_text(json.dumps({item.nodeid: scope_of(item) for item in items}))
    path.rename(folder / "scopes.json")


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def lone_ones_last(items: list[pytest.Item]) -> list[pytest.Item]:
    """Within each scope, so that the other processes are waited for once; by then its engine has warmed up."""
    scopes: dict[str, list[pytest.Item]] = {}
    for item in items:
        scopes.setdefault(scope_of(item), []).append(item)
    return [item for mine in scopes.values() for item in sorted(mine, key=is_alone)]


class Turns:
    """When this process's tests run: beside those of others, or alone, and then all of these that follow each other."""

    def __init__(self, folder: Path) -> None:
        names = ("gate", "room", "long")
        self._gate, self._room, self._long = (open(folder / name, "w") for name in names)  # noqa: SIM115 - kept open
        self._is_kept = False

    @contextlib.contextmanager
    def turn(self, item: pytest.Item, following: pytest.Item | None) -> Iterator[None]:
        if not self._is_kept:
            kind = fcntl.LOCK_EX if is_alone(item) else fcntl.LOCK_SH
            # The end of a long test is waited for first, while others may still enter.
            if is_alone(item) or item.get_closest_marker("long") is not None:
                fcntl.flock(self._long, kind)
            # Whoever waits to be alone holds the gate, so that no one else enters meanwhile.
            fcntl.flock(self._gate, fcntl.LOCK_EX)
            fcntl.flock(self._room, kind)
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            self._is_kept = is_alone(item) and following is not None and is_alone(following)
            if not self._is_kept:
                for lock in (self._room, self._long):
                    fcntl.flock(lock, fcntl.LOCK_UN)  # although a forked child may have the file open still


def clean_up(mark: str, folder: str) -> None:
    """End what test processes whose marks begin so left running, and remove their folders."""
    left = [process for process in psutil.process_iter() if _mark_of(process).startswith(mark)]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=10)
    for path in Path(folder).parent.glob(f"{Path(folder).name}*"):
        shutil.rmtree(path, ignore_errors=True)


def _mark_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.environ().get(MARK, "")
    return ""


def scheduler(config: pytest.Config, log: Any, folder: Path) -> Any:
    """Deals scopes out: first tests with engines of their own, then each process keeps to one engine while it can."""
    from xdist.scheduler import LoadScopeScheduling

    class ByEngine(LoadScopeScheduling):
        def __init__(self) -> None:
            super().__init__(config, log)
            self._scopes: dict[str, str] = {}
            self._engines: dict[Any, str] = {}

        def schedule(self) -> None:
            self._scopes = self._scopes or json.loads((folder / "scopes.json").read_text())
            super().schedule()

        def _split_scope(self, nodeid: str) -> str:
            return self._scopes[nodeid]

        def _assign_work_unit(self, node: Any) -> None:
            scope = self._best_for(node)
            self._engines[node] = scope.partition(" ")[0]
            self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

        def _best_for(self, node: Any) -> str:
            mine = self._engines.get(node, NO_ENGINE)
            others = {self._engines.get(other) for other in self.nodes if other is not node}

            def rank(scope: str) -> tuple[bool, bool]:
                engine = scope.partition(" ")[0]
                # A process whose engine runs cannot go back to tests that start their own.
                return engine != mine, engine in others or engine == NO_ENGINE

            return min(self.workqueue, key=rank)

        def remove_node(self, node: Any) -> str | None:
            """A test that ended its process is not run again, where it would end the next one."""
            units = self.assigned_work[node]
            waiting = [(unit, name) for unit in units.values() for name, done in unit.items() if not done]
            for unit, name in waiting[:1]:
                unit[name] = True
            self.assigned_work[node] = {scope: unit for scope, unit in units.items() if not all(unit.values())}
            super().remove_node(node)
            return waiting[0][1] if waiting else None

    return ByEngine()
