"""Predict on a Ray Dataset: block by block as Arrow, in order, with a `prediction` column added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from zoo.orca.engine.ray import RayEngine
from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.feed.columns import column_to_numpy, missing_column
from zoo.orca.learn.predict.model import Predictor, Result, Shipment, predict_rows, takes_text
from zoo.orca.learn.predict.output import PREDICTION, flat_lists
from zoo.orca.optional import require


def predict_ray_dataset(
    ds: Any, predictor: Predictor, batch_size: int, feature_cols: Sequence[str], squeeze: bool = False
) -> Any:
    """The Dataset with a column `prediction`, computed when it is used, its rows in the order of the Dataset's.

    Predictions of one number a row are a float column, of more a tensor column; several outputs are a list of lists.
    """
    names = list(feature_cols)
    if not names:
        raise PreconditionError("feature_cols must be given for a Ray Dataset: a list of column names.")
    known = ds.columns(fetch_if_missing=False)
    if known is not None:
        _check_columns(known, names)
    shipment = Shipment(RayEngine(), predictor, squeeze)
    return _in_order(ds).map_batches(
        _predicting(shipment, names, batch_size, takes_text(predictor)),
        batch_format="pyarrow",
        batch_size=None,
        zero_copy_batch=True,
    )


def _in_order(ds: Any) -> Any:
    """The same Dataset with settings of its own, which keep the order of blocks; the user's are left alone."""
    own = type(ds).copy(ds, _deep_copy=True)
    own.context.execution_options.preserve_order = True
    return own


def _predicting(shipment: Shipment, names: list[str], batch_size: int, text: bool) -> Callable[[pa.Table], pa.Table]:
    def predicting(block: pa.Table) -> pa.Table:
        if block.num_rows == 0:
            return block
        _check_columns(block.column_names, names)
        features = tuple(column_to_numpy(block.column(name), name, accept_text=text) for name in names)
        result = predict_rows(shipment.model(), features, batch_size)
        return block.append_column(PREDICTION, _column(result))

    return predicting


def _check_columns(columns: Sequence[str], names: Sequence[str]) -> None:
    for name in names:
        if name not in columns:
            raise missing_column(name, columns)
    if PREDICTION in columns:
        raise InvalidArgumentError(
            "the Dataset has a column 'prediction' already, where the prediction goes. "
            "Drop or rename it first: ds.rename_columns({'prediction': 'earlier'})."
        )


def _column(result: Result) -> pa.Array:
    if isinstance(result, list):
        return flat_lists(result)
    array = np.ascontiguousarray(result)
    if array.ndim == 1:
        return pa.array(array)
    return require("ray.data.extensions", "A Ray Dataset").ArrowTensorArray.from_numpy(array)
