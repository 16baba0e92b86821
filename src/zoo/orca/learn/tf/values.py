"""Values of variables as checkpoints hold them: tensors, and lists where TensorFlow has text."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.orca.learn.tf2.state import to_array, to_tensor


def pack_value(array: np.ndarray) -> Any:
    """A value in memory of its own, as a checkpoint takes it."""
    array = np.array(array)
    if array.dtype.kind == "O":
        return {"text": [bytes(each) for each in array.ravel()], "shape": list(array.shape)}
    return to_tensor(array)


def unpack_value(value: Any) -> np.ndarray:
    """What `pack_value` packed.

    >>> unpack_value(pack_value(np.array([[b"a"]], object)))
    array([[b'a']], dtype=object)
    """
    if isinstance(value, dict):
        return np.array(value["text"], object).reshape(value["shape"])
    return to_array(value)


def pack_values(values: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: pack_value(value) for name, value in values.items()}


def unpack_values(values: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: unpack_value(value) for name, value in values.items()}
