"""What the driver sends so that a worker can make its replica of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.orca.learn.tf2.quiet import start_tensorflow

if TYPE_CHECKING:
    from zoo.orca.engine.pickling import Packed
    from zoo.orca.engine.worker import Worker
    from zoo.orca.learn.sync import Group
    from zoo.orca.learn.tf.learner import GraphLearner


@dataclass(frozen=True)
class GraphLearning:
    """How a worker makes its replica: a packed `Parcel`."""

    parcel: Packed

    def build(self, worker: Worker, group: Group, state: dict[str, Any] | None) -> GraphLearner:
        start_tensorflow(worker)
        from zoo.orca.learn.tf.learner import GraphLearner

        return GraphLearner(self.parcel.load(), worker, group, state)
