"""Sums of MXNet arrays over all ranks, with few messages: small arrays travel together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

#: Arrays below so many elements share a message. Measured: 120 arrays of a small net take half the time so, and larger
#: ones are not worth the copy.
SMALL = 32_768
#: So many elements at most share one, so that the first can leave while others are still computed.
BUCKET = 1_000_000


class ArraySums:
    """Sums a list of arrays again and again: the same shapes, types and order each time, or it begins anew.

    Args:
        store: MXNet's kvstore.
        keys: gives keys of the store that nobody used yet, the same on every rank.
    """

    def __init__(self, store: Any, keys: itertools.count):
        self._store = store
        self._keys = keys
        self._signature: list[tuple] | None = None
        self._parts: list[_Part] = []

    def start(self, arrays: Sequence[Any]) -> Callable[[], None]:
        """Begin to sum, and come back when this rank's own arrays are computed; what it gives waits for the sums."""
        # Backward computes the first array last: when this copy is there, the rest is the others' and the network's.
        own = [array.reshape(-1)[:1].copy() for array in arrays[:1]]
        self.queue(arrays)
        wait_for(own)
        return lambda: wait_for(arrays)

    def queue(self, arrays: Sequence[Any]) -> None:
        """Leave the sums to MXNet's engine: whatever uses the arrays from now on waits for them."""
        signature = [(array.shape, array.dtype) for array in arrays]
        if signature != self._signature:
            self._parts = self._plan(arrays)
            self._signature = signature
        for part in self._parts:
            part.sum([arrays[index] for index in part.indices])

    def _plan(self, arrays: Sequence[Any]) -> list[_Part]:
        """In which parts they travel: large ones alone, small ones of a type together."""
        parts: list[list[int]] = []
        open_parts: dict[Any, list[int]] = {}
        room: dict[Any, int] = {}
        for index, array in enumerate(arrays):
            if array.size >= SMALL:
                parts.append([index])
                continue
            if room.get(array.dtype, 0) < array.size:
                open_parts[array.dtype], room[array.dtype] = [], BUCKET
                parts.append(open_parts[array.dtype])
            open_parts[array.dtype].append(index)
            room[array.dtype] -= array.size
        return [_Part(self._store, next(self._keys), indices, arrays) for indices in parts]


class _Part:
    """Arrays that travel in one message: one as it is, several through a buffer."""

    def __init__(self, store: Any, key: int, indices: list[int], arrays: Sequence[Any]):
        self.indices = indices
        self._store = store
        self._key = key
        mine = [arrays[index] for index in indices]
        self._buffer: Any = None
        self._views: list[Any] = []
        if len(mine) > 1:
            self._buffer, self._views = _buffer_for(mine)
        store.init(key, mine[0].zeros_like() if self._buffer is None else self._buffer)

    def sum(self, arrays: Sequence[Any]) -> None:
        """Queue it on MXNet's engine, the first arrays with the highest priority, as MXNet's own Trainer does."""
        if self._buffer is None:
            self._store.pushpull(self._key, arrays[0], out=arrays[0], priority=-self.indices[0])
            return
        for array, view in zip(arrays, self._views, strict=True):
            array.copyto(view)
        self._store.pushpull(self._key, self._buffer, out=self._buffer, priority=-self.indices[0])
        for array, view in zip(arrays, self._views, strict=True):
            view.copyto(array)


def _buffer_for(arrays: Sequence[Any]) -> tuple[Any, list[Any]]:
    """A flat array with room for all of them, and a view of it in the shape of each."""
    from zoo.orca.mxnet_library import load

    ends = list(itertools.accumulate(array.size for array in arrays))
    buffer = load().nd.zeros((ends[-1],), dtype=arrays[0].dtype)
    views = [buffer[end - array.size : end].reshape(array.shape) for array, end in zip(arrays, ends, strict=True)]
    return buffer, views


def wait_for(arrays: Sequence[Any]) -> None:
    """Wait until arrays are computed."""
    for array in arrays:
        array.wait_to_read()
