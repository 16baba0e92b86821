from __future__ import annotations

import cloudpickle
import numpy as np
import pytest

from zoo.orca.data import XShards
from zoo.orca.data.tf.data import Dataset
from zoo.orca.errors import InvalidArgumentError, PreconditionError

pytestmark = pytest.mark.usefixtures("engine", "tf")

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.arange(6, dtype=np.int32)


def rows_of(dataset):
    """The rows that each shard gives, in order, over all shards."""
    return [row for shard in dataset.xshards.collect() for row in dataset.of_shard(shard).as_numpy_iterator()]


def test_rows_structure_and_types_are_those_of_the_shards(tf):
    dataset = Dataset.from_tensor_slices(XShards.partition({"x": X, "y": (Y, X)}, num_shards=2))
    rows = rows_of(dataset)
    assert len(rows) == 6
    assert rows[4]["x"].tolist() == [8.0, 9.0]
    assert rows[4]["y"][0] == 4
    assert rows[4]["y"][1].tolist() == [8.0, 9.0]
    spec = dataset.of_shard(dataset.xshards.collect()[0]).element_spec
    assert spec["x"] == tf.TensorSpec((2,), tf.float32)
    assert spec["y"][0] == tf.TensorSpec((), tf.int32)


def test_plain_arrays_are_sliced_too():
    rows = rows_of(Dataset.from_tensor_slices(XShards.partition(X, num_shards=3)))
    assert [row.tolist() for row in rows] == X.tolist()


def test_maps_chain_in_order_and_leave_the_source_as_it_was():
    source = Dataset.from_tensor_slices(XShards.partition((X, Y), num_shards=2))
    mapped = source.map(lambda x, y: {"sum": x[0] + x[1], "y": y}).map(lambda row: row["sum"] * 10)
    assert [float(row) for row in rows_of(mapped)] == [10.0, 50.0, 90.0, 130.0, 170.0, 210.0]
    assert len(rows_of(source)[0]) == 2
    assert mapped.xshards is source.xshards
    assert mapped.num_partitions() == 2


def test_maps_are_not_run_before_a_shard_is_asked_for():
    def fails(row):
        raise ValueError("ran")

    dataset = Dataset.from_tensor_slices(XShards.partition(X, num_shards=1)).map(fails)
    with pytest.raises(ValueError, match="ran"):
        dataset.of_shard(X)


def test_slices_travel_to_a_worker_without_the_shards():
    dataset = Dataset.from_tensor_slices(XShards.partition({"x": X}, num_shards=2)).map(lambda row: row["x"][1])
    slices = cloudpickle.loads(cloudpickle.dumps(dataset.slices))
    sums = dataset.xshards.transform_shard(lambda shard: float(sum(slices(shard).as_numpy_iterator())))
    assert sums.collect() == [9.0, 27.0]


def test_arrays_of_different_lengths_stay_together():
    boxes = [np.ones((1, 5), np.float32), np.zeros((0, 5), np.float32), np.full((3, 5), 2, np.float32)]
    dataset = Dataset.from_tensor_slices(XShards.partition(X, num_shards=1))
    rows = list(dataset.of_shard({"boxes": boxes, "image": [b"a", b"b", b"c"]}).as_numpy_iterator())
    assert [row["boxes"].shape for row in rows] == [(1, 5), (0, 5), (3, 5)]
    assert rows[2]["image"] == b"c"


@pytest.mark.parametrize("data", [X, [X], {"x": X}])
def test_only_xshards_are_taken(data):
    with pytest.raises(PreconditionError, match=r"Expected XShards .* got (ndarray|list|dict)\. Make some") as caught:
        Dataset.from_tensor_slices(data)
    assert isinstance(caught.value, AssertionError)


def test_records_as_arrays_for_prediction():
    texts = np.array(["a", "bc", "", "d", "e", "f"])
    shards = XShards.partition({"x": X, "text": texts}, num_shards=2)
    dataset = Dataset.from_tensor_slices(shards).map(lambda record: (record["x"] * 2, record["text"]))
    found = dataset.as_xshards().collect()
    assert [shard["x"][0].tolist() for shard in found] == [(X[:3] * 2).tolist(), (X[3:] * 2).tolist()]
    assert found[0]["x"][1].tolist() == [b"a", b"bc", b""]


def test_records_of_no_one_shape_are_refused():
    dataset = Dataset.from_tensor_slices(XShards.partition(X, num_shards=1))
    with pytest.raises(InvalidArgumentError, match=r"a RaggedTensor in them\. Make a tensor of it with map"):
        dataset.slices.arrays({"boxes": [np.ones((1, 5)), np.ones((3, 5))]})
    assert dataset.slices.arrays(X[:0]).shape == (0,)
