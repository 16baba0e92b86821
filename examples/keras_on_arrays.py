"""Handwritten digits in numpy arrays: a Keras model, trained on two workers until it gets no better.

python examples/keras_on_arrays.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse
from typing import Any

from sklearn.datasets import load_digits

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.learn.tf2 import Estimator
from zoo.orca.learn.tf2.quiet import start_here

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


def create_model(config: dict[str, Any]) -> Any:
    """What each worker builds."""
    import keras

    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(config["lr"]), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def example() -> None:
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32").reshape(-1, 8, 8, 1)
    train, check, test = slice(0, 1200), slice(1200, 1500), slice(1500, None)

    start_here()  # TensorFlow, without the remarks that it makes when it is imported
    from keras.callbacks import EarlyStopping

    est = Estimator.from_keras(model_creator=create_model, config={"lr": 0.005}, num_workers=2)
    early = EarlyStopping(monitor="val_loss", patience=3, restore_best_weights=True)
    figures = est.fit(
        (x[train], y[train]),
        epochs=30,
        batch_size=50,
        validation_data=(x[check], y[check]),
        callbacks=[early],
    )
    # The callback ran on a worker, for all; what it found is in the object given.
    print(f"ended in epoch {early.stopped_epoch + 1}, the weights are those of epoch {early.best_epoch + 1}")
    print(f"in the last epoch the accuracy was {figures['train_accuracy']:.2f}")
    print("held out:", {name: round(value, 3) for name, value in est.evaluate((x[test], y[test])).items()})

    read = est.predict(x[test], batch_size=100).argmax(axis=1)
    print("the first ten are read as", read[:10].tolist())
    print("                 they are", y[test][:10].tolist())
    print(f"a Keras model as ever: {est.get_model().count_params():,} parameters")


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
