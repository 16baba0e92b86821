"""What the user's code assigned to a Keras model: found by looking at the memory of its variables, and sent on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.learn.tf2.quiet import import_tensorflow

if TYPE_CHECKING:
    import keras


class Changes:
    """What is assigned to a model's weights and its optimizer's variables from now on.

    A tensor that was read is never written again: whoever assigns to its variable gives that another piece of memory.
    So variables that nobody touched are told by their addresses, and only the others are compared.
    """

    def __init__(self, model: keras.Model):
        self._variables = _variables(model)
        self._before = [_read(each) for each in self._variables]

    def found(self) -> dict[int, np.ndarray]:
        """The new values, by the variables' places, in memory of their own."""
        now = [_read(each) for each in self._variables]
        pairs = enumerate(zip(self._before, now, strict=True))
        return {place: np.array(after) for place, (before, after) in pairs if not _same(before, after)}

    def undo(self) -> None:
        """Give the variables back what they had."""
        for place in self.found():
            self._variables[place].assign(self._before[place])


def apply(model: keras.Model, changes: dict[int, np.ndarray]) -> None:
    """Assign what `Changes.found` found in another copy of the model."""
    variables = _variables(model) if changes else []
    for place, value in changes.items():
        variables[place].assign(value)


def _variables(model: keras.Model) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)
    return [*model.weights, *(getattr(optimizer, "variables", None) or [])]


def _read(variable: Any) -> np.ndarray:
    tensor = import_tensorflow().convert_to_tensor(variable.value)
    try:
        return np.asarray(memoryview(tensor))
    except ValueError:  # a type of number that buffers do not know, such as bfloat16
        return tensor.numpy()


def _same(before: np.ndarray, after: np.ndarray) -> bool:
    return before.ctypes.data == after.ctypes.data or np.array_equal(_bytes(before), _bytes(after))


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
