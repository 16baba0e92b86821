"""What the driver sends so that a worker can make its replica of a Keras model."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.orca.learn.tf2.quiet import start_tensorflow

if TYPE_CHECKING:
    from zoo.orca.engine.pickling import Packed
    from zoo.orca.engine.worker import Worker
    from zoo.orca.learn.sync import Group
    from zoo.orca.learn.tf2.learner import KerasLearner


@dataclass(frozen=True)
class KerasLearning:
    """How a worker makes its replica.

    Attributes:
        recipe: a packed `KerasRecipe`.
        inter_op, intra_op: TensorFlow's threads, instead of 1 and a worker's cores.
        binds: whether to keep each worker on cores of its own.
    """

    recipe: Packed
    inter_op: int | None = None
    intra_op: int | None = None
    binds: bool = False

    def build(self, worker: Worker, group: Group, state: dict[str, Any] | None) -> KerasLearner:
        cores = sorted(os.sched_getaffinity(0))
        mine = cores[worker.local_rank :: worker.local_size]
        with contextlib.ExitStack() as undo:
            intra_op = self.intra_op
            if self.binds and mine:  # before TensorFlow starts its threads, which stay where they begin
                os.sched_setaffinity(0, mine)
                undo.callback(os.sched_setaffinity, 0, cores)
                intra_op = intra_op or len(mine)
            start_tensorflow(worker, self.inter_op, intra_op)
            from zoo.orca.learn.tf2.learner import KerasLearner

            learner = KerasLearner(self.recipe.load(), worker, group, state)
            learner.undo.push(undo.pop_all())
        return learner
