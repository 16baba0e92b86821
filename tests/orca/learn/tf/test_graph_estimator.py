"""What users of graph estimators see: data of all kinds, the session, checkpoints, summaries, metrics."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tf_graphs import BATCH, ROWS, assert_same_values, classifier, placed, tf, v1, values_in

from learning import CLASSES, Rows
from zoo.orca import OrcaContext
from zoo.orca.data import XShards
from zoo.orca.data.tf.data import Dataset
from zoo.orca.errors import CheckpointError, InvalidArgumentError, PathNotFoundError
from zoo.orca.learn.optimizers import SGD
from zoo.orca.learn.tf.estimator import Estimator
from zoo.orca.learn.trigger import EveryEpoch, MaxEpoch, MaxIteration, SeveralIteration

NAMES = ["a", "b", "c", "d"]


def estimator(net, optimizer=None, **options):
    given = {
        "inputs": net.x,
        "labels": net.y,
        "outputs": net.logits,
        "loss": net.loss,
        "metrics": {"accuracy": net.accuracy},
        "num_workers": 2,
        "optimizer": optimizer or v1.train.AdamOptimizer(0.05),
    }
    return Estimator.from_graph(**(given | options))


def by_columns():
    """A network of one input a column, as frames feed them."""
    with tf.Graph().as_default():
        columns = [v1.placeholder(tf.float32, (None,), name=name) for name in NAMES]
        y = v1.placeholder(tf.int32, (None, 1), name="label")
        weights = v1.get_variable("w", (4, CLASSES), initializer=v1.ones_initializer())
        logits = tf.stack(columns, axis=1) @ weights
        loss = v1.losses.sparse_softmax_cross_entropy(y, logits)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, tf.int32), y[:, 0]), tf.float32))
        return Estimator.from_graph(
            inputs=columns, labels=y, outputs=logits, loss=loss, metrics={"accuracy": accuracy}, num_workers=2,
            optimizer=v1.train.GradientDescentOptimizer(0.1),
        )  # fmt: skip


def frame_of(rows):
    return pd.DataFrame({**dict(zip(NAMES, rows.x.T, strict=True)), "y": rows.classes})


def frames(engine, frame):
    """The frame as the engine has data of columns."""
    if engine.name == "spark":
        from pyspark.sql import SparkSession

        return SparkSession.builder.getOrCreate().createDataFrame(frame).coalesce(1)
    if engine.name == "ray":
        import ray.data

        return ray.data.from_pandas(frame)
    return frame


def test_columns_of_every_engine_are_fed_one_by_one(engine):
    rows = Rows(ROWS)
    frame, est = frame_of(rows), by_columns()
    columns = {"feature_cols": NAMES, "label_cols": ["y"]}
    data = frames(engine, frame)
    est.fit(data, batch_size=BATCH, validation_data=data, **columns)
    weights = values_in(est.sess)["w"]
    expected = rows.x @ weights
    assert est.evaluate(data, **columns) == {"accuracy": pytest.approx(np.mean(expected.argmax(1) == rows.classes))}
    predicted = est.predict(data, feature_cols=NAMES)
    if engine.name == "spark":
        predicted = np.array([row.prediction.toArray() for row in predicted.collect()])
    elif engine.name == "ray":
        predicted = np.stack(predicted.to_pandas()["prediction"])
    np.testing.assert_allclose(predicted, expected, rtol=1e-5)
    shards = XShards.partition(frame, 2)
    assert [each["prediction"].shape for each in est.predict(shards, feature_cols=NAMES).collect()] == [(9, 3), (8, 3)]
    est.shutdown()


@pytest.mark.engines("local", "spark")
def test_datasets_of_tensorflow(engine):
    rows, net = Rows(ROWS), classifier()
    est, other = estimator(net), estimator(classifier())
    dataset = tf.data.Dataset.from_tensor_slices((rows.x, rows.classes))
    est.fit(dataset, epochs=2, batch_size=BATCH, validation_data=dataset)
    shards = XShards.from_placement(engine.place([[{"x": rows.x[:9], "y": rows.classes[:9]}],
                                                  [{"x": rows.x[9:], "y": rows.classes[9:]}]]))  # fmt: skip
    records = Dataset.from_tensor_slices(shards).map(lambda record: (record["x"], record["y"]))
    other.fit(records, epochs=1, batch_size=BATCH)
    accuracy = est.sess.run(net.accuracy, {net.x.name: rows.x, net.y.name: rows.classes})
    assert est.evaluate(dataset) == est.evaluate(records) == {"accuracy": pytest.approx(accuracy)}
    predicted = est.predict(Dataset.from_tensor_slices(shards).map(lambda record: record["x"])).collect()
    np.testing.assert_allclose(np.stack(predicted), est.sess.run(net.logits, {net.x.name: rows.x}), rtol=1e-6)
    for each in (est, other):
        each.shutdown()


@pytest.mark.engines("local")
class TestSession:
    def test_a_session_of_the_users_is_where_training_begins_and_ends(self, engine):
        rows, net = Rows(ROWS), classifier()
        with net.graph.as_default(), v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            w = next(each for each in v1.trainable_variables() if each.op.name == "w")
            w.load(np.full((4, 6), 0.5), sess)
            est = estimator(net, v1.train.GradientDescentOptimizer(0.0), sess=sess)
            est.fit(placed(engine, rows), batch_size=BATCH)
            assert est.sess is sess
            assert (values_in(sess)["w"] == 0.5).all()
            w.load(np.full((4, 6), 0.25), sess)
            predicted = est.predict(rows.x)
            np.testing.assert_allclose(predicted, sess.run(net.logits, {net.x: rows.x}), rtol=1e-9)

    def test_tensorflow_restores_what_was_saved_and_the_other_way_round(self, engine, tmp_path):
        rows, net = Rows(ROWS), classifier()
        est = estimator(net)
        before = est.save(str(tmp_path / "before" / "graph"))
        est.fit(placed(engine, rows), batch_size=BATCH)
        trained = values_in(est.sess)
        after = est.save_tf_checkpoint(str(tmp_path / "after"))
        with net.graph.as_default(), v1.Session() as sess:
            v1.train.Saver().restore(sess, after)
            assert_same_values(values_in(sess), trained, rtol=0)
        est.load(before)  # it has no variables of the optimizer, which stay
        now = values_in(est.sess)
        assert not np.array_equal(now["w"], trained["w"])
        assert np.array_equal(now["w/Adam"], trained["w/Adam"])
        est.load_tf_checkpoint(str(tmp_path))
        assert_same_values(values_in(est.sess), trained, rtol=0)
        other = estimator(classifier(words=True))
        with pytest.raises(CheckpointError, match="no variable 'table'"):
            other.load(after)
        with pytest.raises(PathNotFoundError, match=r"nothing\.index"):
            est.load(str(tmp_path / "nothing"))
        est.shutdown()
        other.shutdown()
        with pytest.raises(RuntimeError, match="closed"):
            est.sess.run(net.loss)


@pytest.mark.engines("local")
@pytest.mark.usefixtures("engine")
def test_several_inputs_and_outputs():
    with tf.Graph().as_default():
        one, two = v1.placeholder(tf.float32, (None, 2), name="one"), v1.placeholder(tf.int32, (None,), name="two")
        row, number = one * 2, tf.cast(two, tf.float32) + 1
        both = Estimator.from_graph(inputs=[one, two], outputs=[row, number])
        single = Estimator.from_graph(inputs=[one, two], outputs=[row + number[:, tf.newaxis]])
    x, n = np.arange(6).reshape(3, 2), np.arange(3)
    for features in ((x, n), {"two": n, "one": x}):
        rows, numbers = both.predict(features, batch_size=2)
        assert (rows.tolist(), numbers.tolist()) == ((x * 2).tolist(), (n + 1).tolist())
        assert single.predict(features).tolist() == (x * 2 + n[:, None] + 1).tolist()
    both.shutdown()
    single.shutdown()


@pytest.mark.engines("local")
class TestMetrics:
    def test_metrics_that_count_are_those_of_all_rows(self, engine):
        rows, net = Rows(ROWS), classifier()
        with net.graph.as_default():
            positive = tf.nn.softmax(net.logits)[:, 1]
            auc, _ = v1.metrics.auc(tf.equal(net.y, 1), positive, summation_method="careful_interpolation")
            accuracy, update = v1.metrics.accuracy(net.y, tf.argmax(net.logits, 1, tf.int32))
            est = estimator(net, metrics={"auc": auc, "accuracy": accuracy, "update": update, "mean": net.accuracy})
            with v1.Session() as sess:
                sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
                names = ["auc/update_op:0", "accuracy/update_op:0"]
                expected = sess.run(names, {net.x: rows.x, net.y: rows.classes})
        found = est.evaluate(placed(engine, rows), batch_size=4)
        again = est.evaluate(placed(engine, rows), batch_size=9)
        est.shutdown()
        assert found == pytest.approx(again)
        assert [found["auc"], found["accuracy"]] == pytest.approx(expected)
        assert found["update"] == pytest.approx(found["mean"]) == pytest.approx(expected[1])

    def test_words_and_tables(self, engine):
        with tf.Graph().as_default():
            words = v1.placeholder(tf.string, (None,), name="words")
            y = v1.placeholder(tf.float32, (None, 1), name="y")
            known = tf.lookup.KeyValueTensorInitializer(["low", "high"], tf.constant([0, 1], tf.int64))
            table = tf.lookup.StaticHashTable(known, 2)
            output = tf.gather(v1.get_variable("w", (3, 1), initializer=v1.zeros_initializer()), table.lookup(words))
            est = Estimator.from_graph(
                inputs=words, labels=y, outputs=output, loss=tf.reduce_mean((output - y) ** 2), num_workers=2,
                optimizer=SGD(1.0),
            )  # fmt: skip
        text = np.array(["low", "high", "other", "low"] * 3)
        target = np.array([1.0, 2.0, 3.0, 1.0] * 3)
        est.fit((text, target), epochs=10, batch_size=12)
        np.testing.assert_allclose(est.predict(text[:3])[:, 0], [1, 2, 3], atol=1e-2)
        est.shutdown()


@pytest.mark.engines("local")
class TestRecords:
    def test_summaries_count_as_published(self, engine, tmp_path):
        rows, net = Rows(4), classifier()
        est = estimator(net, model_dir=str(tmp_path / "run"))
        assert est.get_train_summary("Loss") is None
        est.fit(placed(engine, rows, (4,)), 5, 4, validation_data=placed(engine, rows, (4,)))
        losses = est.get_train_summary("Loss")
        assert [step for step, _, _ in losses] == [1, 2, 3, 4, 5]
        assert losses[-1][1] < losses[0][1]
        assert len(est.get_train_summary("Throughput")) == 5
        assert [value for _, value, _ in est.get_train_summary("LearningRate")] == pytest.approx([0.05] * 5)
        assert [step for step, _, _ in est.get_validation_summary("accuracy")] == [2, 3, 4, 5]
        assert len(est.get_validation_summary("Loss")) == 4
        assert os.listdir(tmp_path / "run")
        est.set_tensorboard(str(tmp_path), "app")
        est.fit(placed(engine, rows, (4,)), 1, 4)
        assert [step for step, _, _ in est.get_train_summary("Loss")] == [6]
        assert (tmp_path / "app" / "train").is_dir()
        plain = estimator(classifier())
        plain.fit(placed(engine, rows, (4,)), 1, 4)
        assert plain.get_train_summary("Loss") is None
        assert plain.get_validation_summary("Loss") is None
        est.shutdown()
        plain.shutdown()

    def test_a_loaded_checkpoint_brings_its_epochs(self, engine, tmp_path):
        rows, net = Rows(ROWS), classifier()
        data = placed(engine, rows)
        est = estimator(net, SGD(0.1, momentum=0.9), model_dir=str(tmp_path))
        est.fit(data, 2, BATCH, checkpoint_trigger=EveryEpoch())
        names = {path.name for path in Path(tmp_path).rglob("*.*") if path.is_file()}
        assert {"model.4", "model.7"} <= names
        assert [name for name in names if re.match(r"^optimMethod-TFParkTraining\.[0-9]+$", name)]
        after_two = values_in(est.sess)
        est.fit(data, 1, BATCH)
        after_three = values_in(est.sess)
        other = estimator(classifier(), SGD(0.1, momentum=0.9))
        assert other.load_orca_checkpoint(str(tmp_path), version=4) is other
        other.fit(data, 1, BATCH)  # one epoch was done already
        other.fit(data, 2, BATCH)
        assert_same_values(values_in(other.sess), after_two, rtol=0)
        other.fit(data, 1, BATCH)
        assert_same_values(values_in(other.sess), after_three, rtol=0)
        third = estimator(classifier(words=True), SGD(0.1))
        with pytest.raises(CheckpointError, match="no variable 'table'"):
            third.load_orca_checkpoint(str(tmp_path))
        for each in (est, other, third):
            each.shutdown()

    def test_training_until_a_trigger_fires(self, engine):
        data = placed(engine, Rows(ROWS))
        est, steps, at_once = estimator(classifier()), [], estimator(classifier())
        for trigger in (MaxIteration(4), MaxIteration(4), MaxEpoch(2), MaxEpoch(2), MaxIteration(7)):
            est.train_until(data, trigger, BATCH)
            steps.append((est._where.neval - 1, est._where.epoch - 1))
        assert steps == [(4, 1), (4, 1), (6, 2), (6, 2), (7, 2)]
        at_once.train_until(data, MaxIteration(7), BATCH)  # the same rows in the same order
        assert_same_values(values_in(est.sess), values_in(at_once.sess), rtol=0)
        est.shutdown()
        at_once.shutdown()

    def test_data_on_disk_asks_for_triggers_that_know_it(self, engine, tmp_path):
        from zoo.util import triggers

        data = placed(engine, Rows(4), (4,))
        est = estimator(classifier(), model_dir=str(tmp_path))
        OrcaContext.train_data_store = "DISK_2"
        try:
            with pytest.raises(InvalidArgumentError, match=r"Please use a trigger defined in zoo\.util\.triggers"):
                est.fit(data, 1, 4, checkpoint_trigger=SeveralIteration(2))
            est.fit(data, 1, 4, checkpoint_trigger=triggers.SeveralIteration(2))
        finally:
            OrcaContext.train_data_store = "DRAM"
        assert list(tmp_path.rglob("model.2"))
        est.shutdown()

    def test_check_finds_what_fit_would_raise(self, engine):
        rows = Rows(ROWS)
        est = estimator(classifier())
        before, good = values_in(est.sess), est.check((rows.x, rows.classes), BATCH)
        assert good.ok
        assert "rows went forward and backward, the loss is" in str(good)
        assert np.array_equal(values_in(est.sess)["w"], before["w"])
        report = est.check((rows.x[:, :2], rows.classes), BATCH)
        est.shutdown()
        assert not report.ok
        with pytest.raises(InvalidArgumentError, match=r"x:0 takes rows of the shape \(4\)"):
            report.raise_first()
