"""An orca optimizer as Keras takes one: the step is torch's, on the values of the model's variables."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.orca.learn.tf.torch_update import TorchUpdate
from zoo.orca.learn.tf2.state import value_of


class OrcaOptimizer(keras.optimizers.Optimizer):
    """Makes the steps of an optimizer of `zoo.orca.learn.optimizers`, with its schedule.

    Attributes:
        update: what makes the steps, once the variables are known.
    """

    def __init__(self, method: Any):
        super().__init__(learning_rate=0.0, name="orca_optimizer")
        self._method = method
        self.update: Any = None
        self._waiting: dict[str, Any] | None = None

    def build(self, variables: list[Any]) -> None:
        super().build(variables)
        self.update = TorchUpdate(
            self._method, [each.path for each in variables], [value_of(each) for each in variables]
        )
        if self._waiting is not None:
            self.update.load(self._waiting)

    def apply(self, grads: list[Any], trainable_variables: Any = None) -> None:
        variables = list(trainable_variables or self._trainable_variables)
        if not self.built:
            self.build(variables)
        known = {self._get_variable_index(each): grad for each, grad in zip(variables, grads, strict=True)}
        values = [tf.convert_to_tensor(each) for each in self._trainable_variables]
        missing = [known.get(index) is None for index in range(len(values))]
        sent = [value if known.get(n) is None else tf.convert_to_tensor(known[n]) for n, value in enumerate(values)]

        update = self.update

        def step(*arrays: np.ndarray) -> list[np.ndarray]:
            now, gradients = arrays[: len(values)], arrays[len(values) :]
            update.set_values(now)
            return update.step([None if gone else g for g, gone in zip(gradients, missing, strict=True)])

        results = tf.numpy_function(step, [*values, *sent], [each.dtype for each in values], stateful=True)
        for variable, value in zip(self._trainable_variables, results, strict=True):
            value.set_shape(variable.shape)
            variable.assign(value)
        self._iterations.assign_add(1)

    def state(self) -> dict[str, Any]:
        """What the optimizer remembers, as checkpoints hold it."""
        return {} if self.update is None else self.update.state()

    def load(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave, now or when the variables are known."""
        if self.update is None:
            self._waiting = state
        else:
            self.update.load(state)

    def get_config(self) -> dict[str, Any]:
        return {"method": self._method}
