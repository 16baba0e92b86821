"""Numbers in the shapes that layers and engines take."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.optional import require


def to_list_of_numpy(elements: Any) -> list[np.ndarray]:
    """An array, a number, or a list of these, as a list of arrays.

    >>> to_list_of_numpy([1.5, np.zeros(2)])
    [array(1.5), array([0., 0.])]
    """
    return [_to_array(element) for element in (elements if isinstance(elements, list | tuple) else [elements])]


def _to_array(element: Any) -> np.ndarray:
    if isinstance(element, np.ndarray):
        return element
    if np.isscalar(element) and not isinstance(element, str | bytes):
        return np.array(element)
    raise InvalidArgumentError(f"Expected an array, a number or a list of these, got {type(element).__name__}")


def set_core_number(num: int) -> None:
    """Set how many cores the layers' arithmetic in this process uses.

    Example: ``set_core_number(4)``
    """
    if num < 1:
        raise InvalidArgumentError(f"Expected 1 core or more, got {num}")
    require("torch", "set_core_number").set_num_threads(num)
