"""Steps as graphs: traced for batches of any number of rows, and again only where another dimension varies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


class Traced:
    """A function of one batch, an arbitrary nest of tensors, as a graph.

    Args:
        fixed: whether the number of rows is a part of the graph.
    """

    def __init__(self, function: Callable[[Any], Any], fixed: bool = False):
        self._function = function
        self._fixed = fixed
        self._graphs: dict[str, tuple[Any, Any]] = {}

    def __call__(self, batch: Any) -> Any:
        key = str(tf.nest.map_structure(lambda each: (each.dtype, each.shape.rank), batch))
        spec, graph = self._graphs.get(key, (None, None))
        if graph is None or not _takes(spec, batch):
            spec = self._spec(batch, spec)
            # Compiled by XLA a step could not talk to other ranks.
            graph = tf.function(self._function, input_signature=[spec], autograph=False, jit_compile=False)
            graph._omit_frequent_tracing_warning = True  # a graph for each fit is none too many
            self._graphs[key] = spec, graph
        return graph(batch)

    def close(self) -> None:
        """Let go of the graphs, and of the variables in them."""
        self._graphs.clear()

    def _spec(self, batch: Any, known: Any) -> Any:
        """For batches like this one, and like those before: a dimension that varies is left open."""

        def spec(tensor: tf.Tensor, before: tf.TensorSpec | None = None) -> tf.TensorSpec:
            sizes = tensor.shape.as_list()
            if sizes and not self._fixed:
                sizes[0] = None
            if before is not None:
                sizes = [size if size == other else None for size, other in zip(sizes, before.shape, strict=True)]
            return tf.TensorSpec(sizes, tensor.dtype)

        return tf.nest.map_structure(spec, batch) if known is None else tf.nest.map_structure(spec, batch, known)


def _takes(spec: Any, batch: Any) -> bool:
    pairs = zip(tf.nest.flatten(spec), tf.nest.flatten(batch), strict=True)
    return all(each.shape.is_compatible_with(tensor.shape) for each, tensor in pairs)
