"""TFOptimizer and TFPredictor: training a graph on a TFDataset, in the forms of both generations."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf2

from bigdl.optim.optimizer import (
    SGD,
    Adam,
    Loss,
    MaxEpoch,
    MaxIteration,
    SeveralIteration,
    Top1Accuracy,
    TrainSummary,
    ValidationSummary,
)
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.metrics import AUC, MAE
from zoo.orca.learn.records import Records
from zoo.pipeline.api.net import TFDataset, TFOptimizer, TFPredictor
from zoo.tfpark import ZooOptimizer

tf = tf2.compat.v1
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(32, 4)).astype(np.float32)
Y = (X.sum(axis=1) > 0).astype(np.int32)
PAIR = {"features": (tf.float32, [4]), "labels": (tf.int32, [])}


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def network(x, scope="net"):
    """Two layers in scopes of their own."""
    tf.random.set_random_seed(1)
    with tf.variable_scope(scope):
        hidden = tf.tanh(tf.matmul(x, tf.get_variable("dense/kernel", [4, 3])))
        return tf.matmul(hidden, tf.get_variable("dense_1/kernel", [3, 2]))


def cross_entropy(labels, logits):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def weights(optimizer):
    return optimizer.tf_model.training_helper_layer.get_weights()


def same(ones, others):
    return [bool(np.array_equal(one, other)) for one, other in zip(ones, others, strict=True)]


def test_the_documents_form(engine, tmp_path):
    """Records with more arrays than names, TFOptimizer(loss, method), a saver, TFPredictor(sess, [logits])."""
    values = [[x, y, "dropped"] for x, y in zip(X, Y, strict=True)]
    records = engine.sc.parallelize(values, 2) if engine.name == "spark" else Records.of(values, 2)
    dataset = TFDataset.from_rdd(
        records, names=["features", "labels"], shapes=[[4], []], types=[tf.float32, tf.int32], batch_size=8
    )
    features, labels = dataset.tensors
    logits = network(features)
    optimizer = TFOptimizer(cross_entropy(labels, logits), Adam(0.05))
    summary = TrainSummary(str(tmp_path), "lenet")
    summary.set_summary_trigger("LearningRate", SeveralIteration(2))
    optimizer.set_train_summary(summary)
    before = weights(optimizer)
    optimizer.optimize(end_trigger=MaxEpoch(3))
    after = weights(optimizer)
    assert same(before, after) == [False, False]
    losses = summary.read_scalar("Loss")
    assert [step for step, *_ in losses] == list(range(1, 13))
    assert losses[-1][1] < losses[0][1]
    assert [step for step, *_ in summary.read_scalar("LearningRate")] == [1, 3, 5, 7, 9, 11]
    optimizer.optimize(end_trigger=MaxEpoch(3))
    assert all(same(after, weights(optimizer)))
    optimizer.optimize(end_trigger=MaxIteration(13))
    assert [step for step, *_ in summary.read_scalar("Loss")][-1] == 13
    saved = tf.train.Saver().save(optimizer.sess, str(tmp_path / "model"))
    expected = optimizer.sess.run(logits, {features: X})
    optimizer.sess.close()

    with tf.Graph().as_default(), tf.Session() as sess:
        dataset = TFDataset.from_rdd(records, names=["features"], shapes=[[4]], types=[tf.float32])
        (features,) = dataset.tensors  # one record at a time, without a leading dimension
        logits = network(features[tf.newaxis])
        tf.train.Saver().restore(sess, saved)
        predictions = TFPredictor(sess, [logits]).predict()
        np.testing.assert_allclose(np.concatenate(predictions.collect()), expected, rtol=1e-5)
        assert predictions.count() == 32


@pytest.mark.engines("local")
def test_one_epoch_saved_and_loaded_is_one_epoch(engine, tmp_path):
    def optimizer():
        with tf.Graph().as_default():
            x, y = TFDataset.from_ndarrays((X, Y), batch_size=8).tensors
            return TFOptimizer.from_loss(cross_entropy(y, network(x)), Adam(0.05), model_dir=str(tmp_path))

    first = optimizer()
    first.optimize(MaxEpoch(1))
    trained = weights(first)
    names = [path.name for path in tmp_path.rglob("optimMethod*")]
    assert all(re.fullmatch(r"optimMethod-TFParkTraining\.[0-9]+", name) for name in names)
    assert names == ["optimMethod-TFParkTraining.5"]

    second = optimizer()
    assert same(weights(second), trained) == [False, False]
    second.load_checkpoint(str(tmp_path), 5)
    assert all(same(weights(second), trained))
    second.optimize(MaxEpoch(1))
    assert all(same(weights(second), trained))
    second.optimize(MaxEpoch(2))
    assert same(weights(second), trained) == [False, False]
    first.optimize(MaxEpoch(2))
    assert all(same(weights(first), weights(second)))  # the optimizer's memory was in the checkpoint
    first.sess.close()
    second.sess.close()


@pytest.mark.engines("local")
def test_a_method_for_each_prefix(engine):
    dataset = TFDataset.from_ndarrays((X, Y), batch_size=8)
    x, y = dataset.tensors
    loss = cross_entropy(y, network(x))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        methods = {"net/dense/": SGD(0.0), "net/dense_1/": SGD(0.1)}
        optimizer = TFOptimizer.from_loss(loss, methods, session=sess, clip_norm=5.0)
        before = weights(optimizer)
        optimizer.optimize()
        assert same(before, weights(optimizer)) == [True, False]
        assert optimizer.sess is sess
        # A rate of 1 and one step: the weights move by the gradient, whose elements are clipped.
        optimizer = TFOptimizer.from_loss(loss, SGD(1.0), session=sess)
        optimizer.set_constant_gradient_clipping(-1e-3, 1e-3)
        before = weights(optimizer)
        optimizer.optimize(MaxIteration(1))
        assert max(np.abs(a - b).max() for a, b in zip(before, weights(optimizer), strict=True)) <= 1e-3 + 1e-6
        optimizer = TFOptimizer.from_loss(loss, SGD(1.0), session=sess)
        optimizer.set_gradient_clipping_by_l2_norm(1e-2)
        before = weights(optimizer)
        optimizer.optimize(MaxIteration(1))
        moved = np.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(before, weights(optimizer), strict=True)))
        assert moved == pytest.approx(1e-2, rel=1e-2)


@pytest.mark.engines("local")
def test_validation_by_methods_and_by_tensors(engine, tmp_path):
    """One step an epoch: EveryEpoch's first call only remembers, so five epochs give four validations."""
    dataset = TFDataset.from_ndarrays((X, Y, Y), batch_size=32, val_tensors=(X[:10], Y[:10], Y[:10]))
    x, y, _ = dataset.tensors  # the third one is of no use to the graph
    rate = tf.placeholder(tf.float32, [], name="rate")
    logits = network(tf.nn.dropout(x, rate=rate))
    probability = tf.nn.softmax(logits)[:, 1]
    loss = cross_entropy(y, logits)
    optimizer = TFOptimizer.from_loss(
        loss,
        Adam(0.05),
        val_outputs=[probability],
        val_labels=[y],
        val_method=[Top1Accuracy(), Loss(), AUC(), MAE()],
        metrics={"mine": tf.reduce_mean(logits)},
        tensor_with_value={rate.ref(): (0.3, 0.0)},
    )
    train, validation = TrainSummary(str(tmp_path), "app"), ValidationSummary(str(tmp_path), "app")
    optimizer.set_train_summary(train)
    optimizer.set_val_summary(validation)
    optimizer.optimize(MaxEpoch(5))
    assert len(train.read_scalar("Loss")) == 5
    assert [step for step, *_ in validation.read_scalar("Loss")] == [2, 3, 4, 5]
    found = {name: validation.read_scalar(name)[-1][1] for name in ("Loss", "Top1Accuracy", "AucScore", "MAE", "mine")}
    feed = {x: X[:10], y: Y[:10], rate: 0.0}
    ours, likely, mean = optimizer.sess.run([loss, probability, tf.reduce_mean(logits)], feed)
    assert found["Loss"] == pytest.approx(ours, rel=1e-4)
    assert found["mine"] == pytest.approx(mean, rel=1e-4)
    assert found["Top1Accuracy"] == pytest.approx(np.mean((likely >= 0.5) == Y[:10]))
    assert found["MAE"] == pytest.approx(np.mean(np.abs(likely - Y[:10])), rel=1e-4)
    area = AUC().get_metric()
    area(likely, Y[:10])
    assert found["AucScore"] == pytest.approx(area.value(), abs=1e-3)
    optimizer.sess.close()


@pytest.mark.engines("local")
def test_a_train_op_of_zoo_optimizer(engine):
    """Sparse gradients, another optimizer's slots, and inputs that are not the dataset's own placeholders."""
    numbers = np.arange(32) % 5
    dataset = TFDataset.from_ndarrays((numbers, Y.astype(np.float32)), batch_size=16)
    i, y = tf.placeholder(tf.int64, [None], name="i"), tf.placeholder(tf.float32, [None], name="y")
    table = tf.get_variable("table", [7, 1], initializer=tf.ones_initializer())
    loss = tf.reduce_mean((tf.nn.embedding_lookup(table, i)[:, 0] - y) ** 2)
    step = tf.train.get_or_create_global_step()
    train_op = ZooOptimizer(tf.train.AdamOptimizer(0.1)).minimize(loss, global_step=step)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        optimizer = TFOptimizer.from_train_op(train_op, loss, inputs=[i], labels=[y], sess=sess, dataset=dataset)
        optimizer.optimize(MaxEpoch(2))
        values, steps = sess.run([table, step])
        assert steps == 4
        assert (np.abs(values[:5] - 1) > 0.1).all()
        np.testing.assert_array_equal(values[5:], 1)
        sess.run(train_op, {i: numbers, y: Y})  # it is a train op like any other
        assert sess.run(step) == 5
    with pytest.raises(InvalidArgumentError, match=r"ZooOptimizer\(optimizer\)\.minimize"):
        TFOptimizer.from_train_op(tf.train.AdamOptimizer().minimize(loss), loss, inputs=[i, y], dataset=dataset)
    with pytest.raises(InvalidArgumentError, match="Expected an optimizer of tensorflow"):
        ZooOptimizer(Adam())


@pytest.mark.engines("local")
def test_tf_data_on_the_workers_and_hard_coded_batches(engine):
    elements = tf2.data.Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (x * 2, y))
    dataset = TFDataset.from_tf_data_dataset(elements, batch_size=16)
    x, y = dataset.tensors
    optimizer = TFOptimizer(cross_entropy(y, network(x)), Adam(0.05))
    before = weights(optimizer)
    optimizer.optimize()
    assert same(before, weights(optimizer)) == [False, False]
    optimizer.sess.close()

    dataset = TFDataset.from_ndarrays((X[:30], Y[:30]), batch_size=8, hard_code_batch_size=True)
    x, y = dataset.tensors
    logits = tf.reshape(network(x, "fixed"), [8, 2])
    optimizer = TFOptimizer(cross_entropy(y, logits), SGD(0.1))
    optimizer.optimize()
    assert optimizer.estimator.iterations == 3  # the last six rows are no batch
    optimizer.sess.close()


@pytest.mark.engines("local")
def test_what_cannot_be_trained_or_predicted_is_named(engine):
    x, y = TFDataset.from_ndarrays((X, Y)).tensors
    loss = cross_entropy(y[tf.newaxis], network(x[tf.newaxis]))
    with pytest.raises(ValueError, match="The batch_size of TFDataset must be specified when used for training"):
        TFOptimizer(loss, Adam())
    with pytest.raises(InvalidArgumentError, match="from the tensors of one TFDataset, got none"):
        TFOptimizer(tf.reduce_mean(tf.placeholder(tf.float32, [None])), Adam())
    x, y = TFDataset.from_ndarrays((X, Y), batch_size=8).tensors
    logits = network(x, "other")
    loss = cross_entropy(y, logits)
    with pytest.raises(InvalidArgumentError, match="val_method needs val_outputs and val_labels"):
        TFOptimizer(loss, Adam(), val_method=Top1Accuracy())
    optimizer = TFOptimizer(loss, Adam())
    with pytest.raises(InvalidArgumentError, match="Expected a TrainSummary"):
        optimizer.set_train_summary("/tmp")
    with pytest.raises(ValueError, match=r"batch_size \(8\) is for training"):
        TFPredictor.from_outputs(optimizer.sess, logits).predict()
    optimizer.sess.close()
