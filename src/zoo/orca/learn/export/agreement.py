"""Whether two models agree: the largest difference of their outputs, against the size of those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Agreement:
    """How far outputs are from those they should be.

    Attributes:
        rows: how many rows were compared.
        batches: of how many rows each.
        difference: the largest, over all outputs and rows.
        relative: the largest, each as a part of its output's largest value.
    """

    rows: int
    batches: tuple[int, ...]
    difference: float
    relative: float

    def within(self, tolerance: float) -> bool:
        return self.relative <= tolerance

    def joined(self, other: Agreement) -> Agreement:
        """Both comparisons as one, of the same rows."""
        return Agreement(
            max(self.rows, other.rows),
            (*self.batches, *other.batches),
            max(self.difference, other.difference),
            max(self.relative, other.relative),
        )


def compare(
    expected: Sequence[np.ndarray],
    found: Sequence[np.ndarray],
    scales: Sequence[float] | None = None,
) -> Agreement:
    """How far what was found is from what was expected; infinitely far where there is something else.

    Args:
        scales: the size of each output; its largest value by default, but one row alone may be near zero.

    >>> compare([np.array([[1.0, 4.0]])], [np.array([[1.0, 4.5]])]).relative
    0.125
    """
    rows = len(expected[0])
    if len(expected) != len(found):
        return Agreement(rows, (rows,), float("inf"), float("inf"))
    differences = [_difference(a, b) for a, b in zip(expected, found, strict=True)]
    relative = [each / scale for each, scale in zip(differences, scales or scales_of(expected), strict=True)]
    return Agreement(rows, (rows,), max(differences), max(relative))


def scales_of(outputs: Sequence[np.ndarray]) -> list[float]:
    """The size of each output."""
    return [_scale(array) for array in outputs]


def _difference(expected: np.ndarray, found: np.ndarray) -> float:
    if expected.shape != found.shape:
        return float("inf")
    a, b = expected.astype(np.float64), found.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(a - b))
    return float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0.0))


def _scale(array: np.ndarray) -> float:
    """The largest value; differences of outputs that are all zero are taken as they are."""
    finite = np.abs(array.astype(np.float64))[np.isfinite(array)]
    return float(finite.max(initial=0.0)) or 1.0
