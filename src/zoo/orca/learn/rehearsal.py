"""The rehearsal contract: what a framework adds to `est.check`, one batch through a copy of the model on the driver."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from zoo.orca.learn.check_report import Finding, words_of

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker
    from zoo.orca.feed.base import Share
    from zoo.orca.learn.learner import Learning


@dataclass(frozen=True)
class Load:
    """What a rank has to do in a step.

    Attributes:
        rows: the most rows of a step.
        least: the fewest rows of a step of an epoch, where they are known.
        world_size: among how many ranks.
    """

    rows: int
    least: int | None
    world_size: int


@dataclass(frozen=True)
class Memory:
    """Bytes that a rank needs, by what for.

    >>> print(Memory(weights=3_000_000, gradients=3_000_000))
    6.0 MB: weights 3.0 MB, gradients 3.0 MB
    """

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    exchange: int = 0
    batch: int = 0
    activations: int = 0
    libraries: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, each.name) for each in fields(self))

    def __str__(self) -> str:
        parts = [
            f"{each.name} {in_words(getattr(self, each.name))}" for each in fields(self) if getattr(self, each.name)
        ]
        return f"{in_words(self.total)}: {', '.join(parts)}"


class Rehearsal(ABC):
    """A model on the driver, as a worker would have it, for one batch. The user's own is left alone.

    Attributes:
        packages: the framework's, whose versions must agree between driver and workers.
        room: asked on each worker: the bytes that are free where the model will lie, if that is not main memory.
        memory: what a rank will need, once `train` has found out.
    """

    packages: tuple[str, ...] = ()
    room: Callable[[Worker], int | None] | None = None
    memory: Memory | None = None

    @abstractmethod
    def parts(self) -> dict[str, Any]:
        """What is sent to the workers, by the names that users know."""

    @abstractmethod
    def build(self, learning: Learning, world_size: int) -> str | None:
        """Make the model from what a worker is sent; raises what a worker would.

        Gives the reason where a model is too much for the driver: then no batch is tried."""

    @abstractmethod
    def look(self, share: Share, what: str, is_labelled: bool) -> None:
        """Forward a batch; a typed error that calls the data `what` if the model or the loss cannot take it."""

    @abstractmethod
    def train(self, share: Share, load: Load) -> list[Finding]:
        """Train on a batch, and tell how that went."""

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Give back what `build` took."""


class LearnerRehearsal(Rehearsal):
    """A learner of one rank, in the driver's process, which trains on one batch as a worker would.

    Args:
        recipe: what the estimator was given.
        state: what a fit before left, which workers start from.
    """

    def __init__(self, recipe: Any, state: dict[str, Any] | None):
        self._recipe = recipe
        self._state = state
        self._learner: Any = None

    def train(self, share: Share, load: Load) -> list[Finding]:
        learner = self._learner
        try:
            learner.start_epoch(0)
            learner.train_epoch([learner.take(share, True)], {})
        except Exception as error:
            return [Finding.of("model", error, f"training on one batch failed: {words_of(error)}")]
        self.memory = self._need(load)
        text, loss = f"{share.rows} rows went forward and backward", learner.loss
        if loss is not None and not math.isfinite(loss):
            remedy = "look at the loss, the scale of the data, and at values that are missing"
            return [Finding("model", "warning", f"{text}, but the loss is {loss}: {remedy}")]
        return [Finding("model", "ok", text if loss is None else f"{text}, the loss is {loss:.4g}")]

    def close(self) -> None:
        if self._learner is not None:
            self._learner.close()
            self._learner = None

    @abstractmethod
    def _need(self, load: Load) -> Memory:
        """What a rank needs, now that the learner has trained."""


class NoRehearsal(Rehearsal):
    """For frameworks that add nothing: the rest of the check is made all the same."""

    def parts(self) -> dict[str, Any]:
        return {}

    def build(self, learning: Learning, world_size: int) -> str | None:
        return "estimators of this kind have no rehearsal"

    def look(self, share: Share, what: str, is_labelled: bool) -> None:
        """Nothing was built to look with."""

    def train(self, share: Share, load: Load) -> list[Finding]:
        return []


def in_words(size: float) -> str:
    """Bytes as people write them.

    >>> in_words(3_400_000_000)
    '3.4 GB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
