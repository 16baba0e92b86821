"""What a module gives for arrays, in batches, without gradients and out of training mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from bigdl.nn.criterion_base import as_tensors
from bigdl.nn.parts import leaves, map_table
from bigdl.util.common import Sample
from zoo.orca.errors import InvalidArgumentError

BATCH = 32
#: What torch raises for an input that does not fit.
REFUSALS = (RuntimeError, ValueError, IndexError, TypeError)


@contextmanager
def out_of_training(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, and no gradients; afterwards every module is in the mode it was in."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def is_local(features: Any) -> bool:
    """Whether these are arrays, and not records."""
    if isinstance(features, list | tuple):
        return not any(isinstance(each, Sample) for each in features)
    return isinstance(features, np.ndarray)


def predict_arrays(function: Callable[[Any], Any], features: Any, batch_size: int = -1) -> Any:
    """What a function of tensors gives for all rows; a list of arrays for a list of outputs."""
    inputs = as_tensors(features)
    rows = {len(each) if each.dim() else 0 for each in leaves(inputs)}
    if len(rows) != 1 or rows == {0}:
        raise InvalidArgumentError(f"Expected arrays of the same number of records, one at least, got {sorted(rows)}")
    step = batch_size if batch_size > 0 else BATCH
    return _joined([function(_rows(inputs, start, step)) for start in range(0, rows.pop(), step)])


def refused(name: str, inputs: Any, error: Exception) -> str:
    """What to say of an input that torch did not take."""
    shapes = map_table(lambda tensor: tuple(tensor.shape), inputs)
    return f"{name} cannot take an input of shape {shapes}: {error}"


def _rows(inputs: Any, start: int, count: int) -> Any:
    return map_table(lambda x: x[start : start + count], inputs)


def _joined(outputs: list[Any]) -> Any:
    if isinstance(outputs[0], list | tuple):
        return [_joined(list(each)) for each in zip(*outputs, strict=True)]
    return torch.cat(outputs).numpy()


def class_of(output: Any) -> int:
    """The class of one record, from 1."""
    return int(np.argmax(output)) + 1


def classes(outputs: Any) -> np.ndarray:
    """The class of each record, from 1."""
    if isinstance(outputs, list):
        raise InvalidArgumentError("predict_class needs one output; this layer has several: use predict.")
    return np.array([class_of(output) for output in outputs])
