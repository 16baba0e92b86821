"""Workers as the published interface shows them, for code that looks into an estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zoo.orca.engine.gang import run_gang
from zoo.orca.errors import NotOfferedError
from zoo.orca.learn.sync import make_sync
from zoo.orca.optional import require

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.engine.worker import Worker
    from zoo.orca.learn.estimator import Gang


class RemoteWorkers:
    """`est.estimator`: how many workers there are, their state, and a way to run a function on them.

    Workers live while a call runs; `remote_workers` are Ray actors that hold the state all of them ended with, which
    `fit` has checked to be the same on each.
    """

    def __init__(self, engine: Engine, gang: Gang, state: Callable[[], dict[str, Any]]):
        self._engine = engine
        self._gang = gang
        self._state = state

    def __repr__(self) -> str:
        return f"RemoteWorkers({self._gang.size(self._engine)} on {self._engine!r})"

    @property
    def num_workers(self) -> int:
        return self._gang.size(self._engine)

    @property
    def remote_workers(self) -> list[Any]:
        """One Ray actor a worker, with the remote method `state_dict()`."""
        if self._engine.name != "ray":
            raise NotOfferedError(
                f"remote_workers are Ray actors, but this estimator works on the {self._engine.name} engine. "
                "Use get_model() for the weights, or save(path) for the whole state."
            )
        ray = require("ray", "remote_workers")
        actor = ray.remote(num_cpus=0)(_StateHolder)
        state = ray.put(self._state())
        return [actor.remote(state) for _ in range(self.num_workers)]

    @property
    def horovod_runner(self) -> HorovodRunner:
        return HorovodRunner(self._engine, self.num_workers)


class HorovodRunner:
    """Runs a function on every worker, with Horovod joined."""

    def __init__(self, engine: Engine, num_workers: int):
        self._engine = engine
        self._num_workers = num_workers

    def __repr__(self) -> str:
        return f"HorovodRunner({self._num_workers} workers on {self._engine!r})"

    def run(self, func: Callable[[], Any]) -> list[Any]:
        """What `func()` returns on each worker, by rank."""
        make_sync("horovod").check()
        return run_gang(self._engine, _joined, self._num_workers, func)


def _joined(worker: Worker, func: Callable[[], Any]) -> Any:
    with make_sync("horovod").join(worker):
        return func()


class _StateHolder:
    def __init__(self, state: dict[str, Any]):
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        return self._state
