"""Handwritten digits with MXNet: a LeNet of gluon, trained on two workers over MXNet's own kvstore.

python examples/mxnet_lenet.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.data import XShards
from zoo.orca.learn.mxnet import Estimator, create_config

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


def get_model(config: dict[str, Any]) -> Any:
    """What each worker builds. `import mxnet` works from the import of `zoo.orca.learn.mxnet` on."""
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(channels=config["channels"], kernel_size=3, activation="relu"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Flatten(),
        nn.Dense(64, activation="tanh"),
        nn.Dense(10),
    )
    net.hybridize()
    return net


def get_loss(config: dict[str, Any]) -> Any:
    from mxnet import gluon

    return gluon.loss.SoftmaxCrossEntropyLoss()


def get_metrics(config: dict[str, Any]) -> Any:
    return ["acc"]


def example() -> None:
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32").reshape(-1, 1, 8, 8)
    train, test = slice(0, 1500), slice(1500, None)

    config = create_config(
        log_interval=10, optimizer="adam", optimizer_params={"learning_rate": 0.01}, extra_config={"channels": 16}
    )
    est = Estimator.from_mxnet(
        config=config,
        model_creator=get_model,
        loss_creator=get_loss,
        eval_metrics_creator=get_metrics,
        validation_metrics_creator=get_metrics,
        num_workers=2,
        num_servers=1,
    )
    shards = XShards.partition({"x": x[train], "y": y[train]}, num_shards=4)
    held_out = XShards.partition({"x": x[test], "y": y[test]}, num_shards=2)
    first, second, server = est.fit(shards, epochs=4, batch_size=50, validation_data=held_out)
    print(f"two workers saw {first['num_samples'] + second['num_samples']} rows an epoch; a server tells {server}")
    print(f"of the digits held out {first['val_accuracy']:.2f} are right")

    def get_train_data_iter(config: dict[str, Any], kv: Any) -> Any:
        """Each worker's own iterator: its part of the rows, in batches of its share of the batch size."""
        import mxnet as mx

        rows = np.arange(kv.rank, 1500, kv.num_workers)
        return mx.io.NDArrayIter(x[rows], y[rows], batch_size=config["batch_size"], shuffle=True)

    (first, *_) = est.fit(get_train_data_iter, epochs=1, batch_size=50)
    print(f"then one more epoch, number {first['epoch']}, from iterators of MXNet's")

    read = est.predict(x[test]).argmax(axis=1)
    print("the first ten are read as", read[:10].tolist())
    print("                 they are", y[test][:10].tolist())
    print(f"a {type(est.get_model()).__name__} of gluon as ever")


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
