"""Shards that a process of the embedded engine keeps in its memory until they are dropped or needed elsewhere.

Only plain data is kept (numbers, text, arrays, frames of them, and containers of these), because only that is copied
cheaply before a function may change it; everything else, and whatever is over the budget, is written to its file.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from zoo.orca.engine.store import write_shards
from zoo.orca.optional import is_instance_of

TEXT_BYTES = 64  # about what a short Python string takes
PLAIN_WORDS = ("string", "empty", "boolean")


class Shelf:
    """What this process keeps, by the file in which it would lie otherwise."""

    def __init__(self, budget: int = 0):
        self.budget = budget
        self._kept: dict[Path, tuple[list[Any], int]] = {}
        self._used = 0

    def keep(self, file: Path, shards: Iterable[Any]) -> bool:
        """Keep the shards in memory and return True, or write them to the file if they are many or not plain."""
        left = self.budget - self._used
        taken: list[Any] = []
        used = 0
        rest = iter(shards)
        for shard in rest:
            size = plain_size(shard)
            # What somebody else holds, and may change, is not ours to give away later.
            taken.append(shard if size is None or is_alone(shard) else copy_plain(shard))
            used += size or 0
            if size is None or used > left:
                write_shards(file, itertools.chain(taken, rest))
                return False
        self._forget(file)
        self._kept[file] = taken, used
        self._used += used
        return True

    def shards(self, file: Path, borrow: bool) -> Iterator[Any] | None:
        """The shards kept for a file: themselves for a reader who promises not to change them, else copies."""
        kept = self._kept.get(file)
        if kept is None:
            return None
        return iter(kept[0]) if borrow else map(copy_plain, kept[0])

    def take(self, file: Path) -> Iterator[Any] | None:
        """The shards kept for a file, given away: each leaves memory when its reader is done with it."""
        kept = self._forget(file)
        return None if kept is None else _emptying(kept)

    def move_to_files(self, files: Iterable[Path]) -> None:
        """Write what is kept for these files, so that every process can read it."""
        for file in files:
            if file in self._kept:
                write_shards(file, self._kept[file][0])
                self._forget(file)

    def drop(self, files: Iterable[Path]) -> None:
        for file in files:
            self._forget(file)

    def _forget(self, file: Path) -> list[Any] | None:
        """Count what is kept for a file no longer, and give it."""
        shards, size = self._kept.pop(file, (None, 0))
        self._used -= size
        return shards


def _emptying(shards: list[Any]) -> Iterator[Any]:
    shards.reverse()
    while shards:
        yield shards.pop()


# One in each process; the driver's stays empty.
SHELF = Shelf()


def plain_size(shard: Any) -> int | None:
    """About how many bytes a shard takes; None if it is not plain data."""
    if shard is None or isinstance(shard, bool | int | float | str | bytes):
        return TEXT_BYTES + (len(shard) if isinstance(shard, str | bytes) else 0)
    if is_instance_of(shard, "numpy", "ndarray") or is_instance_of(shard, "numpy", "number"):
        return None if shard.dtype.hasobject else shard.nbytes
    if is_instance_of(shard, "pandas", "DataFrame") or is_instance_of(shard, "pandas", "Series"):
        return _frame_size(shard)
    if type(shard) is dict:
        return _sum(plain_size(part) for part in itertools.chain(shard, shard.values()))
    if type(shard) in (list, tuple):
        return _sum(map(plain_size, shard))
    return None


def _frame_size(frame: Any) -> int | None:
    from pandas.api.types import infer_dtype, is_string_dtype

    columns = [frame] if frame.ndim == 1 else [frame.iloc[:, index] for index in range(frame.shape[1])]
    objects = [column for column in columns if column.dtype == object]
    # The first question is the cheaper one, and mostly enough.
    if not all(is_string_dtype(column) or infer_dtype(column, skipna=True) in PLAIN_WORDS for column in objects):
        return None
    plain = sum(int(column.memory_usage(index=False, deep=False)) for column in columns)
    return plain + int(frame.index.memory_usage()) + TEXT_BYTES * sum(map(len, objects))


def _sum(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def is_alone(shard: Any) -> bool:
    """Whether a shard is data of which nothing that could change is held by anybody but the caller, in one variable.

    What it cannot look into is not."""
    return sys.getrefcount(shard) <= _REFERENCES and _has_parts_alone(shard)


# To something that lies in one place: from there, from a variable here, and from the question itself.
_REFERENCES = 3


def _has_parts_alone(value: Any) -> bool:
    if type(value) is dict:
        return all(_is_part_alone(value, key) for key in value)
    if type(value) in (list, tuple):
        return all(_is_part_alone(value, place) for place in range(len(value)))
    if is_instance_of(value, "numpy", "ndarray"):
        base = value.base
        return not value.dtype.hasobject and (base is None or _is_base_alone(base))
    return is_instance_of(value, "pandas", "DataFrame") or is_instance_of(value, "pandas", "Series")


def _is_part_alone(container: Any, key: Any) -> bool:
    part = container[key]
    return _is_constant(part) or (sys.getrefcount(part) <= _REFERENCES and _has_parts_alone(part))


def _is_base_alone(base: Any) -> bool:
    """Of the memory in which an array lies; a variable of the caller refers to it, too."""
    is_array = is_instance_of(base, "numpy", "ndarray")
    return sys.getrefcount(base) <= _REFERENCES + 1 and (not is_array or _has_parts_alone(base))


def _is_constant(value: Any) -> bool:
    is_plain = value is None or isinstance(value, bool | int | float | str | bytes)
    return is_plain or is_instance_of(value, "numpy", "generic")


def copy_plain(shard: Any) -> Any:
    """A copy of plain data that can be changed without changing the original."""
    if isinstance(shard, dict):
        return {key: copy_plain(part) for key, part in shard.items()}
    if isinstance(shard, list | tuple):
        return type(shard)(map(copy_plain, shard))
    return shard.copy() if hasattr(shard, "dtype") or hasattr(shard, "dtypes") else shard
