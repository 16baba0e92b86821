"""Steps of graphs that users wrote with operations that wait, write or gather in ways of their own."""

from __future__ import annotations

import numpy as np
import pytest
from tf_graphs import tf, v1, values_in

from zoo.orca.learn.estimator import Gang
from zoo.orca.learn.optimizers import SGD
from zoo.orca.learn.tf.estimator import Estimator, TensorFlowEstimator
from zoo.tfpark.zoo_optimizer import ZooOptimizer, train_ops_of

pytestmark = pytest.mark.engines("local")


def test_updates_that_a_train_op_waits_for_run_once_a_step(engine):
    """Also where a rank has no rows for the last step: it has no batch that they could run with."""
    from zoo.orca.learn.tf.recipe import GraphRecipe

    with tf.Graph().as_default():
        x = v1.placeholder(tf.float64, (None, 1), name="x")
        w = v1.get_variable("w", (1, 1), tf.float64, v1.zeros_initializer())
        steps = v1.get_variable("steps", (), tf.int64, v1.zeros_initializer(), trainable=False)
        seen = v1.get_variable("seen", (), tf.float64, v1.zeros_initializer(), trainable=False)
        loss = tf.reduce_mean(x @ w)
        updates = [v1.assign_add(steps, 1), v1.assign_add(seen, tf.reduce_mean(x))]
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, updates[0])
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, updates[1])
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            rate = tf.constant(0.5, tf.float64)
            train_op = ZooOptimizer(v1.train.MomentumOptimizer(rate, 0.0)).minimize(loss)
        recipe = GraphRecipe(inputs=x, loss=loss, optimizer=train_ops_of(train_op))
        est = TensorFlowEstimator(recipe, Gang("bigdl", num_workers=2, max_failures=0), None)
    est.fit(np.ones((5, 1)), batch_size=4)
    found = values_in(est.sess)
    est.shutdown()
    assert found["steps"] == 2
    # One rank has seen two batches with three rows in all, the other one with two.
    assert found["seen"] == pytest.approx((2 * 3 + 1 * 2) / 5)
    assert found["w"] == pytest.approx(-0.5 * 2)


def test_rows_of_a_fixed_number_and_variables_that_only_outputs_use(engine):
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, (None, 1), name="x")
        scale = v1.get_variable("scale", (), initializer=v1.ones_initializer(), trainable=False)
        table = v1.get_variable("table", (3, 1), initializer=v1.zeros_initializer())
        total = x * tf.reduce_sum(tf.gather(table, [0, 1, 1]))
        est = Estimator.from_graph(
            inputs=x, outputs=total * scale, loss=tf.reduce_mean(total), num_workers=2,
            optimizer=v1.train.GradientDescentOptimizer(0.5),
        )  # fmt: skip
        est.sess.run(v1.assign(scale, 2.0))
    est.fit(np.ones((4, 1)), batch_size=4)
    found = values_in(est.sess)
    predicted = est.predict(np.ones((2, 1)))
    est.shutdown()
    assert found["table"].ravel().tolist() == [-0.5, -1.0, 0.0]
    assert found["scale"] == 2.0
    assert predicted.ravel().tolist() == [-5.0, -5.0]


def test_updates_that_write_trained_variables_are_kept(engine):
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float64, (None, 1), name="x")
        w = v1.get_variable("w", (1, 1), tf.float64, v1.constant_initializer(5.0))
        est = Estimator.from_graph(
            inputs=x, loss=tf.reduce_mean(x @ w), optimizer=SGD(0.25), num_workers=2,
            updates=[v1.assign(w, tf.clip_by_value(w, -1.0, 1.0))],
        )  # fmt: skip
    est.fit(np.ones((4, 1)), batch_size=4)
    found = values_in(est.sess)["w"]
    est.shutdown()
    assert found == pytest.approx(1.0 - 0.25)
