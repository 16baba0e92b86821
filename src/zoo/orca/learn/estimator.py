"""The driver's side of every estimator: one ladder from `fit` down to a gang, whatever the framework."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import html
import logging
import os
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.orca.context import current_engine, engine_of_spark
from zoo.orca.data.file import is_local
from zoo.orca.engine import bar
from zoo.orca.engine.gang import GangOptions, run_gang
from zoo.orca.engine.ray_session import ray_is_running
from zoo.orca.errors import (
    ContextError,
    InvalidArgumentError,
    PreconditionError,
    ReplicasDifferError,
    WorkerLostError,
)
from zoo.orca.feed import as_feed, check_same_kind, engine_of, kind_of
from zoo.orca.feed.shards import Columns
from zoo.orca.feed.taste import Taste, taste
from zoo.orca.learn import worker
from zoo.orca.learn.base_estimator import BaseEstimator
from zoo.orca.learn.callbacks import Callbacks, ModelCheckpoint, Progress, Run
from zoo.orca.learn.check_report import CheckReport
from zoo.orca.learn.checkpoint import Checkpoints, Fit, find_fit, models_folder, run_folder, run_of
from zoo.orca.learn.preflight import preflight
from zoo.orca.learn.record import Record, Summaries
from zoo.orca.learn.rehearsal import NoRehearsal, Rehearsal
from zoo.orca.learn.result import FitResult
from zoo.orca.learn.summary import read_scalar
from zoo.orca.learn.sync import Sync, make_sync
from zoo.orca.learn.trigger import EveryEpoch, EveryTime, TrainState, Trigger, TriggerCall, TriggerOr
from zoo.orca.learn.worker import Batching, EvaluateJob, FitJob, Outcome, Saving

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.engine.channel import Report
    from zoo.orca.feed.base import Feed
    from zoo.orca.learn.learner import Learning

logger = logging.getLogger("zoo.orca")

DEFAULT_BATCH_SIZE = 32
# Nobody asked for these checkpoints: they are few, and of them only the last ones are kept.
DEFAULT_CHECKPOINT_SECONDS = 60.0
DEFAULT_KEEP_LAST = 2

#: What users call a backend: the sync behind it, and the engine that it insists on.
BACKENDS: dict[str, tuple[str, str | None]] = {
    "bigdl": ("bigdl", None),
    "torch_distributed": ("torch_distributed", None),
    "horovod": ("horovod", None),
    "spark": ("torch_distributed", "spark"),
    "ray": ("torch_distributed", "ray"),
    "tf2": ("torch_distributed", None),
    "mxnet": ("kvstore", None),
}


@dataclass(frozen=True)
class Gang:
    """How many workers an estimator uses, how they agree, and what becomes of them when some are lost or silent.

    Args:
        num_workers: workers in all; a pair (least, most) takes as many as there is room for; None is workers_per_node
            on each node of the engine.
        max_failures: how many times a gang that lost a worker is started again.
        stall_timeout: seconds after which a gang of which some rank says nothing is ended; None waits for ever.
    """

    backend: str = "bigdl"
    workers_per_node: int = 1
    num_workers: int | tuple[int, int] | None = None
    max_failures: int = 3
    stall_timeout: float | None = 1800.0

    def __post_init__(self) -> None:
        check_backend(self.backend, tuple(BACKENDS))
        if not _is_count(self.workers_per_node, 1):
            raise InvalidArgumentError(
                f"workers_per_node must be a whole number of at least 1, but is {self.workers_per_node!r}."
            )
        self._check_num_workers()
        if not _is_count(self.max_failures, 0):
            raise InvalidArgumentError(f"max_failures must be a whole number, but is {self.max_failures!r}.")
        limit = self.stall_timeout
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float) or limit <= 0):
            raise InvalidArgumentError(
                f"stall_timeout must be a number of seconds, or None to wait for ever, but is {limit!r}."
            )

    def _check_num_workers(self) -> None:
        given = self.num_workers
        if isinstance(given, tuple | list):
            if len(given) == 2 and all(_is_count(each, 1) for each in given) and given[0] <= given[1]:
                return
            raise InvalidArgumentError(
                f"num_workers must be a whole number of at least 1, or a pair (least, most), but is {given!r}."
            )
        if given is not None and not _is_count(given, 1):
            raise InvalidArgumentError(f"num_workers must be a whole number of at least 1, but is {given!r}.")

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
        """How many workers are wanted."""
        return self.limits(engine)[1]

    def limits(self, engine: Engine) -> tuple[int, int]:
        """How many workers there must be at least, and at most."""
        if isinstance(self.num_workers, tuple | list):
            least, most = self.num_workers
            return least, most
        wanted = self.num_workers or self.workers_per_node * engine.nodes
        return wanted, wanted


class Estimator(BaseEstimator):
    """What all estimators share: data becomes a feed, a gang is run over it, and its state is brought home."""

    #: When validation data is measured if no trigger says otherwise.
    _validate_when: TriggerCall = EveryEpoch()
    #: Whether its models take text.
    _takes_text = False
    #: Whether calls show no bar of their progress.
    _quiet = False
    #: What the last fit tells: history, where the time went, restarts, checkpoints. None before the first one.
    result_: FitResult | None = None

    def __init__(self, gang: Gang, config: dict[str, Any], model_dir: str | None, seed: int):
        self._gang = gang
        self._config = config
        self._model_dir = None if model_dir is None else check_path(model_dir, "model_dir")
        self._run_folder: str | None = None
        self._seed = seed
        self._state: dict[str, Any] | None = None
        self._where = TrainState()
        self._summaries = Summaries()
        self._wants_summaries = False
        self._known_shapes: dict[str, tuple[int, ...]] = {}

    def __repr__(self) -> str:
        facts = [self._model_name(), f"backend={self._gang.backend!r}", f"epochs done: {self._where.epoch - 1}"]
        return f"{type(self).__name__}({', '.join(fact for fact in facts if fact)})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the facts, and what the last fit tells."""
        facts = {"workers": self._gang.num_workers, "model_dir": self._model_dir}
        known = "".join(f"<br>{name}: {html.escape(str(each))}" for name, each in facts.items() if each is not None)
        told = "" if self.result_ is None else self.result_._repr_html_()
        return f"<p><code>{html.escape(repr(self))}</code>{known}</p>{told}"

    def _model_name(self) -> str | None:
        """What the model, or the function that makes it, is called."""
        model = getattr(getattr(self, "_recipe", None), "model", None)
        name = getattr(model, "name", None)
        if model is None or isinstance(name, str):
            return name
        return getattr(model, "__name__", type(model).__name__)

    @abstractmethod
    def _learning(self) -> Learning:
        """What workers build their replica from; typed errors for what cannot work."""

    def _make_sync(self) -> Sync:
        """How workers agree."""
        return make_sync(self._gang.sync)

    @abstractmethod
    def _check_trainable(self) -> None:
        """Raise a typed error if what training needs was not given."""

    @abstractmethod
    def _check_state(self, state: dict[str, Any], path: str) -> None:
        """Raise a `CheckpointError` if a state that was read from a path is not this model's."""

    @abstractmethod
    def _check_batch(self, feed: Feed, what: str = "data") -> None:
        """Raise a typed error if the model cannot take the feed's first rows; errors call the data `what`."""

    def _rehearsal(self) -> Rehearsal:
        """What the framework adds to `check`."""
        return NoRehearsal()

    def _taste(self, data: Any, columns: Columns, engine: Engine, what: str) -> Taste:
        """A few rows of data, for `check`."""
        return taste(data, columns, self._config, engine, what)

    def check(
        self,
        data: Any,
        batch_size: int | None = None,
        feature_cols: Any = None,
        label_cols: Any = None,
        validation_data: Any = None,
        *,
        callbacks: Any = None,
        labels_cols: Any = None,
        weight_col: str | None = None,
    ) -> CheckReport:
        """Look, in seconds, at all that a fit with these arguments needs; nothing is changed, and nothing stays.

        Gives a report to print; `report.ok` says whether fit would start, `report.raise_first()` raises what it would.
        """
        columns = as_columns(feature_cols, labels_cols if label_cols is None else label_cols, weight_col)
        return preflight(self, data, batch_size, columns, validation_data, callbacks)

    def _run_fit(
        self,
        data: Any,
        epochs: range,
        batch_size: int | None,
        columns: Columns,
        validation_data: Any = None,
        checkpoint_trigger: Any = None,
        callbacks: Any = None,
        resume: str | None = None,
        validation_trigger: TriggerCall | None = None,
        **options: Any,
    ) -> list[Outcome]:
        """Train for some epochs, counted over the estimator's life, and take the trained state.

        Validation data is measured at its own trigger, or with checkpoints, or when this kind of estimator does.
        """
        self._check_trainable()
        trigger = Trigger.convert_trigger(checkpoint_trigger)
        called = Callbacks(callbacks)
        self._check_resume(resume)
        learning = self._learning()
        engine, batching = self._prepare(data, batch_size)
        validation = self._validation_feed(data, validation_data, columns, engine)
        feed = self._feed(data, columns, engine)
        self._check_batch(feed)
        if validation is not None:
            self._check_batch(validation, "validation_data")
        self._check_monitored(called, validation is not None)
        fit = Fit(epochs.start, batching.batch_size, self._seed)
        with self._saving(engine, trigger, called, fit, resume) as (saving, state):
            self._start_summaries()
            record = self._record(engine, epochs, called, validation is not None, saving, state)
            job = FitJob(
                learning=learning,
                sync=self._make_sync(),
                feed=feed,
                batching=batching,
                first_epoch=epochs.start,
                last_epoch=epochs.stop,
                state=self._state if state is None else state,
                train_state=self._where,
                validation=validation,
                validation_trigger=validation_trigger
                or Trigger.convert_trigger(copy.deepcopy(checkpoint_trigger))
                or self._validate_when,
                saving=saving,
                callbacks=called.on_workers(),
                tell_steps=record.wants_steps,
                **options,
            )
            outcomes, restarts = self._train(engine, job, record)
            self._summaries.close()
        self._take(outcomes)
        called.come_home(outcomes[0].callbacks)
        kept = self._model_dir is not None
        self.result_ = FitResult(
            epochs=outcomes[0].history,
            phases=[outcome.phases for outcome in outcomes],
            rows=outcomes[0].rows,
            restarts=restarts,
            best_checkpoint=record.best_checkpoint if kept else None,
            last_checkpoint=record.last_checkpoint if kept else None,
            stopped=outcomes[0].stopped,
            world_size=len(outcomes),
        )
        record.end(outcomes[0].stopped)
        return outcomes

    def _train(self, engine: Engine, job: FitJob, record: Record) -> tuple[list[Outcome], int]:
        """Run the gang of a fit, each time that it lost a worker from its last checkpoint on."""
        restarts = 0

        def again(lost: WorkerLostError) -> tuple[FitJob]:
            nonlocal restarts
            restarts += 1
            state = None if job.saving is None else job.saving.checkpoints.newest()
            return (job if state is None else dataclasses.replace(job, state=state),)

        try:
            record.begin()
            shows = not any(isinstance(each, Progress) for each in record.callbacks)
            outcomes = self._run(engine, worker.fit, job, "fit" if shows else None, record.on_report, again)
        except BaseException as error:
            self._summaries.close()
            record.end(error=error)
            raise
        return outcomes, restarts

    def _record(
        self,
        engine: Engine,
        epochs: range,
        callbacks: Callbacks,
        validates: bool,
        saving: Saving | None,
        state: dict[str, Any] | None,
    ) -> Record:
        """What the driver will hear of a fit, from where it begins or goes on."""
        where = self._where if state is None else TrainState(epoch=state["epoch"], neval=state["neval"])
        run = Run(
            epoch=where.epoch,
            step=where.neval - 1,
            last_epoch=epochs.stop,
            world_size=self._gang.size(engine),
            validates=validates,
            driver=True,
        )
        record = Record(self._summaries, callbacks.on_driver(), run)
        if saving is not None and state is not None:
            best = state["progress"]["keeper"]["best"]
            record.last_checkpoint = saving.checkpoints.path(where.neval)
            record.best_checkpoint = saving.checkpoints.path(best[0]) if best else None
        return record

    def _run_evaluate(
        self, data: Any, batch_size: int | None, columns: Columns, num_steps: int | None = None, **options: Any
    ) -> dict[str, Any]:
        """The figures of the model as it is, over all rows."""
        learning = self._learning()
        engine, batching = self._prepare(data, batch_size, training=False)
        feed = self._feed(data, columns, engine)
        self._check_batch(feed)
        job = EvaluateJob(learning, self._make_sync(), feed, batching, self._state, num_steps, **options)
        return self._run(engine, worker.evaluate, job, "evaluate")[0]

    def _prepare(self, data: Any, batch_size: int | None, training: bool = True) -> tuple[Engine, Batching]:
        """Check what can be checked before data is touched: the sync's packages, the slots, the batch size."""
        self._make_sync().check()
        engine = engine_of(data, self._gang.engine())
        least, most = self._gang.limits(engine)
        size = self._check_batch_size(data, batch_size, most)
        engine.check_gang(most, least)
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

    def _feed(self, data: Any, columns: Columns, engine: Engine, what: str = "data", **options: Any) -> Feed:
        with bar.job(f"preparing {what}"):
            feed = as_feed(data, columns, self._config, engine, what, text=self._takes_text, **options)
        layout = getattr(feed, "layout", None)
        if layout is not None:
            self._known_shapes |= dict(zip(columns.features, layout.shapes, strict=False))
        return feed

    def _validation_feed(self, data: Any, validation: Any, columns: Columns, engine: Engine) -> Feed | None:
        if validation is None:
            return None
        check_same_kind(data, validation)
        return self._feed(validation, columns, engine, "validation_data").gathered()

    def _check_resume(self, resume: Any) -> None:
        if resume not in (None, "auto"):
            raise InvalidArgumentError(f'resume must be "auto" or None, but is {resume!r}.')
        if resume is not None and self._model_dir is None:
            raise InvalidArgumentError(
                'resume="auto" goes on from checkpoints in model_dir, but there is none. Pass model_dir=... to the '
                "estimator, in the run that may be interrupted and in the one that goes on."
            )

    def _check_monitored(self, callbacks: Callbacks, validates: bool) -> None:
        """Raise a typed error for a figure of validation data that nobody will measure."""
        for each in callbacks:
            figure = getattr(each, "monitor", None)
            if not validates and isinstance(figure, str) and figure.startswith("val_"):
                raise InvalidArgumentError(
                    f"{type(each).__name__} is to follow {figure!r}, but nothing will be validated. Pass "
                    'validation_data=... to fit, or monitor a figure of training: monitor="train_loss".'
                )

    @contextlib.contextmanager
    def _saving(
        self, engine: Engine, trigger: TriggerCall | None, callbacks: Callbacks, fit: Fit, resume: str | None
    ) -> Iterator[tuple[Saving | None, dict[str, Any] | None]]:
        """When and where a fit writes checkpoints, and the state it goes on from if it is to be resumed.

        Without a model_dir they are there only for this fit to recover from.
        """
        policies = [each for each in callbacks if isinstance(each, ModelCheckpoint)]
        if len(policies) > 1:
            raise InvalidArgumentError(
                "callbacks must hold one ModelCheckpoint at most. "
                "For several moments type: ModelCheckpoint(every=TriggerOr('1ep', '10min'))."
            )
        triggers = [each for each in (trigger, *(policy.trigger for policy in policies)) if each is not None]
        if self._model_dir is None and self._gang.max_failures == 0:
            if triggers:
                logger.warning("no checkpoint is written, because there is no model_dir to write to.")
            yield None, None
            return
        when = TriggerOr(*triggers) if len(triggers) > 1 else triggers[0] if triggers else None
        with self._checkpoints_folder(fit, resume, bool(triggers)) as (folder, name, state):
            keep = {"keep_last": None if triggers else DEFAULT_KEEP_LAST} | _policy(policies)
            checkpoints = Checkpoints(folder, name, **keep, **self._described())
            yield (
                Saving(
                    checkpoints,
                    trigger=when or EveryTime(DEFAULT_CHECKPOINT_SECONDS),
                    required=bool(triggers),
                    at_end=self._model_dir is not None and (not triggers or resume is not None),
                    send=not engine.one_machine and is_local(folder),
                ),
                state,
            )

    @contextlib.contextmanager
    def _checkpoints_folder(
        self, fit: Fit, resume: str | None, asked: bool
    ) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
        """Where a fit's checkpoints go, what they are called, and the newest one there if the fit is to be resumed."""
        name = self._checkpoint_name()
        if self._model_dir is None:
            if asked:
                logger.warning(
                    "there is no model_dir, so checkpoints are there to recover from lost workers and removed when fit "
                    "is over."
                )
            with tempfile.TemporaryDirectory(prefix="orca-checkpoints-") as folder:
                yield folder, name, None
            return
        found = find_fit(self._model_dir, fit) if resume is not None else None
        if found is not None:
            folder, name = found
            Checkpoints(folder, name).tidy()
            state = Checkpoints(folder, name).newest()
            if state is not None:
                self._check_state(state, folder)
                logger.info("going on from %s after step %d.", folder, state["neval"] - 1)
                self._run_folder = run_of(folder)
                yield folder, name, state
                return
        if self._run_folder is None:
            self._run_folder = run_folder(self._model_dir)
        folder = models_folder(self._run_folder)
        Checkpoints(folder, name).begin(fit)
        yield folder, name, None

    def _start_summaries(self) -> None:
        """Where figures go, if a run has a folder on this machine and nobody said otherwise."""
        chosen = self._wants_summaries or self._summaries.train is not None
        if self._run_folder is not None and not chosen and is_local(self._run_folder):
            self._summaries.to(Path(self._run_folder) / "summary")

    def _described(self) -> dict[str, Any]:
        """What checkpoints say beside the state; see `Checkpoints`."""
        return {}

    def _checkpoint_name(self) -> str:
        return f"{type(self).__name__}{id(self):x}"

    def _run(
        self,
        engine: Engine,
        function: Callable[..., Any],
        job: Any,
        description: str | None,
        on_report: Callable[[int, Report], None] | None = None,
        again: Callable[[WorkerLostError], tuple[Any, ...]] | None = None,
    ) -> list[Any]:
        options = GangOptions(
            max_failures=self._gang.max_failures,
            stall_timeout=self._gang.stall_timeout,
            description=None if self._quiet else description,
            leave=description == "fit",
            on_report=on_report,
            again=again,
        )
        return run_gang(engine, function, self._gang.limits(engine), job, data=job.feed.data, options=options)

    def _take(self, outcomes: list[Outcome]) -> None:
        """The trained state is rank 0's, and all ranks must have come to the same weights."""
        if len({outcome.digest for outcome in outcomes}) > 1:
            raise ReplicasDifferError(
                "the workers ended with different weights, though every step is taken by all of them together. Was a "
                "weight changed outside optimizer.step() on some ranks only (a TrainingOperator that looks at "
                "world_rank), or, in Keras, by an optimizer that is no attribute of the model? Nothing was taken over; "
                "the estimator is as it was before this fit."
            )
        first = outcomes[0]
        self._where = first.train_state
        self._state = (first.state or {}) | {"epoch": self._where.epoch, "neval": self._where.neval}

    def _adopt(self, state: dict[str, Any], path: str) -> None:
        """Take a state that was read, if it is this model's."""
        self._check_state(state, path)
        # Where a fit stood within an epoch means something to that fit alone.
        self._state = {key: value for key, value in state.items() if key != "progress"}
        self._where = TrainState(epoch=state.get("epoch", 1), neval=state.get("neval", 1))

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

    def as_stage(
        self,
        features_col: str | Sequence[str] = "features",
        label_col: str | Sequence[str] = "label",
        prediction_col: str = "prediction",
        batch_size: int | None = None,
        epochs: int = 1,
    ) -> Any:
        """This estimator as a stage of Spark ML, for Pipeline, CrossValidator and ParamGridBuilder.

        `stage.fit(df)` trains it, and gives a transformer that adds the column `prediction_col`.
        """
        from zoo.orca.learn.stage import as_stage

        return as_stage(self, features_col, label_col, prediction_col, batch_size, epochs)

    def _engine_now(self) -> Engine:
        return self._gang.engine() or current_engine()


def _policy(policies: list[ModelCheckpoint]) -> dict[str, Any]:
    return {name: getattr(each, name) for each in policies for name in ("keep_last", "monitor", "mode")}


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_backend(backend: Any, known: Sequence[str]) -> None:
    """Raise a typed error for a backend that an estimator does not have."""
    if backend not in known:
        raise InvalidArgumentError(f"backend must be one of {', '.join(map(repr, known))}, but is {backend!r}.")


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
