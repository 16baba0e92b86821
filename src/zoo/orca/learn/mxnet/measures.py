"""MXNet's metrics by their state: what ranks counted is added up, and only then made into a figure."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from zoo.orca.learn.checkpoint import as_plain
from zoo.orca.learn.summed import sharing_one_sum

# Metrics whose state cannot be added up: their figures are averaged by rows.
_NOT_ADDITIVE = ("PCC",)
_OF_MICRO = ("PearsonCorrelation",)


class Measures:
    """The metrics of one rank; None has none.

    Args:
        metric: one of MXNet's, maybe a composite.
    """

    def __init__(self, metric: Any):
        self._metric = metric
        self._leaves = [_Leaf(each) for each in _leaves(metric)]

    def __bool__(self) -> bool:
        return bool(self._leaves)

    def reset(self) -> None:
        for leaf in self._leaves:
            leaf.reset()

    def update(self, labels: list[Any], outputs: list[Any], rows: int) -> None:
        if self._metric is not None and rows:
            self._metric.update(labels, outputs)
            for leaf in self._leaves:
                leaf.rows += rows

    def figures(self) -> dict[str, float]:
        """The figures of this rank alone."""
        return {name: value for leaf in self._leaves for name, value in leaf.figures().items()}

    def over_ranks(self, group: Any) -> dict[str, float]:
        """The figures over all ranks, which call it together; what this rank counted stays."""
        flat = self.contribution()
        group.all_reduce(flat)
        return self.figures_of(flat)

    def contribution(self) -> np.ndarray:
        return np.concatenate([np.zeros(0), *(leaf.contribution() for leaf in self._leaves)])

    def figures_of(self, flat: np.ndarray) -> dict[str, float]:
        """The figures of what all ranks contributed."""
        found: dict[str, float] = {}
        place = 0
        for leaf in self._leaves:
            size = len(leaf.contribution())
            found |= leaf.figures_of(flat[place : place + size])
            place += size
        return found

    def taken(self) -> dict[str, Any]:
        """The metrics as `learn.worker.measure` sums them over ranks, by name."""
        return sharing_one_sum(self.figures(), self.contribution(), self.figures_of)

    def state(self) -> list[dict[str, Any]]:
        return [leaf.state() for leaf in self._leaves]

    def load(self, state: list[dict[str, Any]]) -> None:
        for leaf, known in zip(self._leaves, state, strict=True):
            leaf.load(known)

    def add(self, states: list[list[dict[str, Any]]]) -> None:
        """Count what other ranks had counted, too."""
        for state in states:
            for leaf, known in zip(self._leaves, state, strict=True):
                leaf.add(known)


class _Leaf:
    """One metric, whose numbers are counters: each is what it is after a reset, plus what was counted."""

    def __init__(self, metric: Any):
        self.metric = metric
        metric.reset()
        self._fresh = {place: _numbers(value) for place, value in _counters(metric)}
        average = getattr(metric, "average", None)
        name = type(metric).__name__
        self._is_additive = name not in _NOT_ADDITIVE and not (name in _OF_MICRO and average == "micro")
        self.rows = 0

    def reset(self) -> None:
        self.metric.reset()
        self.rows = 0

    def figures(self) -> dict[str, float]:
        return {name: float(value) for name, value in self.metric.get_name_value()}

    def contribution(self) -> np.ndarray:
        if self._is_additive:
            counted = (_numbers(value) - self._fresh[place] for place, value in self._now())
            return np.concatenate([np.zeros(0), *(each.ravel() for each in counted)])
        values = [value * self.rows for value in self.figures().values()] if self.rows else [0.0] * len(self.figures())
        return np.array([*values, self.rows], dtype=np.float64)

    def figures_of(self, flat: np.ndarray) -> dict[str, float]:
        if not self._is_additive:
            rows = flat[-1]
            return {
                name: float(value / rows) if rows else float("nan")
                for name, value in zip(self.figures(), flat, strict=False)
            }
        own = [(place, value) for place, value in self._now()]
        where = 0
        for place, value in own:
            fresh = self._fresh[place]
            self._put(place, fresh + flat[where : where + fresh.size].reshape(fresh.shape), value)
            where += fresh.size
        self._combine()
        figures = self.figures()
        for place, value in own:
            self._put(place, value, value)
        return figures

    def state(self) -> dict[str, Any]:
        return {"rows": self.rows} | {place: as_plain(_plain(value)) for place, value in _counters(self.metric)}

    def load(self, state: dict[str, Any]) -> None:
        for place, value in list(_counters(self.metric)):
            if place in state:
                self._put(place, state[place], value)
        self.rows = state["rows"]

    def add(self, state: dict[str, Any]) -> None:
        for place, value in self._now():
            self._put(place, _numbers(value) + _numbers(state[place]) - self._fresh[place], value)
        self.rows += state["rows"]
        self._combine()

    def _now(self) -> list[tuple[str, Any]]:
        return [(place, value) for place, value in _counters(self.metric) if place in self._fresh]

    def _put(self, place: str, value: Any, like: Any) -> None:
        owner, name = _owner(self.metric, place)
        setattr(owner, name, _shaped(value, like))

    def _combine(self) -> None:
        """F1 and MCC over all rows make their figure of counts when they are updated: make it again."""
        counts: Any = getattr(self.metric, "_metrics", None) or getattr(self.metric, "metrics", None)
        average = getattr(self.metric, "average", None) or getattr(self.metric, "_average", None)
        if average != "micro" or not hasattr(counts, "total_examples"):
            return
        value = counts.matthewscc() if type(self.metric).__name__ == "MCC" else counts.fscore
        self.metric.sum_metric = value * counts.total_examples
        self.metric.num_inst = counts.total_examples


def _leaves(metric: Any) -> Iterator[Any]:
    parts = getattr(metric, "metrics", None)
    if isinstance(parts, list):
        for each in parts:
            yield from _leaves(each)
    elif metric is not None:
        yield metric


def _counters(metric: Any) -> Iterator[tuple[str, Any]]:
    """The numbers that a metric holds, by the place where they are found; also those of its table of counts."""
    for name, value in sorted(vars(metric).items()):
        if _is_counter(value):
            yield name, value
        elif name in ("metrics", "_metrics") and hasattr(value, "__dict__"):
            for inner, number in sorted(vars(value).items()):
                if _is_counter(number):
                    yield f"{name}.{inner}", number


def _owner(metric: Any, place: str) -> tuple[Any, str]:
    outer, _, name = place.rpartition(".")
    return (getattr(metric, outer) if outer else metric), name


def _is_counter(value: Any) -> bool:
    if isinstance(value, bool | str) or value is None:
        return False
    if isinstance(value, list):
        return bool(value) and all(_is_counter(each) for each in value)
    return isinstance(value, int | float | np.number | np.ndarray) or hasattr(value, "asnumpy")


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.asnumpy() if hasattr(value, "asnumpy") else value


def _numbers(value: Any) -> np.ndarray:
    return np.asarray(_plain(value), dtype=np.float64)


def _shaped(value: Any, like: Any) -> Any:
    """A value in the form that a counter has."""
    if isinstance(like, int) and not isinstance(like, bool):
        return int(np.round(value))
    if isinstance(like, list):
        return [_shaped(each, one) for each, one in zip(value, like, strict=False)]
    array = np.asarray(_plain(value), dtype=np.float64)
    return copy.copy(array) if array.ndim else float(array)
