"""A TensorFlow 1 graph on the driver: what is fed to it, what is computed, and the session that holds its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.orca.errors import (
    BatchError,
    CheckpointError,
    InvalidArgumentError,
    NotOfferedError,
    PreconditionError,
    sentence,
)
from zoo.orca.learn.tf.metrics import describe_metric
from zoo.orca.learn.tf.parcel import Clip, Fed, Gradient, Metric, Parcel, Training, Variable
from zoo.orca.learn.tf.random_ops import make_stateless
from zoo.orca.learn.tf.saved import read_checkpoint, values_for
from zoo.orca.learn.tf.session_values import SessionValues
from zoo.orca.learn.tf.training import TrainOps, build_training, check_optimizer, trainable
from zoo.orca.learn.tf.values import pack_values, unpack_values
from zoo.orca.learn.tf.walk import ancestors, depends_on, holder_of, placeholders, variables, waits_for, written
from zoo.orca.learn.tf2.quiet import start_here

v1 = tf.compat.v1
_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")


class GraphRecipe:
    """Everything that an estimator of a graph knows. Lists may be given as one tensor, too.

    Args:
        inputs, labels: the tensors that features and labels are fed to, one after the other.
        outputs: what `predict` gives.
        loss: a scalar, the mean over the rows of a batch.
        optimizer: of `tensorflow.compat.v1.train`, of `zoo.orca.learn.optimizers`, a dict of the latter by the prefix
            of variables' names, or `TrainOps` that are in the graph already.
        metrics: scalars by name: means over a batch, or what `tensorflow.compat.v1.metrics` gives; or `Metric`s.
        updates: operations to run with each batch, beside those of the collection UPDATE_OPS.
        clip: what becomes of the gradient over all workers.
        sess: the session that holds the values; a new one with initialised variables if left out.
        variables: what to train; all trainable variables that the loss depends on if left out.
        is_batched: False where tensors have no dimension for rows, so that rows are fed one by one.

    Attributes:
        constants: what else is fed, by the tensor's name: (when training, otherwise).
    """

    def __init__(
        self,
        *,
        inputs: Any,
        labels: Any = None,
        outputs: Any = None,
        loss: Any = None,
        optimizer: Any = None,
        metrics: Mapping[str, Any] | None = None,
        updates: Any = None,
        clip: Clip = Clip(),  # noqa: B008 - frozen, so sharing it is safe
        sess: Any = None,
        seed: int = 0,
        variables: Sequence[Any] | None = None,
        is_batched: bool = True,
    ):
        self.inputs = as_tensors(inputs, "inputs")
        self.labels = as_tensors(labels, "labels")
        self.outputs = as_tensors(outputs, "outputs")
        self.loss = loss
        self.optimizer = optimizer
        self.metrics = dict(metrics or {})
        self.updates = [_operation(each) for each in _as_list(updates)]
        self.clip = clip
        self.seed = seed
        self.constants: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._variables = variables
        self._is_batched = is_batched
        self._train_ops: TrainOps | None = None
        self._saver: tuple[frozenset[str], Any] | None = None
        self._check(sess)
        start_here()
        self.sess = self._new_session() if sess is None else sess
        self._values = SessionValues(self.sess)

    def feed_constants(self, feed_dict: Any) -> None:
        """Take `feed_dict={tensor: (value when training, value otherwise)}`."""
        self.constants = read_constants(feed_dict, self.graph)

    def train_ops(self) -> TrainOps:
        """What training runs; added to the graph on the first call."""
        if self._train_ops is None:
            self.check_training()
            if self.graph.finalized:
                raise InvalidArgumentError(
                    "the graph is finalized, so that nothing can be added to it, but training needs gradients. Make "
                    "the estimator and fit before the graph is finalized."
                )
            chosen = trainable(self.loss, self._variables)
            before = variables(self.graph.get_operations())
            self._train_ops = build_training(self.loss, self.optimizer, chosen, self.all_updates())
            after = variables(self.graph.get_operations())
            self._values.begin({name: each for name, each in after.items() if name not in before})
        return self._train_ops

    def all_updates(self) -> list[Any]:
        """The user's updates, and those of the graph's collection that can run with what is fed."""
        collected = [_operation(each) for each in self.graph.get_collection(v1.GraphKeys.UPDATE_OPS)]
        fed = self._fed_in_training()
        runnable = [each for each in collected if not placeholders(ancestors([each], fed))]
        return list(dict.fromkeys([*self.updates, *runnable]))

    def check_training(self) -> None:
        """Raise a typed error if something is missing that training needs."""
        if self.loss is None:
            raise PreconditionError(
                "loss must be given for fit: a scalar tensor. Type Estimator.from_graph(..., loss=loss)."
            )
        if self.optimizer is None:
            raise PreconditionError(
                "optimizer must be given for fit, such as tf.compat.v1.train.AdamOptimizer() or one of "
                "zoo.orca.learn.optimizers. Type Estimator.from_graph(..., optimizer=...)."
            )
        trainable(self.loss, self._variables)
        self._need_feeds([self.loss, *self.updates], self._fed_in_training(), "loss")

    def check_evaluation(self) -> None:
        if not self.metrics:
            raise PreconditionError(
                "metrics must be given for evaluate: a dict of scalar tensors by name. Type "
                'Estimator.from_graph(..., metrics={"accuracy": accuracy}).'
            )
        for name, metric in self.described_metrics().items():
            self._need_feeds(self._tensors_of(metric), self._fed_in_training(), f"metric {name!r}")

    def check_prediction(self) -> None:
        if not self.outputs:
            raise PreconditionError(
                "outputs must be given for predict: a tensor or a list of them. Type "
                "Estimator.from_graph(..., outputs=...)."
            )
        self._need_feeds(self.outputs, [*self.inputs, *self._constant_tensors()], "outputs")

    def parcel_for_training(self, validates: bool, config: Any = None) -> Parcel:
        """The graph for `fit`, with what validation data needs if there is any."""
        ops = self.train_ops()
        metrics = list(self.described_metrics().values()) if validates else []
        if validates and self.metrics:
            self.check_evaluation()
        training, cut = self._training(ops)
        return self._parcel(config, training, metrics, self.loss if validates else None, cut=cut)

    def parcel_for_evaluation(self, config: Any = None, with_loss: bool = False) -> Parcel:
        metrics = list(self.described_metrics().values())
        return self._parcel(config, metrics=metrics, loss=self.loss if with_loss else None)

    def parcel_for_prediction(self, config: Any = None) -> Parcel:
        self.check_prediction()
        return self._parcel(config, outputs=self.outputs)

    def described_metrics(self) -> dict[str, Metric]:
        return {
            name: each if isinstance(each, Metric) else describe_metric(name, each, self.graph)
            for name, each in self.metrics.items()
        }

    def values_of(self, parcel: Parcel) -> dict[str, np.ndarray]:
        """The session's values of what a parcel has variables for."""
        return self._values.read(self._holders(parcel))

    def state_of(self, parcel: Parcel) -> dict[str, Any]:
        """The session's values as a learner takes them."""
        return {
            "models": [pack_values(self.values_of(parcel))],
            "optimizers": [{}],
            "schedulers": [],
            "operator": {},
        }

    def load(self, values: Mapping[str, np.ndarray]) -> None:
        """Set the session's variables; names that the graph does not have are left out."""
        known = variables(each for each in self.graph.get_operations())
        self._values.initialize({name: known[name] for name in values if name in known})
        self._values.write(known, {name: value for name, value in values.items() if name in known})

    def load_state(self, state: Mapping[str, Any], path: str = "the state") -> None:
        """Set the session's variables to those of a learner's state; raises if it is another graph's."""
        self.check_state(state, path)
        self.load(unpack_values(state["models"][0]))

    def check_state(self, state: Mapping[str, Any], path: str) -> None:
        """Raise a `CheckpointError` if a state is not one of this graph."""
        models = state.get("models")
        if not isinstance(models, list) or len(models) != 1 or not isinstance(models[0], Mapping):
            raise CheckpointError(f"{path} holds no values of a TensorFlow graph. Expected what a fit of one wrote.")
        known = models[0]
        for name, shape in self._shapes().items():
            if name not in known:
                raise CheckpointError(
                    f"{path} was written for another graph or optimizer: it has no variable {name!r}. It has "
                    f"{', '.join(sorted(known)[:5])}{' ...' if len(known) > 5 else ''}."
                )
            found = tuple(getattr(known[name], "shape", shape or ()))
            if shape is not None and found != shape:
                raise CheckpointError(
                    f"{path} was written for another graph: {name!r} has the shape {shape} here and {found} there."
                )

    def try_out(self, parcel: Parcel, batch: Any, what: str, weights: np.ndarray | None = None) -> None:
        """Compute the loss, or the metrics, of a few rows in the session; a typed error that calls them `what`."""
        feeds = parcel.feeds(batch, weights, what)
        feeds |= {name: pair[1] for name, pair in parcel.constants.items()}
        means = [each.value for each in parcel.metrics if not each.variables]
        tensors = [self.loss.name] if parcel.training is not None else means
        try:
            self.sess.run(tensors, feeds)
        except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError) as error:
            raise BatchError(
                f"the graph cannot take {what}: {sentence(error.message.partition(chr(10))[0])} Check the columns, "
                "their shapes and types, and the labels."
            ) from error

    def save(self, path: str) -> str:
        """Write the variables as a TensorFlow checkpoint; gives the path to restore from."""
        self._values.initialize(self._global_variables())
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with self.graph.as_default():
            names = frozenset(self._global_variables())
            if self._saver is None or self._saver[0] != names:
                self._saver = (names, v1.train.Saver(max_to_keep=None))
            return self._saver[1].save(self.sess, path)

    def restore(self, path: str) -> None:
        """Read a TensorFlow checkpoint; a variable of the optimizer that is not in it stays."""
        found = values_for(self.graph, read_checkpoint(path))
        needed = [each for each in (self.loss, *self.outputs) if each is not None]
        for name in variables(ancestors(needed)):
            if name not in found:
                raise CheckpointError(
                    f"{path} was written for another graph: it has no variable {name!r}. It has "
                    f"{', '.join(sorted(found)[:5])}{' ...' if len(found) > 5 else ''}."
                )
        self.load(found)

    def _global_variables(self) -> dict[str, Any]:
        return {
            holder_of(each).name: holder_of(each) for each in self.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
        }

    def close(self) -> None:
        self.sess.close()

    def _shapes(self) -> dict[str, tuple[int, ...] | None]:
        """The variables that a state must have, and their shapes where they are fixed."""
        targets = [each for each in (self.loss, *self.outputs) if each is not None]
        if self.loss is not None and self.optimizer is not None:
            ops = self.train_ops()
            targets += [each.values for each in ops.gradients] + ([] if ops.apply is None else [ops.apply])
        return {name: _shape_of(each) for name, each in variables(ancestors(targets)).items()}

    def _check(self, sess: Any) -> None:
        if not self.inputs:
            raise InvalidArgumentError("inputs must be given: the placeholder that features are fed to, or a list.")
        self.graph = self.inputs[0].graph
        self.loss = None if self.loss is None else _one_tensor(self.loss, "loss")
        if self.loss is not None and self.loss.shape.rank not in (None, 0):
            raise InvalidArgumentError(
                f"loss must be a scalar, the mean over the rows of a batch, but {self.loss.name} has the shape "
                f"{self.loss.shape}. Type tf.reduce_mean(loss)."
            )
        if sess is not None and getattr(sess, "graph", None) is not self.graph:
            raise InvalidArgumentError(
                "sess must be a tf.compat.v1.Session of the graph that the tensors are of: tf.compat.v1.Session("
                "graph=x.graph), or left out."
            )
        check_optimizer(self.optimizer)
        self._check_metrics()
        self._check_graph()
        self._check_used()

    def _check_metrics(self) -> None:
        for name, metric in self.metrics.items():
            if isinstance(metric, Metric):
                continue
            if not isinstance(name, str) or not _is_tensor(metric) or metric.shape.rank not in (None, 0):
                raise InvalidArgumentError(
                    "metrics must be a dict of scalar tensors by name, such as "
                    f'{{"accuracy": tf.reduce_mean(correct)}}, but has {name!r}: {metric!r}.'
                )

    def _all_tensors(self) -> list[Any]:
        metrics = [each for each in self.metrics.values() if not isinstance(each, Metric)]
        loss = [] if self.loss is None else [self.loss]
        return [*self.inputs, *self.labels, *self.outputs, *loss, *metrics, *self.updates]

    def _check_graph(self) -> None:
        other = next((each for each in self._all_tensors() if each.graph is not self.graph), None)
        if other is not None:
            raise InvalidArgumentError(
                f"{other.name} is of another graph than {self.inputs[0].name}. All tensors must be of one graph."
            )

    def _check_used(self) -> None:
        """Refuse what is fed for nothing: most likely another tensor was meant."""
        metrics = [tensor for each in self.described_metrics().values() for tensor in self._tensors_of(each)]
        wanted = [*self.outputs, *([] if self.loss is None else [self.loss]), *metrics, *self.updates]
        if not wanted:
            return
        used = ancestors(wanted)
        for name, tensors in (("inputs", self.inputs), ("labels", self.labels)):
            for tensor in tensors:
                if not depends_on(used, [tensor]):
                    raise InvalidArgumentError(
                        f"{tensor.name} is among {name}, but neither outputs nor loss nor metrics depend on it. Leave "
                        "it out, or pass the tensor that they are computed from."
                    )

    def _new_session(self) -> Any:
        sess = v1.Session(graph=self.graph)
        self._values = SessionValues(sess)
        try:
            self._values.begin(variables(self.graph.get_operations()))
            tables = [_operation(each) for each in self.graph.get_collection(v1.GraphKeys.TABLE_INITIALIZERS)]
            if tables:
                sess.run(tables)
        except BaseException:
            sess.close()
            raise
        return sess

    def _tensors_of(self, metric: Metric) -> list[Any]:
        """The tensors and operations that a metric is computed by."""
        return [self.graph.as_graph_element(name) for name in (metric.value, *metric.updates)]

    def _constant_tensors(self) -> list[Any]:
        return [self.graph.get_tensor_by_name(name) for name in self.constants]

    def _fed_in_training(self) -> list[Any]:
        return [*self.inputs, *self.labels, *self._constant_tensors()]

    def _need_feeds(self, targets: Iterable[Any], fed: Sequence[Any], what: str) -> None:
        missing = placeholders(ancestors(targets, fed))
        if missing:
            (name,) = [each.name for each in missing][:1]
            raise InvalidArgumentError(
                f"the {what} depend{'' if what == 'outputs' else 's'} on the placeholder {name}, which nothing is fed "
                "to. Add it to inputs or labels, or give it a value: "
                f"fit(..., feed_dict={{{name.partition(':')[0]}: (value when training, value otherwise)}})."
            )

    def _training(self, ops: TrainOps) -> tuple[Training, dict[str, set[str]]]:
        """How a step is made; and what operations that apply gradients wait for, but need not.

        A user may have let them wait for updates of the batch: the run for the gradients has done these."""
        fed = [each for gradient in ops.gradients for each in gradient.tensors]
        batch = [*self.inputs, *self.labels]
        updates = self.all_updates()
        moving = [each for each in updates if _is_of_batch(each, batch)]
        steady = [*(each for each in updates if each not in moving), *ops.steady]
        in_step = ancestors([self.loss, *fed, *moving])
        names = [holder_of(each.variable).name for each in ops.gradients]
        done = in_step | ancestors(steady)
        applied = ancestors([ops.apply], fed, done) if ops.apply is not None else {}
        cut = {each.name: _names(each.control_inputs) - _names(waits_for(each, done)) for each in applied}
        needs = [each.name for each in (*batch, *self._constant_tensors()) if depends_on(applied, [each])]
        training = Training(
            loss=self.loss.name,
            gradients=tuple(_describe_gradient(each) for each in ops.gradients),
            updates=tuple(each.name for each in moving),
            steady=tuple(each.name for each in steady),
            apply=None if ops.apply is None else ops.apply.name,
            apply_needs=tuple(needs),
            method=ops.method,
            clip=self.clip,
            is_written=bool(written(ancestors(updates)) & set(names)),
            own=tuple(sorted(written(in_step) - set(names))),
            rate=ops.rate if isinstance(ops.rate, float) else ops.rate.name,
        )
        return training, cut

    def _parcel(
        self,
        config: Any,
        training: Training | None = None,
        metrics: Sequence[Metric] = (),
        loss: Any = None,
        outputs: Sequence[Any] = (),
        cut: Mapping[str, set[str]] | None = None,
    ) -> Parcel:
        labels = () if outputs else self.labels
        targets = [*outputs, *([] if loss is None else [loss]), *self.inputs, *labels, *self._constant_tensors()]
        for metric in metrics:
            targets += [*self._tensors_of(metric), *map(self.graph.as_graph_element, metric.resets)]
        if training is not None:
            targets += [self.graph.as_graph_element(name) for name in _names_in(training)]
            # A checkpoint of training is to have all that predicting needs.
            targets += variables(ancestors(self.outputs)).values()
        needed = ancestors(targets)
        tables = [each for each in self._table_initializers() if each.inputs[0].op in needed]
        needed |= ancestors(tables)
        counted = {each.name for metric in metrics for each in metric.variables}
        graph, is_seeded = self._definition(needed, cut or {})
        return Parcel(
            graph=graph,
            variables=tuple(describe_variable(each) for each in variables(needed).values() if each.name not in counted),
            tables=tuple(each.name for each in tables),
            inputs=tuple(map(self._describe_fed, self.inputs)),
            labels=tuple(map(self._describe_fed, labels)),
            constants=self.constants,
            config=b"" if config is None else config.SerializeToString(),
            seed=self.seed,
            is_seeded=is_seeded,
            training=training,
            loss=None if loss is None else loss.name,
            metrics=tuple(metrics),
            outputs=tuple(each.name for each in outputs),
            several=len(outputs) > 1,
            is_batched=self._is_batched,
        )

    def _table_initializers(self) -> list[Any]:
        found = [_operation(each) for each in self.graph.get_collection(v1.GraphKeys.TABLE_INITIALIZERS)]
        return [each for each in found if each.inputs]

    def _holders(self, parcel: Parcel) -> dict[str, Any]:
        return {each.name: self.graph.get_operation_by_name(each.name) for each in parcel.variables}

    def _definition(self, needed: Iterable[Any], cut: Mapping[str, set[str]]) -> tuple[bytes, bool]:
        """The part of the graph that is needed, and whether what is random in it draws as a fed number says.

        Operations do not wait for those that `cut` names for them."""
        needed = list(needed)
        python = next((each for each in needed if each.type in _PYTHON), None)
        if python is not None:
            raise NotOfferedError(
                f"{python.name} calls a Python function, which cannot go to the workers with a graph. Use TensorFlow's "
                "own operations, or apply the function to the data: dataset.map(...), shards.transform_shard(...)."
            )
        names = {each.name for each in needed}
        in_loops = frozenset(each.name for each in needed if each._get_control_flow_context() is not None)
        try:
            whole = self.graph.as_graph_def()
            part = v1.GraphDef(versions=whole.versions, library=whole.library)
            for node in whole.node:
                if node.name in names:
                    copied = part.node.add()
                    copied.CopyFrom(node)
                    # Neither the driver's devices nor what is left out here is known to the workers.
                    copied.device = ""
                    copied.attr.pop("_class", None)
                    for name in cut.get(node.name, ()):
                        copied.input.remove(f"^{name}")
            is_seeded = make_stateless(part, in_loops)
            return part.SerializeToString(), is_seeded
        except ValueError as error:
            raise InvalidArgumentError(
                f"the graph cannot be sent to the workers: {error} Constants are part of a graph, which may have 2 GB "
                "in all: put large arrays into variables, or into the data."
            ) from error

    def _describe_fed(self, tensor: Any) -> Fed:
        shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
        if shape is not None and not self._is_batched:
            shape = (None, *shape)
        return Fed(tensor.name, np.dtype(tensor.dtype.base_dtype.as_numpy_dtype).name, shape)


def as_tensors(given: Any, what: str) -> list[Any]:
    """One tensor or several as a list."""
    return [_one_tensor(each, what) for each in _as_list(given)]


def describe_variable(holder: Any) -> Variable:
    return Variable(holder.name, holder.type == "VarHandleOp", holder.get_attr("dtype").base_dtype.name)


def read_constants(feed_dict: Any, graph: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """{tensor: (value when training, value otherwise)} by the tensors' names; tensors may be given by name, too."""
    if feed_dict is None:
        return {}
    if not isinstance(feed_dict, Mapping):
        raise InvalidArgumentError(
            f"feed_dict must be a dict {{tensor: (value when training, value otherwise)}}, but is {feed_dict!r}."
        )
    found = {}
    for key, pair in feed_dict.items():
        tensor = key.deref() if hasattr(key, "deref") else key
        tensor = graph.as_graph_element(tensor, allow_tensor=True, allow_operation=False)
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise InvalidArgumentError(
                f"feed_dict must give a pair (value when training, value otherwise) for {tensor.name}, but gives "
                f"{pair!r}."
            )
        dtype = tensor.dtype.base_dtype.as_numpy_dtype
        found[tensor.name] = (np.asarray(pair[0], dtype), np.asarray(pair[1], dtype))
    return found


def _describe_gradient(gradient: Any) -> Gradient:
    shape = gradient.variable.shape
    if not shape.is_fully_defined():
        raise InvalidArgumentError(
            f"the variable {gradient.variable.name} has the shape {shape}. Training over several workers needs "
            "variables of a fixed shape."
        )
    indices = None if gradient.indices is None else gradient.indices.name
    return Gradient(holder_of(gradient.variable).name, gradient.values.name, indices, tuple(shape.as_list()))


def _names(operations: Iterable[Any]) -> set[str]:
    return {each.name for each in operations}


def _names_in(training: Training) -> list[str]:
    gradients = [name for each in training.gradients for name in (each.values, each.indices) if name is not None]
    others = [training.apply, training.rate if isinstance(training.rate, str) else None]
    return [
        training.loss,
        *gradients,
        *training.updates,
        *training.steady,
        *(name for name in others if name is not None),
        *(each.variable for each in training.gradients),
    ]


def _is_of_batch(update: Any, batch: Sequence[Any]) -> bool:
    """Whether an update sees the batch, or draws random numbers, so that ranks differ in what it does."""
    known = ancestors([update])
    return depends_on(known, batch) or any("Random" in each.type or "Normal" in each.type for each in known)


def _shape_of(holder: Any) -> tuple[int, ...] | None:
    shape = tf.TensorShape(holder.get_attr("shape"))
    return tuple(shape.as_list()) if shape.is_fully_defined() else None


def _as_list(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _one_tensor(given: Any, what: str) -> Any:
    if not _is_tensor(given):
        raise InvalidArgumentError(
            f"{what} must be a tensor of a graph, or a list of them, such as tf.compat.v1.placeholder(...), but there "
            f"is {given!r}."
        )
    return given


def _is_tensor(given: Any) -> bool:
    return isinstance(given, tf.Tensor) and hasattr(given, "graph") and not hasattr(given, "numpy")


def _operation(given: Any) -> Any:
    if isinstance(given, tf.Operation):
        return given
    if isinstance(getattr(given, "op", None), tf.Operation):
        return given.op
    raise InvalidArgumentError(f"updates must be operations or tensors of a graph, but there is {given!r}.")
