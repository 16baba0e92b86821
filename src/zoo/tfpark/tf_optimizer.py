"""TFOptimizer: trains the variables of a TensorFlow graph on the rows of a TFDataset."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.estimator import Gang
from zoo.orca.learn.metrics import Metric
from zoo.orca.learn.summary import TrainSummary, ValidationSummary
from zoo.orca.learn.tf.estimator import TensorFlowEstimator, check_clip
from zoo.orca.learn.tf.frozen import as_tensors
from zoo.orca.learn.tf2.quiet import start_here
from zoo.orca.learn.trigger import EveryEpoch, MaxEpoch
from zoo.orca.learn.user_summaries import use_train_summary, use_validation_summary
from zoo.tfpark.metric_tensors import metric_name, metric_tensor
from zoo.tfpark.rows import TfDataRows
from zoo.tfpark.tf_dataset import TFDataset, columns_of, dataset_of
from zoo.tfpark.whole_batches import figures_by_row, outputs_by_row
from zoo.tfpark.zoo_optimizer import train_ops_of


class TFOptimizer:
    """Trains all variables that a loss is computed from, on the dataset whose tensors it is computed from.

    Args:
        loss: a scalar tensor, the mean over the rows of a batch.
        optim_method: a method of `bigdl.optim.optimizer`; or a dict of them by the prefix of variables' names.
        sess: the session that holds the values; a new one with initialised variables if left out.
        val_outputs, val_labels, val_method: tensors, and what to measure of them on validation data; labels are
            classes from 0, as TensorFlow has them.

    Example:
        optimizer = TFOptimizer(loss, Adam(1e-3))
        optimizer.set_train_summary(TrainSummary("/tmp/lenet", "lenet"))
        optimizer.optimize(end_trigger=MaxEpoch(5))
    """

    def __init__(
        self,
        loss: Any,
        optim_method: Any,
        sess: Any = None,
        val_outputs: Any = None,
        val_labels: Any = None,
        val_method: Any = None,
        *,
        dataset: TFDataset | None = None,
        inputs: Any = None,
        clip_norm: float | None = None,
        clip_value: Any = None,
        metrics: dict[str, Any] | None = None,
        tensor_with_value: dict[Any, Any] | None = None,
        session_config: Any = None,
        model_dir: str | None = None,
        updates: Any = None,
    ):
        (loss,) = as_tensors(loss, "loss")
        figures = _validation_tensors(loss, val_outputs, val_labels, val_method) | (metrics or {})
        start_here()
        from zoo.orca.learn.tf.recipe import GraphRecipe, read_constants

        known = [loss.graph.get_tensor_by_name(name) for name in read_constants(tensor_with_value, loss.graph)]
        dataset = dataset_of([loss], known) if dataset is None else dataset
        dataset.need_batch_size("for training")
        tensors, columns = columns_of(dataset, [loss, *figures.values()], inputs)
        recipe = GraphRecipe(
            inputs=tensors,
            loss=loss,
            optimizer=optim_method,
            metrics=figures,
            updates=updates,
            clip=check_clip(clip_norm, clip_value),
            sess=sess,
        )
        recipe.feed_constants(tensor_with_value)
        self._recipe = recipe
        self._begin(_DatasetEstimator(recipe, dataset, model_dir), dataset, (columns, []), session_config)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._recipe.loss.name} over {self._dataset!r})"

    def _begin(
        self, estimator: Any, dataset: TFDataset, sides: tuple[list[int], list[int]], session_config: Any
    ) -> None:
        self.estimator = estimator
        self._dataset = dataset
        self._sides = sides
        self._session_config = session_config
        # A graph of a fixed batch cannot take the last rows of an epoch if they are too few.
        estimator._config |= {"shuffle": dataset.shuffle, "drop_last": dataset.hard_code_batch_size}
        estimator._auto_shard_files = dataset.auto_shard_files

    @classmethod
    def from_loss(
        cls,
        loss: Any,
        optim_method: Any,
        session: Any = None,
        inputs: Any = None,
        dataset: TFDataset | None = None,
        val_outputs: Any = None,
        val_labels: Any = None,
        val_method: Any = None,
        clip_norm: float | None = None,
        clip_value: Any = None,
        metrics: dict[str, Any] | None = None,
        tensor_with_value: dict[Any, Any] | None = None,
        session_config: Any = None,
        model_dir: str | None = None,
        updates: Any = None,
    ) -> TFOptimizer:
        """As the constructor, and more.

        Args:
            inputs, dataset: the tensors to feed, and the dataset that feeds them, where they are not dataset.tensors.
            clip_norm: no gradient of a variable, over all workers, has a larger L2 norm.
            clip_value: clip every element of the gradient to [-clip_value, clip_value], or to a pair (min, max).
            metrics: scalar tensors by name, to be measured on validation data.
            tensor_with_value: what else to feed: {tensor: (value when training, value otherwise)}.
            session_config: a tf.compat.v1.ConfigProto for the workers' sessions.
            model_dir: where checkpoints and summaries go.
            updates: operations to run with each batch, beside those of the collection UPDATE_OPS.
        """
        return cls(
            loss,
            optim_method,
            session,
            val_outputs,
            val_labels,
            val_method,
            dataset=dataset,
            inputs=inputs,
            clip_norm=clip_norm,
            clip_value=clip_value,
            metrics=metrics,
            tensor_with_value=tensor_with_value,
            session_config=session_config,
            model_dir=model_dir,
            updates=updates,
        )

    @staticmethod
    def from_keras(
        keras_model: Any,
        dataset: TFDataset,
        session_config: Any = None,
        model_dir: str | None = None,
        metrics: dict[str, Any] | None = None,
        optimizer: Any = None,
    ) -> TFOptimizer:
        """Train a compiled model of Keras 3, or of tf_keras in graph mode, on a dataset of (features, labels).

        Args:
            metrics: for a tf_keras model: scalar tensors by name, beside the metrics that it was compiled with.
            optimizer: an orca or bigdl method, instead of the one that the model was compiled with.
        """
        from zoo.tfpark.keras_optimizer import KerasTFOptimizer

        return KerasTFOptimizer(keras_model, dataset, session_config, model_dir, metrics, optimizer)

    @classmethod
    def from_train_op(
        cls,
        train_op: Any,
        loss: Any,
        *,
        inputs: Any = None,
        labels: Any = None,
        metrics: dict[str, Any] | None = None,
        updates: Any = None,
        sess: Any = None,
        dataset: TFDataset | None = None,
        tensor_with_value: dict[Any, Any] | None = None,
        session_config: Any = None,
        model_dir: str | None = None,
    ) -> TFOptimizer:
        """Train with an operation that `ZooOptimizer(...).minimize(loss)` made.

        Args:
            inputs, labels, dataset: the tensors to feed, and the dataset that feeds them one after the other, where
                they are not dataset.tensors.
        """
        fed = None if inputs is None else [*_as_list(inputs), *_as_list(labels)]
        return cls(
            loss,
            train_ops_of(train_op),
            sess,
            dataset=dataset,
            inputs=fed,
            metrics=metrics,
            tensor_with_value=tensor_with_value,
            session_config=session_config,
            model_dir=model_dir,
            updates=updates,
        )

    def optimize(self, end_trigger: Any = None, checkpoint_trigger: Any = None) -> TFOptimizer:
        """Train until a trigger fires; epochs and iterations are counted over the optimizer's life and checkpoints.

        Afterwards the session's variables have the trained values.

        Args:
            end_trigger: MaxEpoch(1) if left out.
            checkpoint_trigger: when to write a checkpoint to model_dir, and to measure validation data; EveryEpoch()
                if left out.
        """
        if checkpoint_trigger is None and self.estimator._model_dir is not None:
            checkpoint_trigger = EveryEpoch()
        data, columns = self._dataset.rows.data(*self._sides)
        checked = None if self._dataset.validation is None else self._dataset.validation.data(*self._sides)[0]
        until = MaxEpoch(1) if end_trigger is None else end_trigger
        self._train_until(data, until, self._dataset.batch_size, columns, checked, checkpoint_trigger)
        return self

    def _train_until(self, *arguments: Any) -> None:
        self.estimator.train_until(*arguments, self._session_config)

    @property
    def sess(self) -> Any:
        """The session that holds the values of the graph's variables."""
        return self.estimator.sess

    @property
    def tf_model(self) -> Any:
        """What is trained; `tf_model.training_helper_layer.get_weights()` gives the weights in the order of names."""
        return SimpleNamespace(training_helper_layer=SimpleNamespace(get_weights=self._weights))

    def load_checkpoint(self, path: str, version: int | None = None) -> None:
        """Restore values and counters from a checkpoint below a folder: the newest one, or the version given."""
        self.estimator.load_orca_checkpoint(path, version)

    def set_constant_gradient_clipping(self, min_value: float, max_value: float) -> None:
        """Clip every element of the gradient, over all workers, to a range."""
        checked = check_clip(None, (min_value, max_value))
        self._recipe.clip = dataclasses.replace(self._recipe.clip, low=checked.low, high=checked.high)

    def set_gradient_clipping_by_l2_norm(self, clip_norm: float) -> None:
        """Scale the gradient, over all workers, down to an L2 norm of at most clip_norm."""
        norm = check_clip(clip_norm, None).tensor_norm
        self._recipe.clip = dataclasses.replace(self._recipe.clip, norm=norm)

    def set_train_summary(self, summary: TrainSummary) -> None:
        """Write the figures of training where a summary says."""
        use_train_summary(self.estimator, summary)

    def set_val_summary(self, summary: ValidationSummary) -> None:
        """Write the figures of validation data where a summary says."""
        use_validation_summary(self.estimator, summary)

    def _weights(self) -> list[np.ndarray]:
        trained = sorted((each.variable for each in self._recipe.train_ops().gradients), key=lambda each: each.name)
        return self.sess.run(trained)


def measure(
    sess: Any, dataset: TFDataset, methods: list[Metric], output: Any, label: Any, loss: Any, steps: int | None = None
) -> dict[str, float]:
    """What validation methods say of an output and a label over a dataset, by BigDL's names."""
    start_here()
    from zoo.orca.learn.tf.recipe import GraphRecipe

    size = dataset.batch_size
    if size <= 0:
        # A graph of a fixed batch is given that many rows by each worker.
        engine = dataset.rows.engine
        workers = engine.nodes if dataset.hard_code_batch_size else engine.cores
        size = dataset.need_batch_per_thread("for evaluation") * workers
    if dataset.hard_code_batch_size and not isinstance(dataset.rows, TfDataRows):
        return _measure_whole_batches(sess, dataset, methods, output, label, loss, size, steps)
    figures = {metric_name(each): metric_tensor(each, output, label, loss) for each in methods}
    tensors, chosen = columns_of(dataset, list(figures.values()))
    recipe = GraphRecipe(inputs=tensors, metrics=figures, sess=sess)
    data, columns = dataset.rows.data(chosen)
    estimator = _DatasetEstimator(recipe, dataset, None)
    estimator._auto_shard_files = dataset.auto_shard_files
    return estimator.measure(data, size, columns, steps)


def _measure_whole_batches(
    sess: Any,
    dataset: TFDataset,
    methods: list[Metric],
    output: Any,
    label: Any,
    loss: Any,
    size: int,
    steps: int | None,
) -> dict[str, float]:
    """As `measure`, of a graph that takes batches of one size: its outputs are measured in a graph that takes any."""
    from zoo.orca.learn.tf.recipe import GraphRecipe

    measured = loss if any(metric_name(each) == "Loss" for each in methods) else None
    tensors, figures = figures_by_row(methods, output, label, measured)
    rows = outputs_by_row(sess, dataset, output, label, measured, size // dataset.rows.engine.nodes)
    data, columns = rows.data(range(len(tensors)))
    estimator = _DatasetEstimator(GraphRecipe(inputs=tensors, metrics=figures), dataset, None)
    try:
        return estimator.measure(data, size, columns, steps)
    finally:
        estimator.shutdown()


class _DatasetEstimator(TensorFlowEstimator):
    """An estimator of a graph that a TFDataset feeds."""

    def __init__(self, recipe: Any, dataset: TFDataset, model_dir: str | None):
        super().__init__(recipe, Gang("bigdl"), model_dir)
        self._is_hard_coded = dataset.hard_code_batch_size

    @property
    def iterations(self) -> int:
        """How many steps were taken."""
        return self._where.neval - 1

    def measure(self, data: Any, batch_size: int, columns: Any, steps: int | None = None) -> dict[str, float]:
        """The figures of the recipe's metrics over all rows, or over some steps."""
        parcel = self._recipe.parcel_for_evaluation()
        with self._using(parcel):
            self._state = self._recipe.state_of(parcel)
            figures = self._run_evaluate(data, batch_size, columns, steps)
        return {name: figures[name] for name in self._recipe.metrics}

    def _check_batch(self, feed: Any, what: str = "data") -> None:
        if not self._is_hard_coded:  # a few rows are no batch of such a graph
            super()._check_batch(feed, what)


def _validation_tensors(loss: Any, outputs: Any, labels: Any, methods: Any) -> dict[str, Any]:
    """What to measure on validation data beside the loss, as scalar tensors by name."""
    if methods is None:
        return {}
    if outputs is None or labels is None:
        raise InvalidArgumentError("val_method needs val_outputs and val_labels, the tensors to measure.")
    (output, *_), (label, *_) = as_tensors(outputs, "val_outputs"), as_tensors(labels, "val_labels")
    with loss.graph.as_default():
        named = {metric_name(each): metric_tensor(each, output, label, loss) for each in _as_list(methods)}
    return {name: tensor for name, tensor in named.items() if name != "Loss"}  # which is measured anyway


def _as_list(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]
