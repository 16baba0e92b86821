"""Sharded updates: each rank gets the sum of its slice of the gradients alone.

The rank updates that slice of the weights, with that slice of the optimizer's state, and hands the new weights to the
others.
"""

from __future__ import annotations

import collections
import copy
import io
import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import optim

from zoo.orca.learn.pytorch.buckets import Piece, Shard, in_memory_order
from zoo.orca.learn.pytorch.tensors import snapshot
from zoo.orca.learn.pytorch.updates import ReplicatedUpdate, clip_to, params_of, scale_to_mean

if TYPE_CHECKING:
    from zoo.orca.learn.sync.base import Group


class ShardedUpdate(ReplicatedUpdate):
    """Each rank updates its slice, by a twin of the optimizer over pieces of the parameters."""

    def _apply(self) -> None:
        self._step_pieces()
        for shard in self._shards:
            if shard.takes_part:
                shard.share()
        self.optimizer._opt_called = True  # what torch's schedulers look at

    def state(self) -> dict[str, Any]:
        """The whole state, from all ranks' slices."""
        mine = [
            (piece.index, self._twin.state[piece.values]) for piece in self._pieces if piece.values in self._twin.state
        ]
        found: dict[int, list[dict[str, Any]]] = collections.defaultdict(list)
        for part in exchange(self.group, snapshot(mine)):
            for index, values in part:
                found[index].append(values)
        state = {index: _merge(self._params[index], found[index]) for index in sorted(found)}
        return snapshot({"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]})

    def load(self, state: dict[str, Any]) -> None:
        """Take my slices of a whole state."""
        self.optimizer.load_state_dict({"state": {}, "param_groups": copy.deepcopy(state["param_groups"])})
        _copy_settings(self.optimizer, self._twin)
        wholes = state["state"]
        pieces = {
            number: {key: _cut(self._params[piece.index], piece, value) for key, value in wholes[piece.index].items()}
            for number, piece in enumerate(self._pieces)
            if piece.index in wholes
        }
        numbers = iter(range(len(self._pieces)))
        groups = [{**group, "params": [next(numbers) for _ in group["params"]]} for group in self._twin.param_groups]
        self._twin.load_state_dict({"state": pieces, "param_groups": groups})

    def _lay_out(self) -> None:
        super()._lay_out()
        self._shards = [Shard(bucket) for bucket in self._buckets]
        pieces = [piece for shard in self._shards for piece in shard.mine]
        self._pieces = sorted(pieces, key=lambda piece: piece.index)
        self._twin = self._make_twin()
        # Some optimizers make their state at once.
        self.load(self.optimizer.state_dict())
        self.optimizer.state.clear()

    def _make_twin(self) -> optim.Optimizer:
        """An optimizer of the same class and settings, over my pieces, without state."""
        twin = object.__new__(type(self.optimizer))
        twin.__dict__.update(self.optimizer.__dict__)
        twin.__dict__.pop("step", None)
        twin.state = collections.defaultdict(dict)
        values = {piece.index: piece.values for piece in self._pieces}
        numbered = itertools.count()
        twin.param_groups = [
            {"params": [values[index] for _, index in zip(group["params"], numbered, strict=False) if index in values]}
            for group in self.optimizer.param_groups
        ]
        _copy_settings(self.optimizer, twin)
        return twin

    def _sign(self) -> Any:
        """Pieces are views: they are made anew when a parameter has moved to other memory."""
        return [(id(param), param.data_ptr()) for param in params_of(self.optimizer)]

    def _check_layout(self) -> None:
        if self._sign() != self._signature:
            before, added = self.state(), self.optimizer.state_dict()["state"]
            self._lay_out()
            self.load({**before, "state": {**added, **before["state"]}})

    @torch.no_grad()
    def _combine(self, loss: Any) -> bool:
        """Make the gradients of my pieces the combined ones."""
        needed = self._send(loss, float(self.replica.weight))
        for bucket in needed:
            self.group.reduce_scatter(bucket.flat, len(bucket.tail))
        divisor, has_gradient, are_numbers = self._receive(loss)
        if not are_numbers:
            return False
        flats = [bucket.flat[self.group.slice(bucket.length)] for bucket in needed]
        scale_to_mean(flats, divisor)
        clip_to(flats, self.replica.clip, self._norm_over_ranks)
        for shard in self._shards:
            shard.takes_part = shard.bucket in needed
            shard.hand_out(has_gradient)
        return True

    def _norm_over_ranks(self, norm: float) -> float:
        squares = np.array([norm * norm])
        self.group.all_reduce(squares)
        return math.sqrt(squares[0])

    def _step_pieces(self) -> None:
        """Schedulers and users change the settings of their optimizer; some optimizers change them in a step."""
        _copy_settings(self.optimizer, self._twin)
        self._twin.step()
        _copy_settings(self._twin, self.optimizer)


def exchange(group: Group, value: Any) -> list[Any]:
    """Every rank's value, by rank: tensors and plain data, however large."""
    if group.world_size == 1:
        return [value]
    written = io.BytesIO()
    torch.save(value, written)
    mine = np.frombuffer(written.getbuffer(), np.uint8)
    sizes = np.zeros(group.world_size, np.int64)
    sizes[group.rank] = len(mine)
    group.all_reduce(sizes)
    flat = np.zeros(group.world_size * sizes.max(), np.uint8)
    flat[group.slice(len(flat))][: len(mine)] = mine
    parts = group.all_gather(flat)
    return [
        torch.load(io.BytesIO(part[:size].tobytes()), weights_only=True)
        for part, size in zip(parts, sizes, strict=True)
    ]


def _copy_settings(source: optim.Optimizer, target: optim.Optimizer) -> None:
    for theirs, mine in zip(source.param_groups, target.param_groups, strict=True):
        mine.update({key: value for key, value in theirs.items() if key not in ("params", "param_names")})


def _merge(param: torch.Tensor, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """A parameter's state from the states of its pieces, in order."""
    if len(parts) == 1:
        return parts[0]
    merged = {}
    for key, value in parts[0].items():
        if torch.is_tensor(value) and value.dim() == 1:
            flat = torch.cat([part[key] for part in parts])
            value = torch.empty_like(param, dtype=flat.dtype, device="cpu")
            in_memory_order(value).copy_(flat)
        merged[key] = value
    return merged


def _cut(param: torch.Tensor, piece: Piece, value: Any) -> Any:
    """What of a parameter's state belongs to a piece of it; what is not there for each element belongs to all."""
    if not torch.is_tensor(value):
        return copy.deepcopy(value)
    if value.shape != param.shape or piece.values.shape == param.shape:
        return value.clone()
    in_order = torch.empty_like(param, dtype=value.dtype, device=value.device).copy_(value)
    return in_memory_order(in_order)[piece.start : piece.stop].clone()
