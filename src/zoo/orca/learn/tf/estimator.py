"""`Estimator.from_graph` and `Estimator.from_keras`: TensorFlow 1 graphs and Keras models on every engine."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zoo.orca.data.shard import XShards
from zoo.orca.engine.pickling import pack
from zoo.orca.errors import InvalidArgumentError, NotOfferedError, PreconditionError
from zoo.orca.feed import kind_of
from zoo.orca.feed.shards import Columns
from zoo.orca.learn import spark_estimator
from zoo.orca.learn.checkpoint import read_checkpoint
from zoo.orca.learn.estimator import Estimator as SharedEstimator
from zoo.orca.learn.estimator import Gang, as_columns, check_epochs, check_path
from zoo.orca.learn.predict import predict
from zoo.orca.learn.rehearsal import Rehearsal
from zoo.orca.learn.tf.conventions import (
    check_backend,
    check_disk_trigger,
    is_orca,
    need_columns,
    need_records,
)
from zoo.orca.learn.tf.learning import GraphLearning
from zoo.orca.learn.tf.parcel import Clip, Parcel, flat_arrays
from zoo.orca.learn.tf.predictor import GraphPredictor
from zoo.orca.learn.tf2.quiet import start_here
from zoo.orca.learn.tf2.recipe import KerasRecipe, is_keras3, is_legacy_keras
from zoo.orca.learn.until import epochs_until, first_batch

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.feed.base import Feed
    from zoo.orca.learn.tf.keras_flavour import KerasEstimator
    from zoo.orca.learn.tf.recipe import GraphRecipe
    from zoo.orca.learn.worker import Outcome


class Estimator(SharedEstimator, spark_estimator.Estimator):
    """The factory of TensorFlow 1 estimators, and what they share: `fit` returns the estimator, `epochs` is an amount.

    After `load_orca_checkpoint` the epochs of the checkpoint count: the next `fit` runs until `epochs` are done.
    """

    _takes_text = True
    #: Whether the epochs of a checkpoint that was loaded count in the next fit.
    _goes_on = False
    _auto_shard_files = False

    @staticmethod
    def from_graph(
        *,
        inputs: Any,
        outputs: Any = None,
        labels: Any = None,
        loss: Any = None,
        optimizer: Any = None,
        metrics: dict[str, Any] | None = None,
        clip_norm: float | None = None,
        clip_value: Any = None,
        updates: Any = None,
        sess: Any = None,
        model_dir: str | None = None,
        backend: str = "bigdl",
        num_workers: int | tuple[int, int] | None = None,
        workers_per_node: int = 1,
        max_failures: int = 3,
        stall_timeout: float | None = 1800.0,
        seed: int = 0,
    ) -> TensorFlowEstimator:
        """An estimator of a graph that was built with `tensorflow.compat.v1`.

        Args:
            inputs, labels: the placeholders that features and labels are fed to: a tensor or a list.
            outputs: what `predict` gives: a tensor or a list.
            loss: a scalar, the mean over the rows of a batch.
            optimizer: one of `tensorflow.compat.v1.train`, or an orca optimizer.
            metrics: scalars by name: a mean over a batch, or the value that `tensorflow.compat.v1.metrics` gives.
            clip_norm: no gradient of a variable, over all workers, has a larger L2 norm.
            clip_value: clip every element of the gradient to [-clip_value, clip_value], or to a pair (min, max).
            updates: operations to run with each batch, beside those of the collection UPDATE_OPS.
            sess: the session that holds the values; by default a new one, with variables initialised. After `fit` it
                holds the trained values, those of the optimizer included.
            model_dir: where checkpoints and summaries go.
            backend: "bigdl".
            num_workers: workers in all, instead of workers_per_node; with a pair (least, most) as many as there is
                room for.
            workers_per_node: workers on each node of the engine.
            max_failures: how many times a fit that lost a worker goes on from its last checkpoint.
            stall_timeout: seconds after which workers that say nothing end the call; None waits for ever.
            seed: of the order of rows, and of what is random in the graph.

        Example:
            >>> import numpy as np, tensorflow as tf
            >>> v1 = tf.compat.v1
            >>> with tf.Graph().as_default():
            ...     x, y = v1.placeholder(tf.float32, (None, 3)), v1.placeholder(tf.float32, (None, 1))
            ...     output = x @ v1.get_variable("w", (3, 1))
            ...     est = Estimator.from_graph(
            ...         inputs=x, labels=y, outputs=output, loss=tf.reduce_mean((output - y) ** 2),
            ...         optimizer=v1.train.AdamOptimizer(),
            ...     )
            >>> rows = np.random.default_rng(0).random((64, 3))
            >>> est.fit((rows, rows.sum(axis=1)), epochs=2).predict(rows).shape
            (64, 1)
            >>> est.shutdown()
        """
        check_backend(backend)
        gang = Gang(backend, workers_per_node, num_workers, max_failures, stall_timeout)
        clip = check_clip(clip_norm, clip_value)
        check_seed(seed)
        if metrics is not None and not isinstance(metrics, dict):
            raise InvalidArgumentError(f"metrics must be a dict of scalar tensors by name, but is {metrics!r}.")
        start_here()
        from zoo.orca.learn.tf.recipe import GraphRecipe

        recipe = GraphRecipe(
            inputs=inputs,
            labels=labels,
            outputs=outputs,
            loss=loss,
            optimizer=optimizer,
            metrics=metrics,
            updates=updates,
            clip=clip,
            sess=sess,
            seed=seed,
        )
        return TensorFlowEstimator(recipe, gang, model_dir)

    @staticmethod
    def from_keras(
        keras_model: Any,
        metrics: dict[str, Any] | None = None,
        model_dir: str | None = None,
        optimizer: Any = None,
        backend: str = "bigdl",
        *,
        num_workers: int | tuple[int, int] | None = None,
        workers_per_node: int = 1,
        max_failures: int = 3,
        stall_timeout: float | None = 1800.0,
        seed: int = 0,
    ) -> KerasEstimator:
        """An estimator of a compiled Keras model, which is trained itself: `est.get_model() is keras_model`.

        Args:
            keras_model: a model of Keras 3, or of tf_keras in graph mode (`tf.compat.v1.disable_eager_execution()`).
            metrics: for a tf_keras model: scalar tensors by name, beside the metrics that it was compiled with.
            model_dir: where checkpoints and summaries go.
            optimizer: an orca optimizer, instead of the one that the model was compiled with.
            backend: "bigdl".
            num_workers, workers_per_node, max_failures, stall_timeout, seed: as in `from_graph`.
        """
        check_backend(backend)
        gang = Gang(backend, workers_per_node, num_workers, max_failures, stall_timeout)
        check_seed(seed)
        return _of_keras(keras_model, metrics, optimizer, seed, gang, model_dir)

    @staticmethod
    def load_keras_model(path: str, **options: Any) -> KerasEstimator:
        """An estimator of the model in a file that `save_keras_model` or Keras wrote.

        With eager execution it is a Keras 3 model, without it one of tf_keras. Options are those of `from_keras`.
        """
        tf = start_here()
        path = check_path(path, "path")
        from zoo.orca.learn.tf.keras_flavour import existing

        if tf.executing_eagerly():
            from zoo.orca.learn.tf import keras_estimator as flavour
        else:
            from zoo.orca.learn.tf import legacy_keras as flavour  # type: ignore[no-redef]
        return Estimator.from_keras(flavour.load_model(existing(path)), **options)

    def load_orca_checkpoint(self, path: str, version: int | None = None) -> Any:
        """Go on from a checkpoint below a folder: of the newest run the highest number, or the version given.

        The next `fit(epochs=n)` counts the checkpoint's epochs as done.
        """
        self._adopt(read_checkpoint(check_path(path, "path"), version), path)
        self._goes_on = True
        return self

    def get_train_summary(self, tag: str | None = None) -> list[list[float]] | None:
        """[iteration, value, time] of "Loss", "Throughput" or "LearningRate"; None when no summary was written."""
        return None if self.result_ is None else super().get_train_summary(tag)

    def get_validation_summary(self, tag: str | None = None) -> list[list[float]] | None:
        """[iteration, value, time] of "Loss" or a metric of the validation data; None when no summary was written."""
        if self.result_ is None:
            return None
        return super().get_validation_summary("Loss" if tag is None else self._stored_tag(tag))

    def _stored_tag(self, tag: str) -> str:
        """What a figure is called in summaries."""
        return "val_loss" if tag == "Loss" else tag

    def _epochs(self, epochs: Any) -> range:
        """The epochs that a fit is to run: so many more, or until so many are done where a checkpoint was loaded."""
        done, wanted = self._where.epoch - 1, check_epochs(epochs)
        return range(done, wanted if self._goes_on else done + wanted)

    def _checkpoint_name(self) -> str:
        return "TFParkTraining"

    @contextlib.contextmanager
    def _sharding(self, by_file: Any) -> Iterator[None]:
        """Shard a tf.data.Dataset by its files while a call lasts."""
        if not isinstance(by_file, bool):
            raise InvalidArgumentError(f"auto_shard_files must be True or False, but is {by_file!r}.")
        self._auto_shard_files = by_file
        try:
            yield
        finally:
            self._auto_shard_files = False

    def _feed(self, data: Any, columns: Columns, engine: Engine, what: str = "data", **options: Any) -> Feed:
        options = {"auto_shard_files": self._auto_shard_files, "session": self._session_of(data)} | options
        feed = super()._feed(data, columns, engine, what, **options)
        need_records(feed, what)
        return feed

    def _session_of(self, data: Any) -> Any:
        """The session that holds what a tf.data.Dataset of a graph uses; None where that is not the estimator's."""
        return None


class GraphEstimator(Estimator):
    """Trains what a `GraphRecipe` describes; the session of the recipe holds the values between calls."""

    def __init__(self, recipe: GraphRecipe, gang: Gang, model_dir: str | None):
        super().__init__(gang, {}, model_dir, recipe.seed)
        self._recipe = recipe
        self._parcel: Parcel | None = None
        self._optimizers: list[Any] = []

    @property
    def sess(self) -> Any:
        """The session that holds the values."""
        return self._recipe.sess

    def _session_of(self, data: Any) -> Any:
        variant = getattr(data, "_variant_tensor", None)
        is_of_graph = variant is not None and not hasattr(variant, "numpy") and variant.graph is self._recipe.graph
        return self.sess if is_of_graph else None

    def shutdown(self) -> None:
        """Close the session."""
        self._recipe.close()

    def train_until(
        self,
        data: Any,
        end_trigger: Any,
        batch_size: int | None = None,
        columns: Columns = Columns(),  # noqa: B008 - frozen, so sharing it is safe
        validation_data: Any = None,
        checkpoint_trigger: Any = None,
        session_config: Any = None,
        **options: Any,
    ) -> None:
        """Train until a trigger fires; epochs and iterations are counted over the estimator's life.

        An epoch that the last call stopped in goes on with the rows that it has not seen.
        """
        epochs, stops = epochs_until(end_trigger, self._where)
        options["callbacks"] = [*(options.get("callbacks") or []), *stops]
        options["first_batch"] = first_batch(self._where, batch_size)
        self._fit(data, epochs, batch_size, columns, validation_data, checkpoint_trigger, session_config, **options)

    def _fit(
        self,
        data: Any,
        epochs: range,
        batch_size: int | None,
        columns: Columns,
        validation_data: Any = None,
        checkpoint_trigger: Any = None,
        session_config: Any = None,
        **options: Any,
    ) -> list[Outcome]:
        """Train for some epochs, and put what was learnt into the session."""
        check_disk_trigger(checkpoint_trigger)
        if not epochs:
            return []
        parcel = self._recipe.parcel_for_training(validation_data is not None, check_config(session_config))
        with self._using(parcel):
            self._state = self._recipe.state_of(parcel) | self._memory()
            return self._run_fit(data, epochs, batch_size, columns, validation_data, checkpoint_trigger, **options)

    def _evaluate(self, data: Any, batch_size: int | None, columns: Columns, parcel: Parcel) -> dict[str, Any]:
        with self._using(parcel):
            self._state = self._recipe.state_of(parcel)
            return self._run_evaluate(data, batch_size, columns)

    def predict(self, data: Any, batch_size: int = 4, feature_cols: Any = None, auto_shard_files: bool = False) -> Any:
        """The outputs for every row, in the data's order and of the data's kind.

        Args:
            data: an XShards, a Spark DataFrame, a Ray Dataset, arrays, a pandas frame, or a `zoo.orca.data.tf.data`
                Dataset, which gives an RDD of one element a record.
            batch_size: rows that are computed at once.
        """
        need_predictable(data)
        columns = as_columns(feature_cols, None)
        need_columns(data, columns, "prediction", needs_labels=False)
        size = self._check_batch_size((), batch_size, 1)
        predictor = self._predictor()
        if kind_of(data) == "orca.data.tf.Dataset":
            return records_of(predict(data.as_xshards(), predictor, size))
        return predict(data, predictor, size, columns.features, known_shapes=self._known_shapes)

    def _memory(self) -> dict[str, Any]:
        """What goes on between fits beside the values in the session."""
        kept = {} if not self._optimizers else {"optimizers": self._optimizers}
        return kept | {"epoch": self._where.epoch, "neval": self._where.neval}

    @contextlib.contextmanager
    def _using(self, parcel: Parcel) -> Iterator[None]:
        self._parcel = parcel
        try:
            yield
        finally:
            self._parcel = self._state = None

    def _take(self, outcomes: list[Outcome]) -> None:
        super()._take(outcomes)
        if self._state is not None:
            self._keep(self._state, "the trained state")
        self._goes_on = False

    def _adopt(self, state: dict[str, Any], path: str) -> None:
        super()._adopt(state, path)
        self._keep(state, path)
        self._state = None

    def _keep(self, state: dict[str, Any], path: str) -> None:
        self._recipe.load_state(state, path)
        self._optimizers = state.get("optimizers") or []

    def _predictor(self) -> GraphPredictor:
        """The outputs with the values of now; processes that hold the same ones already use theirs."""
        parcel = self._recipe.parcel_for_prediction()
        values = self._recipe.values_of(parcel)
        digest = hashlib.sha256(parcel.graph)
        for name, value in values.items():
            digest.update(name.encode())
            digest.update(repr(value.tolist()).encode() if value.dtype == object else value.tobytes())
        digest.update(repr((parcel.inputs, parcel.outputs, sorted(parcel.constants.items()))).encode())
        return GraphPredictor(digest.hexdigest(), parcel, values)

    def _learning(self) -> GraphLearning:
        parcel = self._parcel or self._recipe.parcel_for_training(validates=False)
        return GraphLearning(pack(parcel, "the graph (with its optimizer)"))

    def _rehearsal(self) -> Rehearsal:
        from zoo.orca.learn.tf.preflight import GraphRehearsal

        return GraphRehearsal(self._recipe)

    def _check_trainable(self) -> None:
        self._recipe.check_training()

    def _check_state(self, state: dict[str, Any], path: str) -> None:
        self._recipe.check_state(state, path)

    def _check_batch(self, feed: Feed, what: str = "data") -> None:
        parcel = self._parcel or self._recipe.parcel_for_training(validates=False)
        sample = feed.sample()
        if sample is not None and not _lacks_weights(feed, sample, parcel):
            self._recipe.try_out(parcel, sample, what)


class TensorFlowEstimator(GraphEstimator):
    """An estimator of a TensorFlow 1 graph; `Estimator.from_graph` makes one."""

    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int = 32,
        feature_cols: Any = None,
        label_cols: Any = None,
        validation_data: Any = None,
        session_config: Any = None,
        checkpoint_trigger: Any = None,
        auto_shard_files: bool = False,
        feed_dict: Any = None,
        *,
        labels_cols: Any = None,
        callbacks: Any = None,
        resume: str | None = None,
    ) -> TensorFlowEstimator:
        """Train `epochs` more epochs; the session holds the trained values afterwards.

        Features are fed to `inputs` and labels to `labels`, one after the other. An orca optimizer goes on from the
        fit before, as those of TensorFlow do, whose values are in the session.

        Args:
            data: an XShards, a Spark DataFrame, a `tf.data.Dataset` of single records, a `zoo.orca.data.tf.data`
                Dataset, a Ray Dataset, arrays, or a pandas frame.
            batch_size: rows of a step over all workers.
            validation_data: of the same kind; measured when checkpoint_trigger fires, or after every epoch.
            session_config: a `tf.compat.v1.ConfigProto` for the workers' sessions.
            checkpoint_trigger: when to write a checkpoint into model_dir, such as EveryEpoch().
            auto_shard_files: whether each worker reads some of the files of a `tf.data.Dataset`, instead of some of
                its records.
            feed_dict: what else to feed: {tensor: (value when training, value otherwise)}; later calls use the same
                until a fit is given others. Tensors may be given by name, too.
            labels_cols: another spelling of label_cols.
            callbacks: a list of `zoo.orca.learn.callbacks.Callback`.
            resume: "auto" goes on from the newest checkpoint of this fit in model_dir, if there is one.
        """
        columns = as_columns(feature_cols, labels_cols if label_cols is None else label_cols)
        need_columns(data, columns, "training", bool(self._recipe.labels))
        if feed_dict is not None:
            self._recipe.feed_constants(feed_dict)
        with self._sharding(auto_shard_files):
            self._fit(
                data,
                self._epochs(epochs),
                batch_size,
                columns,
                validation_data,
                checkpoint_trigger,
                session_config,
                callbacks=callbacks,
                resume=resume,
            )
        return self

    def evaluate(
        self,
        data: Any,
        batch_size: int = 32,
        feature_cols: Any = None,
        label_cols: Any = None,
        auto_shard_files: bool = False,
        *,
        labels_cols: Any = None,
    ) -> dict[str, float]:
        """The metrics by name, over all rows; batch_size is the rows of a step over all workers."""
        columns = as_columns(feature_cols, labels_cols if label_cols is None else label_cols)
        self._recipe.check_evaluation()
        need_columns(data, columns, "evaluation", bool(self._recipe.labels))
        with self._sharding(auto_shard_files):
            figures = self._evaluate(data, batch_size, columns, self._recipe.parcel_for_evaluation())
        return {name: figures[name] for name in self._recipe.metrics}

    def get_model(self) -> Any:
        """Not offered: a graph has no model object; its session is `est.sess`."""
        raise NotOfferedError("an estimator of a graph has no model object. Its values are in the session est.sess.")

    def save(self, model_path: str) -> str:
        """Write a TensorFlow checkpoint; the same as `save_tf_checkpoint`."""
        return self.save_tf_checkpoint(model_path)

    def load(self, model_path: str) -> TensorFlowEstimator:
        """Read a TensorFlow checkpoint into the session; the same as `load_tf_checkpoint`."""
        return self.load_tf_checkpoint(model_path)

    def save_tf_checkpoint(self, path: str) -> str:
        """Write the session's variables as a TensorFlow checkpoint, which `tf.compat.v1.train.Saver` restores."""
        return self._recipe.save(check_path(path, "path"))

    def load_tf_checkpoint(self, path: str) -> TensorFlowEstimator:
        """Read a TensorFlow checkpoint (of a folder the latest one) into the session.

        Variables of the optimizer that are not in it stay as they are."""
        self._recipe.restore(check_path(path, "path"))
        return self

    def clear_gradient_clipping(self) -> None:
        """Not offered for graphs: `from_graph` takes clip_norm and clip_value."""
        raise _no_clipping()

    def set_constant_gradient_clipping(self, min: float, max: float) -> None:
        """Not offered for graphs: `from_graph` takes clip_value=(min, max)."""
        raise _no_clipping()

    def set_l2_norm_gradient_clipping(self, clip_norm: float) -> None:
        """Not offered for graphs: `from_graph` takes clip_norm."""
        raise _no_clipping()


def _of_keras(model: Any, metrics: Any, optimizer: Any, seed: int, gang: Gang, model_dir: str | None) -> KerasEstimator:
    """What trains a Keras model: a learner of its own for Keras 3, that of graphs for tf_keras."""
    if optimizer is not None and not is_orca(optimizer):
        raise InvalidArgumentError(
            "optimizer must be an orca optimizer (zoo.orca.learn.optimizers), or left out for the one that the model "
            f"was compiled with, but is a {type(optimizer).__module__}.{type(optimizer).__qualname__}."
        )
    if is_legacy_keras(model):
        start_here()
        from zoo.orca.learn.tf.legacy_keras import LegacyKerasEstimator, recipe_of

        return LegacyKerasEstimator(model, recipe_of(model, optimizer, metrics, seed), gang, model_dir)
    if not is_keras3(model):
        raise InvalidArgumentError(
            f"keras_model must be a compiled Keras model, but is a {type(model).__module__}.{type(model).__qualname__}."
        )
    if metrics is not None:
        raise InvalidArgumentError(
            "metrics of a Keras 3 model are those that it was compiled with. Type model.compile(..., metrics=[...])."
        )
    from zoo.orca.learn.tf.keras_estimator import Keras3Estimator

    recipe = KerasRecipe(model, seed=seed, optimizer=optimizer)
    recipe.check()
    return Keras3Estimator(recipe, gang, model_dir)


def _no_clipping() -> NotOfferedError:
    return NotOfferedError(
        "gradient clipping of a graph is chosen when the estimator is made. Type "
        "Estimator.from_graph(..., clip_norm=1.0) or Estimator.from_graph(..., clip_value=(-1.0, 1.0))."
    )


def _lacks_weights(feed: Feed, sample: Any, parcel: Parcel) -> bool:
    """Whether the third of (features, label, weights), which is not part of a sample, is one of what is fed."""
    fed = len(parcel.inputs) + len(parcel.labels)
    return hasattr(feed, "batched") and len(flat_arrays(sample, None, fed)) == fed - 1


def need_predictable(data: Any) -> None:
    """Raise a typed error for a tf.data.Dataset, whose records have no place where a prediction could be put."""
    if kind_of(data) == "tf.data.Dataset":
        raise PreconditionError(
            "predict takes an XShards, a Spark DataFrame, a Ray Dataset, arrays, a pandas frame or a "
            "zoo.orca.data.tf.data.Dataset, but got a tf.data.Dataset. Take its features as arrays: "
            "np.stack(list(dataset.as_numpy_iterator()))."
        )


def records_of(shards: Any) -> Any:
    """Predictions record by record: an RDD on Spark, on other engines an XShards of a record a shard."""

    def split(shard: dict[str, Any]) -> list[Any]:
        found = shard["prediction"]
        return list(map(list, zip(*found, strict=True))) if isinstance(found, list) else list(found)

    if shards.placement.engine.name == "spark":
        return shards.rdd.flatMap(split)
    records = shards.placement.map(lambda index, found: (record for shard in found for record in split(shard)))
    return XShards.from_placement(records)


def check_clip(clip_norm: Any, clip_value: Any) -> Clip:
    """What `clip_norm` and `clip_value` of the published interface mean."""
    if clip_norm is not None and not (_is_number(clip_norm) and clip_norm > 0):
        raise InvalidArgumentError(f"clip_norm must be a number above 0, but is {clip_norm!r}.")
    if clip_value is None:
        return Clip(tensor_norm=None if clip_norm is None else float(clip_norm))
    if _is_number(clip_value):
        pair = (-clip_value, clip_value)
    else:
        pair = tuple(clip_value) if isinstance(clip_value, tuple | list) else ()
    if len(pair) != 2 or not all(map(_is_number, pair)) or not pair[0] < pair[1]:
        raise InvalidArgumentError(
            f"clip_value must be a number above 0, or a pair (min, max) of numbers, but is {clip_value!r}."
        )
    return Clip(tensor_norm=None if clip_norm is None else float(clip_norm), low=float(pair[0]), high=float(pair[1]))


def check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InvalidArgumentError(f"seed must be a whole number, but is {seed!r}.")


def check_config(config: Any) -> Any:
    if config is not None and not hasattr(config, "SerializeToString"):
        raise InvalidArgumentError(
            f"session_config must be a tf.compat.v1.ConfigProto or None, but is a {type(config).__name__}."
        )
    return config


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
