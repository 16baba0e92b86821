"""Graphs over several workers: the values are those of one plain session on the same global batches."""

from __future__ import annotations

import numpy as np
import pytest
from tf_graphs import BATCH, ROWS, assert_same_values, classifier, placed, tf, train_by_hand, v1, values_in

from learning import Rows
from zoo.orca.learn.optimizers import SGD
from zoo.orca.learn.optimizers.schedule import Step
from zoo.orca.learn.tf.estimator import Estimator

OPTIMIZERS = {
    "adam": lambda: v1.train.AdamOptimizer(0.05),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.01),
}


def estimator(net, optimizer, **options):
    given = {
        "inputs": net.x,
        "labels": net.y,
        "outputs": net.logits,
        "loss": net.loss,
        "metrics": {"accuracy": net.accuracy},
        "num_workers": 3,
    }
    return Estimator.from_graph(optimizer=optimizer, **(given | options))


def clipped(optimizer, net, norm=None, value=None):
    """By hand: the gradient of each variable clipped."""
    with net.graph.as_default():
        pairs = optimizer.compute_gradients(net.loss)
        if norm is not None:
            pairs = [(tf.clip_by_norm(each, norm), variable) for each, variable in pairs]
        if value is not None:
            pairs = [(tf.clip_by_value(each, *value), variable) for each, variable in pairs]
        return optimizer.apply_gradients(pairs)


def test_two_epochs_on_every_engine(engine):
    rows, net = Rows(ROWS), classifier(words=True)
    est = estimator(net, v1.train.AdamOptimizer(0.05), num_workers=2)
    est.fit(placed(engine, rows), epochs=2, batch_size=BATCH, validation_data=placed(engine, rows))
    plain = classifier(words=True)
    with plain.graph.as_default():
        train_op = v1.train.AdamOptimizer(0.05).minimize(plain.loss)
    expected = train_by_hand(plain, train_op, rows, epochs=2)
    assert_same_values(values_in(est.sess), expected)
    feeds = {net.x.name: rows.x, net.y.name: rows.classes}
    accuracy, loss = est.sess.run([net.accuracy, net.loss], feeds)
    figures = est.result_.history.iloc[-1]
    assert figures["val_accuracy"] == pytest.approx(accuracy)
    assert figures["val_loss"] == pytest.approx(loss)
    assert est.evaluate(placed(engine, rows, (0, 4, 13)), batch_size=5) == {"accuracy": pytest.approx(accuracy)}
    predicted = est.predict(placed(engine, rows)).collect()
    np.testing.assert_allclose(
        np.concatenate([each["prediction"] for each in predicted]), est.sess.run(net.logits, feeds), rtol=1e-9
    )
    est.shutdown()


@pytest.mark.engines("local")
class TestExact:
    @pytest.mark.parametrize("use_resource", [True, False])
    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_optimizers_of_tensorflow(self, engine, name, use_resource):
        """Gradients of some rows of a table are applied to those rows alone, as TensorFlow does."""
        rows = Rows(ROWS)
        plain = classifier(words=True, use_resource=use_resource)
        with plain.graph.as_default():
            expected = train_by_hand(plain, OPTIMIZERS[name]().minimize(plain.loss), rows, epochs=2)
        est = estimator(classifier(words=True, use_resource=use_resource), OPTIMIZERS[name](), num_workers=2)
        est.fit(placed(engine, rows), epochs=2, batch_size=BATCH)
        assert_same_values(values_in(est.sess), expected)
        est.shutdown()

    def test_a_second_fit_goes_on_and_adds_nothing_to_the_graph(self, engine):
        rows, net = Rows(ROWS), classifier()
        est = estimator(net, v1.train.AdamOptimizer(0.05))
        est.fit(placed(engine, rows), batch_size=BATCH)
        operations = len(net.graph.get_operations())
        est.fit(placed(engine, rows), batch_size=BATCH)
        assert len(net.graph.get_operations()) == operations
        plain = classifier()
        with plain.graph.as_default():
            expected = train_by_hand(plain, v1.train.AdamOptimizer(0.05).minimize(plain.loss), rows, epochs=2)
        assert_same_values(values_in(est.sess), expected)
        est.shutdown()

    def test_an_orca_optimizer_and_its_schedule(self, engine):
        rows, net = Rows(ROWS), classifier()
        est = estimator(net, SGD(0.2, learningrate_schedule=Step(2, 0.5)))
        est.fit(placed(engine, rows), epochs=1, batch_size=BATCH)
        est.fit(placed(engine, rows), epochs=1, batch_size=BATCH)
        plain = classifier()
        with plain.graph.as_default():
            step = v1.train.get_or_create_global_step()
            rate = 0.2 * 0.5 ** tf.cast(step // 2, tf.float64)
            train_op = v1.train.GradientDescentOptimizer(rate).minimize(plain.loss, global_step=step)
        expected = train_by_hand(plain, train_op, rows, epochs=2)
        expected.pop("global_step")
        assert_same_values(values_in(est.sess), expected)
        est.shutdown()

    @pytest.mark.parametrize("clip", [{"norm": 0.05}, {"value": (-0.02, 0.01)}, {"norm": 0.1, "value": (-0.03, 0.03)}])
    def test_clipping_is_of_the_gradient_over_all_workers(self, engine, clip):
        rows = Rows(ROWS)
        plain = classifier()
        expected = train_by_hand(plain, clipped(v1.train.GradientDescentOptimizer(0.5), plain, **clip), rows)
        options = {"clip_norm": clip.get("norm"), "clip_value": clip.get("value")}
        for workers in (1, 3):
            est = estimator(classifier(), v1.train.GradientDescentOptimizer(0.5), num_workers=workers, **options)
            est.fit(placed(engine, rows), batch_size=BATCH)
            assert_same_values(values_in(est.sess), expected)
            est.shutdown()

    def test_the_global_step_and_what_depends_on_it(self, engine):
        rows = Rows(ROWS)
        values = []
        for by_hand in (True, False):
            net = classifier()
            with net.graph.as_default():
                step = v1.train.get_or_create_global_step()
                rate = v1.train.exponential_decay(tf.constant(0.5, tf.float64), step, 2, 0.5)
                optimizer = v1.train.GradientDescentOptimizer(rate)
                if by_hand:
                    values.append(train_by_hand(net, optimizer.minimize(net.loss, global_step=step), rows, 2))
                    continue
            est = estimator(net, optimizer, num_workers=2)
            est.fit(placed(engine, rows), epochs=2, batch_size=BATCH)
            assert_same_values(values_in(est.sess), values[0])
            assert est.sess.run(step) == 2 * -(-ROWS // BATCH)
            est.shutdown()

    def test_running_statistics_are_averaged_by_rows(self, engine):
        """A batch of 17 rows on 3 workers, which have 5, 6 and 6 of them, in each of two epochs."""
        rows, net = Rows(ROWS), classifier(norm=True)
        est = estimator(net, v1.train.AdamOptimizer(0.05))
        data = placed(engine, rows)
        est.fit(data, 2, ROWS, feed_dict={net.is_training.ref(): (True, False)}, validation_data=data)
        values = values_in(est.sess)
        np.testing.assert_allclose(values["moving"], rows.x.mean(axis=0) * 0.75, rtol=1e-6)
        assert values["count"] == 2
        accuracy = est.sess.run(net.accuracy, {net.x.name: rows.x, net.y.name: rows.classes})
        assert est.result_.history.iloc[-1]["val_accuracy"] == pytest.approx(accuracy)
        est.shutdown()

    def test_random_masks_are_repeated_by_a_seed_and_differ_between_seeds(self, engine):
        rows, ended = Rows(ROWS), []
        for seed in (0, 0, 1):
            net = classifier(dropout=True)
            est = estimator(net, v1.train.AdamOptimizer(0.05), seed=seed, num_workers=2)
            est.fit(placed(engine, rows), batch_size=ROWS, feed_dict={net.rate.ref(): (0.5, 0.0)})
            ended.append(values_in(est.sess)["w"])
            est.shutdown()
        assert np.array_equal(ended[0], ended[1])
        assert not np.allclose(ended[0], ended[2])

    def test_shards_that_leave_workers_without_rows(self, engine):
        rows, values = Rows(3), []
        for sizes, workers in (((3,), 1), ((0, 2, 0, 1), 3)):
            net = classifier(words=True)
            with net.graph.as_default():
                steps = v1.get_variable("steps", (), tf.float64, v1.zeros_initializer(), trainable=False)
                counts = v1.assign_add(steps, 1.0)
            est = estimator(net, v1.train.AdamOptimizer(0.05), num_workers=workers, updates=counts)
            est.fit(placed(engine, rows, sizes), epochs=2, batch_size=3)
            est.fit(placed(engine, Rows(1), (1,)), batch_size=3)  # of which one worker alone has a part
            values.append(values_in(est.sess))
            est.shutdown()
        assert_same_values(*values)
        assert values[1]["steps"] == 3
