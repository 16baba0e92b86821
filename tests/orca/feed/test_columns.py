"""Columns of Arrow, pandas and Spark as numpy arrays."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.orca.errors import InvalidArgumentError, InvalidKeyError, PreconditionError
from zoo.orca.feed.columns import column_to_numpy, frame_columns, select_for_arrow

VECTOR = pa.struct(
    [("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))]
)


def dense(*values):
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


def sparse(size, **values):
    places = sorted((int(name[1:]), value) for name, value in values.items())
    return {"type": 0, "size": size, "indices": [at for at, _ in places], "values": [value for _, value in places]}


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()],
)
def test_numbers_keep_their_dtype_and_are_not_copied(kind):
    array = pa.array(np.arange(3).astype(kind.to_pandas_dtype()))
    column = column_to_numpy(array[1:], "a")
    assert column.dtype == kind.to_pandas_dtype()
    assert column.tolist() == [1, 2]
    assert column.ctypes.data == array.buffers()[1].address + array.type.bit_width // 8


@pytest.mark.parametrize(
    ("array", "dtype", "values"),
    [
        (pa.array([True, False]), bool, [True, False]),
        (pa.array([Decimal("1.5"), Decimal("2.25")]), np.float64, [1.5, 2.25]),
        (pa.array([3, 4, 3]).dictionary_encode(), np.int64, [3, 4, 3]),
        (pa.array([[1, 2], [3, 4]]), np.float32, [[1, 2], [3, 4]]),
        (pa.array([[True], [False]]), np.float32, [[1], [0]]),
        (pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2)), np.float32, [[1, 2]]),
        (pa.array([[1.0, 2.0]], pa.large_list(pa.float32())), np.float32, [[1, 2]]),
        (pa.array([[[1], [2]], [[3], [4]]]), np.float32, [[[1], [2]], [[3], [4]]]),
        (pa.array([dense(1, 2), dense(3, 4)], VECTOR), np.float32, [[1, 2], [3, 4]]),
        (pa.array([dense(1, 2), sparse(2, _1=5.0), sparse(2)], VECTOR), np.float32, [[1, 2], [0, 5], [0, 0]]),
        (pa.array([sparse(3, _0=1.0, _2=2.0)], VECTOR), np.float32, [[1, 0, 2]]),
    ],
)
def test_columns(array, dtype, values):
    column = column_to_numpy(array, "a")
    assert column.dtype == dtype
    assert column.tolist() == values
    # The same in the middle of a longer column, and in chunks.
    assert column_to_numpy(pa.concat_arrays([array, array])[1 : 1 + len(array)], "a").shape == column.shape
    assert column_to_numpy(pa.chunked_array([array, array[:0], array]), "a").tolist() == values * 2


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(-9, 9), min_size=3, max_size=3)), min_size=1), st.data())
def test_vectors_of_both_kinds_are_their_dense_form(rows, data):
    def carried(is_dense, values):
        return dense(*values) if is_dense else sparse(3, **{f"_{at}": v for at, v in enumerate(values) if v})

    array = pa.array([carried(*row) for row in rows], VECTOR)
    start = data.draw(st.integers(0, len(rows)))
    assert column_to_numpy(array[start:], "v").tolist() == [values for _, values in rows[start:]]


def test_lists_may_keep_their_dtype():
    assert column_to_numpy(pa.array([[1, 2]]), "a", as_float32_lists=False).dtype == np.int64


def test_text_where_it_is_accepted():
    assert column_to_numpy(pa.array(["a", "b"]), "a", accept_text=True).tolist() == ["a", "b"]


@pytest.mark.parametrize("kind", [pa.int32(), pa.list_(pa.float32()), pa.list_(pa.list_(pa.float32())), VECTOR])
def test_no_rows(kind):
    for column in (pa.array([], kind), pa.chunked_array([], kind)):
        assert len(column_to_numpy(column, "a")) == 0


def test_tensors_keep_their_shape():
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8).reshape(2, 2, 2))
    assert column_to_numpy(tensors, "a").shape == (2, 2, 2)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (pa.array([1, None, None]), r"'a' has 2 missing values \(null\) in 3 rows.*na\.fill.*na\.drop"),
        (pa.array([[1.0], None]), r"1 missing values \(null\) in 2 rows"),
        (pa.array([[1.0, None]]), "1 missing values .* inside the arrays of its 1 rows"),
        (pa.array([None, None]), "2 missing values"),
        (pa.array([[1], [1, 2], [1, 2, 3]]), "'a' must all have one length, but they have the lengths 1, 2, 3"),
        (pa.chunked_array([pa.array([[1]]), pa.array([[1, 2]])]), "lengths 1, 2"),
        (pa.chunked_array([pa.array([[[1]]]), pa.array([[[1, 2]]])]), r"shapes \(1, 1\), \(1, 2\)"),
        (pa.array([dense(1.0), sparse(2)], VECTOR), "lengths 1, 2"),
        (pa.array(["x"]), "'a' holds text.*StringIndexer"),
        (pa.array([["x"]]), "'a' holds text"),
        (pa.array([datetime.date(2020, 1, 1)]), "dates or times.*unix_timestamp"),
        (pa.array([datetime.datetime(2020, 1, 1)]), "dates or times"),
        (pa.array([b"x"]), "values of type binary"),
        (pa.array([{"b": 1}]), "structs.*struct.field"),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), "values of type map"),
    ],
)
def test_what_no_model_takes_is_refused_by_name(array, message):
    with pytest.raises(InvalidArgumentError, match=message):
        column_to_numpy(array, "a")


@pytest.mark.parametrize(
    ("values", "dtype", "shape"),
    [
        ([1, 2], np.int64, (2,)),
        (np.ones(2, np.float32), np.float32, (2,)),
        ([True, False], bool, (2,)),
        (pd.array([1, 2], "Int32"), np.int32, (2,)),
        (pd.array([1.0, 2.0], pd.ArrowDtype(pa.float32())), np.float32, (2,)),
        (pd.Categorical([3, 4]), np.int64, (2,)),
        ([[1, 2], [3, 4]], np.int64, (2, 2)),
        ([np.ones((2, 3), np.float32)] * 2, np.float32, (2, 2, 3)),
        ([Decimal(1), Decimal(2)], np.float64, (2,)),
        ([1, 2.5], np.float64, (2,)),
    ],
)
def test_pandas_columns_keep_their_dtype(values, dtype, shape):
    (column,) = frame_columns(pd.DataFrame({"a": values}), ["a"])
    assert column.dtype == dtype
    assert column.shape == shape


def test_missing_numbers_of_numpy_stay_nan():
    (column,) = frame_columns(pd.DataFrame({"a": [1.0, None]}), ["a"])
    assert np.isnan(column[1])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pd.array([1, None], "Int64"), "1 missing values.*dropna"),
        ([[1], None], "1 missing values"),
        ([[1], [1, 2]], "lengths 1, 2"),
        ([[[1], [1, 2]]], "'a' holds objects such as a list"),
        (["x", "y"], "'a' holds text"),
        (pd.array(["x", "y"], "string"), "'a' holds text"),
        (pd.to_datetime(["2020-01-01"]), "datetime64"),
        ([object()], "objects such as a object"),
    ],
)
def test_pandas_columns_that_no_model_takes(values, message):
    with pytest.raises(InvalidArgumentError, match=message):
        frame_columns(pd.DataFrame({"a": values}), ["a"])


def test_a_missing_column_is_told_with_those_that_come_close():
    frame = pd.DataFrame({"price": [1], "Size": [1], "city": [1]})
    with pytest.raises(InvalidKeyError, match=r"no column 'prise'. Did you mean 'price'\? .*price, Size, city"):
        frame_columns(frame, ["prise"])
    with pytest.raises(InvalidKeyError, match="Did you mean 'Size'"):
        frame_columns(frame, ["size"])
    with pytest.raises(KeyError, match="no column 7"):
        frame_columns(frame, [7])


def test_two_columns_of_one_name():
    with pytest.raises(InvalidArgumentError, match="several columns called 'a'"):
        frame_columns(pd.DataFrame([[1, 2]], columns=["a", "a"]), ["a"])


@pytest.fixture
def frame(engine):
    from pyspark.ml.linalg import Vectors

    from zoo.orca import OrcaContext

    rows = [(1, 2.5, [1.0, 2.0], Vectors.dense(1, 2), Vectors.sparse(2, [1], [7.0]), "x", [[1, 2]], 5)]
    session = OrcaContext.get_spark_session()
    return session.createDataFrame(rows, ["id", "number", "list", "dense", "sparse", "text", "nested", "a.b`c"])


@pytest.mark.engines("spark")
def test_spark_columns_through_arrow(engine, frame):
    names = ["nested", "id", "dense", "sparse", "list", "a.b`c", "id"]
    chosen = select_for_arrow(frame, names)
    assert chosen.columns == names[:-1]
    table = chosen.toArrow()
    columns = {name: column_to_numpy(table.column(name), name) for name in chosen.columns}
    assert {name: column.tolist() for name, column in columns.items()} == {
        "nested": [[[1, 2]]],
        "id": [1],
        "dense": [[1, 2]],
        "sparse": [[0, 7]],
        "list": [[1, 2]],
        "a.b`c": [5],
    }
    assert {columns[name].dtype for name in ("dense", "sparse", "list", "nested")} == {np.dtype(np.float32)}


@pytest.mark.engines("spark")
def test_spark_columns_are_checked_without_a_job(engine, frame):
    from pyspark.sql import functions

    poisoned = frame.withColumn("bad", functions.raise_error(functions.lit("a job was run")).cast("int"))
    poisoned = poisoned.withColumn("when", functions.current_date()).withColumn("vectors", functions.array("dense"))
    select_for_arrow(poisoned, ["bad", "list"])
    with pytest.raises(InvalidKeyError, match="no column 'lst'"):
        select_for_arrow(poisoned, ["lst"])
    with pytest.raises(InvalidArgumentError, match="'text' holds text"):
        select_for_arrow(poisoned, ["text"])
    assert select_for_arrow(poisoned, ["text"], accept_text=True).columns == ["text"]
    with pytest.raises(InvalidArgumentError, match="'when' holds dates or times"):
        select_for_arrow(poisoned, ["when"])
    with pytest.raises(InvalidArgumentError, match="'vectors' holds arrays of vectors"):
        select_for_arrow(poisoned, ["vectors"])
    with pytest.raises(InvalidArgumentError, match="several columns called 'id'"):
        select_for_arrow(frame.select("id", functions.col("id")), ["id"])
    with pytest.raises(PreconditionError, match="feature_cols"):
        select_for_arrow(frame, [])
