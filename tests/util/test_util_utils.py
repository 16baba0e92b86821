"""zoo.util.utils: samples of arrays, rows as arrays, where this process runs."""

from __future__ import annotations

import ipaddress
import sys

import numpy as np
import pytest

from zoo.orca.errors import InvalidArgumentError
from zoo.util.utils import convert_row_to_numpy, detect_python_location, get_node_ip, to_sample_rdd


def test_where_this_process_runs():
    assert ipaddress.ip_address(get_node_ip())
    assert detect_python_location() == sys.executable


@pytest.mark.engines("spark")
def test_samples_of_arrays(engine):
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    rdd = to_sample_rdd(x, np.array([5, 6, 7]), engine.sc, num_slices=2)
    assert rdd.getNumPartitions() == 2
    samples = rdd.collect()
    np.testing.assert_array_equal([each.feature.to_ndarray() for each in samples], x)
    assert [int(each.label.to_ndarray()) for each in samples] == [5, 6, 7]
    with pytest.raises(InvalidArgumentError, match="3 and 2"):
        to_sample_rdd(x, np.zeros(2), engine.sc)


@pytest.mark.engines("spark")
def test_rows_as_arrays(engine):
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import Row, SparkSession

    row = Row(i=3, l=2**40, d=0.5, a=[1, 2], v=Vectors.dense([3.0, 4.0]), s="text")
    schema = SparkSession(engine.sc).createDataFrame([row]).schema
    features, labels = convert_row_to_numpy(row, schema, ["i", "d", "a", "v"], ["l"])
    assert [each.dtype for each in features] == [np.int64, np.float64, np.float32, np.float32]
    assert [each.shape for each in features] == [(), (), (2,), (2,)]
    assert labels == 2**40
    (lone,) = convert_row_to_numpy(row, schema, ["d"], None)
    assert lone == 0.5
    with pytest.raises(InvalidArgumentError, match="'s' to be a number"):
        convert_row_to_numpy(row, schema, ["s"], None)
    assert convert_row_to_numpy(row, schema, ["s"], None, accept_str_col=True)[0] == "text"
    with pytest.raises(InvalidArgumentError, match="Expected a column 'z'"):
        convert_row_to_numpy(row, schema, ["z"], None)
