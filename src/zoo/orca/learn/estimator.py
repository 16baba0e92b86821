"""The driver's side of every estimator: one ladder from `fit` down to a gang, whatever the framework."""

from __future__ import annotations

import copy
import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.orca.context import current_engine, engine_of_spark
from zoo.orca.engine.gang import GangOptions, run_gang
from zoo.orca.engine.ray_session import ray_is_running
from zoo.orca.errors import ContextError, InvalidArgumentError, PreconditionError, ReplicasDifferError
from zoo.orca.feed import as_feed, engine_of, kind_of
from zoo.orca.feed.shards import Columns
from zoo.orca.learn import worker
from zoo.orca.learn.base_estimator import BaseEstimator
from zoo.orca.learn.checkpoint import Checkpoints, models_folder, run_folder
from zoo.orca.learn.summary import SummaryWriter, read_scalar
from zoo.orca.learn.sync import make_sync
from zoo.orca.learn.trigger import EveryEpoch, TrainState, Trigger, TriggerCall
from zoo.orca.learn.worker import Batching, EvaluateJob, FitJob, Outcome

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.engine.channel import Report
    from zoo.orca.feed.base import Feed
    from zoo.orca.learn.learner import Learning

logger = logging.getLogger("zoo.orca")

DEFAULT_BATCH_SIZE = 32

#: What users call a backend: the sync behind it, and the engine that it insists on.
BACKENDS: dict[str, tuple[str, str | None]] = {
    "bigdl": ("bigdl", None),
    "torch_distributed": ("torch_distributed", None),
    "horovod": ("horovod", None),
    "spark": ("torch_distributed", "spark"),
    "ray": ("torch_distributed", "ray"),
}


@dataclass(frozen=True)
class Gang:
    """How many workers an estimator uses, and how they agree.

    Args:
        num_workers: workers in all; None is workers_per_node on each node of the engine.
    """

    backend: str = "bigdl"
    workers_per_node: int = 1
    num_workers: int | None = None

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InvalidArgumentError(
                f"backend must be one of {', '.join(map(repr, BACKENDS))}, but is {self.backend!r}."
            )
        for name in ("workers_per_node", "num_workers"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InvalidArgumentError(f"{name} must be a whole number of at least 1, but is {value!r}.")

    @property
    def sync(self) -> str:
        return BACKENDS[self.backend][0]

    def engine(self) -> Engine | None:
        """The engine that the backend's name asks for; None leaves it to the data."""
        name = BACKENDS[self.backend][1]
        if name == "spark":
            return engine_of_spark()
        if name == "ray":
            from zoo.orca.engine.ray import RayEngine

            if not ray_is_running():
                raise ContextError(
                    'backend="ray" needs a Ray that runs. Type: init_orca_context("ray"), or use '
                    'backend="torch_distributed", which goes where the data is.'
                )
            return RayEngine()
        return None

    def size(self, engine: Engine) -> int:
        return self.num_workers or self.workers_per_node * engine.nodes


@dataclass
class Summaries:
    """Where the figures of training go, and the last place they went to."""

    train: SummaryWriter | None = None
    validation: SummaryWriter | None = None

    def to(self, folder: Path) -> None:
        self.train = SummaryWriter(folder / "train")
        self.validation = SummaryWriter(folder / "validation")

    def on_report(self, rank: int, report: Report) -> None:
        """Write what a rank reported on its way."""
        for iteration, loss, speed, rate, when in report.metrics.get("steps", ()):
            if self.train is not None:
                if loss is not None:
                    self.train.add_scalar("Loss", loss, iteration, when)
                self.train.add_scalar("Throughput", speed, iteration, when)
                self.train.add_scalar("LearningRate", rate, iteration, when)
        if "validation" in report.metrics:
            iteration, figures, when = report.metrics["validation"]
            shown = {name: value for name, value in figures.items() if isinstance(value, int | float)}
            logger.info("validation after step %d: %s", iteration, shown)
            for name, value in shown.items():
                if self.validation is not None:
                    self.validation.add_scalar(name, value, iteration, when)

    def close(self) -> None:
        for each in (self.train, self.validation):
            if each is not None:
                each.close()


class Estimator(BaseEstimator):
    """What all estimators share: data becomes a feed, a gang is run over it, and its state is brought home."""

    #: When validation data is measured if no trigger says otherwise.
    _validate_when: TriggerCall = EveryEpoch()

    def __init__(self, gang: Gang, config: dict[str, Any], model_dir: str | None, seed: int):
        self._gang = gang
        self._config = config
        self._model_dir = None if model_dir is None else check_path(model_dir, "model_dir")
        self._run_folder: Path | None = None
        self._seed = seed
        self._state: dict[str, Any] | None = None
        self._where = TrainState()
        self._summaries = Summaries()
        self._wants_summaries = False
        self._known_shapes: dict[str, tuple[int, ...]] = {}

    @abstractmethod
    def _learning(self) -> Learning:
        """What workers build their replica from; typed errors for what cannot work."""

    @abstractmethod
    def _check_trainable(self) -> None:
        """Raise a typed error if what training needs was not given."""

    @abstractmethod
    def _check_batch(self, feed: Feed, what: str = "data") -> None:
        """Raise a typed error if the model cannot take the feed's first rows; errors call the data `what`."""

    def _run_fit(
        self,
        data: Any,
        epochs: range,
        batch_size: int | None,
        columns: Columns,
        validation_data: Any = None,
        checkpoint_trigger: Any = None,
        **options: Any,
    ) -> list[Outcome]:
        """Train for some epochs, counted over the estimator's life, and take the trained state."""
        self._check_trainable()
        trigger = Trigger.convert_trigger(checkpoint_trigger)
        learning = self._learning()
        engine, batching = self._prepare(data, batch_size)
        validation = self._validation_feed(data, validation_data, columns, engine)
        feed = self._feed(data, columns, engine)
        self._check_batch(feed)
        if validation is not None:
            self._check_batch(validation, "validation_data")
        job = FitJob(
            learning=learning,
            sync=make_sync(self._gang.sync),
            feed=feed,
            batching=batching,
            first_epoch=epochs.start,
            last_epoch=epochs.stop,
            state=self._state,
            train_state=self._where,
            validation=validation,
            validation_trigger=Trigger.convert_trigger(copy.deepcopy(checkpoint_trigger)) or self._validate_when,
            checkpoint_trigger=trigger,
            checkpoints=self._start_run(trigger is not None),
            summarise=self._summaries.train is not None,
            **options,
        )
        try:
            outcomes = self._run(engine, worker.fit, job, feed, "fit", self._summaries.on_report)
        finally:
            self._summaries.close()
        self._take(outcomes)
        return outcomes

    def _run_evaluate(
        self, data: Any, batch_size: int | None, columns: Columns, num_steps: int | None = None, **options: Any
    ) -> dict[str, Any]:
        """The figures of the model as it is, over all rows."""
        learning = self._learning()
        engine, batching = self._prepare(data, batch_size, training=False)
        feed = self._feed(data, columns, engine)
        self._check_batch(feed)
        job = EvaluateJob(learning, make_sync(self._gang.sync), feed, batching, self._state, num_steps, **options)
        return self._run(engine, worker.evaluate, job, feed, "evaluate")[0]

    def _prepare(self, data: Any, batch_size: int | None, training: bool = True) -> tuple[Engine, Batching]:
        """Check what can be checked before data is touched: the sync's packages, the slots, the batch size."""
        make_sync(self._gang.sync).check()
        engine = engine_of(data, self._gang.engine())
        workers = self._gang.size(engine)
        size = self._check_batch_size(data, batch_size, workers)
        engine.check_gang(workers)
        shuffle = training and bool(self._config.get("shuffle", True))
        return engine, Batching(size, self._seed, shuffle, training and bool(self._config.get("drop_last", False)))

    def _check_batch_size(self, data: Any, batch_size: int | None, workers: int) -> int:
        kind = kind_of(data)
        if kind == "DataLoader":
            if batch_size is not None:
                raise PreconditionError(
                    f"batch_size must be left out with a DataLoader, which has its own, but is {batch_size}. "
                    "The loader's batches are the global batches."
                )
            return 1
        size = DEFAULT_BATCH_SIZE if batch_size is None else batch_size
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidArgumentError(f"batch_size must be a whole number of at least 1, but is {batch_size!r}.")
        if size < workers:
            raise InvalidArgumentError(
                f"batch_size is the rows of a step over all workers, so it must be at least the number of workers "
                f"({workers}), but is {size}. Raise batch_size, or ask for fewer workers."
            )
        return size

    def _feed(self, data: Any, columns: Columns, engine: Engine, what: str = "data") -> Feed:
        feed = as_feed(data, columns, self._config, engine, what)
        layout = getattr(feed, "layout", None)
        if layout is not None:
            self._known_shapes |= dict(zip(columns.features, layout.shapes, strict=False))
        return feed

    def _validation_feed(self, data: Any, validation: Any, columns: Columns, engine: Engine) -> Feed | None:
        if validation is None:
            return None
        kinds = kind_of(data), kind_of(validation)
        if kinds[0] != kinds[1]:
            raise InvalidArgumentError(
                f"validation_data must be of the same kind as data, but data is {_a(kinds[0])} and validation_data "
                f"{_a(kinds[1])}. Bring one of them into the form of the other."
            )
        return self._feed(validation, columns, engine, "validation_data").gathered()

    def _start_run(self, checkpoints: bool) -> Checkpoints | None:
        """Where this fit writes to, if a model_dir was given: one folder for all fits of an estimator."""
        if self._model_dir is None:
            if checkpoints:
                logger.warning("no checkpoint is written, because there is no model_dir to write to.")
            return None
        if self._run_folder is None:
            self._run_folder = run_folder(self._model_dir)
            if not self._wants_summaries:
                self._summaries.to(self._run_folder / "summary")
        return Checkpoints(str(models_folder(self._run_folder)), self._checkpoint_name()) if checkpoints else None

    def _checkpoint_name(self) -> str:
        return f"{type(self).__name__}{id(self):x}"

    def _run(
        self,
        engine: Engine,
        function: Callable[..., Any],
        job: Any,
        feed: Feed,
        description: str,
        on_report: Callable[[int, Report], None] | None = None,
    ) -> list[Any]:
        options = GangOptions(description=description, on_report=on_report)
        return run_gang(engine, function, self._gang.size(engine), job, data=feed.data, options=options)

    def _take(self, outcomes: list[Outcome]) -> None:
        """The trained state is rank 0's, and all ranks must have come to the same weights."""
        if len({outcome.digest for outcome in outcomes}) > 1:
            raise ReplicasDifferError(
                "the workers ended with different weights, though every step is taken by all of them together. Was a "
                "weight changed outside optimizer.step() on some ranks only (a TrainingOperator that looks at "
                "world_rank)? Nothing was taken over; the estimator is as it was before this fit."
            )
        first = outcomes[0]
        self._where = first.train_state
        self._state = (first.state or {}) | {"epoch": self._where.epoch, "neval": self._where.neval}

    def set_tensorboard(self, log_dir: str, app_name: str) -> None:
        """Write summaries to `log_dir/app_name/train` and `log_dir/app_name/validation`, for TensorBoard."""
        self._wants_summaries = True
        self._summaries.to(Path(check_path(log_dir, "log_dir")) / check_path(app_name, "app_name"))

    def get_train_summary(self, tag: str | None = None) -> list[list[float]] | None:
        """[iteration, value, time] of "Loss", "Throughput" or "LearningRate"; None when no summary is written."""
        writer = self._summaries.train
        return None if writer is None else read_scalar(writer.folder, tag or "Loss")

    def get_validation_summary(self, tag: str | None = None) -> list[list[float]] | None:
        """[iteration, value, time] of a metric of the validation data; None when no summary is written."""
        writer = self._summaries.validation
        if writer is None:
            return None
        if tag is None:
            raise InvalidArgumentError('a metric must be named, for example get_validation_summary("Top1Accuracy").')
        return read_scalar(writer.folder, tag)

    def _engine_now(self) -> Engine:
        return self._gang.engine() or current_engine()


def check_epochs(epochs: Any) -> int:
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise InvalidArgumentError(f"epochs must be a whole number of at least 1, but is {epochs!r}.")
    return epochs


def check_path(path: Any, name: str) -> str:
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgumentError(f"{name} must be a path, but is {path!r}.")
    return os.fspath(path)


def check_num_steps(num_steps: Any) -> int | None:
    if num_steps is not None and (isinstance(num_steps, bool) or not isinstance(num_steps, int) or num_steps < 1):
        raise InvalidArgumentError(f"num_steps must be a whole number of at least 1, or None, but is {num_steps!r}.")
    return num_steps


def check_dict(value: Any, name: str) -> dict[str, Any]:
    """A copy of a dict that may be left out."""
    if value is not None and not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{name} must be a dict or None, but is {value!r}.")
    return dict(value or {})


def as_columns(feature_cols: Any, label_cols: Any, weight_col: str | None = None) -> Columns:
    """Names of columns as users give them: a list, or one name by itself."""
    if weight_col is not None and not isinstance(weight_col, str | int):
        raise InvalidArgumentError(f"weight_col must be the name of one column, but is {weight_col!r}.")
    return Columns(_names(feature_cols, "feature_cols"), _names(label_cols, "label_cols"), weight_col)


def _names(given: Any, what: str) -> tuple[str, ...]:
    names = [given] if isinstance(given, str) else given
    if names is None:
        return ()
    if not isinstance(names, Iterable) or not all(isinstance(name, str | int) for name in names):
        raise InvalidArgumentError(f"{what} must be a list of column names, but is {given!r}.")
    return tuple(names)


def _a(kind: str) -> str:
    return kind if kind in ("arrays",) else f"{'an' if kind[0] in 'aeiouX' else 'a'} {kind}"
