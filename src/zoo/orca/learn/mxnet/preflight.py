"""MXNet's part of `est.check`: one batch forward and backward, on the driver, through what a worker would build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from zoo.orca import mxnet_library as library
from zoo.orca.feed.taste import Alone
from zoo.orca.learn.rehearsal import LearnerRehearsal, Load, Memory
from zoo.orca.learn.sync.solo import SoloGroup

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker
    from zoo.orca.feed.base import Share
    from zoo.orca.learn.learner import Learning
    from zoo.orca.learn.mxnet.learning import MXNetLearning

# What MXNet and torch take for themselves in a process that has trained, whatever the model.
LIBRARIES = 450_000_000


class MXNetRehearsal(LearnerRehearsal):
    """A learner of one rank, in the driver's process, of what `from_mxnet` was given."""

    packages = ("mxnet", "torch")

    def parts(self) -> dict[str, Any]:
        recipe = self._recipe
        named = {
            "model": recipe.model,
            "loss": recipe.loss,
            "eval_metrics": recipe.eval_metrics,
            "validation_metrics": recipe.validation_metrics,
            "config": recipe.config or None,
        }
        return {name: part for name, part in named.items() if part is not None}

    def build(self, learning: Learning, world_size: int) -> str | None:
        library.load()
        from zoo.orca.learn.mxnet.learner import MXNetLearner

        recipe = cast("MXNetLearning", learning).recipe.load()
        self._learner = MXNetLearner(recipe, cast("Worker", Alone()), SoloGroup(), self._state)
        return None

    def look(self, share: Share, what: str, is_labelled: bool = True) -> None:
        self._learner.validate([share], {})

    def _need(self, load: Load) -> Memory:
        state = self._learner.state()
        weights = sum(each.nbytes for each in state["models"][0].values())
        return Memory(
            weights=weights,
            gradients=weights,
            optimizer=_bytes(state["optimizers"]),
            exchange=weights if load.world_size > 1 else 0,
            libraries=LIBRARIES,
        )


def _bytes(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_bytes, value.values()))
    if isinstance(value, list):
        return sum(map(_bytes, value))
    return int(np.prod(value.shape)) * value.element_size() if hasattr(value, "element_size") else 0
