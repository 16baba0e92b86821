"""Validation methods as tensors of a graph: means over a batch, or counted in variables, as estimators take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bigdl.optim import optimizer as bigdl
from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.learn import metrics
from zoo.orca.learn.tf.frozen import quiet
from zoo.orca.learn.tf2.quiet import import_tensorflow

#: What TFEstimator calls validation methods.
NAMED: dict[str, Callable[[], metrics.Metric]] = {
    "acc": metrics.Accuracy,
    "accuracy": metrics.Accuracy,
    "top5acc": metrics.Top5Accuracy,
    "mae": metrics.MAE,
    "auc": metrics.AUC,
    "loss": bigdl.Loss,
}


def method_of(name: Any) -> metrics.Metric:
    """The validation method of a name such as "acc"; methods stay what they are."""
    if isinstance(name, metrics.Metric):
        return name
    if not isinstance(name, str) or name.lower() not in NAMED:
        raise InvalidArgumentError(
            f"Expected a validation method, one of {', '.join(map(repr, NAMED))}, or one of bigdl.optim.optimizer or "
            f"zoo.orca.learn.metrics, got {name!r}."
        )
    return NAMED[name.lower()]()


def metric_tensor(method: metrics.Metric, output: Any, label: Any, loss: Any = None) -> Any:
    """A scalar for a batch: what `method` says of output and label, both with a dimension for rows.

    Classes of TensorFlow count from 0, so labels do here, also for BigDL's Top1Accuracy.
    """
    tf = import_tensorflow()
    if isinstance(method, bigdl.Loss):
        if loss is None:
            raise InvalidArgumentError("There is no loss to measure.")
        return loss
    with tf.name_scope("zoo_metrics"):
        for kind, build in _BUILDERS.items():
            if isinstance(method, kind):
                return build(tf, method, output, label)
    raise NotOfferedError(
        f"{type(method).__name__} cannot be measured in a graph. Give a tensor instead: metrics={{name: tensor}}, or "
        f"use one of {', '.join(kind.__name__ for kind in _BUILDERS)}."
    )


def metric_name(method: metrics.Metric) -> str:
    """What a figure is called in results, such as "Top1Accuracy"."""
    return "Loss" if isinstance(method, bigdl.Loss) else method.get_metric("bigdl").name


def _accuracy(tf: Any, method: Any, output: Any, label: Any) -> Any:
    if output.shape.rank == 1 or output.shape[-1] == 1:
        return _binary(tf, method, output, label)
    return _classes(tf, method, output, label)


def _binary(tf: Any, method: Any, output: Any, label: Any) -> Any:
    sides = tf.cast(tf.reshape(output, [-1]) >= 0.5, tf.float32), tf.cast(tf.reshape(label, [-1]), tf.float32)
    return tf.reduce_mean(tf.cast(tf.equal(*sides), tf.float32))


def _classes(tf: Any, method: Any, output: Any, label: Any) -> Any:
    right = tf.equal(tf.argmax(output, -1), _numbers(tf, label))
    return tf.reduce_mean(tf.cast(right, tf.float32))


def _one_hot(tf: Any, method: Any, output: Any, label: Any) -> Any:
    right = tf.equal(tf.argmax(output, -1), tf.argmax(label, -1))
    return tf.reduce_mean(tf.cast(right, tf.float32))


def _top5(tf: Any, method: Any, output: Any, label: Any) -> Any:
    right = tf.math.in_top_k(_numbers(tf, label), tf.cast(output, tf.float32), 5)
    return tf.reduce_mean(tf.cast(right, tf.float32))


def _auc(tf: Any, method: Any, output: Any, label: Any) -> Any:
    positive = tf.reshape(tf.cast(label, tf.float32), [-1]) > 0.5
    with quiet():
        value, _ = tf.compat.v1.metrics.auc(positive, tf.reshape(output, [-1]), num_thresholds=method.threshold_num)
    return value


def _mae(tf: Any, method: Any, output: Any, label: Any) -> Any:
    return tf.reduce_mean(tf.abs(_difference(tf, output, label)))


def _mse(tf: Any, method: Any, output: Any, label: Any) -> Any:
    return tf.reduce_mean(tf.square(_difference(tf, output, label)))


def _numbers(tf: Any, label: Any) -> Any:
    """Classes as whole numbers, one for each row."""
    return tf.cast(tf.reshape(label, [-1]), tf.int64)


def _difference(tf: Any, output: Any, label: Any) -> Any:
    values = tf.cast(output, tf.float32)
    return values - tf.reshape(tf.cast(label, tf.float32), tf.shape(values))


_BUILDERS: dict[type[metrics.Metric], Callable[[Any, Any, Any, Any], Any]] = {
    metrics.Accuracy: _accuracy,
    metrics.SparseCategoricalAccuracy: _classes,
    metrics.CategoricalAccuracy: _one_hot,
    metrics.BinaryAccuracy: _binary,
    metrics.Top5Accuracy: _top5,
    metrics.AUC: _auc,
    metrics.MAE: _mae,
    metrics.MSE: _mse,
}
