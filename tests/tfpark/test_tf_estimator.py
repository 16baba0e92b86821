"""TFEstimator: a model function, trained, evaluated and run; every call in a graph of its own."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf2

from bigdl.optim.optimizer import MAE
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.records import Records
from zoo.tfpark import TFDataset, TFEstimator, ZooOptimizer
from zoo.tfpark.estimator import EstimatorSpec

tf = tf2.compat.v1
X = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
Y = (X.sum(axis=1) > 0).astype(np.int32)

pytestmark = pytest.mark.engines("local")


def model_fn(features, labels, mode, params):
    logits = tf.matmul(features, tf.get_variable("w", [4, 6]))
    if mode == "infer":
        assert labels is None
        return EstimatorSpec(mode, {"logits": logits, "class": tf.argmax(logits, -1)})
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    step = tf.train.get_global_step() if params["counts"] else None
    train_op = ZooOptimizer(tf.train.AdamOptimizer(0.05)).minimize(loss, global_step=step)
    return EstimatorSpec(mode, logits, loss, train_op)


def data(**options):
    return lambda mode: TFDataset.from_ndarrays((X, Y), **options)


@pytest.mark.parametrize("counts", [True, False])
def test_train_evaluate_predict(engine, tmp_path, counts):
    model_dir = str(tmp_path / "model")
    estimator = TFEstimator.from_model_fn(model_fn, model_dir, params={"counts": counts})
    assert estimator.train(data(batch_size=8), steps=3) is estimator
    first = estimator.evaluate(data(batch_per_thread=3), ["acc", "loss", "top5acc"])
    assert first.keys() == {"Top1Accuracy", "Loss", "Top5Accuracy"}
    again = TFEstimator.from_model_fn(model_fn, model_dir, params={"counts": counts})
    again.train(data(batch_size=8), steps=30)
    assert tf.train.latest_checkpoint(model_dir) == f"{model_dir}/model.ckpt-33"  # it went on from where it stood
    second = again.evaluate(data(batch_per_thread=3), ["accuracy", "loss"])
    assert second["Loss"] < first["Loss"]
    before = again.evaluate(data(batch_per_thread=3), ["loss"], checkpoint_path=f"{model_dir}/model.ckpt-3")
    assert before["Loss"] == pytest.approx(first["Loss"], rel=1e-5)

    records = Records.of(list(zip(X, Y, strict=True)), 1)
    pair = {"features": (tf.float32, [4]), "labels": (tf.int32, [])}
    found = again.predict(lambda mode: TFDataset.from_rdd(records, **pair, batch_per_thread=5)).collect()
    assert [set(row) for row in found] == [{"logits", "class"}] * 32
    assert np.mean([row["class"] == y for row, y in zip(found, Y, strict=True)]) == pytest.approx(
        second["Top1Accuracy"]
    )
    chosen = again.predict(lambda mode: TFDataset.from_rdd(records, **pair, batch_per_thread=5), ["class"]).collect()
    assert [row["class"] for row in chosen] == [row["class"] for row in found]


def test_without_a_folder_there_is_a_temporary_one_and_tables_work(engine):
    words = np.array(["a", "b", "c", "a"])

    def counting(features, labels, mode):
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0]), 0.0)
        scale = tf.get_variable("scale", [], initializer=tf.ones_initializer())
        output = table.lookup(features) * scale
        loss = None if labels is None else tf.reduce_mean((output - labels) ** 2)
        train_op = None if mode != "train" else ZooOptimizer(tf.train.GradientDescentOptimizer(0.1)).minimize(loss)
        return EstimatorSpec(mode, output, loss, train_op)

    estimator = TFEstimator.from_model_fn(counting)
    estimator.train(lambda mode: TFDataset.from_ndarrays((words, np.full(4, 3.0)), batch_size=4), steps=20)
    evaluated = estimator.evaluate(
        lambda mode: TFDataset.from_ndarrays((words, np.full(4, 3.0)), batch_per_thread=1), [MAE(), "loss"]
    )
    found = estimator.predict(lambda mode: TFDataset.from_string_rdd(Records.of(["b", "z"], 1))).collect()
    scale = found[0] / 2
    assert 1.2 < scale < 3
    assert found[1] == 0
    errors = np.abs(3 - scale * np.array([1, 2, 0, 1]))
    assert evaluated == {
        "MAE": pytest.approx(errors.mean(), rel=1e-4),
        "Loss": pytest.approx((errors**2).mean(), rel=1e-4),
    }


def test_what_is_missing_is_named(engine):
    estimator = TFEstimator.from_model_fn(model_fn, params={"counts": True})
    with pytest.raises(ValueError, match="The batch_size of TFDataset must be specified when used for training"):
        estimator.train(data())
    with pytest.raises(ValueError, match="The batch_size of TFDataset must be specified when used for training"):
        estimator.train(data(batch_per_thread=4))
    with pytest.raises(InvalidArgumentError, match="There is no checkpoint"):
        estimator.evaluate(data(batch_per_thread=4), ["acc"])
    with pytest.raises(InvalidArgumentError, match="one of 'acc', 'accuracy', 'top5acc', 'mae', 'auc', 'loss'"):
        estimator.evaluate(data(batch_per_thread=4), ["f1"])
    with pytest.raises(InvalidArgumentError, match="input_fn to return a TFDataset, got a tuple"):
        estimator.train(lambda mode: (X, Y))
    with pytest.raises(InvalidArgumentError, match="EstimatorSpec with train_op for mode 'train'"):
        TFEstimator.from_model_fn(
            lambda features, labels, mode: EstimatorSpec(mode, features, tf.reduce_mean(features))
        ).train(data(batch_size=4))


def test_one_dataset_in_several_calls_and_batches_that_differ(engine):
    numbers = np.arange(16, dtype=np.int32)
    dataset = TFDataset.from_ndarrays((numbers, np.ones(16, np.float32)), batch_size=4)

    def seen_fn(features, labels, mode):
        seen = tf.get_variable("seen", [16], initializer=tf.zeros_initializer())
        loss = -tf.reduce_mean(tf.gather(seen, features) * labels)
        return EstimatorSpec(mode, seen, loss, ZooOptimizer(tf.train.GradientDescentOptimizer(4.0)).minimize(loss))

    estimator = TFEstimator.from_model_fn(seen_fn)
    counts = []
    for _ in range(3):
        estimator.train(lambda mode: dataset, steps=1)
        counts.append(tf.train.load_variable(estimator.model_dir, "seen"))
    steps = np.diff([np.zeros(16), *counts], axis=0)
    np.testing.assert_array_equal(steps.sum(axis=1), [4, 4, 4])
    assert len({tuple(np.flatnonzero(step)) for step in steps}) == 3


def test_a_warm_start_sets_what_there_is(engine, tmp_path):
    with tf.Graph().as_default(), tf.Session() as sess:
        tf.get_variable("w", initializer=np.full((4, 6), 7, np.float32))
        sess.run(tf.global_variables_initializer())
        tf.train.Saver().save(sess, str(tmp_path / "first"))
    for start in (tmp_path, tmp_path / "first"):
        estimator = TFEstimator.from_model_fn(model_fn, params={"counts": True}, warm_start_from=str(start))
        records = TFDataset.from_ndarrays(X[:3], batch_per_thread=2)
        found = estimator.predict(lambda mode, records=records: records, ["logits"]).collect()
        np.testing.assert_allclose([row["logits"] for row in found], X[:3] @ np.full((4, 6), 7), rtol=1e-4)
    estimator.train(data(batch_size=8), steps=1)  # Adam's own variables are not in the checkpoint
    assert np.abs(tf.train.load_variable(estimator.model_dir, "w") - 7).max() < 0.1

    def other_fn(features, labels, mode):
        tf.get_variable("other", [4])
        return EstimatorSpec(mode, features)

    with pytest.raises(InvalidArgumentError, match="some of the variables global_step, other, got w"):
        TFEstimator.from_model_fn(other_fn, warm_start_from=str(tmp_path)).predict(lambda mode: records)


@pytest.mark.parametrize("size", [{"batch_per_thread": 3}, {"batch_size": 4}])
def test_a_hard_coded_batch_is_evaluated_to_the_last_row(engine, size):
    estimator = TFEstimator.from_model_fn(binary_fn)
    estimator.train(data(batch_size=8), steps=2)
    methods = ["acc", "mae", "auc", "loss"]
    pairs = [
        estimator.evaluate(
            lambda mode, fixed=fixed: TFDataset.from_ndarrays((X[:31], Y[:31]), **size, hard_code_batch_size=fixed),
            methods,
        )
        for fixed in (False, True)
    ]
    assert pairs[1] == pytest.approx(pairs[0], rel=1e-4)


def binary_fn(features, labels, mode):
    output = tf.sigmoid(tf.reshape(tf.matmul(features, tf.get_variable("w", [4, 1])), [-1]))
    loss = tf.reduce_mean((output - tf.cast(labels, tf.float32)) ** 2)
    return EstimatorSpec(mode, output, loss, ZooOptimizer(tf.train.AdamOptimizer(0.05)).minimize(loss))
