"""A graph as it travels to the workers: bytes, and the names of what is fed, computed and changed in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zoo.orca.errors import BatchError, InvalidArgumentError
from zoo.orca.feed.structure import flatten


@dataclass(frozen=True)
class Fed:
    """A tensor that rows are fed to.

    Attributes:
        dtype: numpy's name for the type of its elements; "object" is text.
        shape: its dimensions, None where any length will do; None where any shape will.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None = None

    def take(self, array: np.ndarray, what: str = "data") -> np.ndarray:
        """Rows in the type and shape of the tensor; a typed error where they do not fit."""
        array = self._shaped(array, what)
        is_text = array.dtype.kind in "OSU"
        if is_text != (self.dtype == "object"):
            raise BatchError(
                f"{self.name} takes {'text' if self.dtype == 'object' else self.dtype}, but {what} gives "
                f"{'text' if is_text else array.dtype}. Convert the column, or feed another tensor."
            )
        if is_text:
            return array if array.dtype == object else array.astype(object)
        return np.ascontiguousarray(array, _numpy_type(self.dtype))

    def _shaped(self, array: np.ndarray, what: str) -> np.ndarray:
        if self.shape is None:
            return array
        wanted = self.shape
        if array.ndim == len(wanted) - 1 and wanted[-1] in (1, None):
            array = array[..., np.newaxis]  # a number for each row, where a column of them is wanted
        elif array.ndim == len(wanted) + 1 and array.shape[-1] == 1:
            array = array[..., 0]
        fits = array.ndim == len(wanted) and all(
            w in (None, n) for w, n in zip(wanted[1:], array.shape[1:], strict=True)
        )
        if not fits:
            raise BatchError(
                f"{self.name} takes rows of the shape {_row_shape(wanted)}, but {what} gives rows of the shape "
                f"{array.shape[1:]}. Check the columns and their order: features go to inputs and labels to labels, "
                "one after the other."
            )
        if wanted and wanted[0] not in (None, len(array)):
            raise BatchError(
                f"{self.name} takes {wanted[0]} rows at a time, but a worker's part of a batch has {len(array)}. "
                "Make the placeholder's first dimension None."
            )
        return array


@dataclass(frozen=True)
class Variable:
    """A variable of the graph, under the name that a checkpoint has for it."""

    name: str
    is_resource: bool
    dtype: str


@dataclass(frozen=True)
class Gradient:
    """The gradient of a variable: fetched as this rank's, fed as that of all ranks.

    Attributes:
        values: the tensor of it, or of the rows that the batch touched.
        indices: the tensor of those rows' numbers; None for a gradient of the whole variable.
    """

    variable: str
    values: str
    indices: str | None
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Clip:
    """What becomes of a gradient over all ranks before it is applied.

    Attributes:
        tensor_norm: no gradient of one variable has a larger L2 norm.
        norm: all together have no larger one.
        low, high: no element is outside of these.
    """

    tensor_norm: float | None = None
    norm: float | None = None
    low: float | None = None
    high: float | None = None

    def apply(self, gradients: Sequence[np.ndarray]) -> None:
        """Clip gradients in place."""
        if self.tensor_norm is not None:
            for each in gradients:
                _shorten([each], self.tensor_norm)
        if self.norm is not None:
            _shorten(gradients, self.norm)
        if self.low is not None or self.high is not None:
            for each in gradients:
                np.clip(each, self.low, self.high, out=each)


@dataclass(frozen=True)
class Metric:
    """A metric: a tensor that is the mean over a batch, or, with variables, one that is made of their sums.

    Attributes:
        variables: what batches are counted in, on each rank.
        updates: the operations that count a batch.
        resets: those that set the variables to what they begin with.
    """

    name: str
    value: str
    variables: tuple[Variable, ...] = ()
    updates: tuple[str, ...] = ()
    resets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Training:
    """How a step is made.

    Attributes:
        updates: operations that run with each batch, such as those of batch normalisation.
        steady: operations that run with each step, whatever the batch.
        apply: the operation that takes the gradients; None where an orca optimizer does it.
        apply_needs: what must be fed to it beside them.
        method: the orca optimizer, or several by the prefix of variables' names.
        is_written: whether updates change variables that are trained, too.
        own: the variables that each rank changes by itself, and that ranks agree on at times.
        rate: the learning rate, or the tensor of it.
    """

    loss: str
    gradients: tuple[Gradient, ...]
    updates: tuple[str, ...]
    steady: tuple[str, ...]
    apply: str | None
    apply_needs: tuple[str, ...]
    method: Any
    clip: Clip
    is_written: bool
    own: tuple[str, ...]
    rate: float | str


@dataclass(frozen=True)
class Parcel:
    """A graph with no values in it, and what is done with it.

    Attributes:
        graph: a serialised GraphDef.
        variables: those whose values training changes or needs; metrics have their own.
        tables: operations that fill lookup tables.
        constants: what is fed with every batch, in training and otherwise, by tensor.
        config: a serialised ConfigProto.
        is_seeded: whether its random operations draw what a fed number says.
        loss: what "val_loss" is the mean of; None where nobody asks for it.
        several: whether predictions are lists of outputs.
        is_batched: whether tensors have a dimension for rows; else rows are fed one by one.
    """

    graph: bytes
    variables: tuple[Variable, ...]
    tables: tuple[str, ...]
    inputs: tuple[Fed, ...]
    labels: tuple[Fed, ...] = ()
    constants: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    config: bytes = b""
    seed: int = 0
    is_seeded: bool = False
    training: Training | None = None
    loss: str | None = None
    metrics: tuple[Metric, ...] = ()
    outputs: tuple[str, ...] = ()
    several: bool = False
    is_batched: bool = True

    def feeds(self, batch: Any, weights: np.ndarray | None = None, what: str = "data") -> dict[str, Any]:
        """A batch, by the tensors that it is fed to."""
        fed = (*self.inputs, *self.labels)
        arrays = flat_arrays(in_order(tuple(batch), self.inputs), weights, len(fed))
        if len(arrays) != len(fed):
            raise wrong_number(arrays, self.inputs, self.labels, what)
        return {each.name: each.take(array, what) for each, array in zip(fed, arrays, strict=True)}

    def input_feeds(self, features: Any) -> dict[str, Any]:
        """Features alone, by the tensors that they are fed to."""
        arrays, _ = flatten(in_order(tuple(features), self.inputs))
        if len(arrays) != len(self.inputs):
            raise wrong_number(arrays, self.inputs, (), "data")
        return {each.name: each.take(array) for each, array in zip(self.inputs, arrays, strict=True)}


def in_order(batch: tuple[Any, ...], inputs: Sequence[Fed]) -> tuple[Any, ...]:
    """A batch whose features are a dict by the names of the inputs, with them in the order of the inputs."""
    names = [each.name.partition(":")[0] for each in inputs]
    if batch and isinstance(batch[0], dict) and set(batch[0]) == set(names):
        return (*(batch[0][name] for name in names), *batch[1:])
    return batch


def flat_arrays(batch: Any, weights: np.ndarray | None, expected: int) -> list[np.ndarray]:
    """The arrays of a batch in the order of the data's own; feeds put a label of -1 where the data has none."""
    arrays, _ = flatten(tuple(batch))
    if weights is not None:
        return [*arrays, weights]
    is_extra = len(arrays) == expected + 1 and arrays[-1].dtype == np.int64 and bool(np.all(arrays[-1] == -1))
    return arrays[:-1] if is_extra else arrays


def wrong_number(
    arrays: Sequence[np.ndarray], inputs: Sequence[Fed], labels: Sequence[Fed], what: str
) -> InvalidArgumentError:
    names = ", ".join(each.name for each in (*inputs, *labels))
    found = ", ".join(f"{each.dtype} {each.shape[1:]}" for each in arrays)
    labelled = f" and {len(labels)} label(s)" if labels else ""
    return InvalidArgumentError(
        f"the graph takes {len(inputs)} input(s){labelled} ({names}), but {what} gives {len(arrays)} array(s) a batch "
        f"({found}). Features go to inputs and labels to labels, one after the other: one column or array for each."
    )


def _shorten(gradients: Sequence[np.ndarray], most: float) -> None:
    norm = float(np.sqrt(sum(float(np.vdot(each, each)) for each in gradients)))
    if not norm <= most:  # a norm that is not a number must be seen in the weights, as it would be without us
        for each in gradients:
            each *= each.dtype.type(most / norm)


def _numpy_type(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(name)


def _row_shape(shape: Sequence[int | None]) -> str:
    return f"({', '.join('any' if each is None else str(each) for each in shape[1:])})"
