"""Keras's part of `est.check`: one batch forward and backward, on the driver, through what a worker would build."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from zoo.orca.feed.taste import Alone
from zoo.orca.learn.rehearsal import LearnerRehearsal, Load, Memory
from zoo.orca.learn.sync.solo import SoloGroup
from zoo.orca.learn.tf2.quiet import start_here

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker
    from zoo.orca.feed.base import Share
    from zoo.orca.learn.learner import Learning
    from zoo.orca.learn.tf2.learning import KerasLearning

# What TensorFlow and torch take for themselves in a process that has trained, whatever the model.
LIBRARIES = 850_000_000


class KerasRehearsal(LearnerRehearsal):
    """A learner of one rank, in the driver's process, of what `from_keras` was given."""

    packages = ("tensorflow", "keras", "torch")

    def parts(self) -> dict[str, Any]:
        recipe = self._recipe
        named = {
            "model": recipe.model,
            "compile_args_creator": recipe.compile_args,
            "config": recipe.config or None,
            "optimizer": recipe.optimizer,
        }
        return {name: part for name, part in named.items() if part is not None}

    def build(self, learning: Learning, world_size: int) -> str | None:
        start_here()
        from zoo.orca.learn.tf2.learner import KerasLearner

        recipe = cast("KerasLearning", learning).recipe.load()
        self._learner = KerasLearner(recipe, cast("Worker", Alone()), SoloGroup(), self._state)
        return None

    def look(self, share: Share, what: str, is_labelled: bool = True) -> None:
        from zoo.orca.learn.tf2.batches import check_takes

        model = self._learner.model
        if model.built:
            check_takes(model, share.batch, what)

    def _need(self, load: Load) -> Memory:
        model = self._learner.model
        trained = _bytes(model.trainable_weights)
        return Memory(
            weights=_bytes(model.weights),
            gradients=trained,
            optimizer=_bytes(model.optimizer.variables),
            exchange=trained if load.world_size > 1 else 0,
            libraries=LIBRARIES,
        )


def _bytes(variables: Any) -> int:
    return sum(math.prod(each.shape) * each.value.dtype.size for each in variables)
