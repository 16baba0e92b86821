"""`Estimator.from_keras`: Keras 3 models on every engine, with the conventions of the TensorFlow 2 estimator."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.engine.pickling import pack
from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.feed import arrays_as_shard, kind_of
from zoo.orca.feed.steps import StepsFeed
from zoo.orca.learn.checkpoint import is_folder, read_checkpoint, read_dict, write_state
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
from zoo.orca.learn.predict import predict
from zoo.orca.learn.tf2.callbacks import adapt, calling
from zoo.orca.learn.tf2.exported import KerasOriginal
from zoo.orca.learn.tf2.learning import KerasLearning
from zoo.orca.learn.tf2.predictor import KerasPredictor
from zoo.orca.learn.tf2.preflight import KerasRehearsal
from zoo.orca.learn.tf2.recipe import KerasRecipe, is_keras3
from zoo.orca.learn.trigger import TrainState
from zoo.orca.learn.worker import need_end
from zoo.orca.optional import check_installed

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.feed.base import Feed
    from zoo.orca.feed.shards import Columns
    from zoo.orca.learn.check_report import CheckReport
    from zoo.orca.learn.worker import Outcome

BACKENDS = ("tf2", "horovod", "spark", "ray")


class Estimator:
    """The factory of TensorFlow 2 estimators."""

    @staticmethod
    def from_keras(
        *,
        model_creator: Any = None,
        config: dict[str, Any] | None = None,
        verbose: bool = False,
        workers_per_node: int = 1,
        compile_args_creator: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        backend: str = "tf2",
        cpu_binding: bool = False,
        model: Any = None,
        model_dir: str | None = None,
        num_workers: int | tuple[int, int] | None = None,
        seed: int = 0,
        max_failures: int = 3,
        stall_timeout: float | None = 1800.0,
    ) -> TensorFlow2Estimator:
        """An estimator of a Keras 3 model.

        Args:
            model_creator: a function `model_creator(config)` that returns a compiled Keras model, or such a model.
            config: what creators are called with; also "shuffle" and "drop_last" for data of columns, and
                "inter_op_parallelism" and "intra_op_parallelism", TensorFlow's threads (1, and a worker's cores).
            verbose: accepted as published; `fit(verbose=0)` shows no bar.
            workers_per_node: workers on each node of the engine.
            compile_args_creator: a function `compile_args_creator(config)` that returns what to compile the model with.
            backend: "tf2"; "horovod" lets the real Horovod add up gradients; "spark" and "ray" ask for that engine.
            cpu_binding: keep each worker on cores of its own.
            model: another spelling of model_creator, for a model that is there already.
            model_dir: where checkpoints and summaries go.
            num_workers: workers in all, instead of workers_per_node; with a pair (least, most) as many as there is
                room for, also after workers were lost.
            seed: of the first weights, of the order of rows and of dropout.
            max_failures: how many times a fit that lost a worker goes on from its last checkpoint.
            stall_timeout: seconds after which workers that say nothing end the call with a GangStalledError.

        Example:
            >>> import numpy as np
            >>> def creator(config):
            ...     import keras
            ...     model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            ...     model.compile(optimizer="sgd", loss="mse")
            ...     return model
            >>> x = np.random.default_rng(0).random((64, 3))
            >>> est = Estimator.from_keras(model_creator=creator)
            >>> sorted(est.fit({"x": x, "y": x.sum(axis=1)}, epochs=2))
            ['train_loss']
        """
        config = check_dict(config, "config")
        if "batch_size" in config:
            raise PreconditionError(
                "config must not hold batch_size, which fit, evaluate and predict take, and which creators of data "
                "find in their config."
            )
        check_backend(backend, BACKENDS)
        if compile_args_creator is not None and not callable(compile_args_creator):
            raise InvalidArgumentError(
                "compile_args_creator must be a function of config that returns a dict, but is "
                f"{compile_args_creator!r}."
            )
        check_installed("tensorflow", "The Keras estimator")
        given = model if model_creator is None else model_creator
        recipe = KerasRecipe(given, config, compile_args_creator, seed)
        recipe.check()
        gang = Gang(backend, workers_per_node, num_workers, max_failures, stall_timeout)
        return TensorFlow2Estimator(recipe, gang, model_dir, bool(cpu_binding))


@dataclass
class _Call:
    """What one call of fit or evaluate says about its data.

    Attributes:
        argument: the one that lets data without an end in; None where it was given.
    """

    config: dict[str, Any] = field(default_factory=dict)
    steps: int | None = None
    validation_steps: int | None = None
    first_epoch: int = 0
    argument: str | None = "steps_per_epoch"


class KerasEstimator(Exporting, SharedEstimator):
    """What estimators of Keras 3 models share, whatever conventions they keep."""

    _takes_text = True

    def __init__(self, recipe: KerasRecipe, gang: Gang, model_dir: str | None, cpu_binding: bool = False):
        super().__init__(gang, recipe.config, model_dir, recipe.seed)
        self._recipe = recipe
        self._cpu_binding = cpu_binding
        self._predicting: tuple[Any, KerasPredictor] | None = None
        self._call = _Call()

    def get_model(self) -> Any:
        """A Keras model with the trained weights, compiled as it was."""
        from zoo.orca.learn.tf2.state import load_state

        model = self._recipe.build()
        if self._state is not None:
            load_state(model, self._state)
        return model

    def shutdown(self) -> None:
        """Give back what the estimator holds; workers are there only while a call runs."""

    def check(self, *args: Any, callbacks: Any = None, **options: Any) -> CheckReport:
        """Look, in seconds, at all that a fit with these arguments needs; nothing is changed, and nothing stays.

        Gives a report to print; `report.ok` says whether fit would start, `report.raise_first()` raises what it would.
        """
        return super().check(*args, callbacks=adapt(callbacks), **options)

    def _learning(self) -> KerasLearning:
        packed = pack(self._recipe, "the model (with its optimizer, loss and creators)")
        inter, intra = self._config.get("inter_op_parallelism"), self._config.get("intra_op_parallelism")
        return KerasLearning(packed, inter, intra, self._cpu_binding)

    def _check_trainable(self) -> None:
        self._recipe.check_trainable()

    def _rehearsal(self) -> KerasRehearsal:
        return KerasRehearsal(self._recipe, self._state)

    def _check_state(self, state: dict[str, Any], path: str) -> None:
        from zoo.orca.learn.tf2.state import check_state

        check_state(self._recipe.build(), state, path)

    def _check_batch(self, feed: Feed, what: str = "data") -> None:
        batch = feed.sample()
        if what == "data":
            self._remember(feed, batch)
        if batch is None or not is_keras3(self._recipe.model) or not self._recipe.model.built:
            return
        from zoo.orca.learn.tf2.batches import check_takes

        check_takes(self._recipe.model, batch, what)

    def _feed(self, data: Any, columns: Columns, engine: Engine, what: str = "data", **options: Any) -> Feed:
        if what == "data":
            self._seen_columns = columns
        feed = super()._feed(data, columns, engine, what, **options)
        call = self._call
        if what == "validation_data" and call.validation_steps is not None:
            return StepsFeed(feed, call.validation_steps, goes_on=False)
        if what == "data" and call.steps is not None:
            return StepsFeed(feed, call.steps, call.first_epoch)
        argument = "validation_steps" if what == "validation_data" else call.argument
        if argument is not None:
            need_end(feed, what, argument)
        return feed

    def _take(self, outcomes: list[Outcome]) -> None:
        super()._take(outcomes)
        if self._state is not None and (self._state.get("operator") or {}).get("averages"):
            # As Keras ends a fit of an optimizer that keeps moving averages of the weights.
            from zoo.orca.learn.tf2.state import state_of

            model = self.get_model()
            model.optimizer.finalize_variable_values(model.trainable_weights)
            self._state = self._state | {"models": state_of(model)["models"]}

    @contextlib.contextmanager
    def _calling(self, call: _Call) -> Iterator[None]:
        """What a call says holds while it lasts."""
        before, config = self._call, self._config
        self._call, self._config = call, config | call.config
        try:
            yield
        finally:
            self._call, self._config = before, config

    def _original(self) -> KerasOriginal:
        return KerasOriginal(self.get_model(), self._predictor())

    def _predictor(self) -> KerasPredictor:
        """The model as it is now; the same one, for processes that hold it already, until training changes it."""
        if self._state is not None and self._predicting is not None and self._predicting[0] is self._state:
            return self._predicting[1]
        known = self._state
        state = None if known is None else {key: known.get(key) for key in ("models", "operator")}
        self._predicting = (self._state, KerasPredictor(uuid.uuid4().hex, self._recipe, state))
        return self._predicting[1]

    def _first_state(self) -> dict[str, Any]:
        """The state so far, or that of the model as it was given."""
        if self._state is not None:
            return self._state
        from zoo.orca.learn.tf2.state import state_of

        return state_of(self._recipe.build()) | {"epoch": self._where.epoch, "neval": self._where.neval}


class TensorFlow2Estimator(KerasEstimator):
    """`fit` runs so many more epochs, and gives the last one's figures."""

    @property
    def num_workers(self) -> int:
        """How many workers a call uses on the current engine."""
        return self._gang.size(self._engine_now())

    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int = 32,
        verbose: Any = 1,
        callbacks: Any = None,
        validation_data: Any = None,
        class_weight: dict[int, float] | None = None,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_freq: Any = 1,
        data_config: dict[str, Any] | None = None,
        feature_cols: Any = None,
        label_cols: Any = None,
        *,
        labels_cols: Any = None,
        weight_col: str | None = None,
        checkpoint_trigger: Any = None,
        resume: str | None = None,
    ) -> dict[str, Any]:
        """Train `epochs` more epochs; gives {"train_loss": ..., "train_accuracy": ..., "train_val_loss": ...}.

        Args:
            data: an XShards, a Spark DataFrame, a Ray Dataset, arrays, a pandas frame, a tf.data.Dataset, or a function
                `creator(config, batch_size)` that returns a tf.data.Dataset.
            batch_size: rows of a step over all workers.
            verbose: 0 shows no bar.
            callbacks: Keras callbacks, which run on rank 0 and act on all, and those of `zoo.orca.learn.callbacks`.
            validation_data: of the kind of data; measured after every epoch, or as validation_freq says.
            class_weight: how much the rows of each class count.
            steps_per_epoch: steps of an epoch, in which data is read on and begun again; left out, an epoch is every
                row once.
            validation_steps: so many steps of the validation data are measured; left out, every row.
            validation_freq: epochs between validations, or a list of the epochs to validate after.
            data_config: what creators of data find in their config, too.
            weight_col: a column of row weights.
            checkpoint_trigger: when to write a checkpoint into model_dir, such as EveryEpoch().
            resume: "auto" goes on from the newest checkpoint of this fit in model_dir, if there is one.
        """
        columns = as_columns(feature_cols, labels_cols if label_cols is None else label_cols, weight_col)
        done = self._where.epoch - 1
        steps = _check_steps(steps_per_epoch, "steps_per_epoch")
        call = _Call(
            check_dict(data_config, "data_config"), steps, _check_steps(validation_steps, "validation_steps"), done
        )
        self._recipe.class_weight = _check_class_weight(class_weight)
        with self._calling(call), self._silent(not verbose):
            (first, *_) = self._run_fit(
                data,
                range(done, done + check_epochs(epochs)),
                batch_size,
                columns,
                validation_data,
                checkpoint_trigger,
                adapt(callbacks, verbose),
                resume,
                validation_trigger=After(validation_freq),
            )
        return _last_figures(first.history)

    def evaluate(
        self,
        data: Any,
        batch_size: int = 32,
        num_steps: int | None = None,
        verbose: Any = 1,
        sample_weight: Any = None,
        callbacks: Any = None,
        data_config: dict[str, Any] | None = None,
        feature_cols: Any = None,
        label_cols: Any = None,
        *,
        labels_cols: Any = None,
        weight_col: str | None = None,
    ) -> dict[str, Any]:
        """{"validation_loss": ..., "validation_accuracy": ...} over all rows, or the first num_steps batches.

        Args:
            sample_weight: a weight for each row of arrays; other data has a column of them (weight_col).
            callbacks: Keras callbacks; of their hooks on_test_begin and on_test_end are called, on the driver.
        """
        columns = as_columns(feature_cols, labels_cols if label_cols is None else label_cols, weight_col)
        steps = check_num_steps(num_steps)
        call = _Call(check_dict(data_config, "data_config"), argument="num_steps" if steps is None else None)
        with self._calling(call), self._silent(not verbose):
            with calling(callbacks, "test", self.get_model) as tell:
                figures = self._run_evaluate(_weighted(data, sample_weight), batch_size, columns, steps)
                plain = {_plain(name): value for name, value in figures.items() if name != "num_samples"}
                tell(plain)
        return {f"validation_{name}": value for name, value in plain.items()}

    def predict(
        self,
        data: Any,
        batch_size: int | None = None,
        verbose: Any = 1,
        steps: int | None = None,
        callbacks: Any = None,
        data_config: dict[str, Any] | None = None,
        feature_cols: Any = None,
    ) -> Any:
        """The model's output for every row, in the data's order and of the data's kind.

        Args:
            data: an XShards, a Spark DataFrame, a Ray Dataset, arrays, or a pandas frame.
            batch_size: rows of a forward pass (32).
            verbose, steps, data_config: accepted as published; every row is predicted.
            callbacks: Keras callbacks; of their hooks on_predict_begin and on_predict_end are called, on the driver.
        """
        columns = as_columns(feature_cols, None)
        size = self._check_batch_size((), batch_size, 1)
        with calling(callbacks, "predict", self.get_model) as tell:
            result = predict(data, self._predictor(), size, columns.features, None, self._known_shapes)
            tell({})
        return result

    def save(self, checkpoint: str) -> str:
        """Write the epochs done, the weights and the optimizer's variables to a path."""
        path = check_path(checkpoint, "checkpoint")
        write_state(path, self._first_state())
        return path

    def load(  # type: ignore[override]  # as published
        self, checkpoint: str | None = None, *, model_path: str | None = None, **kwargs: Any
    ) -> TensorFlow2Estimator:
        """Go on from what `save` wrote, or (a folder) from the newest checkpoint below it.

        `model_path` is another spelling of checkpoint; other keywords are accepted as published.
        """
        path = check_path(model_path if checkpoint is None else checkpoint, "checkpoint")
        self._adopt(read_checkpoint(path) if is_folder(path) else read_dict(path), path)
        return self

    @contextlib.contextmanager
    def _silent(self, silent: bool) -> Iterator[None]:
        self._quiet = silent
        try:
            yield
        finally:
            self._quiet = False


class After:
    """Fires at the end of every n-th epoch, or of those in a list, counted over the estimator's life."""

    def __init__(self, epochs: Any):
        numbers = epochs if isinstance(epochs, list | tuple | set) else [epochs]
        if not numbers or not all(
            isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in numbers
        ):
            raise InvalidArgumentError(
                f"validation_freq must be a whole number of at least 1, or a list of epochs, but is {epochs!r}."
            )
        self._epochs = epochs if isinstance(epochs, int) else set(epochs)

    def __call__(self, state: TrainState) -> bool:
        done = state.epoch - 1
        is_due = done % self._epochs == 0 if isinstance(self._epochs, int) else done in self._epochs
        return state.epoch_finished and is_due


def _last_figures(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The last epoch's figures; of validation, which may not be due in every epoch, the last there are."""
    figures: dict[str, Any] = {}
    for epoch in history:
        for name, value in epoch.items():
            if name.startswith("train_"):
                figures[name] = value
            elif name not in ("epoch", "batch_count", "num_samples", "val_num_samples"):
                figures[f"train_{name}"] = value
    return figures


def _plain(name: str) -> str:
    """What Keras calls a figure of validation."""
    return name.removeprefix("val_")


def _weighted(data: Any, weights: Any) -> Any:
    if weights is None:
        return data
    if kind_of(data) != "arrays":
        raise InvalidArgumentError(
            f"sample_weight goes with arrays, but data is a {kind_of(data)}. Give it a column of weights, and name it: "
            'weight_col="weight".'
        )
    return arrays_as_shard(data) | {"weight": np.asarray(weights)}


def _check_steps(steps: Any, name: str) -> int | None:
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1):
        raise InvalidArgumentError(f"{name} must be a whole number of at least 1, or None, but is {steps!r}.")
    return None if steps is None else int(steps)


def _check_class_weight(class_weight: Any) -> dict[int, float] | None:
    if class_weight is None:
        return None
    if not isinstance(class_weight, dict):
        raise InvalidArgumentError(f"class_weight must be a dict, class to weight, but is {class_weight!r}.")
    return {int(key): float(value) for key, value in class_weight.items()}
