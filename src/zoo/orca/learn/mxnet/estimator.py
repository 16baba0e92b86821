"""`Estimator.from_mxnet`: gluon Blocks and symbolic Modules on every engine, over MXNet's own kvstore."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zoo.orca import mxnet_library as library
from zoo.orca.engine.pickling import Packed, pack
from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.feed import kind_of
from zoo.orca.feed.mxnet_data import MXNetCreatorFeed
from zoo.orca.feed.steps import StepsFeed
from zoo.orca.feed.taste import Taste
from zoo.orca.learn.checkpoint import is_folder, read_checkpoint, read_dict, write_state
from zoo.orca.learn.estimator import Estimator as SharedEstimator
from zoo.orca.learn.estimator import Gang, as_columns, check_dict, check_epochs, check_num_steps, check_path
from zoo.orca.learn.mxnet.learning import MXNetLearning, MXNetSync
from zoo.orca.learn.mxnet.predictor import MXNetPredictor
from zoo.orca.learn.mxnet.preflight import MXNetRehearsal
from zoo.orca.learn.mxnet.recipe import MXNetRecipe
from zoo.orca.learn.predict import predict
from zoo.orca.learn.trigger import EveryEpochs
from zoo.orca.optional import is_instance_of

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.feed.base import Feed
    from zoo.orca.feed.shards import Columns
    from zoo.orca.learn.sync import Sync


def create_config(
    optimizer: Any = "sgd",
    optimizer_params: dict[str, Any] | None = None,
    log_interval: int = 10,
    seed: int | None = None,
    extra_config: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A config for `Estimator.from_mxnet`; creators are called with it.

    Args:
        optimizer: a name that MXNet knows, or an mx.optimizer.Optimizer.
        optimizer_params: what the optimizer is made with; the default is {"learning_rate": 0.01}.
        log_interval: batches between two lines in the log.
        seed: of first weights, of the order of rows and of dropout (0).
        extra_config: more that creators want to find.

    Example:
        >>> create_config(optimizer="adam", log_interval=2, extra_config={"hidden": 8})
        {'optimizer': 'adam', 'optimizer_params': {'learning_rate': 0.01}, 'log_interval': 2, 'hidden': 8}
    """
    params = {"learning_rate": 0.01} if optimizer_params is None else check_dict(optimizer_params, "optimizer_params")
    config = {"optimizer": optimizer, "optimizer_params": params, "log_interval": log_interval}
    if seed is not None:
        config["seed"] = seed
    return config | check_dict(extra_config, "extra_config")


#: The kinds of data that `fit` and `evaluate` take.
KINDS = ("XShards", "Spark DataFrame", "Ray Dataset", "creator", "pandas DataFrame", "arrays")


class Estimator:
    """The factory of MXNet estimators."""

    @staticmethod
    def from_mxnet(
        *,
        config: dict[str, Any] | None,
        model_creator: Any,
        loss_creator: Any = None,
        eval_metrics_creator: Any = None,
        validation_metrics_creator: Any = None,
        num_workers: int | tuple[int, int] | None = None,
        num_servers: int | None = None,
        runner_cores: int | None = None,
        model_dir: str | None = None,
        workers_per_node: int = 1,
        max_failures: int = 3,
        stall_timeout: float | None = 1800.0,
    ) -> MXNetEstimator:
        """An estimator of a model of MXNet's.

        Args:
            config: what creators are called with, best made by `create_config`. A "batch_size" in it wins over fit's.
            model_creator: a function of config that returns a gluon Block or an mx.mod.Module, or such a model.
            loss_creator: a function of config that returns the loss of a Block; a Module has its loss in its graph.
            eval_metrics_creator: a function of config that returns metrics of training: one or a list of mx.metric's
                or of their names.
            validation_metrics_creator: the same for validation data and `evaluate`.
            num_workers: workers in all; by default workers_per_node on each node. With a pair (least, most) as many as
                there is room for.
            num_servers: servers of MXNet's kvstore; by default as many as workers. One worker needs none.
            runner_cores: cores that MXNet uses on a worker; by default those of its machine are divided.
            model_dir: where checkpoints and summaries go.
            max_failures: how many times a fit that lost a worker goes on from its last checkpoint.
            stall_timeout: seconds after which workers that say nothing end the call with a GangStalledError.

        Example:
            >>> import numpy as np
            >>> def model(config):
            ...     from mxnet import gluon
            ...     return gluon.nn.Dense(1)
            >>> def loss(config):
            ...     from mxnet import gluon
            ...     return gluon.loss.L2Loss()
            >>> x = np.random.default_rng(0).random((64, 3))
            >>> est = Estimator.from_mxnet(config=create_config(), model_creator=model, loss_creator=loss)
            >>> first, server = est.fit({"x": x, "y": x.sum(axis=1)}, epochs=2)
            >>> first["epoch"], first["num_samples"], server
            (2, 64, {})
        """
        library.check()
        config = check_dict(config, "config")
        _check_config(config)
        recipe = MXNetRecipe(model_creator, loss_creator, eval_metrics_creator, validation_metrics_creator, config)
        recipe.check()
        _check_count(num_servers, "num_servers")
        _check_count(runner_cores, "runner_cores")
        gang = Gang("mxnet", workers_per_node, num_workers, max_failures, stall_timeout)
        return MXNetEstimator(recipe, gang, model_dir, num_servers, runner_cores)


class MXNetEstimator(SharedEstimator):
    """`fit` runs so many more epochs, and gives each worker's figures of the last one."""

    def __init__(
        self,
        recipe: MXNetRecipe,
        gang: Gang,
        model_dir: str | None = None,
        num_servers: int | None = None,
        runner_cores: int | None = None,
    ):
        super().__init__(gang, recipe.config, model_dir, recipe.seed)
        self._recipe = recipe
        self._num_servers = num_servers
        self._runner_cores = runner_cores
        self._steps: int | None = None
        self._trains = True
        self._predicting: tuple[Any, MXNetPredictor] | None = None

    @property
    def num_workers(self) -> int:
        """How many workers a call uses on the current engine."""
        return self._gang.size(self._engine_now())

    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int = 32,
        validation_data: Any = None,
        train_resize_batch_num: int | None = None,
        feature_cols: Any = None,
        label_cols: Any = None,
        *,
        labels_cols: Any = None,
        callbacks: Any = None,
        checkpoint_trigger: Any = None,
        resume: str | None = None,
    ) -> list[dict[str, Any]]:
        """Train `epochs` more epochs; gives a dict for each worker, then an empty one for each server.

        A worker's dict has the last epoch's metrics by their names, "val_" and the name for validation data,
        "train_loss", "epoch_time", "epoch", "num_samples" and "batch_count". Metrics and losses are those of all
        workers together. `est.result_` tells of all epochs.

        Args:
            data: an XShards, a Spark DataFrame, a Ray Dataset, arrays, a pandas frame, or a function
                `creator(config, kv)` that returns an mx.io.DataIter or a gluon DataLoader, on each worker its own.
            batch_size: rows of a step over all workers. A creator finds its worker's share in config["batch_size"].
            validation_data: of the kind of data; measured after every epoch.
            train_resize_batch_num: steps of an epoch, in which data is read on and begun again; left out, an epoch is
                every row once.
            callbacks: those of `zoo.orca.learn.callbacks`.
            checkpoint_trigger: when to write a checkpoint into model_dir, such as EveryEpoch().
            resume: "auto" goes on from the newest checkpoint of this fit in model_dir, if there is one.
        """
        if validation_data is not None and self._recipe.validation_metrics is None:
            raise PreconditionError(
                "validation_data needs metrics to be measured by. Pass validation_metrics_creator=... to from_mxnet, a "
                "function of config that returns mx.metric's or their names."
            )
        _check_kind(data)
        done = self._where.epoch - 1
        steps = _check_count(train_resize_batch_num, "train_resize_batch_num")
        with self._resized(steps):
            outcomes = self._run_fit(
                data,
                range(done, done + check_epochs(epochs)),
                self._size(batch_size),
                as_columns(feature_cols, labels_cols if label_cols is None else label_cols),
                validation_data,
                checkpoint_trigger,
                callbacks,
                resume,
                validation_trigger=EveryEpochs(1),
            )
        servers = len(outcomes) if self._num_servers is None else self._num_servers
        return [outcome.epochs[-1] if outcome.epochs else {} for outcome in outcomes] + [{}] * servers

    def evaluate(
        self,
        data: Any,
        batch_size: int = 32,
        num_steps: int | None = None,
        feature_cols: Any = None,
        label_cols: Any = None,
        *,
        labels_cols: Any = None,
    ) -> dict[str, Any]:
        """The validation metrics by name (those of training where there are none), and a Block's "loss"."""
        columns = as_columns(feature_cols, labels_cols if label_cols is None else label_cols)
        _check_kind(data)
        self._trains = False
        try:
            figures = self._run_evaluate(data, self._size(batch_size), columns, check_num_steps(num_steps))
        finally:
            self._trains = True
        found = {name.removeprefix("val_"): value for name, value in figures.items() if name != "num_samples"}
        if not found:
            raise PreconditionError(
                "there is nothing to measure a Module by. Pass validation_metrics_creator=... to from_mxnet, a "
                "function of config that returns mx.metric's or their names."
            )
        return found

    def predict(self, data: Any, batch_size: int | None = None, feature_cols: Any = None) -> Any:
        """The model's output for every row, in the data's order and of the data's kind.

        Args:
            data: an XShards, a Spark DataFrame, a Ray Dataset, arrays, or a pandas frame.
            batch_size: rows of a forward pass (32).
        """
        columns = as_columns(feature_cols, None)
        size = self._check_batch_size((), batch_size, 1)
        return predict(data, self._predictor(), size, columns.features, None, self._known_shapes)

    def get_model(self) -> Any:
        """The gluon Block, or the Module, with the trained weights; a Module is bound to one row."""
        from zoo.orca.learn.mxnet.trained import trained_model

        return trained_model(self._recipe, self._state)

    def save(self, checkpoint: str) -> str:
        """Write the epochs done, the weights and the optimizer's state to a path; `load` reads it.

        For a file of gluon's own: `est.get_model().save_parameters(path)`.
        """
        path = check_path(checkpoint, "checkpoint")
        if self._state is None:
            raise PreconditionError(
                "there is nothing to save before the first fit, which makes the weights. Call fit first."
            )
        write_state(path, self._state)
        return path

    def load(self, checkpoint: str) -> MXNetEstimator:
        """Go on from what `save` wrote, or (a folder) from the newest checkpoint below it."""
        path = check_path(checkpoint, "checkpoint")
        self._adopt(read_checkpoint(path) if is_folder(path) else read_dict(path), path)
        return self

    def shutdown(self) -> None:
        """Give back what the estimator holds; workers and servers are there only while a call runs."""

    def _make_sync(self) -> Sync:
        return MXNetSync(self._num_servers, trains=self._trains)

    def _learning(self) -> MXNetLearning:
        return MXNetLearning(self._packed(), self._runner_cores)

    def _packed(self) -> Packed:
        return pack(self._recipe, "the model (with its loss, metrics, optimizer and creators)")

    def _check_trainable(self) -> None:
        """A loss is asked for where the model is known to be a Block: on the workers, or when it was given itself."""

    def _check_state(self, state: dict[str, Any], path: str) -> None:
        from zoo.orca.learn.mxnet.trained import check_state

        check_state(self._recipe, state, path)

    def _check_batch(self, feed: Feed, what: str = "data") -> None:
        if not feed.labelled:
            raise InvalidArgumentError(
                f'{what} has no labels, which MXNet\'s losses and metrics need. Give them as "y", or name label_cols.'
            )

    def _feed(self, data: Any, columns: Columns, engine: Engine, what: str = "data", **options: Any) -> Feed:
        if kind_of(data) == "creator":
            feed: Feed = MXNetCreatorFeed(data, engine, self._config, what)
        else:
            feed = super()._feed(data, columns, engine, what, **options)
        if what == "data" and self._steps is not None:
            return StepsFeed(feed, self._steps, self._where.epoch - 1)
        return feed

    def _taste(self, data: Any, columns: Columns, engine: Engine, what: str) -> Taste:
        if kind_of(data) == "creator":
            return Taste(MXNetCreatorFeed(data, engine, self._config, what))
        return super()._taste(data, columns, engine, what)

    def _rehearsal(self) -> MXNetRehearsal:
        return MXNetRehearsal(self._recipe, self._state)

    @contextlib.contextmanager
    def _resized(self, steps: int | None) -> Iterator[None]:
        self._steps = steps
        try:
            yield
        finally:
            self._steps = None

    def _size(self, batch_size: int | None) -> int | None:
        return self._config.get("batch_size", batch_size)

    def _predictor(self) -> MXNetPredictor:
        """The model as it is now; the same one, for processes that hold it already, until training changes it."""
        if self._state is not None and self._predicting is not None and self._predicting[0] is self._state:
            return self._predicting[1]
        weights = None if self._state is None else self._state["models"][0]
        self._predicting = (self._state, MXNetPredictor(uuid.uuid4().hex, self._packed(), weights))
        return self._predicting[1]


def _check_kind(data: Any) -> None:
    """Raise a typed error for data that workers of MXNet cannot be given."""
    # An iterator is of the process that made it: workers need a function that makes theirs.
    is_loader = is_instance_of(data, "mxnet.gluon.data", "DataLoader")
    if is_loader or is_instance_of(data, "mxnet.io", "DataIter"):
        raise InvalidArgumentError(
            f"data is a {type(data).__name__} of this process. Give a function creator(config, kv) that returns one: "
            "each worker calls it, and takes its part of the rows by kv.rank and kv.num_workers."
        )
    kind = kind_of(data)
    if kind not in KINDS:
        raise InvalidArgumentError(
            f"the MXNet estimator takes {', '.join(KINDS)}, but data is a {kind}. Give its rows as arrays or as an "
            "XShards, or a function creator(config, kv) that returns an mx.io.DataIter or a gluon DataLoader."
        )


def _check_config(config: dict[str, Any]) -> None:
    seed, interval = config.get("seed"), config.get("log_interval")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise InvalidArgumentError(f"config's seed must be a whole number, or None, but is {seed!r}.")
    if interval is not None and (isinstance(interval, bool) or not isinstance(interval, int) or interval < 0):
        raise InvalidArgumentError(f"config's log_interval must be a whole number of batches, but is {interval!r}.")
    if isinstance(config.get("optimizer", ""), str):
        check_dict(config.get("optimizer_params"), "config's optimizer_params")


def _check_count(count: Any, name: str) -> int | None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise InvalidArgumentError(f"{name} must be a whole number of at least 1, or None, but is {count!r}.")
    return count
