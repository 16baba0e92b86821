"""Columns of tables (Arrow, pandas, Spark) as numpy arrays, without a loop over rows.

A number is a number of its own dtype, an array of numbers is float32, an ML vector is its dense form in float32. What a
model cannot be given is refused with the column's name and what to do about it; text is let in where it is asked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from zoo.orca.errors import InvalidArgumentError, InvalidKeyError, PreconditionError
from zoo.orca.optional import require

_DENSE = 1
_VECTOR_FIELDS = ["type", "size", "indices", "values"]
_NAMES_SHOWN = 20
# What a column holds that a model cannot take, and what to do about it.
_TEXT = ("text", "encode it as numbers first (Spark ML's StringIndexer, pandas' factorize)")
_TIME = ("dates or times", "make numbers of them first (Spark: unix_timestamp, dayofweek; pandas: .dt)")
_STRUCT = ("structs", "select the fields wanted as columns of their own first (df.select('struct.field'))")


def column_to_numpy(
    array: pa.Array | pa.ChunkedArray, name: Any, as_float32_lists: bool = True, accept_text: bool = False
) -> np.ndarray:
    """An Arrow column as an array with a row for each of its rows; numbers come as a read-only view where they can.

    A list column of no rows has no known width: it gives an array with dimensions of size 0.

    Args:
        name: the column's name, for errors.
        as_float32_lists: give lists of numbers as float32; otherwise as what they hold.
        accept_text: let text through, as arrays of `str` or `bytes` objects.

    Example:
        >>> column_to_numpy(pa.array([[1, 2], [3, 4]]), "pair")
        array([[1., 2.],
               [3., 4.]], dtype=float32)
    """
    if not isinstance(array, pa.ChunkedArray):
        return _Column(name, as_float32_lists, accept_text).convert(array)
    chunks = [chunk for chunk in array.chunks if len(chunk)]
    if not chunks:
        return column_to_numpy(pa.array([], array.type), name, as_float32_lists, accept_text)
    parts = [column_to_numpy(chunk, name, as_float32_lists, accept_text) for chunk in chunks]
    return concatenate(name, parts)


def concatenate(name: Any, parts: Sequence[np.ndarray]) -> np.ndarray:
    """The arrays of parts of a column as one, without a copy if there is one only."""
    if len(parts) == 1:
        return parts[0]
    _check_one_shape(name, {part.shape[1:] for part in parts})
    return np.concatenate(parts)


def frame_columns(df: pd.DataFrame, names: Sequence[Any], accept_text: bool = False) -> list[np.ndarray]:
    """An array for each named column of a pandas frame, of the dtype that the column has there."""
    for name in names:
        if name not in df.columns:
            raise missing_column(name, df.columns)
    return [series_to_numpy(df[name], name, accept_text) for name in names]


def series_to_numpy(series: pd.Series, name: Any, accept_text: bool = False) -> np.ndarray:
    """A pandas column as an array; arrays and lists in an object column are stacked."""
    if not isinstance(series, pd.Series):
        raise InvalidArgumentError(f"there are several columns called {name!r}. Give them different names first.")
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.cat.categories.dtype)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufc":
        return series.to_numpy()
    if series.dtype == object:
        return _stack(series, name, accept_text)
    if pd.api.types.is_extension_array_dtype(series.dtype):
        return column_to_numpy(
            pa.array(series, from_pandas=True), name, as_float32_lists=False, accept_text=accept_text
        )
    raise _unusable(name, f"values of type {series.dtype}", "make numbers of them first (.astype, .dt)")


def select_for_arrow(df: Any, names: Iterable[str], accept_text: bool = False) -> Any:
    """The named columns of a Spark DataFrame, each once, after a look at their types: no job is run.

    ML vectors, dense and sparse, become arrays of float, so that whatever carries the columns carries plain lists.
    """
    names = list(dict.fromkeys(names))
    check_spark_columns(df, names, accept_text)
    vectors = {field.name for field in df.schema.fields if is_vector(field.dataType)}
    return df.select(*(_as_array(name) if name in vectors else spark_column(name) for name in names))


def check_spark_columns(df: Any, names: Iterable[str], accept_text: bool = False) -> None:
    """Raise a typed error unless each name is one column of the DataFrame, of a type that can become an array."""
    if not isinstance(names, list | tuple) or not names:
        raise PreconditionError(
            f"feature_cols must be given for a Spark DataFrame: a list of column names. It has {df.columns}."
        )
    for name in names:
        found = [field for field in df.schema.fields if field.name == name]
        if not found:
            raise missing_column(name, df.columns)
        if len(found) > 1:
            raise InvalidArgumentError(f"there are several columns called {name!r}. Rename or drop one first.")
        check_spark_type(found[0].dataType, name, accept_text)


def spark_column(name: str) -> Any:
    """The column of exactly that name, dots and backticks included."""
    functions = require("pyspark.sql.functions", "A Spark DataFrame")
    return functions.col("`" + name.replace("`", "``") + "`")


def _as_array(vectors: str) -> Any:
    functions = require("pyspark.ml.functions", "A Spark DataFrame")
    return functions.vector_to_array(spark_column(vectors), "float32").alias(vectors)


def check_spark_type(kind: Any, name: str, accept_text: bool = False) -> None:
    """Raise a typed error if a column of this Spark type cannot become an array."""
    types = require("pyspark.sql.types", "A Spark DataFrame")
    texts = (types.StringType, types.BinaryType) if accept_text else ()
    numbers = (types.NumericType, types.BooleanType, *texts)
    if isinstance(kind, types.ArrayType) and not is_vector(kind.elementType):
        check_spark_type(kind.elementType, name, accept_text)
    elif not isinstance(kind, numbers) and not is_vector(kind):
        raise _unusable(name, *_words_of_spark_type(kind))


def is_vector(kind: Any) -> bool:
    """Whether a Spark type is that of vectors, of pyspark.ml or of the older pyspark.mllib."""
    return type(kind).__name__ == "VectorUDT"


def missing_column(name: Any, columns: Iterable[Any]) -> InvalidKeyError:
    """The error for a name that is not among the columns, with those that come close."""
    columns = [str(column) for column in columns]
    close = difflib.get_close_matches(str(name), columns)
    lowered = [column for column in columns if column.lower() == str(name).lower()]
    hint = f" Did you mean {' or '.join(map(repr, dict.fromkeys(lowered + close)))}?" if lowered or close else ""
    shown = ", ".join(columns[:_NAMES_SHOWN]) + (", ..." if len(columns) > _NAMES_SHOWN else "")
    return InvalidKeyError(f"there is no column {name!r}.{hint} The columns are: {shown or 'none'}.")


class _Column:
    """The conversion of one Arrow column: what errors call it and what it may hold."""

    def __init__(self, name: Any, as_float32_lists: bool, accept_text: bool):
        self._name = name
        self._as_float32_lists = as_float32_lists
        self._accept_text = accept_text

    def convert(self, array: pa.Array, rows: int | None = None) -> np.ndarray:
        """The array of a column, or of what the lists in its `rows` rows hold."""
        kind = array.type
        if array.null_count:
            where = f"in {len(array)} rows" if rows is None else f"inside the arrays of its {rows} rows"
            raise _missing_values(self._name, array.null_count, where, is_text=_is_text(kind))
        if isinstance(kind, pa.BaseExtensionType):
            return self._extension(array, rows)
        if pa.types.is_dictionary(kind):
            return self.convert(array.dictionary_decode(), rows)
        if pa.types.is_boolean(kind):
            return array.to_numpy(zero_copy_only=False)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return array.to_numpy(zero_copy_only=True)
        if pa.types.is_decimal(kind):
            return pc.cast(array, pa.float64()).to_numpy()
        if _is_list(kind):
            return self._lists(array, rows)
        if pa.types.is_struct(kind) and [field.name for field in kind] == _VECTOR_FIELDS:
            return self._vectors(array)
        if _is_text(kind) and self._accept_text:
            return array.to_numpy(zero_copy_only=False)
        raise _unusable(self._name, *_words_of_arrow_type(kind))

    def _extension(self, array: Any, rows: int | None) -> np.ndarray:
        """Tensor columns, of Arrow or of Ray, know their shape; of other extensions the storage is taken."""
        if hasattr(array, "to_numpy_ndarray"):
            return array.to_numpy_ndarray()
        if "tensor" in array.type.extension_name.lower():
            tensors = array.to_numpy(zero_copy_only=False)
            if tensors.dtype == object and len(tensors):
                _check_one_shape(self._name, {np.shape(tensor) for tensor in tensors})
                return np.stack(list(tensors))
            return tensors
        return self.convert(array.storage, rows)

    def _lists(self, array: Any, rows: int | None) -> np.ndarray:
        if pa.types.is_fixed_size_list(array.type):
            width = array.type.list_size
        else:
            width = self._only_width(np.diff(array.offsets.to_numpy()))
        flat = self.convert(array.flatten(), len(array) if rows is None else rows)
        if self._as_float32_lists and flat.dtype.kind in "biuf":
            flat = flat.astype(np.float32, copy=False)
        return flat.reshape(len(array), width, *flat.shape[1:])

    def _vectors(self, array: Any) -> np.ndarray:
        """Spark's ML vectors as Arrow carries them: structs that say whether they are dense."""
        dense = array.field("type").to_numpy() == _DENSE
        values = array.field("values")
        starts = values.offsets.to_numpy()[:-1]
        counts = np.diff(values.offsets.to_numpy())
        flat = values.flatten().to_numpy().astype(np.float32)
        if dense.all():
            return flat.reshape(len(array), self._only_width(counts))
        width = self._only_width(np.where(dense, counts, array.field("size").fill_null(0).to_numpy()))
        columns = np.arange(len(flat)) - np.repeat(starts - starts[0], counts)
        columns[np.repeat(~dense, counts)] = array.field("indices").filter(pa.array(~dense)).flatten().to_numpy()
        matrix = np.zeros((len(array), width), np.float32)
        matrix[np.repeat(np.arange(len(array)), counts), columns] = flat
        return matrix

    def _only_width(self, widths: np.ndarray) -> int:
        if len(widths) == 0:
            return 0
        if (widths != widths[0]).any():
            _check_one_shape(self._name, {(int(width),) for width in np.unique(widths)})
        return int(widths[0])


def _stack(series: pd.Series, name: Any, accept_text: bool) -> np.ndarray:
    """An object column: arrays, lists, vectors, or numbers of several kinds."""
    values = [value.toArray() if hasattr(value, "toArray") else value for value in series]
    missing = sum(
        1 for value in values if value is None or value is pd.NA or (isinstance(value, float) and value != value)
    )
    if missing:
        raise _missing_values(name, missing, f"in {len(values)} rows")
    try:
        _check_one_shape(name, {np.shape(value) for value in values})
        stacked = np.array(values) if values else np.empty(0, np.float32)
        if stacked.dtype.kind in "biufc":
            return stacked
        if stacked.dtype.kind not in "US":
            return stacked.astype(np.float64)
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError) as error:
        what = f"objects such as a {type(values[0]).__name__} that numpy cannot stack ({error})"
        raise _unusable(name, what, "turn them into numbers or arrays of one shape first") from error
    if accept_text:
        return series.to_numpy() if stacked.ndim == 1 else np.array(values, dtype=object)
    raise _unusable(name, *_TEXT)


def _missing_values(name: Any, count: int, where: str, is_text: bool = False) -> InvalidArgumentError:
    filler = "''" if is_text else "0"
    return InvalidArgumentError(
        f"the column {name!r} has {count} missing values (null) {where}, and a model needs a value everywhere. Fill or "
        f"drop them first: df.na.fill({filler}, [{name!r}]) or df.na.drop(subset=[{name!r}]) in Spark, fillna or "
        "dropna in pandas."
    )


def _check_one_shape(name: Any, shapes: set[tuple[int, ...]]) -> None:
    """One shape for the values of all rows, or an error that names the lengths found."""
    if len(shapes) <= 1:
        return
    found = sorted(shapes)
    words = [str(shape[0]) if len(shape) == 1 else str(shape) for shape in found]
    listed = ", ".join(words[:5]) + (", ..." if len(words) > 5 else "")
    what = "lengths" if all(len(shape) == 1 for shape in found) else "shapes"
    raise InvalidArgumentError(
        f"the arrays in the column {name!r} must all have one length, but they have the {what} {listed}. "
        "Pad or cut them to one length first."
    )


def _words_of_arrow_type(kind: pa.DataType) -> tuple[str, str]:
    if _is_text(kind) and not pa.types.is_binary(kind):
        return _TEXT
    if pa.types.is_temporal(kind):
        return _TIME
    if pa.types.is_struct(kind):
        return _STRUCT
    return f"values of type {kind}", "turn them into numbers first"


def _words_of_spark_type(kind: Any) -> tuple[str, str]:
    from pyspark.sql import types

    if isinstance(kind, types.StringType):
        return _TEXT
    if isinstance(kind, types.DatetimeType):
        return _TIME
    if isinstance(kind, types.StructType):
        return _STRUCT
    if isinstance(kind, types.ArrayType):
        return "arrays of vectors", "turn the vectors into arrays first (pyspark.ml.functions.vector_to_array)"
    return f"values of type {kind.simpleString()}", "turn them into numbers or arrays of numbers first"


def _unusable(name: Any, what: str, remedy: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the column {name!r} holds {what}, but a model takes numbers, arrays of numbers or ML vectors: {remedy}."
    )


def _is_text(kind: pa.DataType) -> bool:
    """Whether a type is that of texts, or of bytes that nothing more is known of."""
    of_text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(kind) for is_kind in (*of_text, pa.types.is_binary, pa.types.is_large_binary))


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
