"""Features and labels as a flat list of arrays and a small description of how they were nested.

An array is an ndarray, a pandas Series, a list or tuple of plain numbers, or anything else that numpy takes for an
array. Lists, tuples and dicts of arrays may be nested.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.columns import series_to_numpy


@dataclass(frozen=True)
class Spec:
    """How arrays were nested: `kind` is "array", "list", "tuple" or "dict", `keys` are a dict's."""

    kind: str
    parts: tuple[Spec, ...] = ()
    keys: tuple[Any, ...] = ()

    @cached_property
    def leaves(self) -> int:
        """How many arrays there are in all."""
        return 1 if self.kind == "array" else sum(part.leaves for part in self.parts)


ARRAY = Spec("array")


def flatten(x: Any) -> tuple[list[np.ndarray], Spec]:
    """The arrays in x, in order, and the spec from which `unflatten` builds x again.

    The keys of a dict are sorted, so that shards whose dicts were filled in different orders have one spec.

    >>> leaves, spec = flatten({"b": np.zeros(2), "a": [1, 2]})
    >>> leaves
    [array([1, 2]), array([0., 0.])]
    >>> unflatten(leaves, spec)
    {'a': array([1, 2]), 'b': array([0., 0.])}
    """
    leaves: list[np.ndarray] = []
    return leaves, _describe_into(x, leaves)


def unflatten(leaves: Sequence[Any], spec: Spec) -> Any:
    """What `flatten` took apart, with these leaves."""
    if len(leaves) != spec.leaves:
        raise InvalidArgumentError(f"{describe(spec)} needs {spec.leaves} arrays, but there are {len(leaves)}.")
    return _build(iter(leaves), spec)


def as_arguments(x: Any) -> tuple[Any, ...]:
    """Features as the arguments of a model: a list or tuple holds several, anything else is one."""
    return tuple(x) if isinstance(x, list | tuple) else (x,)


def count_rows(x: Any) -> int:
    """The rows of arrays that are known to have as many, however they are nested."""
    while isinstance(x, list | tuple | dict):
        x = next(iter(x.values())) if isinstance(x, dict) else x[0]
    return len(x)


def describe(spec: Spec) -> str:
    """The spec in words.

    >>> describe(flatten(([1, 2], {"a": [3], "b": [4]}))[1])
    "a tuple of (an array, a dict of ('a': an array, 'b': an array))"
    """
    if spec.kind == "array":
        return "an array"
    if spec.kind == "dict":
        named = (f"{key!r}: {describe(part)}" for key, part in zip(spec.keys, spec.parts, strict=True))
        return f"a dict of ({', '.join(named)})"
    if len(spec.parts) > 1 and set(spec.parts) == {ARRAY}:
        return f"a {spec.kind} of {len(spec.parts)} arrays"
    return f"a {spec.kind} of ({', '.join(map(describe, spec.parts))})"


def _describe_into(x: Any, leaves: list[np.ndarray]) -> Spec:
    if isinstance(x, dict) and x:
        keys = sorted(x, key=str)
        return Spec("dict", tuple(_describe_into(x[key], leaves) for key in keys), tuple(keys))
    if isinstance(x, list | tuple) and x and not all(map(_is_scalar, x)):
        return Spec("list" if isinstance(x, list) else "tuple", tuple(_describe_into(part, leaves) for part in x))
    leaves.append(_as_array(x))
    return ARRAY


def _is_scalar(value: Any) -> bool:
    return isinstance(value, numbers.Number | str | bytes | np.generic) or value is None


def _as_array(x: Any) -> np.ndarray:
    if isinstance(x, pd.Series):
        return series_to_numpy(x, str(x.name), accept_text=True)
    if isinstance(x, list | tuple | dict) and not x:
        what = f"an empty {type(x).__name__}"
    elif isinstance(x, pd.DataFrame) or not (isinstance(x, list | tuple) or hasattr(x, "__array__")):
        what = f"a {type(x).__name__}"
    elif (array := np.asarray(x)).ndim:
        return array
    else:
        what = "an array of no dimension"
    raise InvalidArgumentError(
        "features and labels must be an ndarray, or a list, tuple or dict of ndarrays, whose first dimension counts "
        f"the records, but there is {what}. Turn it into an array first (np.asarray)."
    )


def _build(leaves: Iterator[Any], spec: Spec) -> Any:
    if spec.kind == "array":
        return next(leaves)
    parts = [_build(leaves, part) for part in spec.parts]
    if spec.kind == "dict":
        return dict(zip(spec.keys, parts, strict=True))
    return parts if spec.kind == "list" else tuple(parts)
