"""A Keras model on its way to where rows are predicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.learn.tf2.quiet import start_here

if TYPE_CHECKING:
    from zoo.orca.learn.tf2.recipe import KerasRecipe


class KerasPredictor:
    """The model for prediction, as it travels to the workers; loaded once in each process."""

    takes_text = True

    def __init__(self, key: str, recipe: KerasRecipe, state: dict[str, Any] | None):
        self.key = key
        self._recipe = recipe
        self._state = state

    def load(self) -> Callable[[tuple[Any, ...]], Any]:
        """A function from a tuple of features to an array, or a list of them for several outputs."""
        tf = start_here()
        from zoo.orca.learn.tf2.batches import features_of
        from zoo.orca.learn.tf2.traced import Traced

        model = self._recipe.build()
        forward = Traced(lambda x: model.predict_step((x,)))
        is_ready = False

        def predict(features: tuple[Any, ...]) -> Any:
            nonlocal is_ready
            x = features_of(features)
            if not is_ready:
                self._take_weights(model, x)
                is_ready = True
            return _arrays(tf.nest.flatten(forward(x)))

        return predict

    def _take_weights(self, model: Any, x: Any) -> None:
        """A model may not be built before it sees a batch."""
        from zoo.orca.learn.tf2.state import load_weights

        if self._state is not None:
            if not model.built:
                model(x)
            load_weights(model, self._state)


def _arrays(outputs: list[Any]) -> np.ndarray | list[np.ndarray]:
    arrays = [each.numpy() for each in outputs]
    return arrays[0] if len(arrays) == 1 else arrays
