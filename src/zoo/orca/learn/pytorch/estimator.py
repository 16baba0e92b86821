"""`Estimator.from_torch`: PyTorch models on every engine, with the conventions of each backend."""

# ruff: noqa: E402 - what is missing is said first
from __future__ import annotations

from zoo.orca.optional import require

require("torch", "The PyTorch estimator")

import contextlib
import copy
import dataclasses
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from zoo.orca.engine.pickling import pack
from zoo.orca.errors import (
    CheckpointError,
    InvalidArgumentError,
    NotOfferedError,
    PathNotFoundError,
    PreconditionError,
)
from zoo.orca.feed.base import Feed
from zoo.orca.learn import spark_estimator
from zoo.orca.learn.checkpoint import is_folder, read_checkpoint, read_dict, split_checkpoint, write_state
from zoo.orca.learn.estimator import Estimator as SharedEstimator
from zoo.orca.learn.estimator import (
    Gang,
    as_columns,
    check_backend,
    check_dict,
    check_epochs,
    check_num_steps,
    check_path,
)
from zoo.orca.learn.export import Exporting
from zoo.orca.learn.metrics import Metric
from zoo.orca.learn.predict import predict
from zoo.orca.learn.pytorch.devices import DeviceSync, find_device
from zoo.orca.learn.pytorch.exported import TorchOriginal
from zoo.orca.learn.pytorch.learner import TorchLearning, dry_run
from zoo.orca.learn.pytorch.numerics import Numerics, is_real
from zoo.orca.learn.pytorch.predictor import TorchPredictor
from zoo.orca.learn.pytorch.preflight import TorchRehearsal
from zoo.orca.learn.pytorch.recipe import TorchRecipe, as_list, is_creator
from zoo.orca.learn.pytorch.remote import RemoteWorkers
from zoo.orca.learn.pytorch.training_operator import TrainingOperator
from zoo.orca.learn.sync import Sync
from zoo.orca.learn.trigger import TrainState

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.feed.shards import Columns

BACKENDS = ("bigdl", "torch_distributed", "horovod", "spark", "ray")
SCHEDULER_STEPS = ("batch", "epoch", "score", "manual", None)


class Estimator:
    """The factory of PyTorch estimators."""

    @staticmethod
    def from_torch(
        *,
        model: Any,
        optimizer: Any = None,
        loss: Any = None,
        metrics: Any = None,
        scheduler_creator: Any = None,
        training_operator_cls: type[TrainingOperator] = TrainingOperator,
        initialization_hook: Callable[[], Any] | None = None,
        config: dict[str, Any] | None = None,
        scheduler_step_freq: str | None = "batch",
        use_tqdm: bool = False,
        workers_per_node: int = 1,
        model_dir: str | None = None,
        backend: str = "bigdl",
        num_workers: int | tuple[int, int] | None = None,
        seed: int = 0,
        max_failures: int = 3,
        stall_timeout: float | None = 1800.0,
        precision: str = "fp32",
        accumulate: int = 1,
        compile: bool = False,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        deterministic: bool = False,
        device: str | None = None,
        stop_on_nan: bool = False,
    ) -> PyTorchEstimator:
        """An estimator of a PyTorch model.

        Args:
            model: an nn.Module, or a function `model(config)` that returns one (or several, for a TrainingOperator).
            optimizer: a torch optimizer of that module, an orca optimizer, or a function `optimizer(model, config)`.
            loss: a torch loss, a function `loss(output, target)`, or a function `loss(config)` that returns one.
            metrics: one or several of `zoo.orca.learn.metrics`.
            scheduler_creator: a function `scheduler(optimizer, config)`, or a torch scheduler of the optimizer given.
            training_operator_cls: what a step is; a subclass of TrainingOperator.
            initialization_hook: called on each worker before anything else.
            config: what the creators are called with; also "shuffle" and "drop_last" for data of columns.
            scheduler_step_freq: when the scheduler steps: "batch", "epoch", "score" (after every validation, with the
                value of the first metric: ReduceLROnPlateau), "manual" (in your operator), or None.
            use_tqdm: whether operators of your own should show bars (`self.use_tqdm`).
            workers_per_node: workers on each node of the engine.
            model_dir: where checkpoints and summaries go.
            backend: "bigdl" (each worker updates a slice of the weights), "torch_distributed", "horovod"; "spark" and
                "ray" are torch_distributed on that engine.
            num_workers: workers in all, instead of workers_per_node; with a pair (least, most) as many as there is
                room for, also after workers were lost.
            seed: of the first weights, of the order of rows and of dropout.
            max_failures: how many times a fit that lost a worker goes on from its last checkpoint.
            stall_timeout: seconds after which workers that say nothing end the call with a GangStalledError that
                shows where they are; None waits for ever.
            precision: "fp32", or "bf16" or "fp16": models and the loss compute in that where torch's autocast does;
                weights stay as they are, and predictions are float32. "fp16" scales the loss, too.
            accumulate: so many global batches make one step of the optimizer, the one over all of their rows.
            compile: compile the models with torch.compile for fit and evaluate; needs a C++ compiler on the workers.
            clip_norm: scale the gradient, over all workers, down to an L2 norm of at most this.
            clip_value: clip every element of the gradient, over all workers, to [-clip_value, clip_value].
            deterministic: use only algorithms that give the same bits again; an operation that has none raises.
            device: "cpu", "cuda" (one of a worker's GPUs), "cuda:1"; left out, a GPU where a worker has one.
            stop_on_nan: end a fit whose loss is NaN or inf with a NotFiniteLossError, before the weights change.

        Example:
            >>> import numpy as np, torch
            >>> x = np.random.default_rng(0).random((64, 3))
            >>> net = torch.nn.Linear(3, 1)
            >>> est = Estimator.from_torch(
            ...     model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=torch.nn.MSELoss()
            ... )
            >>> est.fit({"x": x, "y": x.sum(axis=1, keepdims=True)}, epochs=3).predict(x).shape
            (64, 1)
        """
        check_backend(backend, BACKENDS)
        gang = Gang(backend, workers_per_node, num_workers, max_failures, stall_timeout)
        numerics = Numerics(precision, accumulate, compile, clip_norm, clip_value, deterministic, device, stop_on_nan)
        config = check_dict(config, "config")
        if "batch_size" in config:
            raise PreconditionError(
                "config must not hold batch_size, which fit, evaluate and predict take, and which creators of data "
                "find in their config."
            )
        if scheduler_step_freq not in SCHEDULER_STEPS:
            raise InvalidArgumentError(
                'scheduler_step_freq must be "batch", "epoch", "score", "manual" or None, but is '
                f"{scheduler_step_freq!r}."
            )
        if not (isinstance(training_operator_cls, type) and issubclass(training_operator_cls, TrainingOperator)):
            raise InvalidArgumentError(
                f"training_operator_cls must be a subclass of TrainingOperator, but is {training_operator_cls!r}."
            )
        flavour = PyTorchSparkEstimator if backend == "bigdl" else PyTorchRayEstimator
        recipe = TorchRecipe(
            model=model,
            optimizer=optimizer,
            loss=loss,
            scheduler=scheduler_creator,
            metrics=metrics,
            metric_backend=flavour.metric_backend,
            operator_cls=training_operator_cls,
            initialization_hook=initialization_hook,
            config=config,
            scheduler_step_freq=scheduler_step_freq,
            use_tqdm=use_tqdm,
            seed=seed,
            numerics=numerics,
        )
        recipe.check()
        return flavour(recipe, gang, model_dir)


class PyTorchEstimator(Exporting, SharedEstimator):
    """What PyTorch estimators of all backends do; the two kinds below differ in the conventions they keep."""

    metric_backend: str
    squeeze: bool
    _predict_batch_size: int

    def __init__(self, recipe: TorchRecipe, gang: Gang, model_dir: str | None):
        super().__init__(gang, recipe.config, model_dir, recipe.seed)
        self._recipe = recipe
        self._clip = recipe.numerics.clip
        self._name = f"TorchModel{uuid.uuid4().hex[:8]}"
        self._predicting: tuple[Any, TorchPredictor] | None = None

    @abstractmethod
    def fit(self, data: Any, epochs: int = 1, batch_size: int | None = None, *arguments: Any, **named: Any) -> Any:
        """Train the model; the backend decides what else can be said, and what is returned."""

    @abstractmethod
    def evaluate(self, data: Any, batch_size: int | None = None, *arguments: Any, **named: Any) -> dict[str, Any]:
        """Metrics by their names; the backend decides what else can be said."""

    def predict(
        self,
        data: Any,
        batch_size: int | None = None,
        feature_cols: Any = None,
        profile: bool = False,
        sample: Any = None,
    ) -> Any:
        """The model's output for every row, in the data's order and of the data's kind.

        Args:
            data: an XShards, a Spark DataFrame (also a streaming one), a Ray Dataset, arrays, or a pandas frame.
            batch_size: rows of a forward pass.
            profile: accepted as published.
            sample: a row like the data's, for streaming frames whose arrays have a length that nothing tells.
        """
        columns = as_columns(feature_cols, None)
        size = self._check_batch_size((), batch_size, 1) if batch_size is not None else self._predict_batch_size
        return predict(data, self._predictor(), size, columns.features, sample, self._known_shapes, self.squeeze)

    def get_model(self) -> Any:
        """A copy of the model with the trained weights and buffers; a list where there are several."""
        return self._trained_model()

    def _trained_model(self) -> Any:
        recipe = self._recipe
        with torch.random.fork_rng(devices=[]):  # a creator is seeded, and the caller's own numbers go on as they were
            models = recipe.build_models() if is_creator(recipe.model) else copy.deepcopy(as_list(recipe.model))
        if self._state is not None:
            for model, weights in zip(models, self._state["models"], strict=True):
                model.load_state_dict(weights)
        return models if isinstance(recipe.model, list | tuple) or len(models) > 1 else models[0]

    def set_constant_gradient_clipping(self, min: float, max: float) -> None:
        """Clip every element of the gradient, over all workers, to a range."""
        if not (is_real(min) and is_real(max) and min < max):
            raise InvalidArgumentError(
                f"expected numbers, min below max, but they are {min!r} and {max!r}. Type for example: (-1.0, 1.0)."
            )
        self._clip = ("value", float(min), float(max))

    def set_l2_norm_gradient_clipping(self, clip_norm: float) -> None:
        """Scale the gradient, over all workers, down to an L2 norm of at most clip_norm."""
        if not (is_real(clip_norm) and clip_norm > 0):
            raise InvalidArgumentError(f"clip_norm must be a number above 0, but is {clip_norm!r}.")
        self._clip = ("norm", float(clip_norm))

    def clear_gradient_clipping(self) -> None:
        """Use gradients as they are."""
        self._clip = None

    def load_orca_checkpoint(self, path: str, version: int | None = None, prefix: str | None = None) -> Any:
        """Go on from a checkpoint below a folder: of the newest run the highest number, or the version given."""
        self._adopt(read_checkpoint(check_path(path, "path"), version, prefix), path)
        return self

    def shutdown(self, force: bool = False) -> None:
        """Give back what the estimator holds; workers are there only while a call runs."""

    def _learning(self) -> TorchLearning:
        packed = pack(self._recipe, "the model (with its optimizer, loss and creators)")
        return TorchLearning(packed, self._make_sync().sharded, self._clip)

    def _make_sync(self) -> Sync:
        """How workers agree: on their GPUs, where each has one of its own."""
        return DeviceSync(self._gang.sync, self._recipe.numerics.device)

    def _feed(self, data: Any, columns: Columns, engine: Engine, what: str = "data", **options: Any) -> Feed:
        if columns.features and not columns.labels:
            self._recipe.check_unlabelled(what)
        if what == "data":
            self._seen_columns = columns
        return super()._feed(data, columns, engine, what, **options)

    def _rehearsal(self) -> TorchRehearsal:
        return TorchRehearsal(self._recipe, self._state)

    def _check_trainable(self) -> None:
        self._recipe.check_loss()

    def _check_batch(self, feed: Feed, what: str = "data") -> None:
        if feed.engine.name == "local":  # the workers' machine is this one
            find_device(self._recipe.numerics.device)
        layout = getattr(feed, "layout", None)
        if layout is not None and layout.labels is None:
            self._recipe.check_unlabelled(what)
        batch = feed.sample()
        if what == "data":
            self._remember(feed, batch)
        if batch is None or is_creator(self._recipe.model):
            return
        dry_run(self._recipe, as_list(self._recipe.model), batch, what)

    def _checkpoint_name(self) -> str:
        return self._name

    def _predictor(self) -> TorchPredictor:
        """The model as it is now; the same one, for processes that hold it already, until training changes it."""
        if self._state is not None and self._predicting is not None and self._predicting[0] is self._state:
            return self._predicting[1]
        recipe = dataclasses.replace(self._recipe, metrics=None)
        state = {key: value for key, value in (self._state or {}).items() if key in ("models", "operator")}
        if recipe.operator_cls is TrainingOperator:
            recipe.optimizer = recipe.scheduler = None
            if not is_creator(recipe.model):  # with its weights, which then need not travel twice
                recipe.model = self._trained_model()
                state.pop("models", None)
        self._predicting = (self._state, TorchPredictor(uuid.uuid4().hex, recipe, state))
        return self._predicting[1]

    def _original(self) -> TorchOriginal:
        model = self._trained_model()
        if isinstance(model, list | tuple):
            raise NotOfferedError(
                f"export writes one model, but there are {len(model)}. Give the one to deploy to an estimator of its "
                "own, and export that: Estimator.from_torch(model=est.get_model()[0])."
            )
        full = self._recipe.numerics.precision == "fp32"
        return TorchOriginal(model, self._predictor(), self._recipe.build_metrics, full)

    def _check_state(self, state: dict[str, Any], path: str) -> None:
        models = as_list(self._trained_model())
        weights = state.get("models")
        if not isinstance(weights, list) or len(weights) != len(models):
            raise CheckpointError(
                f"{path} does not hold the weights of {len(models)} model(s). Expected what save() or a checkpoint of "
                "this estimator wrote, or a state_dict."
            )
        for model, each in zip(models, weights, strict=True):
            try:
                model.load_state_dict(each)
            except (RuntimeError, TypeError, AttributeError) as error:
                raise CheckpointError(
                    f"{path} was written for another model: {_one_line(error)} Expected the weights of this "
                    f"{type(model).__name__}: make the model as it was when they were saved."
                ) from error
        self._check_optimizers(state.get("optimizers") or [], models, path)

    def _check_optimizers(self, states: list[Any], models: list[Any], path: str) -> None:
        """Refuse the states of optimizers of another kind, which would fail much later, on a worker."""
        if not states:
            return
        optimizers = self._recipe.build_optimizers(models)
        known = [_options_of(each.state_dict()) for each in optimizers]
        found = [_options_of(each) for each in states]
        if len(known) != len(found) or any(a - b and b - a for a, b in zip(known, found, strict=True)):
            names = ", ".join(type(each).__name__ for each in optimizers)
            raise CheckpointError(
                f"{path} holds the state of {len(found)} other optimizer(s) than this estimator's ({names}). Give the "
                "optimizers that it was saved with, or load a file of weights alone, which "
                "torch.save(est.get_model().state_dict(), path) writes."
            )

    def _first_state(self) -> dict[str, Any]:
        """The state so far, or that of the model as it was given."""
        if self._state is not None:
            return self._state
        models = as_list(self._trained_model())
        return {
            "models": [model.state_dict() for model in models],
            "optimizers": [],
            "schedulers": [],
            "operator": {},
            "epoch": self._where.epoch,
            "neval": self._where.neval,
        }


class PyTorchSparkEstimator(PyTorchEstimator, spark_estimator.Estimator):
    """The conventions of the "bigdl" backend: `fit` returns the estimator, and `epochs` is a target."""

    metric_backend = "bigdl"
    squeeze = False
    _predict_batch_size = 4

    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int | None = None,
        feature_cols: Any = None,
        label_cols: Any = None,
        validation_data: Any = None,
        checkpoint_trigger: Any = None,
        *,
        validation_methods: Any = None,
        validation_metrics: Any = None,
        labels_cols: Any = None,
        weight_col: str | None = None,
        callbacks: Any = None,
        resume: str | None = None,
    ) -> PyTorchSparkEstimator:
        """Train until `epochs` epochs are done, counted over the estimator's life and its checkpoints.

        Args:
            batch_size: rows of a step over all workers (32); left out for a DataLoader, which has its own.
            validation_data: measured when checkpoint_trigger fires, or after every epoch; needs metrics.
            checkpoint_trigger: when to write a checkpoint into model_dir, such as EveryEpoch().
            validation_methods, validation_metrics: metrics for this call, instead of the constructor's.
            labels_cols: another spelling of label_cols.
            weight_col: a column of row weights.
            callbacks: a list of `zoo.orca.learn.callbacks.Callback`, called while training: EarlyStopping() and others.
            resume: "auto" goes on from the newest checkpoint of this fit in model_dir, if there is one: for a script
                that is started again after its process died.
        """
        columns = as_columns(feature_cols, labels_cols if label_cols is None else label_cols, weight_col)
        missing = range(self._where.epoch - 1, check_epochs(epochs))
        with self._measuring(validation_methods or validation_metrics):
            if validation_data is not None and not self._recipe.metrics:
                raise PreconditionError(
                    "validation_data needs metrics: pass metrics=[Accuracy()] to from_torch, or validation_methods=... "
                    "here."
                )
            if missing:
                self._run_fit(
                    data, missing, batch_size, columns, validation_data, checkpoint_trigger, callbacks, resume
                )
        return self

    def evaluate(
        self,
        data: Any,
        batch_size: int | None = None,
        feature_cols: Any = None,
        label_cols: Any = None,
        validation_metrics: Any = None,
        *,
        validation_methods: Any = None,
        labels_cols: Any = None,
    ) -> dict[str, float]:
        """The metrics over all rows, by BigDL's names: {"Top1Accuracy": 0.97}."""
        columns = as_columns(feature_cols, labels_cols if label_cols is None else label_cols)
        with self._measuring(validation_methods or validation_metrics):
            if not self._recipe.metrics:
                raise PreconditionError(
                    "evaluate needs metrics: pass metrics=[Accuracy()] to from_torch, or validation_metrics here."
                )
            figures = self._run_evaluate(data, batch_size, columns)
            return {name: figures[name] for name in self._recipe.build_metrics()}

    def save(self, model_path: str | None = None, *, checkpoint: str | None = None) -> str:
        """Write the model's state_dict to a path, and the optimizer beside it as `<stem>_optim<.ext>`.

        `checkpoint` is another spelling of model_path.
        """
        path = check_path(checkpoint if model_path is None else model_path, "model_path")
        state = self._first_state()
        models = state["models"]
        write_state(path, models[0] if len(models) == 1 else {"models": models})
        write_state(_beside(path), {key: value for key, value in state.items() if key != "models"})
        return path

    def load(
        self, model_path: str | None = None, loss: Any = None, *, checkpoint: str | None = None
    ) -> PyTorchSparkEstimator:
        """Go on from what `save` wrote, from a state_dict, or (a folder) from the newest checkpoint below it.

        `checkpoint` is another spelling of model_path.
        """
        path = check_path(checkpoint if model_path is None else model_path, "model_path")
        self._adopt(_read_saved(path), path)
        if loss is not None:
            self._recipe.loss = loss
        return self

    @contextlib.contextmanager
    def _measuring(self, metrics: Any) -> Iterator[None]:
        """Use other metrics than the constructor's while a call lasts."""
        before = self._recipe.metrics
        if metrics is not None:
            Metric.convert_metrics_dict(metrics, self.metric_backend)
            self._recipe.metrics = metrics
        try:
            yield
        finally:
            self._recipe.metrics = before


def _at_epoch_end(state: TrainState) -> bool:
    return state.epoch_finished


class PyTorchRayEstimator(PyTorchEstimator):
    """The conventions of the other backends: `fit` runs so many more epochs and returns a dict for each."""

    metric_backend = "pytorch"
    squeeze = True
    _predict_batch_size = 32
    _validate_when = staticmethod(_at_epoch_end)

    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int | None = None,
        profile: bool = False,
        reduce_results: bool = True,
        info: dict[str, Any] | None = None,
        feature_cols: Any = None,
        label_cols: Any = None,
        validation_data: Any = None,
        checkpoint_trigger: Any = None,
        *,
        labels_cols: Any = None,
        weight_col: str | None = None,
        callbacks: Any = None,
        resume: str | None = None,
    ) -> list[Any]:
        """Train `epochs` more epochs; gives a dict of figures for each.

        Args:
            batch_size: rows of a step over all workers (32); left out for a DataLoader, which has its own.
            profile: add the operator's timers to each dict.
            reduce_results: False gives a list of the workers' dicts for each epoch.
            info: handed to the operator's hooks.
            validation_data: measured after every epoch, or when checkpoint_trigger fires, as "val_..." figures.
            callbacks: a list of `zoo.orca.learn.callbacks.Callback`, called while training: EarlyStopping() and others.
            resume: "auto" goes on from the newest checkpoint of this fit in model_dir, if there is one: for a script
                that is started again after its process died.
        """
        columns = as_columns(feature_cols, labels_cols if label_cols is None else label_cols, weight_col)
        done = self._where.epoch - 1
        outcomes = self._run_fit(
            data,
            range(done, done + check_epochs(epochs)),
            batch_size,
            columns,
            validation_data,
            checkpoint_trigger,
            callbacks,
            resume,
            profile=profile,
            info=check_dict(info, "info"),
        )
        if reduce_results:
            return outcomes[0].history
        return [list(workers) for workers in zip(*(each.epochs for each in outcomes), strict=True)]

    def evaluate(
        self,
        data: Any,
        batch_size: int | None = None,
        num_steps: int | None = None,
        profile: bool = False,
        info: dict[str, Any] | None = None,
        feature_cols: Any = None,
        label_cols: Any = None,
        *,
        labels_cols: Any = None,
        weight_col: str | None = None,
    ) -> dict[str, Any]:
        """Metrics by their names, "val_loss" and "num_samples", over all rows (or the first num_steps batches)."""
        columns = as_columns(feature_cols, labels_cols if label_cols is None else label_cols, weight_col)
        steps = check_num_steps(num_steps)
        figures = self._run_evaluate(data, batch_size, columns, steps, info=check_dict(info, "info"), profile=profile)
        return {name: value for name, value in figures.items() if not name.startswith("last_")}

    def save(self, model_path: str | None = None, *, checkpoint: str | None = None) -> str:
        """Write the state of training (models, optimizers, schedulers, operator) to a path.

        `checkpoint` is another spelling of model_path.
        """
        path = check_path(checkpoint if model_path is None else model_path, "model_path")
        write_state(path, self._first_state())
        return path

    def load(self, model_path: str | None = None, *, checkpoint: str | None = None) -> PyTorchRayEstimator:
        """Go on from what `save` wrote, from a state_dict, or (a folder) from the newest checkpoint below it.

        `checkpoint` is another spelling of model_path.
        """
        path = check_path(checkpoint if model_path is None else model_path, "model_path")
        self._adopt(_read_saved(path), path)
        return self

    @property
    def estimator(self) -> RemoteWorkers:
        """The workers as the published interface shows them: `.remote_workers`, `.num_workers`, `.horovod_runner`."""
        return RemoteWorkers(self._engine_now(), self._gang, self._first_state)


def _options_of(state: Any) -> set[str]:
    """The names of what an optimizer's state_dict can set."""
    groups = state.get("param_groups") if isinstance(state, dict) else None
    return {name for group in groups or [] for name in group}


def _read_saved(path: str) -> dict[str, Any]:
    """The state in a file that `save` of any backend or torch.save wrote, in a checkpoint, or in a folder's newest."""
    if is_folder(path):
        return read_checkpoint(path)
    checkpoint = split_checkpoint(path)
    if checkpoint is not None:
        return read_checkpoint(*checkpoint)
    found = read_dict(path)
    state = found if isinstance(found.get("models"), list) else {"models": [found]}
    try:
        return state | read_dict(_beside(path))
    except PathNotFoundError:
        return state


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _beside(model_path: str) -> str:
    folder, slash, name = model_path.rpartition("/")  # a URL, too
    stem, dot, ending = name.rpartition(".")
    return f"{folder}{slash}{stem}_optim{dot}{ending}" if stem else f"{model_path}_optim"
