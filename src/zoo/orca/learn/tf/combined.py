"""The gradients of all ranks as one: a flat buffer that each fills, and that one sum makes the gradient of them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.learn.tf.parcel import Gradient

if TYPE_CHECKING:
    from zoo.orca.learn.sync import Group
    from zoo.orca.learn.tf.opened import OpenGraph


class Combined:
    """One buffer for all gradients. A gradient of some rows of a variable has a mark for each row that was touched.

    Attributes:
        fetches: the tensors that `fill` takes the values of.
        gradients: what the buffer holds, an array for each variable.
    """

    def __init__(self, group: Group, gradients: Sequence[Gradient], opened: OpenGraph):
        dtypes = [opened.graph.get_tensor_by_name(each.values).dtype.as_numpy_dtype for each in gradients]
        self._dtypes = [np.dtype(each) for each in dtypes]
        self._group = group
        self._descriptions = list(gradients)
        self.fetches = [name for each in gradients for name in (each.values, each.indices) if name is not None]
        self.gradients: list[np.ndarray] = []
        self._marks: list[np.ndarray] = []
        self._loss = np.zeros(1)
        # What one rank alone fetched is the gradient of all, and need not be copied.
        self._is_alone = group.world_size == 1 and all(each.indices is None for each in gradients)
        self._flat = None if self._is_alone else self._lay_out()

    def _lay_out(self) -> np.ndarray:
        kind = np.float64 if any(each == np.float64 for each in self._dtypes) else np.float32
        sizes = [int(np.prod(each.shape)) for each in self._descriptions]
        marks = [each.shape[0] if each.indices else 0 for each in self._descriptions]
        flat = self._group.empty(sum(sizes) + sum(marks) + 1, kind)
        start = 0
        for each, size, mark in zip(self._descriptions, sizes, marks, strict=True):
            self.gradients.append(flat[start : start + size].reshape(each.shape))
            self._marks.append(flat[start + size : start + size + mark])
            start += size + mark
        self._loss = flat[-1:]
        return flat

    def fill(self, fetched: Sequence[Any], weight: float, loss: float) -> None:
        """Take this rank's gradients and loss, as so large a part of the whole."""
        self._loss[0] = loss * weight
        if self._is_alone:
            self.gradients = [np.asarray(each) for each in fetched]
            return
        values = iter(fetched)
        for each, view, marks in zip(self._descriptions, self.gradients, self._marks, strict=True):
            if each.indices is None:
                np.multiply(next(values), weight, out=view, casting="unsafe")
                continue
            rows, indices = next(values), next(values)
            view.fill(0)
            marks.fill(0)
            np.add.at(view, indices, rows.astype(view.dtype) * view.dtype.type(weight))
            marks[indices] = 1

    def fill_nothing(self) -> None:
        """This rank has no part in the step."""
        if self._flat is not None:
            self._flat.fill(0)

    def agree(self) -> float:
        """Make the gradients those of all ranks; gives the loss over all ranks."""
        if self._flat is not None:
            self._group.all_reduce(self._flat)
        return float(self._loss[0])

    def feeds(self) -> dict[str, np.ndarray]:
        """The gradients as what takes them is fed."""
        found: dict[str, np.ndarray] = {}
        for number, (each, view, dtype) in enumerate(
            zip(self._descriptions, self.gradients, self._dtypes, strict=True)
        ):
            if each.indices is None:
                found[each.values] = view.astype(dtype, copy=False)
                continue
            touched = np.flatnonzero(self._marks[number])
            found[each.values] = view[touched].astype(dtype, copy=False)
            found[each.indices] = touched
        return found

    def close(self) -> None:
        """Let go of the group's memory."""
        self._flat = None
        self._loss = np.zeros(1)
        self.gradients, self._marks = [], []
