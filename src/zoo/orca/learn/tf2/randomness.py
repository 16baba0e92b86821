"""The random numbers of a Keras model: its dropout and the like draw from generators whose state is a variable."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras.src.random.seed_generator import global_seed_generator


def seed_generators_of(model: keras.Model) -> list[Any]:
    """The generators of all layers, and the one of those that have none."""
    own = [each for layer in model._flatten_layers() for each in layer._seed_generators]
    return [*dict.fromkeys(own), global_seed_generator()]


def seed_state(*of: int) -> np.ndarray:
    """The state of a generator that is seeded by some whole numbers."""
    return np.array([hash(of) % 2**31, 0])
