"""Orca's learning rate schedules as a torch scheduler."""

from __future__ import annotations

import copy
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from zoo.orca.learn.optimizers.schedule import Memory, Scheduler


class ScheduleLR(LRScheduler):
    """Sets the rate of every parameter group by a schedule: `step()` after each iteration, `observe` after each epoch.

    Its state is plain numbers: the schedule itself belongs to the optimizer's settings, not to a checkpoint.
    """

    def __init__(self, optimizer: Optimizer, schedule: Scheduler, decay: float = 0.0, last_epoch: int = -1) -> None:
        self.schedule = schedule
        self.decay = decay
        self.memory: Memory = {}
        super().__init__(optimizer, last_epoch)

    @property
    def monitors(self) -> set[str]:
        """What `observe` should be given: "Loss", "score", both or nothing."""
        return self.schedule.monitors

    def get_lr(self) -> list[Any]:
        """The rates of the next iteration; torch's `last_epoch` counts the iterations done."""
        return [self.schedule.rate(float(base), self.last_epoch, self.decay, self.memory) for base in self.base_lrs]

    def observe(self, loss: float | None = None, score: float | None = None) -> None:
        """Note the training loss and the validation score of an epoch that has ended, and set the rate anew."""
        known = {name: value for name, value in (("Loss", loss), ("score", score)) if value is not None}
        self.schedule.observe(known, self.last_epoch, self.memory)
        rates = self.get_lr()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = rates

    def state_dict(self) -> dict[str, Any]:
        return {
            "last_epoch": self.last_epoch,
            "base_lrs": [float(rate) for rate in self.base_lrs],
            "last_lr": [float(rate) for rate in self._last_lr],
            "memory": copy.deepcopy(self.memory),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.last_epoch = state_dict["last_epoch"]
        self.base_lrs = list(state_dict["base_lrs"])
        self._last_lr = list(state_dict["last_lr"])
        self.memory = copy.deepcopy(state_dict["memory"])
