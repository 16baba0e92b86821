"""TFDataset: rows of any origin, their placeholders, and the rules of batches."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf2

from zoo.common import Sample
from zoo.feature.common import FeatureSet
from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.learn.records import Records
from zoo.pipeline.api.net import TFDataset
from zoo.tfpark import TFNet

tf = tf2.compat.v1
X = np.arange(24, dtype=np.float64).reshape(8, 3)
Y = np.arange(8)

pytestmark = pytest.mark.engines("local")


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def rows(dataset):
    """All records of a dataset, as flat tuples of arrays."""
    return Records(dataset.rows.records()).collect()


def names(tensors):
    return [tensor.name for tensor in tensors]


def test_lists_of_arrays_with_names(engine):
    records = [[x, y, "more than there are names"] for x, y in zip(X, Y, strict=True)]
    dataset = TFDataset.from_rdd(
        Records.of(records), names=["image", "label"], shapes=[[3], []], types=[tf.float32, tf.int32], batch_size=8
    )
    image, label = dataset.tensors
    assert names([image, label]) == ["image:0", "label:0"]
    assert [each.shape.as_list() for each in (image, label)] == [[None, 3], [None]]
    assert [each.dtype for each in (image, label)] == [tf.float32, tf.int32]
    assert dataset.tensors is dataset.tensors
    assert (dataset.feature_tensors, dataset.label_tensors) == (image, label)
    found = rows(dataset)
    assert found[5][0].dtype == np.float32
    assert found[5][1].dtype == np.int32
    np.testing.assert_array_equal([x for x, _ in found], X)
    np.testing.assert_array_equal([y for _, y in found], Y)


def test_names_and_types_have_defaults(engine):
    dataset = TFDataset.from_rdd([[x, x] for x in X], shapes=[[3], [3]])
    assert names(dataset.tensors) == ["features:0", "labels:0"]
    assert [meta.dtype for meta in dataset.metas] == [tf.float32, tf.float32]
    assert len(TFDataset.from_rdd(list(X), names=["x"], shapes=[[3]]).tensors) == 1
    with pytest.raises(InvalidArgumentError, match="got 1, 2 and 1"):
        TFDataset.from_rdd([], names=["x"], shapes=[[3], []])
    with pytest.raises(InvalidArgumentError, match=r"features=\(dtype, shape\)"):
        TFDataset.from_rdd([])


def test_features_and_labels_in_lists(engine):
    records = [([x, x[:1]], y) for x, y in zip(X, Y, strict=True)]
    dataset = TFDataset.from_rdd(
        records, features=[(tf.float32, [3]), (tf.float64, [1])], labels=(tf.int64, []), batch_per_thread=2
    )
    assert names(dataset.feature_tensors) == ["list_input_0:0", "list_input_1:0"]
    assert dataset.label_tensors.shape.as_list() == [None]
    assert [len(record) for record in rows(dataset)] == [3] * 8


def test_features_in_a_dict_and_alone(engine):
    pair = {"b": (tf.float32, [3]), "a": (tf.int32, [])}
    dataset = TFDataset.from_rdd([{"a": y, "b": x} for x, y in zip(X, Y, strict=True)], features=pair)
    assert {key: tensor.name for key, tensor in dataset.tensors.items()} == {"a": "a:0", "b": "b:0"}
    assert [record[0].item() for record in rows(dataset)] == list(Y)  # dicts are flat in the order of their keys
    with pytest.raises(InvalidArgumentError, match="label_tensors needs elements of"):
        _ = dataset.label_tensors
    alone = TFDataset.from_rdd(list(X), features=(tf.float32, [3]))
    np.testing.assert_array_equal([x for (x,) in rows(alone)], X)
    with_labels = TFDataset.from_rdd([(x, 1) for x in X], features=(tf.float32, [3]))
    np.testing.assert_array_equal([x for (x,) in rows(with_labels)], X)


def test_without_a_batch_there_is_no_leading_dimension(engine):
    dataset = TFDataset.from_rdd([(x, 1) for x in X], features=(tf.float32, [-1]), labels=(tf.int32, ()))
    assert [tensor.shape.as_list() for tensor in dataset.tensors] == [[None], []]
    assert (dataset.has_batch, dataset.batch_per_thread) == (False, 1)
    assert dataset.get_num_partitions() == engine.cores


def test_arrays_however_they_are_nested(engine):
    dataset = TFDataset.from_ndarrays((X, Y), batch_size=4, val_tensors=(X[:2], Y[:2]))
    x, y = dataset.tensors
    assert (x.dtype, y.dtype) == (tf.float32, tf.int64)
    assert len(Records(dataset.validation.records()).collect()) == 2
    a, b, c = TFDataset.from_ndarrays((X, Y, X)).tensors
    assert names([a, b, c]) == ["input_0_1:0", "input_1_1:0", "input_2:0"]
    nested = TFDataset.from_ndarrays(({"p": X, "q": [X, Y]}, Y))
    assert set(nested.feature_tensors) == {"p", "q"}
    assert nested.feature_tensors["p"].name == "p:0"
    np.testing.assert_array_equal([record[2] for record in rows(nested)], Y)
    assert TFDataset.from_ndarrays(np.array(["a", "bc"])).tensors.dtype == tf.string
    with pytest.raises(InvalidArgumentError, match="all with as many rows"):
        TFDataset.from_ndarrays((X, Y[:3]))


def test_each_graph_has_its_own_placeholders_and_is_forgotten(engine):
    from tensorflow.python.eager import context

    dataset = TFDataset.from_ndarrays((X, Y), batch_size=4)
    first = dataset.tensors
    graph = tf.Graph()
    with graph.as_default():
        assert all(each.graph is graph for each in dataset.tensors)
    with context.eager_mode():  # no graph is the default one
        assert dataset.tensors is dataset.tensors_in(graph)
    assert dataset.tensors is first
    forgotten = weakref.ref(graph)
    del graph
    gc.collect()
    assert forgotten() is None


def test_texts_and_serialized_records(engine, tmp_path):
    texts = TFDataset.from_string_rdd(Records.of(["12", "345"], 1), batch_per_thread=2)
    assert (texts.tensors.dtype, texts.tensors.shape.as_list()) == (tf.string, [None])
    assert [text.item() for (text,) in rows(texts)] == ["12", "345"]
    data = TFDataset.from_bytes_rdd([b"\x00\xff", b"1"], batch_per_thread=2)
    assert [text.item() for (text,) in rows(data)] == [b"\x00\xff", b"1"]
    for number in range(2):
        with tf2.io.TFRecordWriter(str(tmp_path / f"{number}.tfrecord")) as writer:
            for record in range(3):
                writer.write(f"{number}-{record}".encode())
    files = TFDataset.from_tfrecord_file(None, str(tmp_path), batch_per_thread=2)
    assert files.get_num_partitions() == 2
    assert [text.item().decode() for (text,) in rows(files)] == ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        TFDataset.from_tfrecord_file(None, str(tmp_path / "nowhere"))


def test_elements_of_tf_data(engine):
    elements = tf2.data.Dataset.from_tensor_slices(({"b": X, "a": Y > 3}, Y))
    dataset = TFDataset.from_tf_data_dataset(elements, batch_size=8)
    assert {key: tensor.dtype for key, tensor in dataset.feature_tensors.items()} == {"a": tf.bool, "b": tf.float64}
    assert dataset.label_tensors.shape.as_list() == [None]
    net = TFNet.from_session(tf.Session(), dataset.label_tensors, dataset.label_tensors + 1)
    with pytest.raises(ValueError, match="not for prediction"):
        net.predict(TFDataset.from_tf_data_dataset(elements, batch_per_thread=2))


def test_samples_of_sets(engine):
    samples = Records.of([Sample.from_ndarray(x, y) for x, y in zip(X, Y, strict=True)])
    pairs = {"features": (tf.float32, [3]), "labels": (tf.int32, [])}

    class Holder:
        rdd = samples

    for dataset in (
        TFDataset.from_feature_set(samples, **pairs, batch_size=8),
        TFDataset.from_image_set(Holder(), *pairs.values(), batch_per_thread=2),
        TFDataset.from_text_set(samples, *pairs.values(), batch_per_thread=2),
    ):
        np.testing.assert_array_equal([x for x, _ in rows(dataset)], X)
        assert dataset.label_tensors.dtype == tf.int32
    features = FeatureSet.sample_rdd(samples)
    np.testing.assert_array_equal([x for x, _ in rows(TFDataset.from_feature_set(features, **pairs, batch_size=8))], X)
    with pytest.raises(NotOfferedError, match="A str cannot be read here"):
        TFDataset.from_image_set("images", (tf.float32, [3]))
    with pytest.raises(ValueError, match="from_feature_set is for training"):
        TFDataset.from_feature_set(samples, **pairs)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"batch_size": 6},
            "batch_size should be a multiple of total core number, but got batch_size: 6 where total core number is 4",
        ),
        ({"batch_size": 4, "batch_per_thread": 4}, "give one of them"),
    ],
)
def test_batches_have_rules(engine, options, text):
    with pytest.raises(ValueError, match=text):
        TFDataset.from_ndarrays(X, **options)


def test_a_batch_may_be_hard_coded(engine):
    assert TFDataset.from_ndarrays(X, batch_size=8, hard_code_batch_size=True).tensors.shape.as_list() == [8, 3]
    assert TFDataset.from_ndarrays(X, batch_per_thread=2, hard_code_batch_size=True).tensors.shape.as_list() == [2, 3]


def test_records_that_do_not_fit_are_named(engine):
    wrong = TFDataset.from_rdd(Records.of(list(X), 1), features=(tf.float32, [4]), batch_per_thread=2)
    with pytest.raises(ValueError, match=r"tensor 'input0' of a record to have the shape \[4\], got \[3\]"):
        rows(wrong)
    few = TFDataset.from_rdd(Records.of([[x] for x in X], 1), names=["a", "b"], shapes=[[3], []])
    with pytest.raises(ValueError, match=r"2 arrays in a record \(a, b\), got 1"):
        rows(few)
    with pytest.raises(InvalidArgumentError, match="Expected rdd to be an RDD of records"):
        TFDataset.from_rdd("records", features=(tf.float32, [3]))
    with pytest.raises(InvalidArgumentError, match=r"features to be \(dtype, shape\)"):
        TFDataset.from_rdd([], features=tf.float32)


@pytest.mark.engines("spark")
def test_columns_of_a_frame(engine):
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import SparkSession

    values = [(i, float(i), [float(i), 1.0], Vectors.dense([i, 2.0, 3.0])) for i in range(6)]
    frame = SparkSession(engine.sc).createDataFrame(values, ["a b", "d", "e", "v"]).coalesce(1)
    dataset = TFDataset.from_dataframe(frame, feature_cols=["d", "e", "v"], labels_cols=["a b"], batch_size=8)
    assert [each.shape.as_list() for each in dataset.feature_tensors] == [[None], [None, 2], [None, 3]]
    assert [each.dtype for each in dataset.feature_tensors] == [tf.float64, tf.float32, tf.float32]
    assert (dataset.label_tensors.dtype, dataset.label_tensors.name) == (tf.int64, "a_b:0")
    found = dataset.rows.records().rdd.collect()
    np.testing.assert_array_equal(found[4][2], [4, 2, 3])
    assert [record[3].item() for record in found] == list(range(6))
    alone = TFDataset.from_dataframe(frame, feature_cols=["v"], batch_per_thread=4)
    assert alone.tensors.shape.as_list() == [None, 3]
    several = TFDataset.from_dataframe(frame, feature_cols=["d", "e"], batch_per_thread=4)
    assert not several.has_labels
    assert [each.shape.as_list() for each in several.tensors] == [[None], [None, 2]]
    with pytest.raises(KeyError, match="z"):
        TFDataset.from_dataframe(frame, feature_cols=["z"])
