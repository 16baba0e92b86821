"""The one rule by which arrays become what a model's input holds.

A number becomes a number of the input's type: any number a float (float64 is rounded to float32, whole numbers and
truth values become floats, NaN and inf stay); only whole numbers that fit an integer; only 0 and 1 a truth value.
Complex numbers, text, dates and objects are refused.
"""

from __future__ import annotations

import numpy as np

from zoo.orca.errors import InvalidArgumentError

NUMBERS = "biuf"


def check_kind(array: np.ndarray, name: str) -> None:
    """Raise a typed error for an array that holds no real numbers; no value is looked at."""
    if array.dtype.kind not in NUMBERS:
        raise InvalidArgumentError(
            f"input {name!r} takes an array of real numbers, but got one of {array.dtype}. "
            "Make numbers of it first (astype, np.stack for rows of different arrays)."
        )


def cast_into(target: np.ndarray, array: np.ndarray, name: str) -> None:
    """Write an array into one of the input's type, if every value has its place there.

    >>> target = np.empty(2, np.int8)
    >>> cast_into(target, np.array([1.0, -2.0]), "ids")
    >>> target
    array([ 1, -2], dtype=int8)
    """
    if target.dtype.kind in "iub" and array.dtype != target.dtype and array.size:
        _check_whole(array, target.dtype, name)
    # A float64 too large for a float32 becomes inf, as numpy's own astype has it; that is no reason to warn.
    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(target, array, casting="unsafe")


def _check_whole(array: np.ndarray, dtype: np.dtype, name: str) -> None:
    if array.dtype.kind == "f":
        whole = np.isfinite(array) & (array == np.trunc(array))
        if not whole.all():
            _refuse(name, dtype, f"{array[~whole].flat[0]}, which is none")
    if dtype.kind == "b":
        least, most = 0, 1
    else:
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    for value in (int(array.min()), int(array.max())):
        if not least <= value <= most:
            _refuse(name, dtype, f"{value}, which is not between {least} and {most}")


def _refuse(name: str, dtype: np.dtype, what: str) -> None:
    raise InvalidArgumentError(
        f"input {name!r} of the model takes whole numbers ({dtype}), but the data has {what}. "
        "Round, clip or encode the data first, or change the type of the model's input."
    )
