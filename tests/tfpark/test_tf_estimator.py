"""TFEstimator: a model function, trained, evaluated and run; every call in a graph of its own."""

from __future__ import annotations

import numpy as np
import pytest

from bigdl.optim.optimizer import MAE
from zoo.orca.errors import InvalidArgumentError
from zoo.tfpark import TFDataset, TFEstimator, ZooOptimizer
from zoo.tfpark.estimator import EstimatorSpec
from zoo.tfpark.records import Records

tf2 = pytest.importorskip("tensorflow")
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
