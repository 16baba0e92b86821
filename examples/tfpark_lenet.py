"""A LeNet as a TensorFlow graph: trained on records with TFOptimizer, saved with a Saver, and run with TFPredictor.

python examples/tfpark_lenet.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from bigdl.optim.optimizer import Adam, MaxEpoch, TrainSummary
from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.learn.records import Records
from zoo.orca.learn.tf2.quiet import start_here
from zoo.pipeline.api.net import TFDataset, TFOptimizer, TFPredictor

# The same as `import tensorflow.compat.v1 as tf`, without the remarks that TensorFlow makes when it is imported.
tf = start_here().compat.v1

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}
SIDE, CLASSES = 12, 4


def draw(number: int) -> list[np.ndarray]:
    """A record: an image of a bright bar on noise, and which way the bar goes (down, across, and the diagonals)."""
    random = np.random.default_rng(number)
    way, at = number % CLASSES, random.integers(3, SIDE - 3)
    image = random.normal(scale=0.4, size=(SIDE, SIDE))
    along = np.arange(SIDE)
    down = [along, np.full(SIDE, at), along, along][way]
    across = [np.full(SIDE, at), along, (along + at) % SIDE, (at - along) % SIDE][way]
    image[down, across] += 1.5
    return [image[..., np.newaxis], np.array([way])]


def layer(x: Any, name: str, shape: list[int]) -> Any:
    """A convolution with pooling where the shape is of a kernel, a dense layer where it is of a matrix."""
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", shape, initializer=tf.glorot_uniform_initializer(seed=len(name)))
        bias = tf.get_variable("bias", shape[-1:], initializer=tf.zeros_initializer())
    if len(shape) == 2:
        return tf.matmul(x, kernel) + bias
    return tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME") + bias), 2, 2, "SAME")


def lenet(images: Any) -> Any:
    x = layer(layer(images, "conv1", [5, 5, 1, 8]), "conv_2", [3, 3, 8, 16])
    x = tf.nn.relu(layer(tf.reshape(x, [-1, 3 * 3 * 16]), "dense_one", [3 * 3 * 16, 32]))
    return layer(x, "logits_of_lenet", [32, CLASSES])


def train(parallelize: Callable[..., Any], folder: str) -> str:
    dataset = TFDataset.from_rdd(
        parallelize(range(400), 2).map(draw),
        names=["features", "labels"],
        shapes=[[SIDE, SIDE, 1], [1]],
        types=[tf.float32, tf.int32],
        batch_size=40,
    )
    images, labels = dataset.tensors
    logits = lenet(images)
    loss = tf.reduce_mean(tf.losses.sparse_softmax_cross_entropy(logits=logits, labels=tf.squeeze(labels)))

    optimizer = TFOptimizer(loss, Adam(3e-3))
    summary = TrainSummary(folder, "lenet")
    optimizer.set_train_summary(summary)
    optimizer.optimize(end_trigger=MaxEpoch(5))
    losses = [value for _, value, _ in summary.read_scalar("Loss")]
    print(f"{len(losses)} steps, loss from {losses[0]:.2f} to {losses[-1]:.2f}")
    path = tf.train.Saver().save(optimizer.sess, f"{folder}/model")
    optimizer.sess.close()
    return path


def predict(parallelize: Callable[..., Any], path: str) -> None:
    numbers = range(1000, 1100)
    dataset = TFDataset.from_rdd(
        parallelize(numbers, 2).map(draw),
        names=["features"],  # a record has a label, too, which is of no use here
        shapes=[[SIDE, SIDE, 1]],
        types=[tf.float32],
        batch_per_thread=10,
    )
    (images,) = dataset.tensors
    logits = lenet(images)
    with tf.Session() as sess:
        tf.train.Saver().restore(sess, path)
        predictions = TFPredictor(sess, [logits]).predict()
    ways = [int(np.argmax(each)) for each in predictions.collect()]
    print("the first ten are", ways[:10])
    print("of 100 new images right:", sum(way == number % CLASSES for way, number in zip(ways, numbers, strict=True)))


def example(parallelize: Callable[..., Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with tf.Graph().as_default():
            path = train(parallelize, folder)
        with tf.Graph().as_default():
            predict(parallelize, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=CONTEXTS, default="local", help="where to run (default: local)")
    engine = parser.parse_args().engine
    context = init_orca_context(CONTEXTS[engine], cores=2)
    try:
        # Records lie in an RDD on Spark; on the other engines Records stand for it.
        example(context.parallelize if engine == "spark" else Records.of)
    finally:
        stop_orca_context()


if __name__ == "__main__":
    main()
