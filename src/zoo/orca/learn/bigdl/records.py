"""Samples one by one, in an RDD or on another engine: as training data, predicted, and measured where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from zoo.orca.data.shard import XShards
from zoo.orca.engine.base import Placement
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.shards import Columns, one_or_all
from zoo.orca.learn.bigdl.training import LayerEstimator
from zoo.orca.learn.metrics import Metric
from zoo.orca.learn.predict.model import Model
from zoo.orca.learn.records import as_records, batches, map_with_model, placement_of, predict_records, stack

# So many records become one shard: enough to stack at once, few enough to hold beside the shards they become.
SHARD_ROWS = 1024
DEFAULT_BATCH_SIZE = 32


def sample_data(samples: Any, what: str = "training_rdd") -> tuple[XShards, Columns]:
    """What an estimator takes, and its columns, for an RDD (Records, a list) of Samples, partition by partition."""

    def shards(index: int, records: Iterable[Any]) -> Iterator[dict[str, Any]]:
        for chunk in batches(iter(records), SHARD_ROWS):
            yield shard_of(chunk)

    return XShards.from_placement(placement_of(samples, what).map(shards, changes=False), transient=True), Columns()


def shard_of(samples: Sequence[Any]) -> dict[str, Any]:
    """Samples as one shard: features under "x" and labels, if they have any, under "y"; several arrays are a list."""
    features, labels = zip(*map(arrays_of, samples), strict=True)
    shard = {"x": one_or_all(list(stack(features)))}
    return shard | {"y": one_or_all(list(stack(labels)))} if labels[0] else shard


def arrays_of(sample: Any) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """The features and the labels of a sample; an array is one without labels."""
    if isinstance(sample, np.ndarray):
        return (sample,), ()
    if not (hasattr(sample, "features") and hasattr(sample, "labels")):
        raise InvalidArgumentError(
            f"Expected records that are Samples, got a {type(sample).__name__}. Make them with "
            "Sample.from_ndarray(features, labels) of bigdl.util.common."
        )
    return tuple(map(_as_array, sample.features)), tuple(map(_as_array, sample.labels))


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
            output, target = _as_tensors(model(stack(features))), _as_tensors(one_or_all(list(stack(labels))))
            for metric in metrics:
                metric(output, target)
            rows += len(batch)
        yield [metric.state() for metric in metrics], rows

    parts = [part for (part,) in map_with_model(pairs, predictor, measure).fetch()]
    rows = sum(count for _, count in parts)
    measured = []
    for number, method in enumerate(methods):
        metric = method.get_metric("bigdl")
        metric.load_sum(np.sum([states[number] for states, _ in parts], axis=0))
        measured.append((metric.name, metric.value(), rows))
    return measured


def _as_array(tensor: Any) -> np.ndarray:
    return tensor if isinstance(tensor, np.ndarray) else tensor.to_ndarray()


def _as_tensors(values: Any) -> Any:
    return [torch.from_numpy(each) for each in values] if isinstance(values, list) else torch.from_numpy(values)


def _rows(batch_size: int | None) -> int:
    return batch_size if batch_size is not None and batch_size > 0 else DEFAULT_BATCH_SIZE
