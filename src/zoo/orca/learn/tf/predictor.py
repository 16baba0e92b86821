"""A graph on its way to where rows are predicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zoo.orca.learn.tf.parcel import Parcel
from zoo.orca.learn.tf2.quiet import start_here


class GraphPredictor:
    """The outputs of a graph, as they travel to the workers; loaded once in each process.

    Args:
        key: names this graph with these values, and nothing else.
        values: the variables' by name.
    """

    takes_text = True

    def __init__(self, key: str, parcel: Parcel, values: dict[str, np.ndarray]):
        self.key = key
        self._parcel = parcel
        self._values = values

    def load(self) -> Callable[[tuple[Any, ...]], Any]:
        """A function from a tuple of features to an array, or a list of them for several outputs."""
        start_here()
        from zoo.orca.learn.tf.opened import OpenGraph

        parcel = self._parcel
        opened = OpenGraph(parcel, self._values)
        constants = {name: pair[1] for name, pair in parcel.constants.items()}

        def run(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
            return opened.run(parcel.outputs, constants | feeds)

        def predict(features: tuple[Any, ...]) -> Any:
            feeds = parcel.input_feeds(features)
            outputs = run(feeds) if parcel.is_batched else _one_by_one(run, feeds)
            return outputs if parcel.several else outputs[0]

        return predict


def _one_by_one(run: Callable[..., list[np.ndarray]], feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a graph that knows no rows, side by side."""
    rows = len(next(iter(feeds.values())))
    found = [run({name: value[row] for name, value in feeds.items()}) for row in range(rows)]
    return [np.stack(each) for each in zip(*found, strict=True)]
