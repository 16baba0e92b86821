"""Parameters of one dtype, side by side in one flat buffer, so that their gradients travel together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from zoo.orca.learn.sync.base import Group

# Offsets are multiples of this many elements, so that every view is aligned for vector instructions.
ALIGNED = 16
# Sums of narrower numbers than float32 would lose what ranks add.
SUMMED_AS = {torch.float64: np.float64, torch.complex128: np.float64}
# Weights are moved, not summed, so that only their width counts.
INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


@dataclass(frozen=True)
class Piece:
    """A part of a parameter that lies in one rank's slice.

    Attributes:
        index: which parameter of the optimizer.
        start, stop: from where to where, in the parameter's own memory.
        values: those elements, as a view of the parameter; of its own shape where they are all of it.
        place: where they lie in the bucket.
    """

    index: int
    start: int
    stop: int
    values: torch.Tensor
    place: slice


class Bucket:
    """Parameters of one dtype and one flat buffer for their gradients, of float32 or float64.

    Args:
        params: (index in the optimizer, parameter) pairs.
        tail: further numbers at the end of the buffer, which are summed along.
    """

    def __init__(self, group: Group, dtype: torch.dtype, params: list[tuple[int, torch.Tensor]], tail: int):
        self.group = group
        self.dtype = dtype
        self.indices = [index for index, _ in params]
        self.params = [param for _, param in params]
        self.offsets = []
        self.length = 0
        for param in self.params:
            self.offsets.append(self.length)
            self.length += -(-_room(param) // ALIGNED) * ALIGNED
        self._tail = tail
        self._flat: torch.Tensor | None = None

    @property
    def flat(self) -> torch.Tensor:
        """The buffer. It is made at the first use: frozen parameters may never need one."""
        if self._flat is None:
            self._flat = self._make_flat()
        return self._flat

    def _make_flat(self) -> torch.Tensor:
        flat = _new_buffer(self.group, self.length + self._tail, SUMMED_AS.get(self.dtype, np.float32))
        self.views = [
            shaped_like(param, flat[offset : offset + _room(param)])
            for param, offset in zip(self.params, self.offsets, strict=True)
        ]
        return flat

    @property
    def tail(self) -> torch.Tensor:
        return self.flat[self.length :]

    def is_needed(self) -> bool:
        return any(param.requires_grad or param.grad is not None for param in self.params)

    def fill(self, weight: float, held: Mapping[int, torch.Tensor]) -> None:
        """Write the weighted gradients, and zeros where there is none or where they count for nothing.

        Gradients that were held, by the number of their parameter, are weighted already and are added."""
        flat = self.flat
        if weight == 0:
            flat[: self.length].zero_()
        for index, param, view in zip(self.indices, self.params, self.views, strict=True):
            if weight != 0:
                _write_weighted(param.grad, weight, view)
            if index in held:
                view.add_(held[index].to(view.device))

    def hand_out(self, has_gradient: list[bool]) -> None:
        """Make the combined gradients the parameters' own."""
        for index, param, view in zip(self.indices, self.params, self.views, strict=True):
            param.grad = as_gradient_of(param, view) if has_gradient[index] else None

    def pieces(self, rank: int) -> list[Piece]:
        """What of the parameters lies in a rank's slice; parameters without elements are rank 0's."""
        mine = self.group.slice(self.length, rank)
        found = []
        for index, param, offset in zip(self.indices, self.params, self.offsets, strict=True):
            start = max(mine.start - offset, 0)
            stop = min(mine.stop - offset, param.numel())
            if start < stop or (param.numel() == 0 and rank == 0):
                values = param.detach()
                if stop - start != param.numel():
                    values = in_memory_order(values)[start:stop]
                found.append(Piece(index, start, stop, values, slice(offset + start, offset + stop)))
        return found


class Shard:
    """A rank's share in a bucket: the pieces in its slice, and how it hands their new weights to the others."""

    def __init__(self, bucket: Bucket):
        self.bucket = bucket
        self.takes_part = False
        group = self._group = bucket.group
        self.mine = bucket.pieces(group.rank)
        self._theirs = {rank: bucket.pieces(rank) for rank in range(group.world_size) if rank != group.rank}
        self._gradients: list[torch.Tensor] | None = None
        self._board: torch.Tensor | None = None
        self._sources: dict[int, tuple[int, list[torch.Tensor]]] = {}

    def hand_out(self, has_gradient: list[bool]) -> None:
        """Make the combined gradients those of my pieces."""
        if not self.takes_part:
            for piece in self.mine:
                piece.values.grad = None
            return
        if self._gradients is None:
            self._gradients = [shaped_like(piece.values, self.bucket.flat[piece.place]) for piece in self.mine]
        for piece, view in zip(self.mine, self._gradients, strict=True):
            piece.values.grad = as_gradient_of(piece.values, view) if has_gradient[piece.index] else None

    def share(self) -> None:
        """Hand my weights to the others and take theirs."""
        if self._board is None:
            self._board = _new_buffer(self._group, self.bucket.length, INTEGERS[self.bucket.dtype.itemsize])
            weights = self._board.view(self.bucket.dtype)
            self._places = [shaped_like(piece.values, weights[piece.place]) for piece in self.mine]
        if self.mine:
            torch._foreach_copy_(self._places, [piece.values for piece in self.mine])
        parts = self._group.all_gather(self._board)
        for rank, pieces in self._theirs.items():
            if pieces:
                torch._foreach_copy_([piece.values for piece in pieces], self._views_of(rank, parts[rank]))

    def _views_of(self, rank: int, part: Any) -> list[torch.Tensor]:
        """A rank's pieces in its part of the board, which mostly lies where it lay last time."""
        part = torch.from_numpy(part) if isinstance(part, np.ndarray) else part
        address, views = self._sources.get(rank, (0, []))
        if address != part.data_ptr():
            first = self._group.slice(self.bucket.length, rank).start
            weights = part.view(self.bucket.dtype)
            views = [
                shaped_like(piece.values, weights[piece.place.start - first : piece.place.stop - first])
                for piece in self._theirs[rank]
            ]
            self._sources[rank] = (part.data_ptr(), views)
        return views


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the tensor fills its memory, in one of torch's usual orders."""
    if tensor.is_contiguous():
        return True
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.dim() in formats and tensor.is_contiguous(memory_format=formats[tensor.dim()])


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """A dense tensor's elements, flat."""
    return tensor.as_strided((tensor.numel(),), (1,))


def shaped_like(tensor: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """The elements of `flat`, in the shape and memory order of a tensor."""
    if tensor.is_complex() and not flat.is_complex():
        flat = flat.view(torch.complex128 if flat.dtype is torch.float64 else torch.complex64)
    return flat.as_strided(tensor.size(), tensor.stride()) if is_dense(tensor) else flat.view(tensor.size())


def as_gradient_of(param: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """The view itself, where dtype and device allow it."""
    return view.to(device=param.device, dtype=param.dtype)


def _write_weighted(grad: torch.Tensor | None, weight: float, view: torch.Tensor) -> None:
    if grad is None:
        view.zero_()
        return
    if grad.layout is not torch.strided:
        grad = grad.to_dense()
    if grad.dtype is view.dtype and grad.device == view.device:
        torch.mul(grad, weight, out=view)
    else:
        view.copy_(grad).mul_(weight)


def _room(param: torch.Tensor) -> int:
    return param.numel() * (2 if param.is_complex() else 1)


def _new_buffer(group: Group, length: int, dtype: Any) -> torch.Tensor:
    """A buffer for the group's collectives, on the device where it makes them."""
    buffer = torch.from_numpy(group.empty(length, dtype))
    return buffer if group.device == "cpu" else buffer.to(group.device)
