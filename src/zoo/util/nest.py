"""Nested lists, tuples and dicts as a flat list, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.names import public_names


def flatten(seq: Any) -> list[Any]:
    """The leaves of a nested structure, in order; dicts are read in the order of their sorted keys.

    >>> flatten({"b": [1, (2, 3)], "a": 0})
    [0, 1, 2, 3]
    """
    return list(_leaves(seq))


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
    """A structure like the one given, with other leaves: the reverse of `flatten`.

    >>> pack_sequence_as({"b": [1, (2, 3)], "a": 0}, "wxyz")
    {'b': ['x', ('y', 'z')], 'a': 'w'}
    """
    leaves = list(flat_sequence)
    expected = len(flatten(structure))
    if len(leaves) != expected:
        raise InvalidArgumentError(f"Expected {expected} leaves, as many as the structure has, got {len(leaves)}")
    return _build(structure, iter(leaves))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from _leaves(value[key])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _build(structure: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(structure, Mapping):
        filled = {key: _build(structure[key], leaves) for key in sorted(structure)}
        return {key: filled[key] for key in structure}
    if isinstance(structure, list | tuple):
        parts = [_build(part, leaves) for part in structure]
        if isinstance(structure, list):
            return parts
        return type(structure)(*parts) if hasattr(structure, "_fields") else tuple(parts)
    return next(leaves)


__dir__ = public_names(globals())
