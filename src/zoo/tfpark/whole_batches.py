"""Evaluation of a graph that takes batches of one size only, over any number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from zoo.orca.learn.metrics import Metric
from zoo.orca.learn.predict.model import Model, as_outputs
from zoo.orca.learn.records import batches, map_with_model, stack, take_columns
from zoo.orca.learn.tf.frozen import freeze
from zoo.orca.learn.tf2.quiet import start_here
from zoo.tfpark.metric_tensors import metric_name, metric_tensor
from zoo.tfpark.rows import RecordRows
from zoo.tfpark.tf_dataset import TFDataset, columns_of
from zoo.tfpark.tfnet import NetPredictor


def outputs_by_row(sess: Any, dataset: TFDataset, output: Any, label: Any, loss: Any, size: int) -> RecordRows:
    """Rows of (output, label, loss), or without a loss, from a graph that takes `size` rows at a time.

    A short batch is filled up with its last row. The loss of a row is that of its batch.
    """
    wanted = [output, label]
    if loss is not None:
        with loss.graph.as_default():
            wanted.append(start_here().fill([size], loss))  # what predicts gives a value for each row
    inputs, columns = columns_of(dataset, wanted)
    predictor = NetPredictor(freeze(sess, inputs, wanted))

    def run(model: Model, rows: Iterator[Any]) -> Iterator[tuple[np.ndarray, ...]]:
        for batch in batches(rows, size):
            missing = size - len(batch)
            outputs, labels, *losses = as_outputs(model(stack([*batch, *batch[-1:] * missing])))
            if losses and missing:
                # A mean over rows: what the filling added to it is what a batch of the filling alone has.
                filling = as_outputs(model(stack(batch[-1:] * size)))[2]
                losses = [((losses[0] * size - filling * missing) / len(batch)).astype(filling.dtype)]
            for number in range(len(batch)):
                yield tuple(np.asarray(each[number]) for each in (outputs, labels, *losses))

    return RecordRows(map_with_model(take_columns(dataset.rows.records(), columns), predictor, run), lambda row: row)


def figures_by_row(methods: list[Metric], output: Any, label: Any, loss: Any) -> tuple[list[Any], dict[str, Any]]:
    """Placeholders for rows of (output, label, loss), in a graph of their own, and what methods say of them."""
    tf = start_here().compat.v1
    with tf.Graph().as_default():
        inputs = [tf.placeholder(each.dtype, [None, *each.shape.as_list()[1:]]) for each in (output, label)]
        inputs += [] if loss is None else [tf.placeholder(loss.dtype, [None])]
        mean = None if loss is None else tf.reduce_mean(inputs[2])
        return inputs, {metric_name(each): metric_tensor(each, *inputs[:2], mean) for each in methods}
