"""Small TensorFlow 1 graphs, and the plain session loop that estimators of them are measured against."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from learning import CLASSES, RAGGED, Rows, global_batches
from zoo.orca.data import XShards
from zoo.orca.learn.tf2.quiet import import_tensorflow

tf = import_tensorflow()
v1 = tf.compat.v1

BATCH = 8
ROWS = sum(RAGGED)


def first_values(*shape: int) -> np.ndarray:
    """What a variable begins with: the same in every graph."""
    return np.random.default_rng(sum(shape)).normal(size=shape)


def classifier(
    words: bool = False, dropout: bool = False, norm: bool = False, use_resource: bool = True
) -> SimpleNamespace:
    """A network in a graph of its own, of doubles, to compare closely.

    With `words` features choose rows of a table; with `norm` there is a running mean, kept by UPDATE_OPS; with
    `dropout` a placeholder says how much.
    """
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float64, (None, 4), name="x")
        y = v1.placeholder(tf.int32, (None,), name="y")
        rate = v1.placeholder(tf.float64, (), name="rate") if dropout else None
        is_training = v1.placeholder_with_default(False, (), name="is_training")
        hidden = x
        if words:
            table = _variable("table", (5, 4), use_resource)
            hidden += tf.nn.embedding_lookup(table, tf.cast(tf.abs(x[:, 0]) * 2, tf.int32) % 5)
        if norm:
            hidden = _centred(hidden, is_training)
        hidden = tf.tanh(hidden @ _variable("w", (4, 6), use_resource) + _variable("b", (6,), use_resource))
        if dropout:
            hidden = v1.nn.dropout(hidden, rate=rate)
        logits = tf.identity(hidden @ _variable("v", (6, CLASSES), use_resource), name="logits")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        correct = tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y)
        accuracy = tf.reduce_mean(tf.cast(correct, tf.float64))
    return SimpleNamespace(
        graph=graph, x=x, y=y, rate=rate, is_training=is_training, logits=logits, loss=loss, accuracy=accuracy
    )


def _variable(name: str, shape: tuple[int, ...], use_resource: bool) -> Any:
    return v1.get_variable(
        name, dtype=tf.float64, initializer=tf.constant(first_values(*shape)), use_resource=use_resource
    )


def _centred(hidden: Any, is_training: Any) -> Any:
    mean = tf.reduce_mean(hidden, axis=0)
    moving = v1.get_variable("moving", (4,), tf.float64, v1.zeros_initializer(), trainable=False)
    count = v1.get_variable("count", (), tf.int64, v1.zeros_initializer(), trainable=False)
    v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, v1.assign(moving, 0.5 * moving + 0.5 * mean).op)
    with tf.control_dependencies([hidden]):
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, v1.assign_add(count, 1).op)
    return hidden - tf.cond(is_training, lambda: mean, lambda: tf.identity(moving))


def train_by_hand(net: SimpleNamespace, train_op: Any, rows: Rows, epochs: int = 1, **feeds: Any) -> dict[str, Any]:
    """What one process does in a plain session: the values of all variables afterwards."""
    with net.graph.as_default(), v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        for batch in global_batches(RAGGED, BATCH, range(epochs)):
            sess.run(train_op, {net.x: rows.x[batch], net.y: rows.classes[batch]} | feeds)
        return values_in(sess)


def values_in(sess: Any) -> dict[str, np.ndarray]:
    """The global variables of a session by name."""
    with sess.graph.as_default():
        return {each.op.name: sess.run(each) for each in v1.global_variables()}


def placed(engine: Any, rows: Rows, sizes: Any = RAGGED) -> XShards:
    return XShards.from_placement(engine.place(rows.cut(sizes)))


def assert_same_values(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], rtol: float = 1e-9) -> None:
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=rtol, atol=rtol, err_msg=name)
