"""A TensorFlow 1 graph of handwritten digits: placeholders, a session, and training on two workers.

python examples/tf1_graph.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.data import XShards
from zoo.orca.learn.tf.estimator import Estimator
from zoo.orca.learn.tf2.quiet import start_here

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


def layer(v1: Any, inputs: Any, width: int, name: str) -> Any:
    """A dense layer, of plain variables."""
    with v1.variable_scope(name):
        shape = (inputs.shape[1], width)
        weights = v1.get_variable("weights", shape, initializer=v1.glorot_uniform_initializer(seed=width))
        return inputs @ weights + v1.get_variable("bias", (width,), initializer=v1.zeros_initializer())


def example() -> None:
    x, y = load_digits(return_X_y=True)
    train = XShards.partition({"x": (x[:1500] / 16).astype("float32"), "y": y[:1500]}, num_shards=4)
    test = XShards.partition({"x": (x[1500:] / 16).astype("float32"), "y": y[1500:]}, num_shards=2)

    tf = start_here()  # TensorFlow, without the remarks that it makes when it is imported
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        images = v1.placeholder(tf.float32, (None, 64), name="images")
        labels = v1.placeholder(tf.int32, (None,), name="labels")
        dropped = v1.placeholder(tf.float32, (), name="dropped")
        hidden = v1.nn.dropout(tf.nn.relu(layer(v1, images, 48, "hidden")), rate=dropped)
        logits = layer(v1, hidden, 10, "logits")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        accuracy, _ = v1.metrics.accuracy(labels, tf.argmax(logits, 1, tf.int32))
        rate = v1.train.exponential_decay(0.01, v1.train.get_or_create_global_step(), 30, 0.9)

        est = Estimator.from_graph(
            inputs=images,
            labels=labels,
            outputs=tf.nn.softmax(logits),
            loss=loss,
            optimizer=v1.train.AdamOptimizer(rate),
            metrics={"accuracy": accuracy},
            clip_norm=5.0,
            num_workers=2,
        )
    est.fit(train, epochs=6, batch_size=50, feed_dict={"dropped:0": (0.2, 0.0)}, validation_data=test)

    losses = est.result_.history["train_loss"].tolist()
    print(f"loss: {losses[0]:.2f} in the first epoch, {losses[-1]:.2f} in the last")
    print(f"held out: {est.evaluate(test)['accuracy']:.2f} are read right")
    shards = est.predict(test).collect()
    found = np.concatenate([shard["prediction"].argmax(axis=1) for shard in shards])
    print("the first ten are read as", found[:10].tolist())
    print("                 they are", y[1500:1510].tolist())
    with graph.as_default():
        print("the session has made", est.sess.run(v1.train.get_global_step()), "steps")
    est.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=CONTEXTS, default="local", help="where to run (default: local)")
    init_orca_context(CONTEXTS[parser.parse_args().engine], cores=2)
    try:
        example()
    finally:
        stop_orca_context()


if __name__ == "__main__":
    main()
