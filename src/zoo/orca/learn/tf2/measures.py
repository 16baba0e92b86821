"""The metrics of a Keras model, by their state: what ranks counted is added up, and only then made into a figure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.learn.summed import sharing_one_sum
from zoo.orca.learn.tf2.state import load_values, pack_values, to_array, value_of

if TYPE_CHECKING:
    import keras
    import torch

    from zoo.orca.learn.sync import Group


class Measures:
    """The metrics of one rank's model."""

    def __init__(self, model: keras.Model, group: Group):
        self._model = model
        self._group = group

    @property
    def variables(self) -> list[Any]:
        return [variable for metric in self._model.metrics for variable in metric.variables]

    def reset(self) -> None:
        self._model.reset_metrics()

    def over_ranks(self) -> dict[str, Any]:
        """The figures over all ranks, which call it together; what this rank counted stays."""
        flat = self._contribution()
        self._group.all_reduce(flat)
        return self.figures_of(flat)

    def figures_of(self, flat: np.ndarray) -> dict[str, Any]:
        """The figures of what all ranks contributed."""
        own = pack_values(self.variables)
        place = 0
        for variable in self.variables:
            shape, dtype = tuple(variable.shape), variable.dtype
            size = int(np.prod(shape))
            value = flat[place : place + size].reshape(shape)
            variable.assign(np.round(value).astype(dtype) if "int" in dtype else value.astype(dtype))
            place += size
        figures = as_numbers(self._model.get_metrics_result())
        self.load(own)
        return figures

    def taken(self) -> dict[str, Any]:
        """The metrics as they are summed over ranks, by their names beside those of training."""
        metrics = sharing_one_sum(self._model.get_metrics_result(), self._contribution(), self.figures_of)
        return {"val_loss" if name == "loss" else name: metric for name, metric in metrics.items()}

    def state(self) -> list[torch.Tensor]:
        return pack_values(self.variables)

    def load(self, state: list[torch.Tensor]) -> None:
        load_values(self.variables, state, "the metrics of the epoch so far")

    def add(self, states: list[list[torch.Tensor]]) -> None:
        """Count what other ranks had counted, too."""
        for state in states:
            for variable, value in zip(self.variables, state, strict=True):
                variable.assign(value_of(variable) + to_array(value))

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Count anew, and go on with what was counted before."""
        before = pack_values(self.variables)
        self.reset()
        try:
            yield
        finally:
            if len(before) == len(self.variables):
                self.load(before)
            else:  # they were made meanwhile
                self.reset()

    def _contribution(self) -> np.ndarray:
        """What this rank adds, in one buffer: variables say themselves how replicas' values make one."""
        parts = [value_of(each).astype(np.float64).ravel() * self._factor(each) for each in self.variables]
        return np.concatenate([*parts, np.zeros(0)])

    def _factor(self, variable: Any) -> float:
        if variable.aggregation == "mean":
            return 1 / self._group.world_size
        return float(variable.aggregation != "only_first_replica" or self._group.rank == 0)


def as_numbers(figures: dict[str, Any]) -> dict[str, Any]:
    """Figures as Python's numbers, or as lists of them."""
    return {name: np.asarray(value).tolist() for name, value in figures.items()}
