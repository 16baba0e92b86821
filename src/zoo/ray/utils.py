"""Sizes, lists and kinds of Spark, as Ray's starters need them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from zoo.orca.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark import SparkContext

_UNITS = {"b": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def resource_to_bytes(resource_str: str | None) -> int | None:
    """A size such as "10b", "10k", "10m" or "10g" in bytes, by decimal multiples; None stays None.

    >>> resource_to_bytes("10k")
    10000
    """
    if resource_str is None:
        return None
    found = re.fullmatch(r"(\d+)([bkmg])", str(resource_str).strip().lower())
    if found is None:
        raise InvalidArgumentError(
            f'A size must be a whole number with b, k, m or g behind it, such as "10g", but is {resource_str!r}.'
        )
    return int(found.group(1)) * _UNITS[found.group(2)]


def to_list(input: Any) -> list[Any]:
    """A list or tuple as a list, anything else as a list of one."""
    return list(input) if isinstance(input, list | tuple) else [input]


def is_local(sc: SparkContext) -> bool:
    """Whether a SparkContext runs its tasks in the driver's own JVM."""
    return re.fullmatch(r"local(\[.*\])?", sc.master) is not None


def local_cores(sc: SparkContext) -> int:
    """How many tasks a local SparkContext runs at once."""
    found = re.fullmatch(r"local\[(\d+|\*)(?:,.*)?\]", sc.master)
    if found is None:
        return 1
    return (os.cpu_count() or 1) if found.group(1) == "*" else int(found.group(1))
