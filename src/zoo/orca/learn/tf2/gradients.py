"""Gradients over all ranks: a Keras optimizer whose `apply` first makes each gradient that of the whole global batch.

All gradients of a step go into one flat buffer and through one call out of the graph: several calls could wait for each
other in different orders on different ranks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from zoo.orca.errors import NotOfferedError
from zoo.orca.learn.tf2.horovod_optimizer import unwrap

if TYPE_CHECKING:
    from zoo.orca.learn.sync import Group

# Weights of all ranks that differ from 1 by no more than this are parts of a whole.
ROUNDING = 1e-6
# Where arrays begin that TensorFlow takes over as they lie.
ALIGNMENT = 64


class Gradients:
    """The gradients of one rank's steps, and their agreement.

    Attributes:
        weight: how much this rank's gradient counts, as a part of the whole.
        is_mean: whether the loss is a mean over rows, and not their sum.
        traced_loss: the loss in the graph that is being traced.
        loss: the last step's, over all ranks.
        error: what went wrong between the ranks, which TensorFlow would hide in an error of its own.
    """

    def __init__(self, group: Group, copies: bool):
        self.group = group
        self.weight = 1.0
        self.is_mean = True
        self.traced_loss: Any = None
        self.loss: float | None = None
        self.error: BaseException | None = None
        self._copies = copies
        self._flats: dict[tuple[Any, ...], list[tuple[np.ndarray, list[tuple[int, np.ndarray]]]]] = {}

    def combined(self, gradients: list[Any], number: int = 0) -> list[Any]:
        """In a graph, or eagerly: the gradients over all ranks, in the place of this rank's, of the optimizer `number`.

        Those of embeddings become whole arrays, on one rank as well: Keras squares a row's parts one by one, if it has
        several in a batch, and so other numbers of workers would train otherwise."""
        dense = [None if each is None else tf.convert_to_tensor(each) for each in gradients]
        if self.group.world_size == 1:
            return dense
        known = [(place, each) for place, each in enumerate(dense) if each is not None]
        loss = self.traced_loss if self.traced_loss is not None else tf.constant(np.nan)
        sent = [tf.cast(each, _exchanged(each.dtype)) for _, each in known]
        exchange = functools.partial(self._exchange, number, self.traced_loss is not None)
        types = [each.dtype for each in sent]
        received = tf.numpy_function(exchange, [tf.cast(loss, tf.float64), *sent], types, stateful=True)
        result = list(gradients)
        for (place, gradient), each in zip(known, received, strict=True):
            each.set_shape(gradient.shape)
            result[place] = tf.cast(each, gradient.dtype)
        return result

    def _exchange(self, number: int, knows_loss: bool, loss: np.ndarray, *gradients: np.ndarray) -> list[np.ndarray]:
        try:
            received, total = self._over_ranks(number, float(loss), gradients)
            self.loss = total if knows_loss else None
            return received
        except BaseException as error:
            self.error = error
            raise

    def _over_ranks(
        self, number: int, loss: float, gradients: tuple[np.ndarray, ...]
    ) -> tuple[list[np.ndarray], float]:
        """The gradients and the loss of all ranks together."""
        flats = self._laid_out(number, gradients)
        for flat, views in flats:
            for place, view in views:
                if self.weight > 0:
                    np.multiply(gradients[place], self.weight, out=view, casting="unsafe")
                else:
                    view.fill(0)
            flat[-2:] = self.weight, self.weight * loss if self.weight > 0 else 0.0
            self.group.all_reduce(flat)
        whole, total_loss = (float(each) for each in flats[0][0][-2:])
        divisor = whole if self.is_mean else 1.0
        received: list[Any] = [None] * len(gradients)
        for flat, views in flats:
            if divisor > 0 and abs(divisor - 1) > ROUNDING:
                flat *= 1 / divisor
            for place, view in views:
                received[place] = view.copy() if self._copies else view
        return received, total_loss / (divisor or 1.0)

    def _laid_out(
        self, number: int, gradients: tuple[np.ndarray, ...]
    ) -> list[tuple[np.ndarray, list[tuple[int, np.ndarray]]]]:
        """A buffer for each type of number, with a view for each gradient and two numbers at its end.

        Each optimizer has its own: the gradients of one may be in use when another's are exchanged."""
        key = (number, *((each.shape, each.dtype.str) for each in gradients))
        if key not in self._flats:
            self._flats[key] = [
                self._lay_out(gradients, dtype) for dtype in sorted({each.dtype for each in gradients}, key=str)
            ]
        return self._flats[key]

    def _lay_out(self, gradients: tuple[np.ndarray, ...], dtype: np.dtype) -> tuple[np.ndarray, list[Any]]:
        step = ALIGNMENT // dtype.itemsize
        places, length = [], 0
        for place, gradient in enumerate(gradients):
            if gradient.dtype == dtype:
                places.append((place, length))
                length += -(-gradient.size // step) * step
        flat = self.group.empty(length + 2, dtype)
        views = [
            (place, flat[start : start + gradients[place].size].reshape(gradients[place].shape))
            for place, start in places
        ]
        return flat, views

    def close(self) -> None:
        self._flats.clear()


def reduce_in(optimizer: Any, gradients: Gradients, number: int = 0) -> None:
    """Let an optimizer apply the gradients over all ranks; clipping, accumulation and unscaling come after."""
    unwrap(optimizer)
    _apply_first(optimizer, lambda each: gradients.combined(each, number))


def clip_in(optimizer: Any, clip: tuple[Any, ...] | None) -> None:
    """Clip what an optimizer applies: ("value", low, high) or ("norm", most), over all gradients together."""
    if clip is not None:
        _apply_first(optimizer, lambda each: clipped(each, clip))


def _apply_first(optimizer: Any, change: Callable[[list[Any]], list[Any]]) -> None:
    """Change gradients before an optimizer applies them."""
    plain = type(optimizer)

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        return plain.apply(self, change(list(grads)), trainable_variables)

    # Of the same name, by which its variables and files are called.
    changed = {"apply": apply, "__module__": plain.__module__, "_own_class": plain}
    optimizer.__class__ = type(plain.__name__, (plain,), changed)


def clipped(gradients: list[Any], clip: tuple[Any, ...] | None) -> list[Any]:
    """Gradients over all ranks, clipped as the estimator was told to."""
    if clip is None:
        return gradients
    if clip[0] == "value":
        return [None if each is None else tf.clip_by_value(each, *clip[1:]) for each in gradients]
    return tf.clip_by_global_norm(gradients, clip[1])[0]


def own_again(optimizer: Any) -> None:
    """Undo `reduce_in` and `clip_in`."""
    while "_own_class" in vars(type(optimizer)):
        optimizer.__class__ = type(optimizer)._own_class


def check_sums(model: Any, world_size: int) -> None:
    """A loss that is a sum would count what the model adds to it (weight decay, say) once for every rank."""
    if world_size > 1 and model.losses:
        raise NotOfferedError(
            'the loss has reduction="sum", and the model adds losses of its own (regularizers, add_loss), which '
            f'{world_size} workers would each add. Use the default reduction, "sum_over_batch_size", or num_workers=1.'
        )


def _exchanged(dtype: tf.DType) -> tf.DType:
    """The type in which ranks add up gradients: halves would lose too much."""
    return dtype if dtype in (tf.float32, tf.float64) else tf.float32
