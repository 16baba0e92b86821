"""Rows in a random order that need not all be held: a worker's memory must not grow with the rows of its partitions."""

from __future__ import annotations

import numpy as np

#: The numbers that are held at a time. Up to so many are shuffled as a whole.
BLOCK = 2**16

_ROUNDS = 6


class Shuffled:
    """The numbers below `rows` in a random order, asked for from the first place to the last.

    Of more than `BLOCK` of them, the one at each place is worked out: the place is multiplied, added to and folded upon
    itself, in rounds with random keys. Each of these steps can be undone below a power of two, so that no two places
    come to the same number; a number that is none of ours goes through the rounds again.

    Example:
        >>> order = Shuffled(5, np.random.default_rng(0))
        >>> order[0:3], order[3:5]
        (array([2, 4, 3], dtype=int32), array([0, 1], dtype=int32))
    """

    def __init__(self, rows: int, random: np.random.Generator):
        self._rows = rows
        self._kind = np.uint32 if rows <= 2**31 else np.uint64
        self._bits = max(1, (rows - 1).bit_length())
        self._first = 0
        if rows <= BLOCK:
            self._block = np.arange(rows, dtype=np.int32)
            random.shuffle(self._block)
            return
        self._block = np.empty(0, dtype=np.int64)
        keys = random.integers(2**self._bits, size=(_ROUNDS, 2), dtype=np.uint64).astype(self._kind)
        self._keys = [(factor | self._kind(1), addend) for factor, addend in keys]

    def __getitem__(self, places: slice) -> np.ndarray:
        """The numbers at these places."""
        found, start, stop = [], places.start, min(places.stop, self._rows)
        while start < stop:
            if not self._first <= start < self._first + len(self._block):
                self._draw(start - start % BLOCK)
            found.append(self._block[start - self._first : stop - self._first])
            start += len(found[-1])
        return np.concatenate(found) if len(found) > 1 else found[0] if found else self._block[:0]

    def _draw(self, first: int) -> None:
        """Hold the block that begins at place `first`."""
        block = self._scramble(np.arange(first, min(first + BLOCK, self._rows), dtype=self._kind))
        beyond = np.flatnonzero(block >= self._rows)
        while beyond.size:
            block[beyond] = again = self._scramble(block[beyond])
            beyond = beyond[again >= self._rows]
        # Signed, as numpy wants indices to be; as wide as before.
        self._first, self._block = first, block.view(f"i{block.itemsize}")

    def _scramble(self, numbers: np.ndarray) -> np.ndarray:
        mask, half = self._kind(2**self._bits - 1), self._kind((self._bits + 1) // 2)
        for factor, addend in self._keys:
            numbers *= factor
            numbers += addend
            numbers &= mask
            numbers ^= numbers >> half
        return numbers
