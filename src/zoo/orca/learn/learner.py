"""The learner contract: what one step of a framework is, on one rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker
    from zoo.orca.feed.base import Share
    from zoo.orca.learn.sync import Group


class Learning(Protocol):
    """What the driver sends so that a worker can make its learner. It pickles."""

    def build(self, worker: Worker, group: Group, state: dict[str, Any] | None) -> Learner:
        """This rank's learner, in the state given, or in the first one; all ranks call it together."""


class Learner(ABC):
    """One replica of a model, that takes every step together with the others."""

    @abstractmethod
    def start_epoch(self, epoch: int) -> None:
        """Seed what is random and forget the last epoch, so that an epoch is the same however often it is run."""

    @abstractmethod
    def take(self, share: Share, last: bool) -> Any:
        """A share as the framework's batch, the last one of its epoch or not; its step counts by the share's rows."""

    @abstractmethod
    def train_epoch(self, batches: Iterable[Any], info: dict[str, Any]) -> dict[str, Any]:
        """Train on batches as they come; gives this rank's figures over the whole epoch.

        `batches.rows` are the rows that count, `batches.first` is the first batch's place in its epoch."""

    @abstractmethod
    def after_step(self) -> None:
        """A step is done: set the rate of the next."""

    @abstractmethod
    def after_epoch(self, rows: int, loss: float | None, score: float | None) -> None:
        """An epoch is done, in which this rank had so many rows: agree on what steps do not agree on."""

    def after_validation(self, score: float | None) -> None:  # noqa: B027 - most have nothing that follows it
        """Validation data was measured, with this score over all ranks: the value of its first metric."""

    @abstractmethod
    def validate(self, shares: Iterable[Share], info: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """This rank's figures with "num_samples", and its metrics by name, to be summed over ranks by state."""

    def measured_loss(self) -> float | None:
        """While `validate` goes on: the loss of this rank's rows so far; None where it is not known."""
        return None

    @property
    @abstractmethod
    def loss(self) -> float | None:
        """The loss of the last step over all ranks."""

    @property
    @abstractmethod
    def rate(self) -> float:
        """The learning rate of the next step."""

    @abstractmethod
    def profile(self) -> dict[str, Any]:
        """Where the time of the epoch went."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that training changed, as tensors and plain data in memory of its own; all ranks call it together."""

    @abstractmethod
    def local_state(self) -> dict[str, Any]:
        """What this rank alone holds between two steps of an epoch: random states, statistics, figures so far."""

    @abstractmethod
    def load_local(self, state: dict[str, Any], within_epoch: bool) -> None:
        """Take back what `local_state` gave, after `start_epoch`, so that training goes on from there to the bit.

        Between two epochs that is only what outlasts an epoch."""

    @abstractmethod
    def load_figures(self, states: list[dict[str, Any]]) -> None:
        """Count what several ranks had counted of the epoch so far, by their local states, as this rank's."""

    @property
    @abstractmethod
    def native(self) -> Any:
        """The framework's own model."""

    @abstractmethod
    def digest(self) -> str:
        """A short text that is equal on two ranks if their weights are equal to the bit."""

    def so_far(self) -> dict[str, Any]:
        """The figures of the epoch so far over all ranks, which call it together; none where no batch is counted."""
        return {}

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Give back what the learner holds of its group; it cannot train any more."""
