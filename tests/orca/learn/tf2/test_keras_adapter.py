"""Keras callbacks in our hooks, without a gang: what they see, what reaches other ranks, what outlasts a restart."""

from __future__ import annotations

import csv
import pickle
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from zoo.orca.errors import InvalidArgumentError, MissingPackageError, NotOfferedError, NotPicklableError
from zoo.orca.learn.callbacks import Callbacks, LRMonitor, Run
from zoo.orca.learn.tf2.callbacks import KerasCallbacks, adapt, calling
from zoo.orca.learn.tf2.model_changes import Changes

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
Y = X.sum(axis=1, keepdims=True)


def make_model(rate=0.1):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(rate), "mse")
    model.optimizer.build(model.trainable_variables)
    for number, each in enumerate(model.trainable_variables):
        each.assign(np.full(each.shape, 0.1 * (number + 1)))
    return model


class Noting(keras.callbacks.Callback):
    """Notes every hook and what it is given."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def set_params(self, params):
        super().set_params(params)
        self.seen.append(("params", params["epochs"], params["steps"]))

    def on_train_begin(self, logs=None):
        self.seen.append(("train_begin", logs))

    def on_epoch_begin(self, epoch, logs=None):
        self.seen.append(("epoch_begin", epoch, logs))

    def on_train_batch_begin(self, batch, logs=None):
        self.seen.append(("batch_begin", batch, logs))

    def on_batch_end(self, batch, logs=None):
        self.seen.append(("batch_end", batch, list(logs)))

    def on_test_begin(self, logs=None):
        self.seen.append(("test_begin", logs))

    def on_test_end(self, logs=None):
        self.seen.append(("test_end", list(logs)))

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(("epoch_end", epoch, list(logs)))

    def on_train_end(self, logs=None):
        self.seen.append(("train_end", list(logs)))


class Ranks:
    """Two ranks as two threads, each with a copy of the model and of the callbacks, as a gang would have them."""

    def __init__(self, callbacks, world_size=2, models=None):
        self.given = Callbacks(adapt(callbacks))
        body = pickle.dumps(list(self.given))
        self.ranks = [Callbacks(pickle.loads(body)) for _ in range(world_size)]
        self.models = models or [make_model() for _ in range(world_size)]
        self._meeting = threading.Barrier(world_size, timeout=10)
        self._parts = [None] * world_size
        self.runs = []

    def call(self, hook, **about):
        assert self.ranks[0].overrides(hook)
        self.runs = [
            Run(rank=rank, world_size=len(self.ranks), model=model, gather=self._gather(rank), **about)
            for rank, model in enumerate(self.models)
        ]
        with ThreadPoolExecutor(len(self.ranks)) as pool:
            list(pool.map(lambda callbacks, run: callbacks.call(hook, run), self.ranks, self.runs))
        return self.runs[0]

    def weights(self):
        return [
            [keras.ops.convert_to_numpy(each) for each in (*model.weights, *model.optimizer.variables)]
            for model in self.models
        ]

    def come_home(self):
        self.given.come_home(self.ranks[0].state())

    def _gather(self, rank):
        def gather(value):
            self._parts[rank] = value
            self._meeting.wait()
            parts = list(self._parts)
            self._meeting.wait()
            return parts

        return gather


def assert_equal(first, second):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_same_hooks_as_in_plain_keras():
    plain = Noting()
    model = make_model()
    model.fit(X, Y, batch_size=4, epochs=2, initial_epoch=1, validation_data=(X, Y), verbose=0, callbacks=[plain])

    ours = Noting()
    ranks = Ranks([ours])
    about = {"last_epoch": 2, "steps": 2, "epoch": 2}
    figures = {"val_loss": 0.4, "train_loss": 0.5, "epoch": 2, "batch_count": 2, "num_samples": 8}
    ranks.call("on_fit_start", **about)
    ranks.call("on_epoch_start", **about)
    for batch in range(2):
        ranks.call("on_step_start", batch=batch, **about)
        ranks.call("on_step_end", batch=batch + 1, so_far=lambda: {"train_loss": 0.5}, **about)
    ranks.call("on_validation_start", **about)
    ranks.call("on_validation_end", figures={"val_loss": 0.4, "val_num_samples": 8}, **about)
    ranks.call("on_epoch_end", figures=figures, **about)
    ranks.call("on_fit_end", **about)
    ranks.come_home()
    assert ours.seen == plain.seen


def test_hooks_that_nobody_has_cost_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", types.ModuleType("tensorboard"))

    class AtEpochs(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            pass

    quiet = [
        AtEpochs(),
        keras.callbacks.ModelCheckpoint(tmp_path / "best.keras"),
        keras.callbacks.TensorBoard(tmp_path / "logs", write_graph=False),
    ]
    assert not any(Callbacks(adapt(quiet)).overrides(hook) for hook in ("on_step_start", "on_step_end"))
    assert Callbacks(adapt([keras.callbacks.ModelCheckpoint(tmp_path / "b.keras", save_freq=2)])).overrides(
        "on_step_end"
    )
    assert Callbacks(adapt([keras.callbacks.TensorBoard(tmp_path, update_freq=1)])).overrides("on_step_start")
    assert Callbacks(adapt([keras.callbacks.TerminateOnNaN()])).overrides("on_step_end")
    assert not Callbacks(adapt(quiet[:1])).overrides("on_validation_start")


def test_what_a_callback_changes_reaches_every_rank():
    class Clips(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.weights[0].assign(np.clip(self.model.weights[0], -0.05, 0.05))

    class Halves(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.025
            self.model.optimizer.variables[2].assign_add(np.ones((3, 2)))

    ranks = Ranks([Clips(), Halves(), keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.5 * rate)])
    ranks.call("on_fit_start")
    ranks.call("on_epoch_start")
    assert [float(model.optimizer.learning_rate) for model in ranks.models] == [pytest.approx(0.05)] * 2
    ranks.call("on_step_end", batch=1, so_far=dict)
    assert np.all(np.abs(ranks.models[1].weights[0]) <= 0.05)
    ranks.call("on_epoch_end")
    assert float(ranks.models[1].optimizer.learning_rate) == pytest.approx(0.025)
    assert_equal(*ranks.weights())


def test_only_what_was_assigned_is_sent():
    model = make_model()
    model.fit(X, Y, verbose=0)
    changes = Changes(model)
    assert changes.found() == {}
    model.weights[1].assign(model.get_weights()[1])  # the same again
    model.weights[0].value.assign_add(np.ones((3, 2), np.float32))
    model.optimizer.learning_rate = 0.5
    before = model.get_weights()[0] - 1
    found = changes.found()
    assert sorted(found) == [0, len(model.weights) + 1]
    changes.undo()
    assert float(model.optimizer.learning_rate) == pytest.approx(0.1)
    np.testing.assert_allclose(model.weights[0], before, atol=1e-6)


def test_a_stop_names_the_callback_and_the_best_weights_are_everywhere():
    early = keras.callbacks.EarlyStopping(monitor="loss", patience=1, restore_best_weights=True)
    ranks = Ranks([early, LRMonitor()])
    ranks.call("on_fit_start")
    best = ranks.weights()[0]
    assert ranks.call("on_epoch_end", epoch=1, figures={"train_loss": 1.0}).stopped is None
    for model in ranks.models:
        model.weights[0].assign(np.ones((3, 2)))
    run = ranks.call("on_epoch_end", epoch=2, figures={"train_loss": 2.0})
    assert run.stopped == "the Keras callback EarlyStopping set model.stop_training in epoch 2"
    ranks.call("on_fit_end", epoch=2)
    for weights in ranks.weights():
        assert_equal(weights, best)
    ranks.come_home()
    assert (early.best, early.stopped_epoch, early.best_epoch, early.wait) == (1.0, 1, 0, 1)
    np.testing.assert_array_equal(early.best_weights[0], best[0])
    assert early.model is None


def test_what_callbacks_add_to_the_logs_goes_into_the_figures():
    class Adds(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs |= {"val_f1": 0.5, "note": "text"}

    ranks = Ranks([keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1), Adds()])
    ranks.call("on_fit_start")
    run = ranks.call("on_epoch_end", figures={"train_loss": 1.0, "epoch": 1})
    assert run.figures == {"train_loss": 1.0, "epoch": 1, "train_learning_rate": pytest.approx(0.1), "val_f1": 0.5}


def test_objects_of_the_user_are_filled_when_a_fit_is_over():
    losses, table = [], {"old": 1}

    class Collects(keras.callbacks.Callback):
        def __init__(self, losses, table):
            super().__init__()
            self.losses, self.table = losses, table
            self.arrays = None
            self.file = None

        def on_epoch_end(self, epoch, logs=None):
            self.losses.append(np.float32(logs["loss"]))
            self.table[epoch] = (epoch, {"loss"})
            self.arrays = [np.arange(3), np.array(["text"])] if epoch else np.arange(3)
            self.file = threading.Lock()

    history, collects = keras.callbacks.History(), Collects(losses, table)
    ranks = Ranks([history, LRMonitor(), collects])
    ranks.call("on_fit_start")
    ranks.call("on_epoch_end", epoch=1, figures={"train_loss": 1.5, "val_loss": 2.5})
    ranks.come_home()
    assert history.history == {"loss": [1.5], "val_loss": [2.5]}
    assert history.epoch == [0]
    assert losses == [1.5]
    assert table == {"old": 1, 0: (0, {"loss"})}
    np.testing.assert_array_equal(collects.arrays, np.arange(3))
    assert collects.file is None
    assert history.model is None


class Counting(keras.callbacks.Callback):
    """Opens something in `on_train_begin`, counts, and meddles with the model when training begins."""

    def __init__(self, step=1):
        super().__init__()
        self.step, self.count, self.open = step, 0, None

    def on_train_begin(self, logs=None):
        self.count = 0
        self.open = threading.Lock()
        self.model.weights[0].assign(np.zeros((3, 2)))
        self.model.optimizer.learning_rate = 0.7

    def on_epoch_begin(self, epoch, logs=None):
        self.count += 100

    def on_epoch_end(self, epoch, logs=None):
        with self.open:
            self.count += self.step


def test_a_fit_that_was_interrupted_goes_on_with_what_callbacks_remember(tmp_path):
    table = tmp_path / "log.csv"

    def make():
        return [
            keras.callbacks.EarlyStopping(monitor="loss", patience=3, min_delta=0.25, restore_best_weights=True),
            keras.callbacks.CSVLogger(table),
            Counting(),
        ]

    ranks = Ranks(make())
    ranks.call("on_fit_start")
    for epoch, loss in ((1, 3.0), (2, 2.9)):
        ranks.call("on_epoch_start", epoch=epoch)
        ranks.call("on_epoch_end", epoch=epoch, figures={"train_loss": loss})
    ranks.call("on_epoch_start", epoch=3)
    for model in ranks.models:
        model.weights[0].assign(np.ones((3, 2)))
        model.optimizer.learning_rate = 0.3
    state = pickle.loads(pickle.dumps([each.state() for each in ranks.ranks]))
    weights = ranks.weights()
    ranks.call("on_epoch_end", epoch=3, figures={"train_loss": 99.0})  # after the checkpoint: it is run again

    changed = make()
    changed[0].patience = 2  # a setting that the resumed fit goes by
    again = Ranks(changed, models=ranks.models)
    for callbacks, mine in zip(again.ranks, state, strict=True):
        callbacks.load(mine)
    again.call("on_fit_start")
    again.call("on_epoch_start", epoch=3, batch=1)
    for now, before in zip(again.weights(), weights, strict=True):
        assert_equal(now, before)
    assert again.call("on_epoch_end", epoch=3, figures={"train_loss": 2.8}).stopped is not None
    again.call("on_fit_end", epoch=3)
    again.come_home()
    early, _, counting = changed
    assert (early.best, early.wait, early.patience) == (3.0, 2, 2)
    assert counting.count == 303
    with open(table) as file:
        assert [(row["epoch"], row["loss"]) for row in csv.DictReader(file)] == [
            ("0", "3.0"),
            ("1", "2.9"),
            ("2", "2.8"),
        ]


def test_min_delta_is_turned_once():
    early = keras.callbacks.EarlyStopping(monitor="loss", patience=9, min_delta=0.5)
    for _ in range(2):  # in plain Keras too a second fit with the same object must work
        ranks = Ranks([early], world_size=1)
        ranks.call("on_fit_start")
        for epoch, loss in ((1, 2.0), (2, 1.8), (3, 1.0)):
            ranks.call("on_epoch_end", epoch=epoch, figures={"train_loss": loss})
        ranks.come_home()
        assert (early.best, early.best_epoch, early.min_delta) == (1.0, 2, 0.5)


def test_a_callback_that_has_a_model_already_is_sent_without_it():
    history = make_model().fit(X, Y, verbose=0)
    ranks = Ranks([history], world_size=1)
    assert history.model is not None
    ranks.call("on_fit_start")
    ranks.call("on_epoch_end", figures={"train_loss": 1.0})
    assert ranks.models[0].history is not history
    ranks.come_home()
    assert history.history["loss"][1:] == [1.0]


def test_the_hooks_of_an_evaluate_are_called_here():
    class Notes(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            self.seen = [logs, self.model]

        def on_test_end(self, logs=None):
            self.seen.append(logs)

    notes, model = Notes(), make_model()
    with calling([LRMonitor(), notes], "test", lambda: model) as end:
        end({"mae": np.float32(2), "loss": 1})
    assert notes.seen == [{}, model, {"loss": 1.0, "mae": 2.0}]
    with calling(None, "predict", lambda: pytest.fail("no model is needed")) as end:
        end({})


def test_order_is_kept_and_neighbours_are_one():
    first, second = keras.callbacks.History(), keras.callbacks.TerminateOnNaN()
    ours, last = LRMonitor(), keras.callbacks.History()
    adapted = adapt([first, second, ours, last])
    assert [type(each) for each in adapted] == [KerasCallbacks, LRMonitor, KerasCallbacks]
    assert adapted[1] is ours
    assert adapt(None) is None
    assert adapt((ours,)) == [ours]
    assert [type(each) for each in adapt(first)] == [KerasCallbacks]


def test_adapting_our_own_callbacks_loads_no_keras():
    code = (
        "import sys; from zoo.orca.learn.tf2.callbacks import adapt; from zoo.orca.learn.callbacks import LRMonitor; "
        "adapt([LRMonitor()]); sys.exit('keras' in sys.modules or 'tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_callbacks_that_cannot_be_used_are_named(tmp_path, monkeypatch):
    import tf_keras

    with pytest.raises(NotOfferedError, match='resume="auto"'):
        adapt([keras.callbacks.BackupAndRestore(tmp_path)])
    with pytest.raises(InvalidArgumentError, match="EarlyStopping is a callback of tf_keras"):
        adapt([tf_keras.callbacks.EarlyStopping()])
    with pytest.raises(InvalidArgumentError, match=r"History is a class. Type History\(\)"):
        adapt([keras.callbacks.History])
    with pytest.raises(InvalidArgumentError, match="CallbackList"):
        adapt([keras.callbacks.CallbackList([])])
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingPackageError, match=r"pip install .*\[tensorflow\]"):
        adapt([keras.callbacks.TensorBoard(tmp_path)])
    lock = threading.Lock()
    with pytest.raises(NotPicklableError, match=r"the Keras callback LambdaCallback.*the variable 'lock'"):
        adapt([LRMonitor(), keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: lock.acquire())])


def test_hooks_of_validation_batches_are_told_of(caplog):
    class OfBatches(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            pass

    adapt([keras.callbacks.History(), OfBatches()])
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "on_test_batch_end of OfBatches will not be called"
    ]
