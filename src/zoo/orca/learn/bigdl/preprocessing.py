"""What preprocessings of a DataFrame's column come to: a size, or a new column that was computed row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.columns import check_spark_columns, is_vector, missing_column, spark_column
from zoo.orca.optional import require

if TYPE_CHECKING:
    from zoo.orca.learn.bigdl.sized import Size  # which loads torch; the workers that compute columns need none

PREPARED = "__orca_prepared"


def prepare(df: Any, column: str, preprocessing: Any, what: str = "feature_preprocessing") -> tuple[Any, str, Size]:
    """The DataFrame, the column to use, and the size of its rows.

    Sizes, and preprocessings that do no more than give a size, leave the DataFrame as it is. Others add a column
    (`PREPARED` in its name) of the values that their `transform` gives for each row; the first row tells the size.
    """
    if column not in df.columns:
        raise missing_column(column, df.columns)
    if preprocessing is None or isinstance(preprocessing, list | tuple):
        return _checked(df, column), column, preprocessing
    if not callable(getattr(preprocessing, "transform", None)):
        raise InvalidArgumentError(
            f"{what} must be a size such as [1, 28, 28], a list of sizes, or a Preprocessing of zoo.feature.common, "
            f"but is {preprocessing!r}."
        )
    sizes = getattr(preprocessing, "sizes", None)
    if sizes is not None:
        return _checked(df, column), column, sizes
    return _transformed(df, column, preprocessing.transform)


def without_prepared(df: Any) -> Any:
    """The DataFrame without the columns that `prepare` added."""
    return df.drop(*[name for name in df.columns if name.startswith(PREPARED)])


def _checked(df: Any, column: str) -> Any:
    check_spark_columns(df, [column])
    return df


def _transformed(df: Any, column: str, transform: Callable[[Any], Any]) -> tuple[Any, str, Size]:
    functions = require("pyspark.sql.functions", "A Spark DataFrame")
    first = df.select(spark_column(column)).first()
    if first is None:
        raise InvalidArgumentError(
            f"the DataFrame has no rows, so nothing tells what {column!r} becomes. "
            "Look at the filter or the path it came from."
        )
    made = f"{PREPARED}_{column}"
    computed = functions.pandas_udf(_rows(transform), "array<float>")
    kind = df.schema[column].dataType
    source = spark_column(column)
    if is_vector(kind):
        source = require("pyspark.ml.functions", "A Spark DataFrame").vector_to_array(source)
    sizes = [list(each.shape) for each in _arrays(transform(_plain(first[0])))]
    return df.withColumn(made, computed(source)), made, sizes


def _rows(transform: Callable[[Any], Any]) -> Callable[..., Any]:
    """The transform over a column, as pandas gives it: a frame for structs, else a series."""

    def rows(values):
        if isinstance(values, pd.DataFrame):
            from pyspark.sql import Row

            make = Row(*values.columns)
            records = (make(*each) for each in values.itertuples(index=False, name=None))
        else:
            records = iter(values)
        return pd.Series([np.concatenate([each.reshape(-1) for each in _arrays(transform(one))]) for one in records])

    # pandas_udf reads these, and cannot from text.
    rows.__annotations__ = {"values": pd.Series, "return": pd.Series}
    return rows


def _arrays(made: Any) -> Sequence[np.ndarray]:
    """What a transform gave, as float arrays: an array, a list of them, a Sample, or (features, None)."""
    several = getattr(made, "features", made)
    several = several if isinstance(several, list | tuple) else [several]
    given = [each.to_ndarray() if hasattr(each, "to_ndarray") else each for each in several if each is not None]
    return [np.asarray(each, np.float32) for each in given]


def _plain(value: Any) -> Any:
    return value.toArray() if hasattr(value, "toArray") else value
