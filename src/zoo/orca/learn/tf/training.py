"""The operations of training, added to a user's graph once: gradients that can be fed, and what takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.learn.tf.conventions import is_orca
from zoo.orca.learn.tf.torch_update import deal
from zoo.orca.learn.tf.walk import ancestors, holder_of, written

v1 = tf.compat.v1
_RATES = ("_lr_t", "_learning_rate_tensor", "_lr", "_learning_rate")


@dataclass(frozen=True)
class FedGradient:
    """A gradient that may be fed: without a feed it is what it was made from.

    Attributes:
        variable: the variable that it is the gradient of.
        values, indices: tensors; indices is None where it is not a gradient of some rows alone.
    """

    variable: Any
    values: Any
    indices: Any = None

    @staticmethod
    def of(gradient: Any, variable: Any) -> FedGradient:
        """Wrap a gradient; adds one or two placeholders to the graph."""
        if isinstance(gradient, tf.IndexedSlices):
            # All ranks together may touch another number of rows than the batch of one does.
            shape = tf.TensorShape([None]).concatenate(gradient.values.shape[1:])
            values = v1.placeholder_with_default(gradient.values, shape)
            return FedGradient(variable, values, v1.placeholder_with_default(gradient.indices, [None]))
        return FedGradient(variable, v1.placeholder_with_default(gradient, variable.shape))

    @property
    def gradient(self) -> Any:
        """As optimizers take it."""
        if self.indices is None:
            return self.values
        return tf.IndexedSlices(self.values, self.indices, tf.constant(self.variable.shape.as_list(), tf.int64))

    @property
    def tensors(self) -> list[Any]:
        return [self.values] if self.indices is None else [self.values, self.indices]


@dataclass(frozen=True)
class TrainOps:
    """What a step runs.

    Attributes:
        gradients: of all variables that are trained.
        apply: what takes them; None where an orca optimizer does.
        steady: what else runs with each step.
        rate: the learning rate, or the tensor of it.
        method: the orca optimizer, or several by prefix.
    """

    gradients: tuple[FedGradient, ...]
    apply: Any = None
    steady: tuple[Any, ...] = ()
    rate: Any = float("nan")
    method: Any = None


def build_training(loss: Any, optimizer: Any, variables: Sequence[Any], updates: Iterable[Any]) -> TrainOps:
    """Add what training needs to the loss's graph: gradients, and the optimizer's own operations."""
    if isinstance(optimizer, TrainOps):
        return optimizer
    graph = loss.graph
    with graph.as_default():
        if is_orca(optimizer):
            deal(optimizer, [each.op.name for each in variables])
            with tf.name_scope("zoo_training"):
                found = list(zip(tf.gradients(loss, list(variables)), variables, strict=True))
                gradients = _fed(loss, found)
                return TrainOps(gradients, steady=tuple(_count_step(graph, updates)), method=optimizer)
        found = optimizer.compute_gradients(loss, var_list=list(variables))
        with tf.name_scope("zoo_training"):
            gradients = _fed(loss, found)
        step = _own_step(graph, updates)
        pairs = [(each.gradient, each.variable) for each in gradients]
        apply = optimizer.apply_gradients(pairs, **({} if step is None else {"global_step": step}))
        return TrainOps(gradients, apply, rate=rate_of(optimizer))


def _fed(loss: Any, found: Sequence[tuple[Any, Any]]) -> tuple[FedGradient, ...]:
    """Gradients that may be fed, of the variables that have one; a typed error where none has."""
    gradients = [FedGradient.of(each, variable) for each, variable in found if each is not None]
    if not gradients:
        raise PreconditionError(
            f"the loss {loss.name} has no gradient over any of its trainable variables "
            f"({', '.join(variable.name for _, variable in found)}). Is it computed by operations that have none, such "
            "as argmax or rounding?"
        )
    return tuple(gradients)


def check_optimizer(optimizer: Any) -> None:
    """Raise a typed error for what is no optimizer of a graph."""
    if optimizer is None or isinstance(optimizer, TrainOps) or is_orca(optimizer):
        return
    if not (hasattr(optimizer, "compute_gradients") and hasattr(optimizer, "apply_gradients")):
        raise InvalidArgumentError(
            "optimizer must be one of tensorflow.compat.v1.train, such as AdamOptimizer(), or an orca optimizer "
            f"(zoo.orca.learn.optimizers), but is a {type(optimizer).__module__}.{type(optimizer).__qualname__}."
        )


def trainable(loss: Any, chosen: Sequence[Any] | None = None) -> list[Any]:
    """The trainable variables of the graph that a loss depends on; a typed error where there is none."""
    known = ancestors([loss])
    among = loss.graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES) if chosen is None else chosen
    # Variables are no keys of a dict where TensorFlow compares them by value.
    found = list({holder_of(each).name: each for each in among if holder_of(each) in known}.values())
    if not found:
        raise PreconditionError(
            f"the loss {loss.name} depends on no trainable variable, so there is nothing to train. Make variables with "
            "tf.compat.v1.get_variable(...) (trainable=True), and compute the loss from them."
        )
    return found


def rate_of(optimizer: Any) -> Any:
    """The learning rate of an optimizer: a number where it is known now, else the tensor of it."""
    for name in _RATES:
        rate = getattr(optimizer, name, None)
        if rate is None or callable(rate):
            continue
        if hasattr(rate, "read_value"):  # a variable, whose name is not that of its value
            rate = rate.read_value()
        value = tf.get_static_value(rate) if tf.is_tensor(rate) else rate
        return rate if value is None else float(value)
    inner = getattr(optimizer, "optimizer", None) or getattr(optimizer, "_optimizer", None)
    return float("nan") if inner is None else rate_of(inner)


def _own_step(graph: Any, updates: Iterable[Any]) -> Any:
    """The graph's global step, if training is to count it; None where there is none or updates do."""
    step = v1.train.get_global_step(graph)
    if step is None or holder_of(step).name in written(ancestors(updates)):
        return None
    return step


def _count_step(graph: Any, updates: Iterable[Any]) -> list[Any]:
    step = _own_step(graph, updates)
    return [] if step is None else [v1.assign_add(step, tf.constant(1, step.dtype.base_dtype)).op]
