"""Texts as columns: bytes of any length, one after the other, and where each of them ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from zoo.orca.errors import InvalidArgumentError

#: What a layout calls the type of texts: arrays of them are arrays of objects, of bytes.
TEXT = np.dtype(object).str


def is_text(array: np.ndarray) -> bool:
    """Whether an array may hold texts: of numpy's own types for them, or of objects."""
    return array.dtype.kind in "USO"


def check_texts(array: np.ndarray) -> None:
    """Raise a typed error for an array of objects that are no texts."""
    if array.dtype.kind != "O":
        return
    for value in array.flat:
        if not isinstance(value, str | bytes):
            what = "a missing value" if value is None or value != value else f"a {type(value).__name__}"
            raise InvalidArgumentError(
                f"an array of texts must hold str or bytes everywhere, but there is {what} in it. Fill it (''), drop "
                "its row, or make an array of numbers first."
            )


def encode(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of all texts of an array, in order, and where each of them ends."""
    texts = pa.array(array.astype(object).reshape(-1), pa.large_binary(), from_pandas=False)
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64, len(texts) + 1)
    return np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]], ends[1:] - ends[0]


class Texts:
    """A column of texts that is mapped: rows by number, as arrays of bytes."""

    dtype = np.dtype(object)

    def __init__(self, data: Any, ends: np.ndarray, shape: tuple[int, ...]):
        self._data = data
        self._width = int(np.prod(shape, dtype=np.int64))
        self._ends = ends
        self.shape = (len(ends) // self._width, *shape)

    def take(self, rows: np.ndarray | slice) -> np.ndarray:
        """The texts of some rows."""
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        places = (numbers[:, None] * self._width + np.arange(self._width)).reshape(-1)
        starts = np.where(places > 0, self._ends[places - 1], 0)
        found = np.empty(len(places), object)
        found[:] = [bytes(self._data[start:stop]) for start, stop in zip(starts, self._ends[places], strict=True)]
        return found.reshape(len(numbers), *self.shape[1:])
