"""What Keras callbacks remember, as plain data: for checkpoints, and for the user's own objects when a fit is over.

Keras callbacks have no `state_dict`. What they remember is in their attributes: those that are numbers, text, lists,
dicts and arrays are taken, the others (files, models, functions) are made anew by `on_train_begin`.
"""

from __future__ import annotations

import inspect
import os
import pickle
from typing import Any

import numpy as np

from zoo.orca.optional import is_instance_of

# What Keras itself sets on a callback.
_KERAS_OWN = ("_model", "params")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_DEEPEST = 50


class Memory:
    """The attributes of one Keras callback, seen from how it was when it came.

    An attribute called like an argument of the constructor is a setting. It is remembered only if the callback changed
    it: a fit that is resumed with another setting goes by that one.
    """

    def __init__(self, callback: Any):
        self._callback = callback
        settings = _arguments(type(callback)) & set(_attributes(callback))
        self._settings = {name: _fingerprint(getattr(callback, name)) for name in settings}

    def take(self) -> dict[str, Any]:
        """The callback's class and what it remembers, as tensors and plain data in memory of their own."""
        attributes = {}
        for name, value in _attributes(self._callback).items():
            if name not in self._settings or self._settings[name] != _fingerprint(value):
                plain = _as_plain(value)
                if plain is not _NOT_PLAIN:
                    attributes[name] = plain
        return {"class": type(self._callback).__name__, "attributes": attributes} | _file_of(self._callback)

    def before_beginning(self, taken: dict[str, Any]) -> None:
        """Prepare a callback that is to go on for its `on_train_begin`."""
        if _is_csv_logger(self._callback) and self._fits(taken) and "size" in taken:
            self._callback.append = _cut(self._callback.filename, taken["size"])

    def give_back(self, taken: dict[str, Any]) -> None:
        """Let a callback that has begun again remember what it remembered."""
        if not self._fits(taken):
            return
        recall(self._callback, taken)
        if _is_csv_logger(self._callback) and self._callback.append:
            self._callback.append_header = not taken.get("size")

    def _fits(self, taken: dict[str, Any]) -> bool:
        return taken["class"] == type(self._callback).__name__


def recall(callback: Any, taken: dict[str, Any]) -> None:
    """Give a callback the attributes that `Memory.take` took; lists and dicts that others hold too are filled."""
    mine = _attributes(callback)
    for name, plain in taken["attributes"].items():
        value, old = _from_plain(plain), mine.get(name)
        if isinstance(old, list) and isinstance(value, list):
            old[:] = value
        elif isinstance(old, dict) and isinstance(value, dict):
            old.clear()
            old.update(value)
        elif _as_plain(old) is not _NOT_PLAIN:  # else there is a file or a writer, newly opened
            setattr(callback, name, value)


def _attributes(callback: Any) -> dict[str, Any]:
    # Keras turns the sign of min_delta when it learns which way is better, which it learns anew in every process.
    left_out = (*_KERAS_OWN, "min_delta") if hasattr(callback, "monitor_op") else _KERAS_OWN
    return {name: value for name, value in getattr(callback, "__dict__", {}).items() if name not in left_out}


def _arguments(kind: type) -> set[str]:
    constructors = [vars(base)["__init__"] for base in kind.__mro__[:-1] if "__init__" in vars(base)]
    return {name for each in constructors for name in inspect.signature(each).parameters}


def _fingerprint(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception:  # what does not pickle is not plain, and not taken anyway
        return b""


def _file_of(callback: Any) -> dict[str, Any]:
    """How much a CSVLogger has written: rows of epochs that are run again must not be there twice."""
    if not _is_csv_logger(callback) or not os.path.isfile(callback.filename):
        return {}
    return {"size": os.path.getsize(callback.filename)}


def _is_csv_logger(callback: Any) -> bool:
    return is_instance_of(callback, "keras.callbacks", "CSVLogger")


def _cut(path: str, size: int) -> bool:
    """Cut a file to the size it had; tells whether it is there, which on another machine it may not be."""
    if not os.path.isfile(path) or os.path.getsize(path) < size:
        return False
    os.truncate(path, size)
    return True


class _NotPlain:
    """There is something that a checkpoint cannot hold."""


_NOT_PLAIN = _NotPlain()


def _as_plain(value: Any, depth: int = 0) -> Any:
    """A value as tensors and plain data, in memory of its own, or `_NOT_PLAIN`."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.ndarray):
        return _as_tensor(value)
    if depth > _DEEPEST:
        return _NOT_PLAIN
    if isinstance(value, dict):
        keys = [_as_plain(key, depth + 1) for key in value]
        values = [_as_plain(each, depth + 1) for each in value.values()]
        whole = not any(each is _NOT_PLAIN for each in (*keys, *values))
        return dict(zip(keys, values, strict=True)) if whole else _NOT_PLAIN
    if isinstance(value, list) or type(value) in (tuple, set):
        parts = [_as_plain(each, depth + 1) for each in value]
        kind = list if isinstance(value, list) else type(value)
        return _NOT_PLAIN if any(each is _NOT_PLAIN for each in parts) else kind(parts)
    return _NOT_PLAIN


def _as_tensor(array: np.ndarray) -> Any:
    from zoo.orca.learn.tf2.state import to_tensor

    try:
        return to_tensor(np.array(array))
    except (TypeError, ValueError):  # text, dates and objects
        return _NOT_PLAIN


def _from_plain(value: Any) -> Any:
    from zoo.orca.learn.tf2.state import to_array

    if isinstance(value, dict):
        return {key: _from_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(_from_plain(each) for each in value)
    return to_array(value) if is_instance_of(value, "torch", "Tensor") else value
