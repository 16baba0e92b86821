"""TFNet: graphs, exports and SavedModels that run anywhere, and the gradients of their inputs."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import tensorflow as tf2

from bigdl.optim.optimizer import MAE, Top1Accuracy
from zoo.common import Sample
from zoo.orca.errors import BatchError, ContextError, InvalidArgumentError, NotOfferedError
from zoo.orca.learn.records import Records
from zoo.pipeline.api.net import TFNet
from zoo.tfpark import TFDataset
from zoo.util.tf import export_tf, get_checkpoint_state, load_tf_checkpoint, save_tf_checkpoint

tf = tf2.compat.v1
X = np.random.default_rng(0).normal(size=(7, 3))


@pytest.fixture
def graph():
    with tf.Graph().as_default() as made:
        yield made


@pytest.fixture
def session(graph):
    with tf.Session(graph=graph) as made:
        yield made


def network(session):
    """x of 3 columns and an embedded number, through variables of both kinds."""
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    i = tf.placeholder(tf.int32, [None], name="i")
    old = tf.get_variable("old", [3, 2], use_resource=False)
    new = tf.get_variable("new", [5, 2], use_resource=True)
    y = tf.identity(tf.tanh(tf.matmul(x, old)) * tf.nn.embedding_lookup(new, i), name="y")
    session.run(tf.global_variables_initializer())
    return x, i, y


def records(engine, values, partitions=1):
    """What a user has on each engine where the interface says RDD."""
    return engine.sc.parallelize(values, partitions) if engine.name == "spark" else Records.of(values, partitions)


def test_forward_and_backward_are_tensorflows(session, graph):
    x, i, y = network(session)
    feed = {x: X, i: np.arange(7) % 5}
    (grad,) = tf.gradients(y, x, tf.fill(tf.shape(y), 2.0))
    expected, expected_grad = session.run([y, grad], feed)
    operations = [op.name for op in graph.get_operations()]

    net = TFNet.from_session(session, [x, i], [y], generate_backward=True)
    assert [op.name for op in graph.get_operations()] == operations
    session.run(tf.global_variables_initializer())  # what the variables become later is not the net's business
    session.close()

    np.testing.assert_array_equal(net.forward([X, np.arange(7) % 5]), expected)
    to_x, to_i = net.backward([X, np.arange(7) % 5], np.full((7, 2), 2.0))
    np.testing.assert_array_equal(to_x, expected_grad)
    np.testing.assert_array_equal(to_i, np.zeros(7))
    again = pickle.loads(pickle.dumps(net))
    np.testing.assert_array_equal(again.forward([X, np.arange(7) % 5]), expected)


def test_a_net_may_begin_in_the_middle_of_a_graph(session):
    x, i, y = network(session)
    middle = session.graph.get_tensor_by_name("Tanh:0")
    expected, given = session.run([y, middle], {x: X, i: np.arange(7) % 5})
    net = TFNet.from_session(session, [middle, i], y)
    np.testing.assert_array_equal(net.forward([given, np.arange(7) % 5]), expected)


def test_an_export_holds_the_stripped_graph_and_its_names(session, tmp_path):
    x, i, y = network(session)
    expected = session.run(y, {x: X, i: np.zeros(7)})
    tf.constant(np.zeros(1000), name="of_no_use")
    export_tf(session, str(tmp_path / "out"), inputs=[x, i], outputs=[y])
    meta = json.loads((tmp_path / "out/graph_meta.json").read_text())
    assert (meta["input_names"], meta["output_names"]) == (["x:0", "i:0"], ["y:0"])
    frozen = tf.GraphDef.FromString((tmp_path / "out/frozen_inference_graph.pb").read_bytes())
    kinds = {node.op for node in frozen.node}
    assert not kinds & {"VariableV2", "VarHandleOp", "Assign"}
    assert "of_no_use" not in {node.name for node in frozen.node}
    np.testing.assert_array_equal(TFNet.from_export_folder(str(tmp_path / "out")).forward([X, np.zeros(7)]), expected)


def test_bad_inputs_and_outputs_are_named(session, tmp_path):
    x, i, y = network(session)
    unused = tf.placeholder(tf.float32, [None], name="unused")
    with pytest.raises(ValueError, match="do not depend on the input unused"):
        export_tf(session, str(tmp_path), [x, i, unused], [y])
    with pytest.raises(InvalidArgumentError, match="i:0 too, which is not among inputs"):
        TFNet.from_session(session, [x], [y])
    with pytest.raises(InvalidArgumentError, match="no gradient for i:0"):
        TFNet.from_session(session, [x, i], [y], generate_backward=True, allow_non_differentiable_input=False)
    with pytest.raises(InvalidArgumentError, match="tensors of a graph, got str"):
        TFNet.from_session(session, ["x:0"], [y])
    with tf.Graph().as_default():
        stranger = tf.placeholder(tf.float32)
    with pytest.raises(InvalidArgumentError, match="not in the session's graph"):
        TFNet.from_session(session, [stranger], [y])
    with pytest.raises(NotOfferedError, match="calls a Python function"):
        TFNet.from_session(session, [x], [tf.py_func(lambda value: value, [x], tf.float32)])
    fresh = tf.get_variable("fresh", [3])
    with pytest.raises(InvalidArgumentError, match="no value for the variable fresh"):
        TFNet.from_session(session, [x], [x + fresh])
    net = TFNet.from_session(session, [x, i], [y])
    with pytest.raises(InvalidArgumentError, match="generate_backward=True"):
        net.backward([X, np.zeros(7)], np.ones((7, 2)))
    with pytest.raises(BatchError, match=r"2 arrays, one for each input \(x:0, i:0\), got 1"):
        net.forward(X)
    with pytest.raises(BatchError, match=r"x:0 to be given an array of shape \(None, 3\), got \(7, 2\)"):
        net.forward([X[:, :2], np.zeros(7)])
    with pytest.raises(FileNotFoundError, match="frozen_inference_graph"):
        TFNet.from_export_folder(str(tmp_path / "nowhere"))


def test_scalars_and_texts_go_in(session):
    a, b = (tf.placeholder(tf.float32, [], name=name) for name in "ab")
    assert TFNet.from_session(session, [a, b], [a + 2 * b]).forward([np.array(1.0), 3]) == 7
    text = tf.placeholder(tf.string, [None])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["one", "two"], [1, 2]), -1)
    session.run(tf.tables_initializer())
    net = TFNet.from_session(session, text, table.lookup(text))
    np.testing.assert_array_equal(net.forward(np.array(["two", "three", "one"])), [2, -1, 1])


def test_saved_models_of_both_generations_and_of_keras(tmp_path, session):
    x, i, y = network(session)
    expected = session.run(y, {x: X, i: np.zeros(7)})
    tf.saved_model.simple_save(session, str(tmp_path / "v1"), {"x": x, "number": i}, {"y": y})
    first = TFNet.from_saved_model(str(tmp_path / "v1"))
    np.testing.assert_array_equal(first.forward([np.zeros(7), X]), expected)  # number before x, by name
    chosen = TFNet.from_saved_model(str(tmp_path / "v1"), inputs=["x:0", "i:0"], outputs=["y:0"])
    np.testing.assert_array_equal(chosen.forward([X, np.zeros(7)]), expected)
    with pytest.raises(InvalidArgumentError, match="no signature 'train', but 'serving_default'"):
        TFNet.from_saved_model(str(tmp_path / "v1"), signature="train")
    with pytest.raises(InvalidArgumentError, match="no graph with the tag 'gpu'"):
        TFNet.from_saved_model(str(tmp_path / "v1"), tag="gpu")
    with pytest.raises(FileNotFoundError, match=r"no saved_model\.pb"):
        TFNet.from_saved_model(str(tmp_path))


def test_saved_models_of_tensorflow_2_and_of_keras_3(tmp_path):
    import keras

    class Line(tf2.Module):
        def __init__(self):
            self.w = tf2.Variable([[1.0], [2.0], [3.0]])

        @tf2.function(input_signature=[tf2.TensorSpec([None, 3], tf2.float32, name="x")])
        def __call__(self, x):
            return {"y": x @ self.w}

    tf2.saved_model.save(Line(), str(tmp_path / "v2"))
    np.testing.assert_allclose(TFNet.from_saved_model(str(tmp_path / "v2")).forward(X)[:, 0], X @ [1, 2, 3], rtol=1e-5)

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, activation="tanh"), keras.layers.Dense(1)])
    model.export(str(tmp_path / "keras"), verbose=False)
    net = TFNet.from_saved_model(str(tmp_path / "keras"))
    np.testing.assert_allclose(net.forward(X), model(X.astype(np.float32)), rtol=1e-5)


def test_predict_gives_a_record_for_a_record(engine, session):
    x, i, y = network(session)
    numbers = np.arange(7) % 5
    expected = session.run(y, {x: X, i: numbers})
    net = TFNet.from_session(session, [x, i], [y])
    session.close()

    np.testing.assert_allclose(net.predict([X, numbers], 2, distributed=False), expected, rtol=1e-6)
    samples = records(engine, [Sample.from_ndarray(list(row), 0) for row in zip(X, numbers, strict=True)], 2)
    predicted = net.predict(samples, batch_per_thread=3)
    np.testing.assert_allclose(predicted.collect(), expected, rtol=1e-6)
    assert predicted.count() == 7
    np.testing.assert_allclose(predicted.map(lambda row: row * 2).take(2), expected[:2] * 2, rtol=1e-6)
    np.testing.assert_allclose(predicted.first(), expected[0], rtol=1e-6)
    assert predicted.getNumPartitions() == 2
    batches = records(
        engine, [Sample.from_ndarray([X[:4], numbers[:4]], 0), Sample.from_ndarray([X[4:], numbers[4:]], 0)]
    )
    np.testing.assert_allclose(np.concatenate(net.predict(batches, mini_batch=True).collect()), expected, rtol=1e-6)


@pytest.mark.engines("local")
def test_predict_arrays_and_datasets(engine, session):
    x = tf.placeholder(tf.float32, [None, 3])
    scalar = tf.placeholder(tf.float32, [])
    fixed = tf.placeholder(tf.float32, [3, 3])
    net = TFNet.from_session(session, [x], [x * 2, tf.reduce_sum(x, 1)])
    doubled, summed = zip(*net.predict(X[:2], batch_per_thread=4).collect(), strict=True)
    np.testing.assert_allclose(doubled, X[:2] * 2, rtol=1e-6)
    np.testing.assert_allclose(summed, X[:2].sum(axis=1), rtol=1e-5)
    records = Records.of(list(zip(X, np.arange(7), strict=True)), 2)
    pair = {"features": (tf.float32, [3]), "labels": (tf.int32, [])}
    dataset = TFDataset.from_rdd(records, **pair, batch_per_thread=3)
    np.testing.assert_allclose([row[0] for row in net.predict(dataset).collect()], X * 2, rtol=1e-6)
    # A graph that takes no batches is run record by record, one of a fixed batch with short ones filled up.
    one = TFNet.from_session(session, [scalar], [scalar + 1])
    np.testing.assert_allclose(one.predict(Records.of(list(X[:, 0]), 1), 5).collect(), X[:, 0] + 1, rtol=1e-6)
    whole = TFNet.from_session(session, [fixed], [fixed + 1])
    dataset = TFDataset.from_rdd(records, **pair, batch_per_thread=3, hard_code_batch_size=True)
    np.testing.assert_allclose(whole.predict(dataset).collect(), X + 1, rtol=1e-6)
    with pytest.raises(ValueError, match=r"batch_size \(8\) is for training"):
        net.predict(TFDataset.from_ndarrays(X, batch_size=8))
    with pytest.raises(InvalidArgumentError, match="Expected x to be an RDD"):
        net.predict("x")

    class ImageSet:
        def get_image(self): ...

    with pytest.raises(NotOfferedError, match="ImageSet cannot be predicted here"):
        net.predict(ImageSet())


@pytest.mark.engines("local")
def test_the_placeholders_of_a_dataset_need_a_graph(engine):
    dataset = TFDataset.from_ndarrays(X)
    with pytest.raises(ContextError, match="disable_eager_execution"):
        _ = dataset.tensors


@pytest.mark.engines("local")
def test_evaluate_measures_samples(engine, session):
    x = tf.placeholder(tf.float32, [None, 3])
    net = TFNet.from_session(session, [x], [x])
    assert net.evaluate() is net
    labels = X.argmax(axis=1) + 1  # from 1, as BigDL counts
    labels[0] = labels[0] % 3 + 1
    samples = Records.of([Sample.from_ndarray(*row) for row in zip(X, labels, strict=True)], 2)
    (accuracy,) = net.evaluate(samples, 2, [Top1Accuracy()])
    assert (accuracy.method, accuracy.total_num) == ("Top1Accuracy", 7)
    assert accuracy.result == pytest.approx(6 / 7)
    samples = Records.of([Sample.from_ndarray(row, row + 2) for row in X], 2)
    assert net.evaluate(samples, 4, MAE())[0].result == pytest.approx(2)
    with pytest.raises(InvalidArgumentError, match="val_methods"):
        net.evaluate(samples, 4)
    assert net.predict([]).collect() == []


@pytest.mark.parametrize("folder", ["plain", "memory"])
def test_checkpoints_on_any_filesystem(session, tmp_path, folder):
    base = str(tmp_path / "deep") if folder == "plain" else "memory://tfpark-checkpoints"
    w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
    session.run(w.initializer)
    assert get_checkpoint_state(base) is None
    save_tf_checkpoint(session, f"{base}/model")
    state = get_checkpoint_state(base)
    assert state.model_checkpoint_path == f"{base}/model"
    assert state.all_model_checkpoint_paths == [f"{base}/model"]
    session.run(w.assign([5, 6]))
    load_tf_checkpoint(session, state.model_checkpoint_path)
    np.testing.assert_array_equal(session.run(w), [1, 1])
    with pytest.raises(FileNotFoundError, match=r"No such checkpoint: .*other"):
        load_tf_checkpoint(session, f"{base}/other")


def test_a_saver_reads_what_was_saved(session, tmp_path):
    w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
    session.run(w.initializer)
    save_tf_checkpoint(session, str(tmp_path / "model"), saver=tf.train.Saver([w]))
    session.run(w.assign([5, 6]))
    tf.train.Saver().restore(session, tf.train.latest_checkpoint(str(tmp_path)))
    np.testing.assert_array_equal(session.run(w), [1, 1])


def test_the_same_graph_is_recognised_again(session):
    x, i, y = network(session)
    one, again, part = (TFNet.from_session(session, [x, i], outputs) for outputs in (y, y, [y, y]))
    assert one._predictor.key == again._predictor.key != part._predictor.key
    session.run(tf.global_variables_initializer())
    assert TFNet.from_session(session, [x, i], y)._predictor.key != one._predictor.key
