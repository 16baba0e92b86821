"""Several copies of a model that stay one: what a worker does so that its optimizers act for the whole gang."""

from __future__ import annotations

import hashlib
import logging
import math
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from zoo.orca.errors import NotFiniteLossError
from zoo.orca.learn.pytorch.numerics import LossScale
from zoo.orca.learn.pytorch.sharded import ShardedUpdate
from zoo.orca.learn.pytorch.tensors import leaving
from zoo.orca.learn.pytorch.updates import ReplicatedUpdate, can_be_sharded, params_of
from zoo.orca.learn.sync.base import Group

logger = logging.getLogger("zoo.orca")


class Replica:
    """Makes torch optimizers act on the gradients of all ranks; all ranks must call `optimizer.step()` together.

    From now on `optimizer.step()` combines the gradients of all ranks, weighted by `weight` over the sum of all
    weights, before it updates. A parameter without a gradient on every rank that counts is skipped, as torch does.

    In a sharded replica each rank updates its slice of the parameters and keeps the optimizer's state for that
    slice alone: `optimizer.state` is empty, `optimizer_states` gives all of it, and `param.grad` stays this rank's own.

    Attributes:
        weight: what this rank's gradients count for in the next step: its rows, or their part of the global batch.
            With 0 they count for nothing, even if they are not numbers.
        is_mean: whether losses are means over rows, so that gradients are averaged; sums are added up.
        loss: this rank's loss of the next step, or None.
        global_loss: the combined loss of the last step, if every rank set `loss`.
        clip: None, ("norm", most) over all gradients of an optimizer, or ("value", low, high) for each element,
            ("both", low, high, most) for one after the other;
            on combined gradients.
        scale: by what `backward` multiplies losses; then a step whose gradients are no numbers is skipped on all ranks.
        stop_on_nan: whether a combined loss that is no number is an error, before anything is changed.
        place: the step, the epoch and the batch in hand, counted from 1, for that error.
        holds: whether steps keep their gradients for a later one.
        stepped, withheld: whether a step was made for the batch in hand, and whether one was held or skipped.
        overflowed: whether one was skipped.
    """

    def __init__(
        self,
        group: Group,
        optimizers: Sequence[torch.optim.Optimizer],
        sharded: bool = False,
        clip: tuple[Any, ...] | None = None,
        scale: LossScale | None = None,
        stop_on_nan: bool = False,
    ):
        self.group = group
        self.clip = clip
        self.scale = scale
        self.stop_on_nan = stop_on_nan
        self.place = (0, 0, 0)
        self.holds = self.stepped = self.withheld = self.overflowed = False
        self.weight = 1.0 / group.world_size
        self.is_mean = True
        self.loss: Any = None
        self._heard: weakref.ref[torch.Tensor] | None = None
        self.global_loss: float | None = None
        self._updates = [self._update(optimizer, sharded and group.world_size > 1) for optimizer in optimizers]
        self._warn_of_whole_updates(sharded)

    def begin(self, holds: bool) -> None:
        """A new batch is in hand; steps for it are made, or held for a later one."""
        self.holds = holds
        self.loss = self._heard = None
        self.stepped = self.withheld = self.overflowed = False

    def finish(self) -> None:
        """The batch in hand is done: follow what gradients bear."""
        if self.scale is not None and self.overflowed:
            self.scale.shrink()
            if self.scale.value == self.scale.suspicious and self.group.rank == 0:
                logger.warning(
                    "many gradients in a row were not finite, so that their steps were skipped; a smaller loss did not "
                    'help. Is the loss NaN? Pass stop_on_nan=True to see where, or use precision="bf16".'
                )
        elif self.scale is not None and self.stepped:
            self.scale.keep()

    @property
    def was_withheld(self) -> bool:
        """Whether optimizers were asked to step for the batch in hand, and none did."""
        return self.withheld and not self.stepped

    def backward(self, loss: torch.Tensor, **options: Any) -> None:
        """The backward pass, of a larger loss where there is a scale; gradients are true to size afterwards."""
        if self.loss is None:
            self.hear_own(loss)
        if self.scale is None:
            loss.backward(**options)
            return
        params = {id(param): param for update in self._updates for param in params_of(update.optimizer)}.values()
        before = [(param, param.grad) for param in params if param.grad is not None]
        for param, _ in before:
            param.grad = None
        (loss * self.scale.value).backward(**options)
        gradients = [param.grad for param in params if param.grad is not None]
        torch._foreach_mul_([each for each in gradients if each.layout is torch.strided], 1 / self.scale.value)
        for gradient in gradients:
            if gradient.layout is not torch.strided:
                gradient.mul_(1 / self.scale.value)
        for param, gradient in before:
            param.grad = gradient if param.grad is None else param.grad + gradient

    def hear_own(self, loss: torch.Tensor) -> None:
        """This rank's loss of the batch in hand is computed; from a GPU it sets out at once."""
        self.loss = leaving(loss)
        self._heard = weakref.ref(loss)

    def number_of(self, loss: torch.Tensor) -> float:
        """A loss as a number, without waiting for the backward pass if it was heard."""
        return float(self.loss) if self._heard is not None and self._heard() is loss else loss.item()

    def hear_loss(self, loss: float | None) -> None:
        """The loss of this step over all ranks is known."""
        self.global_loss = loss
        if self.stop_on_nan and loss is not None and not math.isfinite(loss):
            raise NotFiniteLossError(loss, *self.place)

    def held(self) -> list[dict[str, Any]]:
        """The gradients that this rank holds for a later step, by optimizer."""
        return [update.held.state() for update in self._updates]

    def held_over_ranks(self) -> list[dict[str, Any]]:
        """The gradients that all ranks hold, as if one held them. All ranks call it together."""
        return [update.held_over_ranks() for update in self._updates]

    def load_held(self, states: Sequence[dict[str, Any]]) -> None:
        """Hold what `held` or `held_over_ranks` gave; nothing where another rank holds all of it."""
        for update, state in zip(self._updates, states, strict=False):
            update.held.load(state, params_of(update.optimizer))

    def drop_held(self) -> None:
        """Forget gradients whose step will not come."""
        self.holds = False
        for update in self._updates:
            update.held.clear()

    def close(self) -> None:
        """Let go of the group's memory. The optimizers make no more steps."""
        for update in self._updates:
            update.close()
        self._updates.clear()

    def optimizer_states(self) -> list[dict[str, Any]]:
        """The optimizers' state_dicts, whole, however many ranks there are. All ranks call it together."""
        return [update.state() for update in self._updates]

    def load_optimizer_states(self, states: Sequence[dict[str, Any]]) -> None:
        """Take up what `optimizer_states` gave, or the state_dicts of plain torch optimizers."""
        for update, state in zip(self._updates, states, strict=True):
            update.load(state)

    @torch.no_grad()
    def broadcast_models(self, models: Iterable[torch.nn.Module]) -> None:
        """Parameters and buffers become rank 0's."""
        if self.group.world_size == 1:
            return
        tensors = [tensor.detach() for _, tensor in _tensors(models) if tensor.numel()]
        flat = np.concatenate([_bytes(tensor) for tensor in tensors] or [np.zeros(0, np.uint8)])
        self.group.broadcast(flat)
        start = 0
        for tensor in tensors:
            stop = start + tensor.numel() * tensor.itemsize
            tensor.copy_(torch.from_numpy(flat[start:stop].copy()).view(tensor.dtype).view(tensor.shape))
            start = stop

    @torch.no_grad()
    def average_buffers(self, models: Iterable[torch.nn.Module], rows: float) -> None:
        """Buffers of numbers become the mean over ranks, weighted by rows; counters and flags the largest."""
        if self.group.world_size == 1:
            return
        buffers = [buffer for model in models for buffer in model.buffers()]
        self._mean([buffer for buffer in buffers if buffer.is_floating_point()], rows)
        self._largest([buffer for buffer in buffers if not buffer.is_floating_point() and not buffer.is_complex()])

    def digest(self, models: Iterable[torch.nn.Module]) -> str:
        """A sha256 over names, types and values of all parameters and buffers."""
        digest = hashlib.sha256()
        for name, tensor in _tensors(models):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(_bytes(tensor.detach()).data)
        return digest.hexdigest()

    def _update(self, optimizer: torch.optim.Optimizer, sharded: bool) -> ReplicatedUpdate:
        return (ShardedUpdate if sharded and can_be_sharded(optimizer) else ReplicatedUpdate)(self, optimizer)

    def _warn_of_whole_updates(self, sharded: bool) -> None:
        optimizers = [type(update.optimizer) for update in self._updates if not isinstance(update, ShardedUpdate)]
        whole = {kind.__name__ for kind in optimizers if not hasattr(kind, "elementwise")}
        if sharded and whole and self.group.world_size > 1 and self.group.rank == 0:
            logger.warning(
                "%s is not known to update every element alone, so every rank makes the whole update and keeps the "
                "whole state. If slices of parameters can be updated alone, set `elementwise = True` on the class.",
                ", ".join(sorted(whole)),
            )

    def _mean(self, buffers: list[torch.Tensor], rows: float) -> None:
        flat = np.zeros(sum(buffer.numel() for buffer in buffers) + 1)
        if rows > 0:
            flat[:-1] = np.concatenate([_numbers(buffer) * rows for buffer in buffers] or [np.zeros(0)])
            flat[-1] = rows
        self.group.all_reduce(flat)
        if flat[-1] > 0:
            _write_back(buffers, flat[:-1] / flat[-1])

    def _largest(self, buffers: list[torch.Tensor]) -> None:
        counts = [buffer.cpu().to(torch.int64).numpy().ravel() for buffer in buffers]
        if counts:
            table = np.zeros((self.group.world_size, sum(map(len, counts))), np.int64)
            table[self.group.rank] = np.concatenate(counts)
            self.group.all_reduce(table.ravel())
            _write_back(buffers, table.max(axis=0))


def _tensors(models: Iterable[torch.nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    for number, model in enumerate(models):
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            yield f"{number}.{name}", tensor


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    return tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy()


def _numbers(buffer: torch.Tensor) -> np.ndarray:
    return buffer.cpu().to(torch.float64).numpy().ravel()


def _write_back(buffers: list[torch.Tensor], flat: np.ndarray) -> None:
    start = 0
    for buffer in buffers:
        stop = start + buffer.numel()
        buffer.copy_(torch.from_numpy(flat[start:stop]).view(buffer.shape))
        start = stop
