"""Shares as Keras takes them: (x, y, sample_weight) of tensors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from zoo.orca.errors import BatchError, sentence
from zoo.orca.feed.structure import as_arguments

if TYPE_CHECKING:
    from zoo.orca.feed.base import Share


def features_of(features: tuple[Any, ...]) -> Any:
    """A model's arguments as Keras has them: one by itself, several in a tuple."""
    return to_tensors(features[0] if len(features) == 1 else tuple(features))


def batch_of(share: Share, class_weight: dict[int, float] | None = None) -> tuple[Any, ...]:
    """(x, y), with the rows' weights where there are any; x alone where the data has no labels."""
    batch = as_arguments(share.batch)
    if len(batch) == 1:
        return (features_of(batch),)
    x, y = features_of(batch[:-1]), batch[-1]
    weights = share.weights
    if class_weight is not None:
        of_classes = weights_of(y, class_weight)
        weights = of_classes if weights is None else of_classes * weights
    return (x, to_tensors(y)) if weights is None else (x, to_tensors(y), to_tensors(weights))


def weights_of(y: Any, class_weight: dict[int, float]) -> np.ndarray:
    """The weight of each row by its class: a number, or the place of the largest of several."""
    if not isinstance(y, np.ndarray) or y.ndim > 2:
        raise BatchError(
            "class_weight needs one array of labels, a class or a row of classes for each record, but there is "
            f"{describe(y)}. Leave out class_weight, or use weight_col=..."
        )
    classes = y if y.ndim == 1 else y[:, 0] if y.shape[1] == 1 else y.argmax(axis=1)
    found, places = np.unique(np.round(classes).astype(np.int64), return_inverse=True)
    return np.array([class_weight.get(int(each), 1.0) for each in found], keras.config.floatx())[places]


def check_takes(model: keras.Model, batch: tuple[Any, ...], what: str) -> None:
    """Raise a typed error if a model that is built cannot take rows like these; nothing is computed."""
    features = as_arguments(batch)
    x = features_of(features[:-1] if len(features) > 1 else features)
    symbolic = tf.nest.map_structure(lambda each: keras.KerasTensor([None, *each.shape[1:]], each.dtype.name), x)
    try:
        keras.src.backend.compute_output_spec(model, symbolic, training=False)
    except Exception as error:
        raise BatchError(
            f"the model {model.name!r} cannot take the rows of {what}, whose features are {describe(x)}: "
            f"{type(error).__name__}: {sentence(_reason(error))} Expected {_expected(model)}."
        ) from error


def _reason(error: Exception) -> str:
    """The line of a Keras error that says why, without its colours."""
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines()]
    said = [line for line in lines if line and not line.startswith("Exception encountered")]
    return said[0] if said else ""


def _expected(model: keras.Model) -> str:
    inputs = getattr(model, "inputs", None) or []
    return ", ".join(f"{each.name} of shape {tuple(each.shape)}" for each in inputs) or "what the model's call() takes"


def to_tensors(value: Any) -> Any:
    """Arrays as tensors, however they are nested; doubles become Keras's floats, as its own fit makes them."""
    return tf.nest.map_structure(_to_tensor, value)


def _to_tensor(value: Any) -> tf.Tensor:
    array = np.asarray(value)
    floats = keras.config.floatx()
    if array.dtype == np.float64 and floats != "float64":
        array = array.astype(floats)
    return tf.convert_to_tensor(array.astype(object) if array.dtype.kind in "US" else array)


def describe(data: Any) -> str:
    """A batch in words."""
    return ", ".join(f"{_to_tensor(each).dtype.name} {tuple(each.shape)}" for each in tf.nest.flatten(data))
