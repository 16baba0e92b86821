"""A few rows of features like those of a Spark DataFrame, so that a model's output is known before a job is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from zoo.orca.data.parquet_scan import plain_scan
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.columns import check_spark_columns, column_to_numpy, frame_columns, is_vector, spark_column
from zoo.orca.learn.predict.model import blank_rows, read_arguments
from zoo.orca.optional import require

ROWS = 2


class NoFirstRowError(InvalidArgumentError):
    """The shape of a column is in its rows, and there is none to look at."""


_DTYPES = {
    "boolean": np.bool_,
    "tinyint": np.int8,
    "smallint": np.int16,
    "int": np.int32,
    "bigint": np.int64,
    "float": np.float32,
    "double": np.float64,
    "string": np.object_,
    "binary": np.object_,
    "array<string>": np.object_,
    "array<binary>": np.object_,
}


def spark_sample(
    df: Any,
    feature_cols: Sequence[str],
    known_shapes: Mapping[str, tuple[int, ...]] | None = None,
    sample: Any = None,
    text: bool = False,
) -> tuple[np.ndarray, ...]:
    """Two rows of the features, of the shapes and dtypes that the columns will have.

    They are the sample's if there is one; zeros where the types or `known_shapes` tell the shape of every column; else
    the first row of the DataFrame, for which a small job is run unless it can be read from a file here.

    Args:
        known_shapes: the shape of a row of an array column by its name, such as (784,).
        sample: a pandas frame of one row, or an array of one row for each feature column.
        text: whether columns of text are let in.
    """
    check_spark_columns(df, feature_cols, text)
    kinds = {field.name: field.dataType for field in df.schema.fields}
    dtypes = [_dtype(kinds[name]) for name in feature_cols]
    if sample is not None:
        arrays = _given(sample, feature_cols, text)
        return tuple(_two_rows(array.astype(dtype)) for array, dtype in zip(arrays, dtypes, strict=True))
    shapes = [_shape(kinds[name], (known_shapes or {}).get(name)) for name in feature_cols]
    unknown = [name for name, shape in zip(feature_cols, shapes, strict=True) if shape is None]
    if not unknown:
        return tuple(blank_rows(shape or (), dtype) for shape, dtype in zip(shapes, dtypes, strict=True))
    return _first_row(df, feature_cols, unknown, text)


def _given(sample: Any, feature_cols: Sequence[str], text: bool) -> list[np.ndarray]:
    if isinstance(sample, pd.DataFrame):
        arrays = frame_columns(sample, feature_cols, text)
    else:
        arrays = [np.asarray(each) for each in read_arguments(sample)]
    if len(arrays) != len(feature_cols) or not all(map(len, arrays)):
        raise InvalidArgumentError(
            f"sample must hold a row of each of the {len(feature_cols)} feature columns (a pandas frame of one row, or "
            f"a tuple of arrays), but it holds arrays of {', '.join(str(len(array)) for array in arrays)} rows."
        )
    return arrays


def _first_row(df: Any, feature_cols: Sequence[str], unknown: Sequence[str], text: bool) -> tuple[np.ndarray, ...]:
    listed = ", ".join(map(repr, unknown))
    if df.isStreaming:
        raise NoFirstRowError(
            f"the length of the arrays in {listed} is not known, and a streaming DataFrame has no first row to look "
            "at. Pass sample=: a pandas frame of one row with the feature columns, or a tuple of arrays of one row."
        )
    names = list(dict.fromkeys(feature_cols))
    scan = plain_scan(df, names)
    row = df.select(*map(spark_column, names)).limit(1).toArrow() if scan is None else scan.first_row(names)
    if row is None or row.num_rows == 0:
        raise NoFirstRowError(
            f"the DataFrame has no rows, so the length of the arrays in {listed} is not known. Look at the filter or "
            "the path it came from, or pass sample=: a pandas frame of one row with the feature columns."
        )
    found = {name: column_to_numpy(row.column(at), name, accept_text=text) for at, name in enumerate(names)}
    return tuple(_two_rows(found[name]) for name in feature_cols)


def _two_rows(array: np.ndarray) -> np.ndarray:
    """The first row twice: with one row alone a model that squeezes would lose a dimension."""
    return np.repeat(array[:1], ROWS, axis=0)


def _shape(kind: Any, known: tuple[int, ...] | None) -> tuple[int, ...] | None:
    types = require("pyspark.sql.types", "A Spark DataFrame")
    return known if is_vector(kind) or isinstance(kind, types.ArrayType) else ()


def _dtype(kind: Any) -> np.dtype:
    """The dtype that a column of this type becomes."""
    return np.dtype(_DTYPES.get(kind.simpleString(), np.float64 if _is_decimal(kind) else np.float32))


def _is_decimal(kind: Any) -> bool:
    return isinstance(kind, require("pyspark.sql.types", "A Spark DataFrame").DecimalType)
