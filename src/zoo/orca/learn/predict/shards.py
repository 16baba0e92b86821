"""Predict on an XShards: every shard where it lies, with "prediction" added to it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import pandas as pd

from zoo.orca.data.shard import XShards
from zoo.orca.engine.bar import job
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.predict.model import Predictor, Result, Shipment, predict_rows, read_arguments, takes_text
from zoo.orca.learn.predict.output import PREDICTION


def predict_xshards(
    shards: XShards,
    predictor: Predictor,
    batch_size: int,
    feature_cols: Sequence[Any] = (),
    squeeze: bool = False,
) -> XShards:
    """Shards in the same partitions and order: the dicts with "prediction" added.

    A pandas shard becomes the dict that it stands for: "x", a list of the feature columns.
    """
    source = shards.placement
    shipment = Shipment(source.engine, predictor, squeeze, source.num_partitions)
    read = Columns(tuple(feature_cols), text=takes_text(predictor))

    def predict(shard: Any) -> Result:
        x, _, _ = read(shard)
        return predict_rows(shipment.model(), read_arguments(x), batch_size)

    def add(shard: Any, prediction: Result) -> dict[str, Any]:
        kept = {"x": read(shard)[0]} if isinstance(shard, pd.DataFrame) else shard
        return {**kept, PREDICTION: prediction}

    predicted = source.extend(predict, add)
    if source.engine.name != "spark":  # where a broadcast is freed by Spark, when no RDD needs it
        weakref.finalize(predicted, shipment.release)
    with job("predict"):
        return XShards.from_placement(predicted)
