"""Figures, parameters and checkpoints of a fit as a run of MLflow, written by the driver."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.orca.engine.traces import Traces
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.callbacks.base import Callback, Run, numbers_of
from zoo.orca.optional import require

logger = logging.getLogger("zoo.orca")

# Steps are written together: a store takes a thousand figures in one call, and each call costs milliseconds.
_FLUSH_SECONDS = 1.0
_MOST_IN_A_CALL = 1000
# What a store that does not answer may let pile up; older figures are let go.
_MOST_PENDING = 100_000
_LONGEST_TAG = 5000


class MLflow(Callback):
    """Writes a fit into MLflow as one run: figures of steps, validations and epochs, and how it ended.

    Every step writes "loss", "lr" and "rows_per_second". The run ends as FINISHED, or FAILED with the tag "error"; the
    tag "stopped" has a callback's reason to stop. In `with mlflow.start_run():` the fit writes to that run, and leaves
    it open. MLflow's own reports to its makers are off for what is done here.

    Args:
        experiment: the experiment's name, made if it does not exist; None is MLflow's default.
        tracking_uri: the store, such as "http://host:5000" or "sqlite:///mlflow.db"; None is what MLflow is set to.
        run_name: the run's name; None leaves it to MLflow.
        params: parameters to write down, such as {"lr": 0.1}.
        tags: tags for the run.
        every: write down every so many steps.
        log_checkpoints: whether checkpoints are copied into the run's artifacts.

    Example:
        est.fit(data, epochs=2, callbacks=[MLflow("cats", "sqlite:///mlflow.db", params={"lr": 0.1})])
    """

    on_driver = True

    def __init__(
        self,
        experiment: str | None = None,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
        every: int = 1,
        log_checkpoints: bool = False,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise InvalidArgumentError(f"Expected every to be a whole number of steps above 0, got {every!r}")
        for name, given in (("params", params), ("tags", tags)):
            if given is not None and not isinstance(given, Mapping):
                raise InvalidArgumentError(f"Expected {name} to be a dict or None, got {given!r}")
        self.experiment = experiment
        self.tracking_uri = tracking_uri
        self.run_name = run_name
        self.params = dict(params or {})
        self.tags = dict(tags or {})
        self.every = every
        self.log_checkpoints = log_checkpoints
        #: The run's id, once the fit has started.
        self.run_id: str | None = None
        self._client: Any = None
        self._entities: Any = None
        self._owns_run = False
        self._pending: list[Any] = []
        self._flushed = 0.0
        self._validated: set[str] = set()

    def on_fit_start(self, run: Run) -> None:
        self._pending, self._flushed, self._validated = [], time.monotonic(), set()
        with _quietly():
            mlflow = require("mlflow", "The MLflow callback")
            self._entities = mlflow.entities
            joined = mlflow.active_run() if self._is_users_store(mlflow) else None
            client = mlflow.MlflowClient(tracking_uri=self.tracking_uri)
            self._owns_run = joined is None
            self.run_id = joined.info.run_id if joined is not None else self._new_run(client)
            # From here on there is a run to end, also when the store refuses a parameter.
            self._client = client
            params = [mlflow.entities.Param(str(name), str(value)) for name, value in self.params.items()]
            tags = [mlflow.entities.RunTag(str(name), str(value)) for name, value in self.tags.items()]
            client.log_batch(self.run_id, params=params, tags=tags)

    def on_step_end(self, run: Run) -> None:
        if run.step % self.every == 0:
            self._keep({"loss": run.loss, "lr": run.rate, "rows_per_second": run.speed}, run)

    def on_validation_end(self, run: Run) -> None:
        self._validated |= run.figures.keys()
        self._keep(run.figures, run)

    def on_epoch_end(self, run: Run) -> None:
        # What validation found is there already, at the step where it was found.
        figures = {name: value for name, value in run.figures.items() if name not in self._validated}
        self._keep(figures | {"epoch": run.epoch}, run)

    def on_checkpoint(self, run: Run) -> None:
        if self.log_checkpoints and run.checkpoint is not None:
            with self._forgiving("a checkpoint"):
                self._copy(run.checkpoint)

    def on_fit_end(self, run: Run) -> None:
        if self._client is None:
            return
        self._flush()
        with self._forgiving("how the fit ended"):
            for name, text in (("stopped", run.stopped), ("error", _words(run.error))):
                if text is not None:
                    self._client.set_tag(self.run_id, name, text[:_LONGEST_TAG])
            if self._owns_run:
                self._client.set_terminated(self.run_id, _status(run.error))
        self._client = None

    def _is_users_store(self, mlflow: Any) -> bool:
        """Whether the store is the one in which the user's own run would be."""
        return self.tracking_uri is None or self.tracking_uri == mlflow.get_tracking_uri()

    def _new_run(self, client: Any) -> str:
        return client.create_run(self._experiment_id(client), run_name=self.run_name).info.run_id

    def _experiment_id(self, client: Any) -> str:
        if self.experiment is None:
            return "0"
        known = client.get_experiment_by_name(self.experiment)
        if known is not None:
            return known.experiment_id
        return client.create_experiment(self.experiment, _beside(self.tracking_uri))

    def _keep(self, figures: Mapping[str, Any], run: Run) -> None:
        """Keep figures for the next call to the store."""
        if self._client is None:
            return
        metric = self._entities.Metric
        when = int((time.time() if run.time is None else run.time) * 1000)
        self._pending += [metric(_key(name), value, when, run.step) for name, value in numbers_of(figures).items()]
        if len(self._pending) >= _MOST_IN_A_CALL or time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self._flush()

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        with self._forgiving("figures, which are tried again later"):
            while self._pending:
                self._client.log_batch(self.run_id, metrics=self._pending[:_MOST_IN_A_CALL])
                del self._pending[:_MOST_IN_A_CALL]
        del self._pending[:-_MOST_PENDING]

    def _copy(self, path: str) -> None:
        if os.path.isdir(path):
            self._client.log_artifacts(self.run_id, path, f"checkpoints/{os.path.basename(path)}")
        elif os.path.isfile(path):
            self._client.log_artifact(self.run_id, path, "checkpoints")
        else:
            # On another machine, or in an object store: the run says where.
            self._client.set_tag(self.run_id, "checkpoint", path)

    @contextlib.contextmanager
    def _forgiving(self, what: str) -> Iterator[None]:
        """Hours of training must not end because a store of figures does not answer."""
        try:
            with _quietly():
                yield
        except Exception as error:
            logger.warning("MLflow did not take %s: %s: %s", what, type(error).__name__, error)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep MLflow from reporting to its makers and from telling of its tables, and the environment as it was."""
    traces = Traces({"MLFLOW_DISABLE_TELEMETRY": "true"})
    tables = logging.getLogger("mlflow.store.db")
    level = tables.level
    tables.setLevel(logging.WARNING)
    try:
        with traces:
            yield
    finally:
        tables.setLevel(level)
        traces.undo_variables()


def _beside(tracking_uri: str | None) -> str | None:
    """Where artifacts go when the store is one file: beside it, not into whatever folder the driver was started in."""
    prefix = "sqlite:///"
    if tracking_uri is None or not tracking_uri.startswith(prefix):
        return None
    database = Path(tracking_uri.removeprefix(prefix).partition("?")[0])
    return (database.absolute().parent / "mlartifacts").as_uri()


def _key(name: str) -> str:
    """A figure's name in the letters that MLflow allows."""
    return "".join(letter if letter.isalnum() or letter in "_-. /:" else "_" for letter in name)


def _status(error: BaseException | None) -> str:
    if error is None:
        return "FINISHED"
    return "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"


def _words(error: BaseException | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"
