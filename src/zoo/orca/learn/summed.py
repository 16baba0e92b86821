"""Figures that ranks make together: each adds what it counted, and the sum gives the figure of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


class RowMean:
    """What is a mean over the rows of each batch, as the mean over all rows."""

    def __init__(self) -> None:
        self._sums = np.zeros(2)

    def add(self, value: float, rows: int) -> None:
        self._sums += (float(value) * rows, rows)

    def state(self) -> np.ndarray:
        return self._sums

    def load_sum(self, state: np.ndarray) -> None:
        self._sums = np.asarray(state, np.float64)

    def value(self) -> float:
        total, rows = self._sums
        return float(total / rows) if rows else float("nan")


def sharing_one_sum(
    names: Iterable[str], contribution: np.ndarray, figures_of: Callable[[np.ndarray], dict[str, Any]]
) -> dict[str, Any]:
    """Metrics by name whose counts travel in one buffer, since several may share them: the first carries it.

    Args:
        contribution: what this rank adds.
        figures_of: the figures by name, from the sum over all ranks.
    """
    shared = _Shared(contribution, figures_of)
    return {name: _Figure(shared, name, carries=not number) for number, name in enumerate(names)}


class _Shared:
    """What was counted, and the figures once the sum over ranks is known."""

    def __init__(self, contribution: np.ndarray, figures_of: Callable[[np.ndarray], dict[str, Any]]):
        self.contribution = contribution
        self.figures_of = figures_of
        self.figures: dict[str, Any] = {}


class _Figure:
    """One of the figures."""

    def __init__(self, shared: _Shared, name: str, carries: bool):
        self._shared = shared
        self._name = name
        self._carries = carries

    def state(self) -> np.ndarray:
        return self._shared.contribution if self._carries else np.zeros(0)

    def load_sum(self, state: np.ndarray) -> None:
        if self._carries:
            self._shared.figures = self._shared.figures_of(state)

    def value(self) -> Any:
        return self._shared.figures[self._name]
