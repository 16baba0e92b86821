"""Predict on the driver's own arrays and pandas frames: here if they are small, on the engine if it pays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from zoo.orca.engine.bar import PATIENCE, Bar, job
from zoo.orca.errors import PreconditionError
from zoo.orca.feed.columns import frame_columns
from zoo.orca.feed.structure import flatten, unflatten
from zoo.orca.learn.predict.model import (
    Predictor,
    Result,
    Shipment,
    count_rows,
    join_results,
    load_here,
    predict_rows,
    read_arguments,
    takes_text,
)

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine

# Below this, sending the data and the model away takes longer than predicting here.
ENGINE_BYTES = 16 << 20
# A task gets about so much at most, so that it can be told how far all are.
PIECE_BYTES = 32 << 20


def predict_arrays(
    arrays: Any,
    predictor: Predictor,
    batch_size: int,
    engine: Engine | None = None,
    num_workers: int | None = None,
    feature_cols: Sequence[Any] = (),
    squeeze: bool = False,
) -> Result:
    """The prediction for every row, in order: an array, or a list of them for a model of several outputs.

    Args:
        arrays: an ndarray; a list or tuple of them (forward's arguments); a dict of them (forward's one argument), or
            {"x": features}; or a pandas frame together with feature_cols.
        engine: where large input may be predicted.
        num_workers: at most so many tasks at once; the engine's cores by default.
    """
    features = _features(arrays, feature_cols, takes_text(predictor))
    leaves, _ = flatten(features)
    rows = count_rows(leaves)
    workers = 1 if engine is None else num_workers or engine.cores
    # A model that keeps all cores busy from one process gains nothing by sending rows to others of the same machine.
    stays = engine is not None and engine.one_machine and getattr(predictor, "uses_all_cores", False)
    if engine is None or stays or workers == 1 or sum(leaf.nbytes for leaf in leaves) < ENGINE_BYTES:
        cores = workers if engine is not None and engine.one_machine else None
        with Bar("predict", rows, unit="rows", rows=rows, delay=PATIENCE, leave=False) as bar:
            return predict_rows(load_here(predictor, squeeze, cores), features, batch_size, bar)
    with job("predict", rows):
        return _predict_on(engine, workers, predictor, features, batch_size, squeeze)


def _features(arrays: Any, feature_cols: Sequence[Any], text: bool) -> tuple[Any, ...]:
    if isinstance(arrays, pd.DataFrame):
        if not feature_cols:
            raise PreconditionError(
                "feature_cols must be given for a pandas DataFrame: a list of column names. "
                f"It has {list(arrays.columns)}."
            )
        return tuple(frame_columns(arrays, feature_cols, text))
    return read_arguments(arrays["x"] if isinstance(arrays, dict) and "x" in arrays else arrays)


def _predict_on(
    engine: Engine, workers: int, predictor: Predictor, features: tuple[Any, ...], batch_size: int, squeeze: bool
) -> Result:
    """Cut between batches, so that the batches are those that one process would make."""
    leaves, spec = flatten(features)
    batches = -(-len(leaves[0]) // batch_size)
    turns = -(-sum(leaf.nbytes for leaf in leaves) // (workers * PIECE_BYTES))  # of large input the first are done soon
    step = -(-batches // (workers * turns)) * batch_size
    pieces = [[[leaf[start : start + step] for leaf in leaves]] for start in range(0, len(leaves[0]), step)]
    shipment = Shipment(engine, predictor, squeeze, len(pieces))

    def predict(index: int, shards: Iterator[Any]) -> Iterator[Result]:
        model = shipment.model()
        return (predict_rows(model, unflatten(shard, spec), batch_size) for shard in shards)

    try:
        return join_results([result for (result,) in engine.place(pieces).map(predict, changes=False).fetch()])
    finally:
        shipment.release()
