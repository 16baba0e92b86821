"""Models of tf_keras in graph mode: their placeholders, losses, updates and metrics are a graph like any other."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from zoo.orca.errors import InvalidArgumentError, NotOfferedError, PreconditionError
from zoo.orca.learn.estimator import Gang
from zoo.orca.learn.tf.estimator import GraphEstimator
from zoo.orca.learn.tf.keras_flavour import KerasEstimator, result_name
from zoo.orca.learn.tf.parcel import Clip, Metric
from zoo.orca.learn.tf.recipe import GraphRecipe, describe_variable
from zoo.orca.learn.tf.walk import holder_of

v1 = tf.compat.v1


def backend_of_keras() -> Any:
    """The functions of tf_keras that graph mode needs: sessions, the learning phase."""
    return importlib.import_module("tf_keras.api._v1.keras.backend")


class KerasOptimizer:
    """An optimizer of tf_keras with the methods of those of `tensorflow.compat.v1.train`."""

    def __init__(self, optimizer: Any):
        self._optimizer = optimizer

    def compute_gradients(self, loss: Any, var_list: list[Any]) -> list[tuple[Any, Any]]:
        return list(zip(self._optimizer.get_gradients(loss, var_list), var_list, strict=True))

    def apply_gradients(self, pairs: list[tuple[Any, Any]], global_step: Any = None) -> Any:
        """The operation that takes gradients; the optimizer counts its own steps, in `iterations`."""
        return self._optimizer.apply_gradients(pairs)

    @property
    def _lr_t(self) -> Any:
        """The learning rate of the next step, by the optimizer's own schedule."""
        return self._optimizer._decayed_lr(tf.float32)


class WrappedOptimizer:
    """An optimizer of `tensorflow.compat.v1.train` that tf_keras was compiled with, and counts the steps of."""

    def __init__(self, wrapper: Any):
        self.optimizer = wrapper.optimizer
        self._iterations = wrapper.iterations

    def compute_gradients(self, loss: Any, var_list: list[Any]) -> list[tuple[Any, Any]]:
        return self.optimizer.compute_gradients(loss, var_list=var_list)

    def apply_gradients(self, pairs: list[tuple[Any, Any]], global_step: Any = None) -> Any:
        return self.optimizer.apply_gradients(pairs, global_step=self._iterations)


def recipe_of(model: Any, optimizer: Any = None, metrics: Any = None, seed: int = 0) -> GraphRecipe:
    """The graph of a model; an orca optimizer may stand in for the compiled one, and tensors join its metrics."""
    _check_graph_mode(model)
    keras = backend_of_keras()
    graph = model.inputs[0].graph
    with graph.as_default():
        sess = keras.get_session()
        phase = keras.learning_phase()
        if getattr(model, "total_loss", None) is None:
            return GraphRecipe(inputs=list(model.inputs), outputs=_outputs(model), sess=sess, seed=seed)
        updates = [*model.get_updates_for(None), *model.get_updates_for(model.inputs)]
        recipe = GraphRecipe(
            inputs=list(model._feed_inputs),
            labels=list(model._feed_targets),
            outputs=_outputs(model),
            loss=model.total_loss,
            optimizer=_optimizer_of(model) if optimizer is None else optimizer,
            metrics={result_name(each.name): _describe(each) for each in model.metrics} | dict(metrics or {}),
            updates=[each for each in updates if each is not None],
            sess=sess,
            seed=seed,
            variables=list(model._collected_trainable_weights),
        )
        if tf.is_tensor(phase):
            recipe.feed_constants({phase.name: (True, False)})
    return recipe


def _check_graph_mode(model: Any) -> None:
    if not getattr(model, "inputs", None):
        raise InvalidArgumentError(
            f"the model {getattr(model, 'name', model)!r} has no inputs yet. Give its first layer input_shape=(...), "
            "or make it with tf_keras.Model(inputs=..., outputs=...)."
        )
    if not isinstance(model.inputs[0], tf.Tensor) or not hasattr(model.inputs[0], "graph"):
        raise NotOfferedError(
            "this is a tf_keras model of eager mode. Type tf.compat.v1.disable_eager_execution() before it is made, "
            "or make it with Keras 3 (import keras), which trains eagerly."
        )


def _outputs(model: Any) -> Any:
    return list(model.outputs) if len(model.outputs) > 1 else model.outputs[0]


def _optimizer_of(model: Any) -> Any:
    given = model.optimizer
    if hasattr(given, "get_grads") and hasattr(given, "optimizer"):
        return WrappedOptimizer(given)
    if not hasattr(given, "get_updates"):
        name = type(given).__name__
        raise InvalidArgumentError(
            f"the model was compiled with tf_keras.optimizers.{name}, which cannot train in graph mode. Compile it "
            f'with tf_keras.optimizers.legacy.{name}(...), or by name: optimizer="{name.lower()}".'
        )
    return KerasOptimizer(given)


def _describe(metric: Any) -> Metric:
    """A metric object of tf_keras: what it counts in, how it counts, and what it makes of that."""
    own = metric._call_result  # what Keras's own fit and evaluate ask for, and result() would put another in place of
    value = metric.result()
    metric._call_result = own
    holders = [holder_of(each) for each in metric.variables]
    return Metric(
        result_name(metric.name),
        value.name,
        tuple(describe_variable(each) for each in holders),
        tuple(each.name for each in metric.updates),
        tuple(each.initializer.name for each in metric.variables),
    )


class LegacyKerasEstimator(KerasEstimator, GraphEstimator):
    """An estimator of a tf_keras model in graph mode; the session of tf_keras holds the weights."""

    def __init__(self, model: Any, recipe: GraphRecipe, gang: Gang, model_dir: str | None):
        super().__init__(recipe, gang, model_dir)
        self._model = model

    def shutdown(self) -> None:
        """Give back what the estimator holds; the session is that of tf_keras, which the model goes on to use."""

    def _fit_model(self, *args: Any, **options: Any) -> None:
        self._check_trainable()
        self._fit(*args, **options)

    def _evaluate_model(self, data: Any, batch_size: int, columns: Any) -> dict[str, Any]:
        self._check_trainable()
        return self._evaluate(data, batch_size, columns, self._recipe.parcel_for_evaluation(with_loss=True))

    def _check_trainable(self) -> None:
        if self._recipe.loss is None:
            raise PreconditionError(
                f"the model {self._model.name!r} is not compiled, so it has no optimizer and no loss. Type "
                'model.compile(optimizer="adam", loss="mse").'
            )
        super()._check_trainable()

    def _write(self, save: Any, path: str, weights: bool = False) -> None:
        if path.endswith(".keras"):
            raise NotOfferedError(
                f"tf_keras cannot write its format .keras in graph mode. Write HDF5: {path.removesuffix('.keras')}.h5."
            )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="You are saving your model as an HDF5 file")
            save(path, save_format="h5")

    def _load_weights(self, path: str, by_name: bool) -> None:
        self._model.load_weights(path, by_name=by_name)

    def _set_clip(self, clip: tuple[Any, ...] | None) -> None:
        if clip is None:
            self._recipe.clip = Clip()
        else:
            kind, *limits = clip
            self._recipe.clip = Clip(norm=limits[0]) if kind == "norm" else Clip(low=limits[0], high=limits[1])

    def _metric_names(self) -> Iterable[str]:
        return [each.name for each in getattr(self._model, "metrics", [])]

    def _tag_of(self, metric: str) -> str:
        return result_name(metric)


def load_model(path: str) -> Any:
    """A tf_keras model from an HDF5 file."""
    return importlib.import_module("tf_keras").models.load_model(path)
