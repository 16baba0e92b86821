"""Keras callbacks in fits of two workers, held against plain Keras over the same global batches."""

from __future__ import annotations

import csv
import os
import signal
from pathlib import Path

import keras
import numpy as np
import pytest

from zoo.orca.learn.callbacks import Callback, LRMonitor
from zoo.orca.learn.tf2 import Estimator

# Nothing here differs between engines; tests/contracts/test_keras.py has fits with callbacks on all of them.
pytestmark = pytest.mark.engines("local")
ROWS, BATCH = 22, 8
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(ROWS, 3)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 0.25).astype(np.float32)
DATA = {"x": X, "y": Y}
CHECK = {"x": X[:10] * 2, "y": Y[:10]}


def make_model(config):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
    for number, each in enumerate(model.weights):
        each.assign(np.sin(np.arange(each.value.numpy().size) + number).reshape(each.shape))
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"])
    return model


def estimator(**options):
    return Estimator.from_keras(
        **({"model_creator": make_model, "num_workers": 2, "config": {"shuffle": False}} | options)
    )


class Noting(keras.callbacks.Callback):
    """Notes every hook, what it is given, and how the model stands."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.process = 0

    def set_params(self, params):
        super().set_params(params)
        self._note("params", params["epochs"], params["steps"])

    def _note(self, *what):
        rate = self.model.optimizer.learning_rate
        self.seen.append([*what, float(rate), [float(np.sum(each)) for each in self.model.get_weights()]])
        self.process = os.getpid()

    def on_train_begin(self, logs=None):
        self._note("train_begin", logs)

    def on_epoch_begin(self, epoch, logs=None):
        self._note("epoch_begin", epoch, logs)

    def on_batch_begin(self, batch, logs=None):
        self._note("batch_begin", batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        self._note("batch_end", batch, logs)

    def on_test_begin(self, logs=None):
        self._note("test_begin", logs)

    def on_test_end(self, logs=None):
        self._note("test_end", logs)

    def on_epoch_end(self, epoch, logs=None):
        self._note("epoch_end", epoch, dict(logs))

    def on_train_end(self, logs=None):
        self._note("train_end", logs)


class Meddles(keras.callbacks.Callback):
    """Changes weights after a batch and before an epoch, and measures something itself."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            self.model.weights[0].assign(np.clip(self.model.get_weights()[0], -0.8, 0.8))

    def on_epoch_begin(self, epoch, logs=None):
        self.model.layers[-1].bias.assign_add(np.ones(1))

    def on_epoch_end(self, epoch, logs=None):
        logs["val_twice"] = 2 * logs["val_loss"]


def make_callbacks():
    return [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.1 / (1 + epoch)),
        Meddles(),
        keras.callbacks.ReduceLROnPlateau(monitor="val_twice", mode="min", patience=1, factor=0.5, min_delta=1.0),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True),
        keras.callbacks.History(),
        Noting(),
    ]


def assert_close(ours, plain):
    """The same structure, with numbers that are nearly the same."""
    if isinstance(plain, dict):
        assert list(ours) == list(plain)
        ours, plain = list(ours.values()), list(plain.values())
    if isinstance(plain, list | tuple):
        assert len(ours) == len(plain), (ours, plain)
        for one, other in zip(ours, plain, strict=True):
            assert_close(one, other)
    elif isinstance(plain, float):
        assert ours == pytest.approx(plain, rel=2e-4, abs=1e-5)
    else:
        assert ours == plain


def test_callbacks_see_and_do_what_they_do_in_plain_keras(engine):
    model, plain = make_model({}), make_callbacks()
    given = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "validation_data": (CHECK["x"], CHECK["y"])}
    model.fit(X, Y, epochs=2, callbacks=plain, **given)
    model.fit(X, Y, epochs=9, initial_epoch=2, callbacks=plain, **given)

    est, ours = estimator(), make_callbacks()
    est.fit(DATA, epochs=2, batch_size=BATCH, validation_data=CHECK, callbacks=ours)
    figures = est.fit(DATA, epochs=7, batch_size=BATCH, validation_data=CHECK, callbacks=ours)
    assert_close(ours[-1].seen, plain[-1].seen)
    assert ours[-1].process != os.getpid()
    *_, early, history, _ = ours
    *_, plain_early, plain_history, _ = plain
    assert 0 < early.stopped_epoch == plain_early.stopped_epoch < 8
    assert_close(
        [early.best, early.wait, early.best_epoch], [float(plain_early.best), plain_early.wait, early.best_epoch]
    )
    assert (history.epoch, sorted(history.history)) == (plain_history.epoch, sorted(plain_history.history))
    assert_close(dict(sorted(history.history.items())), dict(sorted(plain_history.history.items())))
    assert "EarlyStopping set model.stop_training" in est.result_.stopped
    assert figures["train_val_twice"] == pytest.approx(2 * figures["train_val_loss"], rel=1e-6)
    assert {"train_learning_rate", "train_mae"} <= set(figures)
    for trained, expected in zip(est.get_model().get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(trained, expected, rtol=2e-4, atol=1e-5)


def test_files_are_written_once(engine, tmp_path):
    class Ours(Callback):
        rank_zero_only = True

        def on_epoch_end(self, run):
            run.figures["train_ours"] = run.epoch * 10

    callbacks = [
        Ours(),
        keras.callbacks.ModelCheckpoint(tmp_path / "at-{epoch}-{ours:.0f}.keras"),
        keras.callbacks.ModelCheckpoint(tmp_path / "w-{epoch}-{batch}.weights.h5", save_weights_only=True, save_freq=2),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        LRMonitor(),
    ]
    est = estimator()
    est.fit(DATA, epochs=2, batch_size=BATCH, validation_data=CHECK, callbacks=callbacks)
    saved = sorted(path.name for path in tmp_path.glob("*.*") if path.is_file())
    assert saved == [
        "at-1-10.keras",
        "at-2-20.keras",
        "log.csv",
        *(f"w-{epoch}-{batch}.weights.h5" for epoch, batch in ((1, 2), (2, 1), (2, 3))),
    ]
    last = keras.saving.load_model(tmp_path / "at-2-20.keras")
    for one, other in zip(last.get_weights(), est.get_model().get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(last.optimizer.iterations) == 6
    with open(tmp_path / "log.csv") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["0", "1"]


def test_tensorboard_is_written_once(engine, tmp_path):
    board = keras.callbacks.TensorBoard(tmp_path, update_freq=1, write_steps_per_second=True, histogram_freq=1)
    estimator().fit(DATA, epochs=2, batch_size=BATCH, validation_data=CHECK, callbacks=[board])
    assert [len(list((tmp_path / part).iterdir())) for part in ("train", "validation")] == [1, 1]
    assert board._global_train_batch == 6


def test_a_loss_that_is_no_number_ends_the_fit(engine):
    class Raises(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise ArithmeticError(f"batch {batch}")

    broken = {"x": X, "y": np.where(np.arange(ROWS)[:, None] == 9, np.inf, Y)}
    est = estimator()
    est.fit(broken, epochs=3, batch_size=BATCH, callbacks=[keras.callbacks.TerminateOnNaN()])
    assert est.result_.stopped == "the Keras callback TerminateOnNaN set model.stop_training in epoch 1"
    assert est.result_.rows == 2 * BATCH
    with pytest.raises(ArithmeticError, match="batch 0"):
        est.fit(DATA, callbacks=[Raises()])


class Dies(Callback):
    """Kills rank 0, where the callbacks run, after so many steps, once."""

    rank_zero_only = True

    def __init__(self, folder, step):
        self._file, self._step = Path(folder) / "died", step

    def on_step_end(self, run):
        if run.step == self._step and not self._file.exists():
            self._file.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_callbacks_go_on_after_a_worker_was_lost(engine, tmp_path):
    def run(name, *more):
        folder = tmp_path / name
        folder.mkdir()
        callbacks = [*make_callbacks(), keras.callbacks.CSVLogger(folder / "log.csv"), *more]
        est = estimator()
        est.fit(DATA, epochs=3, batch_size=BATCH, validation_data=CHECK, callbacks=callbacks, checkpoint_trigger="2ba")
        return est, callbacks, (folder / "log.csv").read_text()

    est, callbacks, table = run("whole")
    again, remembering, table_again = run("lost", Dies(tmp_path / "lost", 5))
    assert again.result_.restarts == 1
    assert remembering[-3].seen == callbacks[-2].seen
    assert remembering[-4].history == callbacks[-3].history
    assert table_again == table
    for one, other in zip(again.get_model().get_weights(), est.get_model().get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_rate_that_is_set_before_the_first_batch_stays(engine):
    def make_unbuilt(config):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    est = estimator(model_creator=make_unbuilt)
    for epoch in range(2):
        noting = Noting()
        halving = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.1 / (1 + epoch))
        est.fit(DATA, callbacks=[halving, noting])
        assert noting.seen[-1][2] == pytest.approx(0.1 / (1 + epoch))


def test_a_fit_with_keras_callbacks_can_be_checked_before(engine):
    assert estimator().check(DATA, callbacks=[keras.callbacks.EarlyStopping(monitor="loss")]).ok


def test_evaluate_and_predict_call_their_hooks(engine):
    class Notes(keras.callbacks.Callback):
        seen = ()

        def on_test_begin(self, logs=None):
            self.seen += ("test begins", self.model.count_params())

        def on_test_end(self, logs=None):
            self.seen += tuple(logs)

        def on_predict_end(self, logs=None):
            self.seen += ("predicted",)

    notes, est = Notes(), estimator(num_workers=1)
    est.evaluate(DATA, callbacks=[notes])
    est.predict(X, callbacks=[notes])
    assert notes.seen == ("test begins", 21, "loss", "mae", "predicted")
