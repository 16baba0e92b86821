"""What must hold of Keras training, on every engine: exact, the same anywhere, and unmoved by workers that die."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from learning import CLASSES, RAGGED, Rows, global_batches
from zoo.orca.data import XShards
from zoo.orca.learn.callbacks import Callback
from zoo.orca.learn.tf2 import Estimator

BATCH = 8
EPOCHS = 2
ROWS = Rows(sum(RAGGED))
STEPS = -(-sum(RAGGED) // BATCH)
DEATHS = {"local": 3, "spark": 1, "ray": 1}


def make_model(config):
    """All that asks for care between ranks: clipping, a penalty on weights, metrics that are no means."""
    penalty = keras.regularizers.L2(0.01)
    drop, norm = config.get("drop", 0.0), config.get("norm", False)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            *([keras.layers.BatchNormalization(momentum=0.5)] if norm else []),
            keras.layers.Dense(6, activation="tanh", kernel_regularizer=penalty),
            keras.layers.Dropout(drop),
            keras.layers.Dense(CLASSES, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.05, clipnorm=0.5),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def make_hot_model(config):
    model = make_model(config)
    metrics = [keras.metrics.AUC(name="auc"), keras.metrics.F1Score(average="macro", name="f1"), "accuracy"]
    model.compile(optimizer=model.optimizer, loss="categorical_crossentropy", metrics=metrics)
    return model


def one_hot(partitions):
    return [[shard | {"y": np.eye(CLASSES)[shard["y"]]} for shard in shards] for shards in partitions]


def shards_of(engine, partitions):
    return XShards.from_placement(engine.place(partitions))


class Batches(keras.utils.PyDataset):
    """The global batches of an epoch, for plain Keras."""

    def __init__(self, y, epoch):
        super().__init__()
        self.y, self.rows = y, list(global_batches(RAGGED, BATCH, [epoch]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return ROWS.x[self.rows[number]], self.y[self.rows[number]]


def by_hand(make, y):
    """The model after plain Keras's own fit over the same global batches, and the last epoch's figures."""
    keras.utils.set_random_seed(0)
    model = make({})
    for epoch in range(EPOCHS):
        history = model.fit(Batches(y, epoch), shuffle=False, verbose=0).history
    return model, {name: values[-1] for name, values in history.items()}


def bits(model):
    return [each.tobytes() for each in model.get_weights()]


class TestExact:
    def test_ragged_shards_on_three_workers_equal_plain_keras(self, engine):
        hot = np.eye(CLASSES)[ROWS.classes]
        data = shards_of(engine, one_hot(ROWS.cut(RAGGED)))
        est = Estimator.from_keras(model_creator=make_hot_model, num_workers=3)
        figures = est.fit(data, EPOCHS, BATCH, validation_data=data, verbose=0)
        model, logs = by_hand(make_hot_model, hot)
        for ours, theirs in zip(est.get_model().get_weights(), model.get_weights(), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-6)
        assert {name: figures[f"train_{name}"] for name in logs} == pytest.approx(logs, rel=1e-4)
        expected = model.evaluate(ROWS.x, hot, batch_size=7, verbose=0, return_dict=True)
        assert {name: figures[f"train_val_{name}"] for name in expected} == pytest.approx(expected, rel=1e-4)

    @pytest.mark.engines("local")
    def test_figures_do_not_depend_on_the_workers(self, engine):
        data = shards_of(engine, one_hot(ROWS.cut(RAGGED)))
        found = [
            Estimator.from_keras(model_creator=make_hot_model, num_workers=workers).evaluate(data, BATCH, verbose=0)
            for workers in (1, 2, 3, 4)
        ]
        for each in found[1:]:
            assert each == pytest.approx(found[0], rel=1e-5)


class Mortal(Callback):
    """A rank dies before or after a step, or as it validates, once."""

    def __init__(self, folder, deaths):
        self.folder, self.deaths = str(folder), deaths

    def on_step_start(self, run):
        self._die(run, "before")

    def on_step_end(self, run):
        self._die(run, "after")

    def on_validation_start(self, run):
        self._die(run, "validating")

    def _die(self, run, place):
        mark = Path(self.folder, f"{run.rank}-{run.step}-{place}")
        if (run.rank, run.step, place) in self.deaths and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Recording(keras.callbacks.Callback):
    """Remembers the figures of every batch and epoch, which must survive."""

    def __init__(self):
        super().__init__()
        self.batches, self.epochs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append((batch, round(logs["loss"], 9)))

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append((epoch, sorted(logs.items())))


def fitted(engine, folder=None, deaths=(), trigger=None):
    recording = Recording()
    plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=0, min_delta=10.0)
    callbacks = [recording, plateau, *([Mortal(folder, deaths)] if deaths else [])]
    config = {"drop": 0.3, "norm": True}
    est = Estimator.from_keras(model_creator=make_model, config=config, num_workers=2, max_failures=3)
    data = shards_of(engine, ROWS.cut(RAGGED))
    figures = est.fit(data, 3, BATCH, callbacks=callbacks, validation_data=data, checkpoint_trigger=trigger, verbose=0)
    return est, figures, (recording.batches, recording.epochs)


@functools.lru_cache
def undisturbed():
    """What a fit on the embedded engine ends with; other engines must agree with it to the bit."""
    from zoo.orca.engine.local import LocalEngine

    with LocalEngine(cores=2) as engine:
        est, figures, recorded = fitted(engine)
        return bits(est.get_model()), figures, recorded


deaths = st.tuples(
    st.integers(0, 1), st.integers(0, 3 * STEPS - 1), st.sampled_from(["before", "after", "validating"])
).map(lambda death: (death[0], -(-death[1] // STEPS) * STEPS, death[2]) if death[2] == "validating" else death)


class TestRecovery:
    def test_a_fit_that_lost_workers_ends_as_if_it_had_not(self, engine, tmp_path_factory):
        @settings(max_examples=DEATHS[engine.name], deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(deaths, min_size=1, max_size=2, unique=True), st.sampled_from(["1ba", "2ba", "1ep"]))
        def check(deaths, trigger):
            folder = tmp_path_factory.mktemp("kills")
            est, figures, recorded = fitted(engine, folder, deaths, trigger)
            weights, expected, seen = undisturbed()
            assert bits(est.get_model()) == weights
            assert figures == expected
            assert recorded == seen
            assert est.result_.restarts == len(list(folder.iterdir()))

        check()
