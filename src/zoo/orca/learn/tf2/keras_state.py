"""Keras's global state: names that count up, seeds, the policy of types. Models of one process share none of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

_SETTINGS = ("floatx", "epsilon", "image_data_format")


def settings_here() -> dict[str, Any]:
    """What was set for all models of this process; nothing where Keras is not loaded."""
    keras = sys.modules.get("keras")
    if keras is None or not hasattr(keras, "config"):
        return {}
    return {name: getattr(keras.config, name)() for name in _SETTINGS} | {"policy": keras.config.dtype_policy().name}


@contextlib.contextmanager
def fresh_keras(settings: dict[str, Any]) -> Iterator[None]:
    """Keras as in a process of its own, with the settings given: a model's names and types are the same anywhere."""
    import keras
    from keras.src.backend.common.global_state import GLOBAL_STATE_TRACKER

    state = vars(GLOBAL_STATE_TRACKER)  # of this thread
    kept, before = dict(state), settings_here()
    state.clear()
    _set(keras, settings or before)
    try:
        yield
    finally:
        _set(keras, before)
        state.clear()
        state.update(kept)


def _set(keras: Any, settings: dict[str, Any]) -> None:
    for name in _SETTINGS:
        getattr(keras.config, f"set_{name}")(settings[name])
    keras.config.set_dtype_policy(settings["policy"])
