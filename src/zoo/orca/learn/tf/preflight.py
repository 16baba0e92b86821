"""A graph's part of `est.check`: one step on the driver, in a session of its own, of what a worker would be sent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from zoo.orca.feed.taste import Alone
from zoo.orca.learn.check_report import Finding, words_of
from zoo.orca.learn.rehearsal import Load, Memory, Rehearsal
from zoo.orca.learn.sync.solo import SoloGroup
from zoo.orca.learn.tf2.preflight import LIBRARIES

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker
    from zoo.orca.feed.base import Share
    from zoo.orca.learn.learner import Learning
    from zoo.orca.learn.tf.learner import GraphLearner
    from zoo.orca.learn.tf.learning import GraphLearning
    from zoo.orca.learn.tf.recipe import GraphRecipe


class GraphRehearsal(Rehearsal):
    """A learner of one rank, in the driver's process; the user's session is left as it is."""

    packages = ("tensorflow", "torch")

    def __init__(self, recipe: GraphRecipe):
        self._recipe = recipe
        self._learner: GraphLearner | None = None

    def parts(self) -> dict[str, Any]:
        ops = self._recipe.train_ops()
        return {"graph": b""} | ({} if ops.method is None else {"optimizer": ops.method})

    def build(self, learning: Learning, world_size: int) -> str | None:
        from zoo.orca.learn.tf.learner import GraphLearner

        parcel = cast("GraphLearning", learning).parcel.load()
        state = self._recipe.state_of(parcel)
        self._learner = GraphLearner(parcel, cast("Worker", Alone()), SoloGroup(), state)
        return None

    def look(self, share: Share, what: str, is_labelled: bool = True) -> None:
        if self._learner is not None:
            self._recipe.try_out(self._learner.parcel, share.batch, what, share.weights)

    def train(self, share: Share, load: Load) -> list[Finding]:
        learner = self._learner
        if learner is None:
            return []
        try:
            learner.start_epoch(0)
            learner.train_epoch([learner.take(share, True)], {})
        except Exception as error:
            return [Finding.of("model", error, f"training on one batch failed: {words_of(error)}")]
        self.memory = self._need(learner, load)
        text, loss = f"{share.rows} rows went forward and backward", learner.loss
        if loss is not None and not math.isfinite(loss):
            remedy = "look at the loss, the scale of the data, and at values that are missing"
            return [Finding("model", "warning", f"{text}, but the loss is {loss}: {remedy}")]
        return [Finding("model", "ok", f"{text}, the loss is {loss:.4g}")]

    def close(self) -> None:
        if self._learner is not None:
            self._learner.close()
            self._learner = None

    def _need(self, learner: GraphLearner, load: Load) -> Memory:
        values = learner.opened.read(each.name for each in learner.parcel.variables)
        trained = sum(values[each.variable].nbytes for each in learner.training.gradients)
        return Memory(
            weights=trained,
            gradients=trained,
            optimizer=sum(each.nbytes for each in values.values()) - trained,
            exchange=trained if load.world_size > 1 else 0,
            libraries=LIBRARIES,
        )
