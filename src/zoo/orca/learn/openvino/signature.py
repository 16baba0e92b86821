"""What a model takes and gives, known without compiling it, and a user's arrays put in that order and checked."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError, ModelFileError
from zoo.orca.feed.structure import flatten
from zoo.orca.learn.openvino.casting import check_kind

# The least and the most that a dimension may be; the most is None where there is no bound.
Dimension = tuple[int, int | None]


@dataclass(frozen=True)
class Port:
    """One input or output of a model.

    Attributes:
        names: what its tensor is called; the first is used in messages.
        dtype: what its array holds, as numpy calls it.
        dimensions: with the first, which counts rows; None if not even their number is known, as only outputs may have.
    """

    names: tuple[str, ...]
    dtype: str
    dimensions: tuple[Dimension, ...] | None

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        """The shape of one row, if it is fixed."""
        if self.dimensions is None or not self.dimensions:
            return None
        sizes = [least for least, most in self.dimensions[1:] if least == most]
        return tuple(sizes) if len(sizes) == len(self.dimensions) - 1 else None

    @property
    def some_row(self) -> tuple[int, ...]:
        """The shape of a row that it takes; one of them, if it takes several."""
        return tuple(max(1, least) for least, _ in (self.dimensions or ())[1:])

    def takes_rows_of(self, shape: Sequence[int]) -> bool:
        """Whether a row of this shape can be given to it."""
        rest = (self.dimensions or ())[1:]
        return len(rest) == len(shape) and all(_fits(size, each) for size, each in zip(shape, rest, strict=True))

    def __str__(self) -> str:
        """For example: 'x', [rows, 3, any] float32."""
        sizes = ["rows", *map(_in_words, (self.dimensions or ())[1:])]
        return f"{self.name!r}, [{', '.join(sizes)}] {self.dtype}"


@dataclass(frozen=True)
class Arranged:
    """A user's arrays in the order of a model's inputs.

    Attributes:
        leading: the first two dimensions (batches, rows in each) of arrays that came in batches; else None.
    """

    arrays: list[np.ndarray]
    leading: tuple[int, int] | None = None

    @property
    def rows(self) -> int:
        return len(self.arrays[0])


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @property
    def fewest_rows(self) -> int:
        """The fewest rows that the model takes at once; fewer are filled up."""
        return max(1, self._batch[0])

    def piece(self, batch_size: int) -> int:
        """The rows to give to the model at once: those asked for, within what it takes."""
        most = self._batch[1]
        return max(self.fewest_rows, batch_size if most is None else min(batch_size, most))

    @functools.cached_property
    def _batch(self) -> Dimension:
        known = [port.dimensions[0] for port in self.inputs if port.dimensions]
        least = max((low for low, _ in known), default=0)
        return least, min((high for _, high in known if high is not None), default=None)

    def check_rows(self) -> None:
        """Raise a typed error unless the first dimension of every input and output can count the same rows."""
        least, most = self._batch
        if () in [port.dimensions for port in self.inputs] or (most is not None and least > most):
            raise ModelFileError(
                "the first dimension of every input must count the same rows, but the inputs are "
                f"{self._listed()}. Export the model with one batch size, or with any."
            )
        for port in self.outputs:
            if port.dimensions is None:
                continue
            first = port.dimensions[0] if port.dimensions else (0, 0)
            # Rows of any number cannot all come out as one fixed number of them.
            if first[0] == first[1] and first != self._batch:
                raise ModelFileError(
                    f"a model must give a row for each row it takes, but output {port.name!r} has "
                    f"{first[0] if port.dimensions else 'no'} row(s) always. Keep the first dimension in the model."
                )

    def arrange(self, features: Sequence[Any], flat_rows: bool = False) -> Arranged:
        """Features (a sequence, or one dict by name) as arrays in the model's order, of shapes that it takes.

        Args:
            flat_rows: whether a row of one dimension may stand for the row of the same size that the model takes, as
                in the columns of a table.
        """
        arrays = self._in_order(features)
        for port, array in zip(self.inputs, arrays, strict=True):
            check_kind(array, port.name)
        if flat_rows:
            arrays = [_unflattened(port, array) for port, array in zip(self.inputs, arrays, strict=True)]
        leading = None
        if not flat_rows and all(_has_batches(port, array) for port, array in zip(self.inputs, arrays, strict=True)):
            leading = self._one_of({array.shape[:2] for array in arrays}, "batches and rows")
            arrays = [array.reshape(math.prod(leading), *array.shape[2:]) for array in arrays]
        for port, array in zip(self.inputs, arrays, strict=True):
            if not array.ndim or not port.takes_rows_of(array.shape[1:]):
                raise InvalidArgumentError(
                    f"the model takes {port}, but got {array.dtype} {list(array.shape)}. Give rows of that shape "
                    "(reshape, transpose), with at most one dimension before them, which counts batches."
                )
        self._one_of({len(array) for array in arrays}, "rows")
        return Arranged(arrays, leading)

    def has_names(self, keys: Any) -> bool:
        """Whether keys name every input, each once, and nothing else."""
        found = [self._named(key) for key in keys]
        return None not in found and len(set(found)) == len(found) == len(self.inputs)

    def _in_order(self, features: Sequence[Any]) -> list[np.ndarray]:
        if len(features) == 1 and isinstance(features[0], Mapping):
            given = features[0]
            if not self.has_names(given):
                found = ", ".join(map(repr, given)) or "nothing"
                raise InvalidArgumentError(
                    f"the inputs of the model are {self._listed()}, but the dict has {found}. "
                    "Give an array for each of those names."
                )
            by_input = {self._named(key): value for key, value in given.items()}
            features = [by_input[number] for number in range(len(self.inputs))]
        leaves, _ = flatten(list(features))
        self.check_count(len(leaves))
        return leaves

    def check_count(self, found: int) -> None:
        """Raise a typed error unless there are as many arrays, or columns, as inputs."""
        if found != len(self.inputs):
            several = "Give a list with an array for each, in this order, or a dict by these names."
            raise InvalidArgumentError(
                f"the model takes {len(self.inputs)} input(s), {self._listed()}, but got {found}. "
                + (several if len(self.inputs) > 1 else "Give one array, or column; np.stack makes one array of rows.")
            )

    def _named(self, key: Any) -> int | None:
        return next((number for number, port in enumerate(self.inputs) if key in port.names), None)

    def _one_of(self, found: set[Any], what: str) -> Any:
        if len(found) > 1:
            raise InvalidArgumentError(
                f"all inputs must have as many {what}, but they have {', '.join(map(str, sorted(found)))}."
            )
        return found.pop()

    def _listed(self) -> str:
        return "; ".join(map(str, self.inputs))


def _has_batches(port: Port, array: np.ndarray) -> bool:
    return array.ndim == len(port.dimensions or ()) + 1


def _unflattened(port: Port, array: np.ndarray) -> np.ndarray:
    if array.shape == (0,):  # a column of no rows does not say how long its arrays would be
        return array.reshape(0, *port.some_row)
    shape = port.row_shape
    if shape is None or port.takes_rows_of(array.shape[1:]):
        return array
    is_flat = array.ndim in (1, 2) and math.prod(array.shape[1:]) == math.prod(shape)
    return array.reshape(len(array), *shape) if is_flat else array


def _fits(size: int, dimension: Dimension) -> bool:
    least, most = dimension
    return least <= size and (most is None or size <= most)


def _in_words(dimension: Dimension) -> str:
    least, most = dimension
    if least == most:
        return str(least)
    return "any" if most is None and least == 0 else f"{least} to {'any' if most is None else most}"
