"""Samples one by one, in an RDD or on another engine: predicted, and measured where they lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from zoo.orca.engine.base import Placement
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.shards import one_or_all
from zoo.orca.learn.bigdl.samples import arrays_of
from zoo.orca.learn.bigdl.training import LayerEstimator
from zoo.orca.learn.metrics import Metric
from zoo.orca.learn.predict.model import Model
from zoo.orca.learn.records import as_records, batches, map_with_model, placement_of, predict_records, stack

DEFAULT_BATCH_SIZE = 32


def predict_samples(model: Any, samples: Any, batch_size: int = -1) -> Any:
    """The model's output for every sample, in order: an RDD of arrays (of lists, for several outputs) for an RDD.

    Args:
        model: a layer, a TorchModel or a torch module, as it is now.
        batch_size: rows at a time; -1 for the library's own choice.
    """
    features = placement_of(samples, "the data").map(
        lambda index, records: (arrays_of(each)[0] for each in records), changes=False
    )
    return as_records(predict_records(features, LayerEstimator(model)._predictor(), _rows(batch_size)))


def evaluate_samples(model: Any, samples: Any, batch_size: int = -1, val_methods: Any = None) -> list[Any]:
    """Each method's EvaluatedResult over all samples."""
    from bigdl.util.common import EvaluatedResult

    methods = as_methods(val_methods)
    pairs = placement_of(samples, "the data").map(lambda index, records: map(arrays_of, records), changes=False)
    figures = _measure(pairs, LayerEstimator(model)._predictor(), _rows(batch_size), methods)
    return [EvaluatedResult(value, rows, name) for name, value, rows in figures]


def as_methods(val_methods: Any) -> list[Metric]:
    """One validation method or several; one at least."""
    methods = list(val_methods) if isinstance(val_methods, list | tuple) else [val_methods]
    if not methods or not all(isinstance(each, Metric) for each in methods):
        raise InvalidArgumentError(
            f"Expected validation methods, such as [Top1Accuracy()] of bigdl.optim.optimizer, got {val_methods!r}."
        )
    return methods


def _measure(
    pairs: Placement, predictor: Any, batch_size: int, methods: Sequence[Metric]
) -> list[tuple[str, float, int]]:
    """(name, figure, rows) of each method over records of (features, labels), by state."""

    def measure(model: Model, records: Iterator[Any]) -> Iterator[tuple[list[np.ndarray], int]]:
        metrics, rows = [each.get_metric("bigdl") for each in methods], 0
        for batch in batches(records, batch_size):
            features, labels = zip(*batch, strict=True)
            if not labels[0]:
                raise InvalidArgumentError(
                    "The samples have no labels to compare outputs with, so nothing is measured. "
                    "Make them with Sample.from_ndarray(features, labels)."
                )
            output, target = _as_tensors(model(stack(features))), _as_tensors(one_or_all(list(stack(labels))))
            for metric in metrics:
                metric(output, target)
            rows += len(batch)
        yield [metric.state() for metric in metrics], rows

    parts = [part for (part,) in map_with_model(pairs, predictor, measure).fetch()]
    rows = sum(count for _, count in parts)
    if not rows:
        raise InvalidArgumentError(
            "There are no samples to measure. Expected at least one: look at the filter or the path they came from."
        )
    measured = []
    for number, method in enumerate(methods):
        metric = method.get_metric("bigdl")
        metric.load_sum(np.sum([states[number] for states, _ in parts], axis=0))
        measured.append((metric.name, metric.value(), rows))
    return measured


def _as_tensors(values: Any) -> Any:
    return [torch.from_numpy(each) for each in values] if isinstance(values, list) else torch.from_numpy(values)


def _rows(batch_size: int | None) -> int:
    return batch_size if batch_size is not None and batch_size > 0 else DEFAULT_BATCH_SIZE
