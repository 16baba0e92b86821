"""Training a gluon net on arrays: ours, and the script of a worker in a kvstore job that was started by hand.

MXNet computes behind the script's back, so whole epochs are timed: from the start of the second to the moment at which
all of the last is computed.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.keras_train import EpochsClocked, arrays, facts, leave
from benchmarks.ranks import WORKERS
from benchmarks.row import Report
from zoo.orca.mxnet_library import load

OPTIMIZER = {"learning_rate": 0.02, "momentum": 0.9}


def ours(job: dict[str, Any]) -> Report:
    """`Estimator.fit` on arrays, on the embedded engine."""
    from zoo.orca import init_orca_context, stop_orca_context
    from zoo.orca.learn.mxnet import Estimator, create_config

    with tempfile.TemporaryDirectory() as marks:
        start = time.perf_counter()
        init_orca_context("embedded", cores=WORKERS)
        x, y = arrays(job)
        estimator = Estimator.from_mxnet(
            config=create_config(optimizer_params=OPTIMIZER, extra_config={"job": job}),
            model_creator=create_model,
            loss_creator=create_loss,
            num_workers=WORKERS,
            runner_cores=1,
        )
        clock = EpochsClocked(marks, job["epochs"])
        estimator.fit({"x": x, "y": y}, epochs=job["epochs"], batch_size=job["batch_size"], callbacks=[clock])
        weights = weights_of(estimator.get_model())
        seconds = time.perf_counter() - start
        report = Report(seconds, **facts(job, marks, weights, estimator.result_.rows))
    estimator.shutdown()
    stop_orca_context()
    return report


def kvstore_worker(job: dict[str, Any], on_servers: bool, marks: str) -> None:
    """What one writes by hand: gluon's Trainer over the kvstore, each worker on its share of the rows."""
    mx = load()
    store = mx.kv.create("dist_sync")
    x, y = arrays(job)
    config = {"job": job}
    mx.random.seed(0)
    net, loss = create_model(config), create_loss(config)
    net.initialize()
    net(mx.nd.array(x[:1]))  # tells the shapes
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", OPTIMIZER, kvstore=store, update_on_kvstore=on_servers)
    started, rows = 0.0, 0
    for epoch in range(job["epochs"]):
        if epoch == 1:
            mx.nd.waitall()
            store._barrier()
            started = time.perf_counter()
        for features, targets, size in _shuffled(job, x, y, epoch, store.rank):
            with mx.autograd.record():
                each = loss(net(mx.nd.array(features)), mx.nd.array(targets))
            each.backward()
            trainer.step(size)
            rows += size
    mx.nd.waitall()
    leave(marks, time.perf_counter() - started)
    store._barrier()  # until both have left their marks
    if store.rank == 0:
        Path(marks, "facts").write_text(json.dumps(facts(job, marks, weights_of(net), rows)))


def create_model(config: dict[str, Any]) -> Any:
    mx = load()
    net = mx.gluon.nn.HybridSequential()
    *widths, last = config["job"]["widths"][1:]
    for width in widths:
        net.add(mx.gluon.nn.Dense(width, activation="relu", weight_initializer=mx.init.Xavier(magnitude=6)))
    net.add(mx.gluon.nn.Dense(last))
    net.hybridize()
    return net


def create_loss(config: dict[str, Any]) -> Any:
    return load().gluon.loss.SoftmaxCrossEntropyLoss()


def weights_of(net: Any) -> list[np.ndarray]:
    """Matrices and biases in turn, matrices as Keras has them."""
    return [parameter.data().asnumpy().T for parameter in net.collect_params().values()]


def _shuffled(
    job: dict[str, Any], x: np.ndarray, y: np.ndarray, seed: int, rank: int
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """A rank's share of every batch of an epoch, and the rows of the whole batch."""
    order = np.random.default_rng(seed).permutation(len(x))
    for start in range(0, len(order), job["batch_size"]):
        batch = order[start : start + job["batch_size"]]
        mine = batch[rank::WORKERS]
        yield x[mine], y[mine], len(batch)
