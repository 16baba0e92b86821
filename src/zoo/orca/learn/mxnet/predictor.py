"""A model of MXNet on its way to where rows are predicted."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca import mxnet_library as library
from zoo.orca.learn.mxnet.learning import use_cores

if TYPE_CHECKING:
    from zoo.orca.engine.pickling import Packed


class MXNetPredictor:
    """The model for prediction, as it travels to the workers; loaded once in each process.

    Args:
        recipe: a packed `MXNetRecipe`.
        weights: tensors by name; None predicts with the first ones.
    """

    takes_threads = True

    def __init__(self, key: str, recipe: Packed, weights: dict[str, Any] | None):
        self.key = key
        self._recipe = recipe
        self._weights = weights

    def load(self, threads: int | None = None) -> Callable[[tuple[Any, ...]], Any]:
        """A function from a tuple of features to an array, or a list of them for several outputs."""
        library.load()  # before what the user gave is unpacked, which imports it
        from zoo.orca.learn.mxnet.trained import net_of, take_weights

        net = net_of(self._recipe.load())
        is_ready = False

        def predict(features: tuple[Any, ...]) -> np.ndarray | list[np.ndarray]:
            nonlocal is_ready
            use_cores(threads or os.cpu_count() or 1)  # each time, for a fit in this process may have set it since
            if not is_ready:
                net.build(features, None)
                take_weights(net, self._weights)
                is_ready = True
            outputs, _, _ = net.forward(features, None, len(features))
            arrays = [each.asnumpy() for each in outputs]
            return arrays[0] if len(arrays) == 1 else arrays

        return predict
