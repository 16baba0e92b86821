"""Samples, tensors and helpers of bigdl.util.common."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bigdl.util import common
from bigdl.util.common import RNG, EvaluatedResult, JavaCreator, JavaValue, JTensor, Sample
from zoo.orca import stop_orca_context


@settings(max_examples=30, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64, np.int64]),
        hnp.array_shapes(max_dims=4, max_side=4),
        elements=st.integers(-1000, 1000),
    )
)
def test_dense_tensor_gives_back_its_array(array):
    tensor = JTensor.from_ndarray(array)
    assert tensor.to_ndarray().dtype == np.float32
    np.testing.assert_array_equal(tensor.to_ndarray(), array.astype(np.float32))
    again = pickle.loads(pickle.dumps(tensor))
    np.testing.assert_array_equal(again.to_ndarray(), tensor.to_ndarray())


def test_tensor_from_storage_and_shape():
    tensor = JTensor([1, 2, 3, 4, 5, 6], [2, 3])
    assert tensor.to_ndarray().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert tensor.indices is None
    assert JTensor.from_ndarray(None) is None
    with pytest.raises(ValueError, match=r"numpy.ndarray was expected, but a list came"):
        JTensor.from_ndarray([1, 2])


def test_sparse_tensor():
    tensor = JTensor.sparse(np.array([1.5, 2.5]), np.array([[0, 1], [2, 0]]), (2, 3))
    assert tensor.storage.tolist() == [1.5, 2.5]
    assert tensor.shape.tolist() == [2, 3]
    assert tensor.indices.tolist() == [[0, 1], [2, 0]]
    with pytest.raises(ValueError, match="no ndarray form"):
        tensor.to_ndarray()
    with pytest.raises(ValueError, match="4 in all, but has 2"):
        JTensor.sparse(np.array([1.5, 2.5]), np.array([0, 1]), (2, 3))


def test_sample_from_arrays():
    sample = Sample.from_ndarray(np.ones((2, 3)), 4)
    assert sample.feature.to_ndarray().shape == (2, 3)
    assert sample.label.to_ndarray().tolist() == [4.0]
    several = Sample.from_ndarray([np.zeros(2), np.ones(3)], [np.array([1.0]), 2.5])
    assert [tensor.to_ndarray().shape for tensor in several.features] == [(2,), (3,)]
    assert [tensor.to_ndarray().tolist() for tensor in several.labels] == [[1.0], [2.5]]
    with pytest.raises(ValueError, match="but a str came"):
        Sample.from_ndarray("words", 1)


def test_sample_from_tensors():
    feature = JTensor.sparse(np.array([1.0]), np.array([[0]]), (3,))
    sample = Sample.from_jtensor(feature, [JTensor([1], [1])])
    assert sample.features == [feature]
    assert len(sample.labels) == 1
    with pytest.raises(ValueError, match="A JTensor was expected"):
        Sample.from_jtensor(np.ones(2), np.ones(1))


def test_evaluated_result():
    result = EvaluatedResult(0.5, 10, "Top1Accuracy")
    assert (result.result, result.total_num, result.method) == (0.5, 10, "Top1Accuracy")
    assert "Top1Accuracy" in str(result)


def test_rng_repeats_with_its_seed():
    first, second = RNG(), RNG()
    first.set_seed(7)
    second.set_seed(7)
    values = first.uniform(-1.0, 1.0, [2, 3])
    assert values.shape == (2, 3)
    assert values.dtype == np.float32
    assert (values >= -1).all()
    assert (values < 1).all()
    np.testing.assert_array_equal(values, second.uniform(-1.0, 1.0, [2, 3]))


def test_java_value_can_be_subclassed():
    class Mine(JavaValue):
        pass

    mine = Mine(None, "float", 1, 2)
    assert (mine.value, mine.bigdl_type, str(mine)) == (None, "float", "Mine")
    before = JavaCreator.get_creator_class()
    JavaCreator.add_creator_class("a.B")
    assert JavaCreator.get_creator_class() == [*before, "a.B"]
    JavaCreator.set_creator_class(before)


def test_small_helpers():
    assert common.to_list((1, 2)) == [1, 2]
    assert common.to_list("ab") == ["ab"]
    path = common.create_tmp_path()
    assert not os.path.exists(path)
    assert path != common.create_tmp_path()
    assert (common.INTMAX, common.INTMIN) == (2**31 - 1, -(2**31))
    assert np.finfo(np.float64).max == common.DOUBLEMAX
    assert common.create_spark_conf().get("spark.speculation") == "false"
    common.redire_spark_logs()
    with pytest.raises(RuntimeError, match="redirect_spark_log=False"):
        common.redire_spark_logs(log_path="spark.log")


def test_engine_without_a_context_is_the_embedded_one():
    common.init_engine()
    nodes, cores = common.get_node_and_core_number()
    stop_orca_context()
    assert (nodes, cores) == (1, len(os.sched_getaffinity(0)))


def test_star_import_works_without_spark():
    script = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "pyspark" else find(name, *rest)
from bigdl.util.common import *
print(sorted(name for name in globals() if name in ("np", "RDD", "Sample")))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "['Sample', 'np']\n", done.stderr
