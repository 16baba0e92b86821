"""What `benchmarks.kills` trains with Keras: BatchNorm, dropout, Adam, and a dataset that draws random numbers."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from zoo.orca.learn.callbacks import Callback
from zoo.orca.learn.tf2 import Estimator

ROWS = 480


class Telling(Callback):
    """Tells its process, so that it can be killed, and takes its time."""

    def __init__(self, folder: str | None, pause: float):
        self._folder = folder
        self._pause = pause

    def on_fit_start(self, run: Any) -> None:
        if self._folder is not None:
            path = Path(self._folder, f"rank-{run.rank}")
            aside = path.with_suffix(".new")
            aside.write_text(str(os.getpid()))
            aside.replace(path)

    def on_step_start(self, run: Any) -> None:
        time.sleep(self._pause)


def make_model(config: dict[str, Any]) -> Any:
    import keras

    layers = [keras.layers.Dense(32), keras.layers.BatchNormalization(), keras.layers.ReLU(), keras.layers.Dropout(0.2)]
    model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, metrics=["accuracy"])
    return model


def make_data(config: dict[str, Any], batch_size: int) -> Any:
    import tensorflow as tf

    x = np.random.default_rng(0).normal(size=(ROWS, 8)).astype(np.float32)
    y = (x.sum(axis=1) > 0).astype(np.int64)
    rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS)
    return rows.map(lambda x, y: (x + tf.random.normal((8,), stddev=0.1), y)).batch(batch_size)


def fitted(workers: int, kills: int, folder: str, pause: float, epochs: int, batch: int, every: str) -> Any:
    """The estimator after its fit."""
    est = Estimator.from_keras(model_creator=make_model, num_workers=workers, max_failures=kills)
    telling = Telling(folder if kills else None, pause)
    est.fit(make_data, epochs, batch, verbose=0, callbacks=[telling], checkpoint_trigger=every)
    return est


def digest(est: Any) -> str:
    found = hashlib.sha256()
    for value in est.get_model().get_weights():
        found.update(value.tobytes())
    return found.hexdigest()
