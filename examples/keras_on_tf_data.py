"""Handwritten digits through tf.data: each worker builds the pipeline, and every image is used once an epoch.

python examples/keras_on_tf_data.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse

from sklearn.datasets import load_digits

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.learn.tf2 import Estimator

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


def make_model(config):
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.Input((8, 8, 1)), keras.layers.Conv2D(16, 3, activation="relu"), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(0.005), loss=loss, metrics=["accuracy"])
    return model


def shifted_digits(config, batch_size):
    """Runs on every worker: images moved by up to a pixel, another way in each epoch."""
    import tensorflow as tf

    x, y = load_digits(return_X_y=True)
    images = (x[:1500] / 16).reshape(-1, 8, 8, 1).astype("float32")

    @tf.autograph.experimental.do_not_convert
    def shifted(image, digit):
        return tf.image.random_crop(tf.pad(image, [[1, 1], [1, 1], [0, 0]]), (8, 8, 1)), digit

    return tf.data.Dataset.from_tensor_slices((images, y[:1500])).shuffle(1500).map(shifted).batch(batch_size)


def example() -> None:
    est = Estimator.from_keras(model_creator=make_model, num_workers=2)
    est.fit(shifted_digits, epochs=6, batch_size=50)
    print("rows of the last epoch:", int(est.result_.rows / 6))

    x, y = load_digits(return_X_y=True)
    images, digits = (x[1500:] / 16).reshape(-1, 8, 8, 1).astype("float32"), y[1500:]
    print("of the held-out digits right:", round(est.evaluate((images, digits))["validation_accuracy"], 2))
    read = est.predict(images).argmax(axis=1)
    print("the first ten are read as", read[:10].tolist())
    print("                 they are", digits[:10].tolist())


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
