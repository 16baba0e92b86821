"""Prediction, the same for every framework: rows through a model, in order, out as the kind of data that came in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed import engine_of, kind_of
from zoo.orca.learn.predict.arrays import predict_arrays
from zoo.orca.learn.predict.model import Predictor, function_here, takes_text
from zoo.orca.learn.predict.output import PREDICTION, OutputType
from zoo.orca.learn.predict.ray_dataset import predict_ray_dataset
from zoo.orca.learn.predict.sample import NoFirstRowError, spark_sample
from zoo.orca.learn.predict.shards import predict_xshards
from zoo.orca.learn.predict.spark import predict_spark

__all__ = [
    "OutputType",
    "Predictor",
    "predict",
    "predict_arrays",
    "predict_ray_dataset",
    "predict_spark",
    "predict_xshards",
    "spark_sample",
]


def predict(
    data: Any,
    predictor: Predictor,
    batch_size: int,
    feature_cols: Sequence[Any] = (),
    sample: Any = None,
    known_shapes: Mapping[str, tuple[int, ...]] | None = None,
    squeeze: bool = False,
    prediction_col: str = PREDICTION,
    output: OutputType | None = None,
) -> Any:
    """The model's prediction for every row of data of any kind, as the same kind of data.

    Args:
        sample, known_shapes: what is known of a Spark DataFrame's features; see `spark_sample`.
        prediction_col: what a Spark DataFrame's new column is called.
        output: what the model gives, where that is known; then a DataFrame may be empty, and a stream of any shape.
    """
    kind = kind_of(data)
    if kind == "XShards":
        return predict_xshards(data, predictor, batch_size, feature_cols, squeeze)
    if kind == "Spark DataFrame":
        try:
            features = spark_sample(data, feature_cols, known_shapes, sample, takes_text(predictor))
        except NoFirstRowError:
            if output is None:
                raise
        else:
            # Tried even if it is known what comes out: what a model cannot take is told here, as its own exception.
            arrays = output is not None and output.arrays
            output = OutputType.probe(function_here(predictor), features, squeeze, arrays)
        return predict_spark(data, predictor, batch_size, feature_cols, output, prediction_col)
    if kind == "Ray Dataset":
        return predict_ray_dataset(data, predictor, batch_size, feature_cols, squeeze)
    if kind in ("arrays", "pandas DataFrame"):
        return predict_arrays(data, predictor, batch_size, engine_of(data), None, feature_cols, squeeze)
    raise InvalidArgumentError(
        "predict takes an XShards, a Spark DataFrame, a Ray Dataset, numpy arrays or a pandas DataFrame, but got a "
        f"{kind}. Take its features as arrays first."
    )
