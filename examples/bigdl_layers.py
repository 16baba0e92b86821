"""Handwritten digits with BigDL's layers: a small convolutional net, trained on shards of arrays.

python examples/bigdl_layers.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
from sklearn.datasets import load_digits

from bigdl.nn.criterion import ClassNLLCriterion
from bigdl.nn.layer import (
    Layer,
    Linear,
    LogSoftMax,
    Model,
    ReLU,
    Sequential,
    SpatialConvolution,
    SpatialMaxPooling,
    View,
)
from bigdl.optim.optimizer import Adam, Top1Accuracy
from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.data import XShards
from zoo.orca.learn.bigdl import Estimator

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


def network() -> Sequential:
    """Images of (1, 8, 8) to the logarithms of ten probabilities."""
    Layer.set_seed(1)
    return (
        Sequential()
        .add(SpatialConvolution(1, 8, 3, 3, pad_w=1, pad_h=1))
        .add(ReLU())
        .add(SpatialMaxPooling(2, 2, 2, 2))
        .add(View([8 * 4 * 4]))
        .add(Linear(8 * 4 * 4, 32))
        .add(ReLU())
        .add(Linear(32, 10).set_name("classes"))
        .add(LogSoftMax())
    )


def example() -> None:
    images, digits = load_digits(return_X_y=True)
    x = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    y = digits.astype(np.float32) + 1  # classes count from 1
    train = XShards.partition({"x": x[:1500], "y": y[:1500]}, num_shards=4)
    test = XShards.partition({"x": x[1500:], "y": y[1500:]}, num_shards=2)

    model = network()
    est = Estimator.from_bigdl(model=model, loss=ClassNLLCriterion(), optimizer=Adam(0.01), metrics=Top1Accuracy())
    est.fit(train, 6, batch_size=50)
    print("held out:", {name: round(value, 2) for name, value in est.evaluate(test).items()})

    # The model that was given is the one that was trained.
    print("the first ten are read as", (model.predict_class(x[1500:1510]) - 1).tolist())
    print("                 they are", digits[1500:1510].tolist())
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/digits")
        loaded = Model.load(f"{folder}/digits")
    print("the same from a file:", bool((loaded.predict(x[1500:]) == model.predict(x[1500:])).all()))
    print("weights of the last layer:", model.parameters()["classes"]["weight"].shape)


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
