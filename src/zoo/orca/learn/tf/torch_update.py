"""Orca's optimizers for TensorFlow learners: torch makes the step, on arrays that a learner takes out and puts back."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from zoo.orca.errors import CheckpointError, InvalidArgumentError, NotOfferedError
from zoo.orca.learn.optimizers import Optimizer
from zoo.orca.learn.pytorch.tensors import snapshot, to_tensors

#: One optimizer for all variables, or one for each prefix of their names.
Method = Optimizer | Mapping[str, Optimizer]


class TorchUpdate:
    """Variables of another framework under orca's optimizers.

    Args:
        method: an orca optimizer, or a dict of them by the prefix of the variables' names; the longest prefix decides.
        names: what the variables are called.
        values: their values, which are copied.

    Example:
        >>> from zoo.orca.learn.optimizers import SGD
        >>> update = TorchUpdate(SGD(0.5), ["w"], [np.array([1.0, 2.0])])
        >>> update.step([np.array([1.0, 1.0])])
        [array([0.5, 1.5])]
        >>> update.rate
        0.5
    """

    def __init__(self, method: Method, names: Sequence[str], values: Sequence[np.ndarray]):
        self._params = [torch.from_numpy(np.array(value)) for value in values]
        chosen = deal(method, names)
        self._optimizers = [
            each.torch_optimizer([self._params[index] for index in indices]) for each, indices in chosen
        ]
        schedules = [
            each.torch_scheduler(optimizer) for (each, _), optimizer in zip(chosen, self._optimizers, strict=True)
        ]
        self._schedules = [each for each in schedules if each is not None]

    def step(self, gradients: Sequence[np.ndarray | None], loss: float | None = None) -> list[np.ndarray]:
        """Take a step; gives the new values, which the next step may overwrite. A variable without a gradient stays.

        `loss` is that of the step, for optimizers that look at it.
        """
        for param, gradient in zip(self._params, gradients, strict=True):
            param.grad = None if gradient is None else to_tensors(np.asarray(gradient), param.dtype)
        for optimizer in self._optimizers:
            optimizer.step()
        for schedule in self._schedules:
            schedule.step()
        return self.values()

    def end_epoch(self, loss: float | None, score: float | None) -> None:
        """An epoch is over: schedules that wait for a plateau look at its training loss and validation score."""
        for schedule in self._schedules:
            schedule.observe(loss, score)

    @property
    def rate(self) -> float:
        """The learning rate of the next step; of the first optimizer where there are several."""
        return float(self._optimizers[0].param_groups[0]["lr"])

    def values(self) -> list[np.ndarray]:
        """The values as they are now, in memory that the next step may overwrite."""
        return [param.numpy() for param in self._params]

    def set_values(self, values: Sequence[np.ndarray]) -> None:
        """Go on from other values."""
        for param, value in zip(self._params, values, strict=True):
            param.copy_(to_tensors(np.asarray(value), param.dtype))

    def state(self) -> dict[str, Any]:
        """What optimizers and schedules remember, as tensors and plain data in memory of its own."""
        return {
            "optimizers": [snapshot(each.state_dict()) for each in self._optimizers],
            "schedules": [snapshot(each.state_dict()) for each in self._schedules],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Remember what `state` gave."""
        if len(state["optimizers"]) != len(self._optimizers):
            raise CheckpointError(
                f"the checkpoint was made with {len(state['optimizers'])} optimizer(s), but there are "
                f"{len(self._optimizers)} now. Give the optimizers that it was made with."
            )
        for optimizer, known in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(copy.deepcopy(known))
        for schedule, known in zip(self._schedules, state["schedules"], strict=False):
            schedule.load_state_dict(known)


def deal(method: Any, names: Sequence[str]) -> list[tuple[Optimizer, list[int]]]:
    """Which optimizer has which of the variables; a typed error for what cannot work."""
    if not isinstance(method, Mapping):
        return [(_checked(method), list(range(len(names))))]
    found: dict[str, list[int]] = {prefix: [] for prefix in method}
    for index, name in enumerate(names):
        prefixes = [prefix for prefix in method if name.startswith(prefix)]
        if not prefixes:
            raise InvalidArgumentError(
                f"no optimizer was given for the variable {name!r}: expected a prefix of its name among "
                f'{", ".join(map(repr, method))}. Add one, or the prefix "" for all that have none.'
            )
        found[max(prefixes, key=len)].append(index)
    return [(_checked(method[prefix]), indices) for prefix, indices in found.items() if indices]


def _checked(method: Any) -> Optimizer:
    if not isinstance(method, Optimizer):
        raise InvalidArgumentError(
            "expected an optimizer of zoo.orca.learn.optimizers (or bigdl.optim.optimizer), such as Adam(), but got "
            f"a {type(method).__name__}."
        )
    if method.needs_closure:
        raise NotOfferedError(
            f"{type(method).__name__} evaluates the loss several times in a step, which TensorFlow models here do not "
            "offer. Use another optimizer, such as Adam()."
        )
    return method
