"""Metrics of a graph, over the rows of all batches and ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.tf.parcel import Metric, Variable
from zoo.orca.learn.tf.walk import ancestors, holder_of, variables, writers, written

if TYPE_CHECKING:
    from zoo.orca.learn.tf.opened import OpenGraph

_METRIC_VARIABLES = "metric_variables"


class CountedMetric:
    """What is computed from variables in which batches were counted: their sums over all ranks give the whole."""

    def __init__(self, metric: Metric, opened: OpenGraph):
        self._metric = metric
        self._opened = opened
        self._names = [each.name for each in metric.variables]

    def state(self) -> np.ndarray:
        values = self._opened.read(self._names).values()
        return np.concatenate([np.asarray(value, np.float64).ravel() for value in values])

    def load_sum(self, state: np.ndarray) -> None:
        values = {}
        start = 0
        for name, old in self._opened.read(self._names).items():
            values[name] = state[start : start + old.size].reshape(old.shape).astype(old.dtype)
            start += old.size
        self._opened.write(values)

    def value(self) -> float:
        (value,) = self._opened.run([self._metric.value], {})
        return float(value)


def describe_metric(name: str, tensor: Any, graph: Any) -> Metric:
    """What a user's tensor is: a mean over a batch, or one of the pair that `tf.compat.v1.metrics` gives."""
    counted = {holder_of(each).name: each for each in graph.get_collection(_METRIC_VARIABLES)}
    known = ancestors([tensor])
    used = {each: counted[each] for each in variables(known) if each in counted}
    if not used:
        return Metric(name, tensor.name)
    if written(known) & set(used):
        tensor = _sibling(name, tensor, graph)
    resets = [each.initializer for each in used.values()]
    updates = [each for variable in used.values() for each in writers(holder_of(variable)) if each not in resets]
    return Metric(
        name,
        tensor.name,
        tuple(Variable(each, holder_of(v).type == "VarHandleOp", v.dtype.base_dtype.name) for each, v in used.items()),
        tuple(dict.fromkeys(each.name for each in updates)),
        tuple(each.name for each in resets),
    )


def _sibling(name: str, update: Any, graph: Any) -> Any:
    """The value that goes with the update operation of a metric: it does not count anything when it is read."""
    scope = update.op.name.rpartition("/")[0]
    for last in ("value", scope.rpartition("/")[2]):
        try:
            return graph.get_tensor_by_name(f"{scope}/{last}:0")
        except KeyError:
            continue
    raise InvalidArgumentError(
        f"the metric {name!r} is {update.name}, which counts a batch whenever it is read. Pass the first of the pair "
        "that tf.compat.v1.metrics gives: value, update = tf.compat.v1.metrics.accuracy(...)."
    )
