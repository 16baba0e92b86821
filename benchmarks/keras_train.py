"""Training a Keras model on arrays: ours, and TensorFlow's MultiWorkerMirroredStrategy.

Keras 3 as it is shipped fails under that strategy (its `fit` cannot take the values of several workers, keras #20585),
so that the strategy runs tf_keras, Keras 2, which it was made for. The model, the data, the batches and the optimizer
are the same. A step is traced once, so that epochs are timed: from the start of the second to the end of the last.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learn_data import WIDTHS
from benchmarks.ranks import WORKERS, rank_and_size
from benchmarks.row import Report
from zoo.orca.learn.callbacks import Callback, Run


class EpochsClocked(Callback):
    """Leaves a file on every rank with the seconds of the epochs after the first."""

    def __init__(self, folder: str, epochs: int):
        self.folder, self.epochs = folder, epochs
        self.started = 0.0

    def on_epoch_start(self, run: Run) -> None:
        if run.epoch == 2:
            self.started = time.perf_counter()

    def on_epoch_end(self, run: Run) -> None:
        if run.epoch == self.epochs:
            leave(self.folder, time.perf_counter() - self.started)


def ours(job: dict[str, Any]) -> Report:
    """`Estimator.fit` on arrays, on the embedded engine."""
    import keras  # noqa: F401 - before the clock, as others import theirs

    from zoo.orca import init_orca_context, stop_orca_context
    from zoo.orca.learn.tf2 import Estimator

    with tempfile.TemporaryDirectory() as marks:
        start = time.perf_counter()
        init_orca_context("embedded", cores=WORKERS)
        x, y = arrays(job)
        estimator = Estimator.from_keras(model_creator=create_model, config={"job": job}, num_workers=WORKERS)
        estimator.fit(
            {"x": x, "y": y},
            epochs=job["epochs"],
            batch_size=job["batch_size"],
            verbose=0,
            callbacks=[EpochsClocked(marks, job["epochs"])],
        )
        weights = estimator.get_model().get_weights()
        seconds = time.perf_counter() - start
        report = Report(seconds, **facts(job, marks, weights, estimator.result_.rows))
    estimator.shutdown()
    stop_orca_context()
    return report


def ours_with_torch(job: dict[str, Any]) -> Report:
    """The same layers, batches and clock with our PyTorch estimator."""
    from torch import nn

    from benchmarks.learn_job import Job, config_of, create_model, create_optimizer
    from zoo.orca import init_orca_context, stop_orca_context
    from zoo.orca.learn.pytorch import Estimator

    work = Job(**job)
    with tempfile.TemporaryDirectory() as marks:
        start = time.perf_counter()
        init_orca_context("embedded", cores=WORKERS)
        x, y = arrays(job)
        estimator = Estimator.from_torch(
            model=create_model,
            optimizer=create_optimizer,
            loss=nn.CrossEntropyLoss(),
            config=config_of(work),
            num_workers=WORKERS,
        )
        estimator.fit(
            {"x": x, "y": y},
            epochs=job["epochs"],
            batch_size=job["batch_size"],
            callbacks=[EpochsClocked(marks, job["epochs"])],
        )
        weights = [each.detach().numpy().T for each in estimator.get_model().parameters()]
        seconds = time.perf_counter() - start
        report = Report(seconds, **facts(job, marks, weights, estimator.result_.rows))
    estimator.shutdown()
    stop_orca_context()
    return report


def create_model(config: dict[str, Any]) -> Any:
    """For our estimator: Keras 3."""
    import keras

    return compiled(keras, config["job"])


def mirrored_rank(job: dict[str, Any], marks: str) -> dict[str, Any]:
    """One of TensorFlow's workers, whose others are in TF_CONFIG; each reads all rows and takes its share of them."""
    import tensorflow as tf
    import tf_keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before anything else of TensorFlow
    x, y = arrays(job)
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(job["rows"], seed=0).batch(job["batch_size"])
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    with strategy.scope():
        model = compiled(tf_keras, job)

    class Clocked(tf_keras.callbacks.Callback):
        started = 0.0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                self.started = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == job["epochs"] - 1:
                leave(marks, time.perf_counter() - self.started)

    model.fit(data.prefetch(2).with_options(options), epochs=job["epochs"], verbose=0, callbacks=[Clocked()])
    _wait_for_all(marks)
    rows = int(model.optimizer.iterations.numpy()) * job["batch_size"]
    return facts(job, marks, model.get_weights(), rows)


def compiled(library: Any, job: dict[str, Any]) -> Any:
    """The model in a version of Keras."""
    first, *widths = WIDTHS[job["kind"]]
    library.utils.set_random_seed(0)
    hidden = [library.layers.Dense(width, activation="relu") for width in widths[:-1]]
    model = library.Sequential([library.Input((first,)), *hidden, library.layers.Dense(widths[-1])])
    model.compile(
        optimizer=library.optimizers.SGD(0.02, momentum=0.9),
        loss=library.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def arrays(job: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    x, y = (np.load(Path(job["folder"], f"{name}.npy"), mmap_mode="c") for name in "xy")
    return x, y


def leave(marks: str, seconds: float) -> None:
    """What a rank has to say."""
    Path(marks, f"rank-{os.getpid()}").write_text(json.dumps(seconds))


def facts(job: dict[str, Any], marks: str, weights: list[np.ndarray], rows: int) -> dict[str, Any]:
    """The rows that were trained on and whether something was learnt; rows a second on the slower rank."""
    seconds = [json.loads(path.read_text()) for path in Path(marks).glob("rank-*")]
    if len(seconds) != WORKERS:
        raise RuntimeError(f"{len(seconds)} of {WORKERS} ranks trained {job['epochs']} epochs.")
    rate = job["rows"] * (job["epochs"] - 1) / max(seconds)
    return {"checksum": [rows, has_learnt(weights, *arrays(job))], "rate": rate}


def has_learnt(weights: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> bool:
    """Whether the loss on some rows is below that of somebody who guesses."""
    output, targets = x[:500], y[:500]
    for place in range(0, len(weights), 2):
        output = output @ weights[place] + weights[place + 1]
        output = np.maximum(output, 0) if place + 2 < len(weights) else output
    output = output - output.max(axis=1, keepdims=True)
    chosen = output[np.arange(len(targets)), targets]
    loss = float(np.mean(np.log(np.exp(output).sum(axis=1)) - chosen))
    return bool(loss < 0.8 * np.log(output.shape[1]))


def _wait_for_all(marks: str) -> None:
    """Until every rank has left its mark."""
    deadline = time.monotonic() + 60
    while len(list(Path(marks).glob("rank-*"))) < rank_and_size()[1] and time.monotonic() < deadline:
        time.sleep(0.01)
