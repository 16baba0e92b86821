"""`zoo.orca.learn.tf2.Estimator`: what it takes, what it gives, and what it says when it cannot."""

from __future__ import annotations

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

from zoo.orca.data import XShards
from zoo.orca.errors import (
    BatchError,
    CheckpointError,
    InvalidArgumentError,
    NotOfferedError,
    NotPicklableError,
    PreconditionError,
)
from zoo.orca.learn.optimizers import SGD
from zoo.orca.learn.pytorch import Estimator as TorchEstimator
from zoo.orca.learn.tf2 import Estimator, TensorFlow2Estimator
from zoo.orca.learn.tf2.recipe import KerasRecipe

pytestmark = [pytest.mark.engines("local"), pytest.mark.usefixtures("engine")]

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(37, 4)).astype(np.float32)
Y = (X.sum(axis=1, keepdims=True) + 0.5).astype(np.float32)
IN_ORDER = {"shuffle": False}


def make_model(config):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(config.get("rate", 0.1), momentum=0.9), loss="mse", metrics=["mae"])
    return model


def make(model=make_model, **options):
    return Estimator.from_keras(**({"model_creator": model, "config": IN_ORDER, "num_workers": 2} | options))


def seeded(creator=make_model, config=None):
    keras.utils.set_random_seed(0)
    return creator(config or {})


def assert_close(found, expected, rtol=1e-4):
    for one, other in zip(found.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-6)


class TestFit:
    def test_epochs_go_on_and_figures_are_the_last(self):
        est = make()
        assert isinstance(est, TensorFlow2Estimator)
        assert set(est.fit((X, Y), 2, 8, verbose=0)) == {"train_loss", "train_mae"}
        figures = est.fit((X, Y), 1, 8, verbose=0, validation_data=(X, Y))
        expected = seeded()
        history = expected.fit(X, Y, 8, epochs=3, shuffle=False, verbose=0, validation_data=(X, Y)).history
        assert figures == pytest.approx({f"train_{name}": values[-1] for name, values in history.items()}, rel=1e-4)
        assert_close(est.get_model(), expected)
        assert list(est.result_.history.index) == [3]
        assert "epochs done: 3" in repr(est)

    def test_weights_of_classes_and_rows(self):
        classes = (Y[:, 0] > 0.5).astype(np.int64)
        weights = RANDOM.uniform(0.2, 3, size=len(X)).astype(np.float32)

        def creator(config):
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, activation="softmax")])
            model.compile("sgd", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
            return model

        est = make(creator)
        est.fit({"x": X, "y": classes, "weight": weights}, 2, 8, class_weight={0: 1, 1: 4}, verbose=0)
        expected = seeded(creator)
        both = weights * np.where(classes == 1, 4, 1).astype(np.float32)
        expected.fit(X, classes, 8, 2, shuffle=False, sample_weight=both, verbose=0)
        assert_close(est.get_model(), expected)
        found = est.evaluate((X, classes), sample_weight=weights, verbose=0)
        plain = expected.evaluate(X, classes, sample_weight=weights, verbose=0, return_dict=True)
        assert found == pytest.approx({f"validation_{name}": value for name, value in plain.items()}, rel=1e-4)

    def test_steps_read_on_through_the_data(self):
        """12 steps of 8 rows are 2 times all of 40 rows and 16 more, begun where the epoch before ended."""
        x, y = np.concatenate([X, X[:3]]), np.concatenate([Y, Y[:3]])
        est = make()
        figures = est.fit((x, y), 3, 8, steps_per_epoch=4, validation_data=(x, y), validation_steps=2, verbose=0)
        rows = np.concatenate([np.arange(40)] * 3)[: 3 * 4 * 8]
        expected = seeded()
        for batch in rows.reshape(-1, 8):
            expected.train_on_batch(x[batch], y[batch])
        assert_close(est.get_model(), expected)
        assert list(est.result_.history["batch_count"]) == [4, 4, 4]
        plain = expected.evaluate(x[:16], y[:16], verbose=0, return_dict=True)
        assert figures["train_val_loss"] == pytest.approx(plain["loss"], rel=1e-4)

    def test_validation_when_it_is_due(self):
        est = make(num_workers=1)
        est.fit((X, Y), 4, 8, validation_data=(X, Y), validation_freq=[2, 3], verbose=0)
        assert est.result_.history["val_loss"].notna().tolist() == [False, True, True, False]

    def test_a_model_instance_of_several_inputs_by_name(self):
        left, right = keras.Input((3,), name="left"), keras.Input((1,), name="right")
        model = keras.Model(
            {"left": left, "right": right}, keras.layers.Dense(1)(keras.layers.Concatenate()([left, right]))
        )
        model.compile("sgd", "mse")
        before = model.get_weights()
        est = make(model)
        data = {"x": {"left": X[:, :3], "right": X[:, 3:]}, "y": Y}
        est.fit(data, 2, 8, verbose=0)
        assert all(
            (a == b).all() for a, b in zip(model.get_weights(), before, strict=True)
        )  # the user's own is left alone
        model.fit(data["x"], Y, 8, 2, shuffle=False, verbose=0)
        assert_close(est.get_model(), model)
        np.testing.assert_allclose(est.predict(data), model.predict(data["x"], verbose=0), rtol=1e-4, atol=1e-6)

    def test_several_outputs_and_columns(self):
        one, two = keras.Input((), name="one"), keras.Input((), name="two")
        wide = keras.layers.Concatenate()([keras.layers.Reshape((1,))(one), keras.layers.Reshape((1,))(two)])
        model = keras.Model([one, two], [keras.layers.Dense(1)(wide), keras.layers.Dense(2)(wide)])
        model.compile("sgd", ["mse", "mae"])
        shards = XShards.partition({"x": [X[:, 0], X[:, 1]], "y": [Y, X[:, :2]]}, num_shards=3)
        est = make(model)
        est.fit(shards, 2, 8, verbose=0)
        predicted = est.predict(shards).collect()
        assert [each.shape[1] for each in predicted[0]["prediction"]] == [1, 2]
        frame = {"a": X[:, 0], "b": X[:, 1], "y": Y[:, 0]}
        import pandas as pd

        single = keras.Model([one, two], keras.layers.Dense(1)(wide))
        single.compile("sgd", "mse")
        est = make(single)
        est.fit(pd.DataFrame(frame), 1, 8, feature_cols=["a", "b"], label_cols=["y"], verbose=0)
        single.fit([X[:, 0], X[:, 1]], Y, 8, 1, shuffle=False, verbose=0)
        assert_close(est.get_model(), single)


@keras.saving.register_keras_serializable(package="tests")
class Own(keras.Model):
    """A step of its own, statistics, dropout, and a figure that no metric makes."""

    def __init__(self, width=4, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.dense, self.norm = keras.layers.Dense(width), keras.layers.BatchNormalization(momentum=0.5)
        self.drop, self.out = keras.layers.Dropout(0.3), keras.layers.Dense(1)

    def call(self, x, training=False):
        return self.out(self.drop(self.norm(self.dense(x), training=training), training=training))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"own": loss}

    def get_config(self):
        return {"width": self.width}


class TestModels:
    def test_a_step_of_the_users_own(self):
        model = Own()
        model.compile("adam", "mse")
        est = make(model)
        assert set(est.fit((X, Y), 2, 8, verbose=0)) == {"train_own"}
        assert set(est.evaluate((X, Y), verbose=0)) == {"validation_loss"}
        assert est.predict(X).shape == (37, 1)
        assert float(np.abs(est.get_model().norm.moving_mean).sum()) > 0

    def test_an_optimizer_of_orca(self):
        def keras_sgd(config):
            model = seeded()
            model.compile(keras.optimizers.SGD(0.05), "mse")
            return model

        gang = make()._gang
        est = TensorFlow2Estimator(KerasRecipe(make_model, dict(IN_ORDER), optimizer=SGD(0.05)), gang, None)
        est.fit((X, Y), 2, 8, verbose=0)
        expected = keras_sgd({})
        expected.fit(X, Y, 8, 2, shuffle=False, verbose=0)
        assert_close(est.get_model(), expected)
        assert est.result_.history["train_loss"].is_monotonic_decreasing

    def test_moving_averages_of_weights_end_a_fit(self):
        def creator(config):
            model = make_model(config)
            model.compile(keras.optimizers.Adam(0.05, use_ema=True, ema_momentum=0.5), "mse")
            return model

        est = make(creator)
        est.fit((X, Y), 2, 8, verbose=0)
        expected = seeded(creator)
        expected.fit(X, Y, 8, 2, shuffle=False, verbose=0)
        assert_close(est.get_model(), expected)

    def test_embeddings_and_a_sum(self):
        """Gradients of embeddings are sparse, and a loss may be a sum."""
        codes = RANDOM.integers(5, size=(37, 2))

        def creator(config):
            layers = [keras.Input((2,)), keras.layers.Embedding(5, 3), keras.layers.Flatten(), keras.layers.Dense(1)]
            model = keras.Sequential(layers)
            optimizer = keras.optimizers.Adam(0.1) if config.get("adam") else keras.optimizers.SGD(0.01)
            model.compile(optimizer, keras.losses.MeanSquaredError(reduction="sum"))
            return model

        est = make(creator)
        est.fit((codes, Y), 2, 8, verbose=0)
        expected = seeded(creator)
        expected.fit(codes, Y, 8, 2, shuffle=False, verbose=0)
        assert_close(est.get_model(), expected)
        one, two = (make(creator, config=IN_ORDER | {"adam": True}, num_workers=workers) for workers in (1, 2))
        for each in (one, two):
            each.fit((codes, Y), 2, 8, verbose=0)
        assert_close(one.get_model(), two.get_model())

    def test_a_sum_and_a_penalty_do_not_go_together(self):
        def creator(config):
            penalty = keras.regularizers.L2(0.01)
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_regularizer=penalty)])
            model.compile("sgd", keras.losses.MeanSquaredError(reduction="sum"))
            return model

        with pytest.raises(NotOfferedError, match="sum_over_batch_size"):
            make(creator).fit((X, Y), 1, 8, verbose=0)

    def test_without_weights_and_uncompiled_it_predicts(self):
        def creator(config):
            return keras.Sequential([keras.Input((4,)), keras.layers.Rescaling(2.0)])

        np.testing.assert_allclose(make(creator).predict(X), 2 * X)

    def test_compile_arguments_of_their_own_creator(self):
        def creator(config):
            return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])

        def arguments(config):
            return {"optimizer": keras.optimizers.SGD(config["rate"]), "loss": "mse"}

        options = {"compile_args_creator": arguments, "config": {"rate": 0.1} | IN_ORDER}
        est = make(creator, backend="horovod", **options)
        est.fit((X, Y), 2, 8, verbose=0)
        expected = seeded(creator)
        expected.compile(**arguments({"rate": 0.1}))
        expected.fit(X, Y, 8, 2, shuffle=False, verbose=0)
        assert_close(est.get_model(), expected)


@keras.saving.register_keras_serializable(package="tests")
class Pair(keras.Model):
    """Two parts, each with an optimizer of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.left, self.right = keras.layers.Dense(1), keras.layers.Dense(1)

    def compile(self):
        super().compile()
        self.of_left, self.of_right = keras.optimizers.Adam(0.05), keras.optimizers.Adam(0.01)

    def call(self, x):
        return self.left(x) + self.right(x)

    def train_step(self, data):
        x, y = data
        for part, optimizer in ((self.left, self.of_left), (self.right, self.of_right)):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x) - y) ** 2)
            gradients = tape.gradient(loss, part.trainable_variables)
            optimizer.apply_gradients(zip(gradients, part.trainable_variables, strict=True))
        return {"loss": loss}


def make_pair(config):
    model = Pair()
    model.compile()
    return model


class TestAlone:
    """What one estimator does to Keras, another one does not see."""

    def test_names_are_the_same_in_every_call(self):
        def creator(config):
            model = make_model(config)
            model.compile("sgd", "mse", metrics=[keras.metrics.MeanSquaredLogarithmicError()])
            return model

        data = (X, np.abs(Y))
        make(creator, num_workers=1).fit(data, 1, 8, verbose=0)
        for _ in range(2):
            est = make(creator)
            names = [*est.fit(data, 1, 8, verbose=0), *est.evaluate(data, verbose=0)]
            name = "mean_squared_logarithmic_error"
            assert names == ["train_loss", f"train_{name}", "validation_loss", f"validation_{name}"]

    def test_a_policy_stays_with_its_model(self):
        def half(config):
            keras.config.set_dtype_policy("mixed_bfloat16")
            return make_model(config)

        def asking(config):
            model = make_model(config)
            assert keras.config.dtype_policy().name == "float32", keras.config.dtype_policy()
            return model

        make(half).fit((X, Y), 1, 8, verbose=0)
        make(asking).fit((X, Y), 1, 8, verbose=0)

    def test_several_optimizers(self):
        one, two, twice = make(make_pair, num_workers=1), make(make_pair), make(make_pair)
        one.fit((X, Y), 2, 8, verbose=0)
        two.fit((X, Y), 2, 8, verbose=0)
        for _ in range(2):
            twice.fit((X, Y), 1, 8, verbose=0)
        assert_close(two.get_model(), one.get_model())
        assert_close(twice.get_model(), two.get_model(), rtol=0)

    def test_lengths_that_vary_are_traced_once_more(self):
        traced = []

        def creator(config):
            class Counting(keras.layers.Layer):
                def call(self, x):
                    traced.append(x.shape)
                    return keras.ops.sum(x, axis=1, keepdims=True)

            layer = Counting()
            model = keras.Sequential([keras.Input((None,)), layer, keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            model.traced = traced
            return model

        from zoo.orca.feed.base import Share
        from zoo.orca.feed.taste import Alone
        from zoo.orca.learn.sync.solo import SoloGroup
        from zoo.orca.learn.tf2.learner import KerasLearner

        learner = KerasLearner(KerasRecipe(creator), Alone(), SoloGroup(), None)
        learner.start_epoch(0)
        before = None
        for length in range(3, 12):
            share = Share((X[:4, :1].repeat(length, axis=1), Y[:4]), 4, 4)
            learner.train_epoch([learner.take(share)], {})
            before = before or (len(traced) if length == 4 else None)
        learner.close()
        assert len(traced) == before


class TestStates:
    def test_the_end_holds_what_callbacks_put_back(self, tmp_path):
        stopping = keras.callbacks.EarlyStopping(monitor="loss", mode="max", patience=1, restore_best_weights=True)
        est = make(model_dir=str(tmp_path))
        est.fit((X, Y), 4, 8, callbacks=[stopping], verbose=0)
        assert stopping.best_epoch == 0
        assert_close(make().load(str(tmp_path)).get_model(), est.get_model(), rtol=0)

    def test_save_and_load_go_on(self, tmp_path):
        est = make()
        est.fit((X, Y), 1, 8, verbose=0)
        path = est.save(str(tmp_path / "state"))
        again = make().load(path)
        assert again.fit((X, Y), 1, 8, verbose=0) == est.fit((X, Y), 1, 8, verbose=0)
        assert_close(again.get_model(), est.get_model(), rtol=0)

        def other(config):
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
            model.compile("sgd", "mse")
            return model

        with pytest.raises(CheckpointError, match="another model"):
            make(other).load(path)

    def test_both_frameworks_take_turns(self):
        net = torch.nn.Linear(4, 1)
        other = TorchEstimator.from_torch(
            model=net, optimizer=torch.optim.SGD(net.parameters(), 0.1), loss=torch.nn.MSELoss(), num_workers=2
        )
        one, two = make(), make(lambda config: make_model({"rate": 0.01}))
        for _ in range(2):
            other.fit((X, Y), epochs=1)
            one.fit((X, Y), 1, 8, verbose=0)
            two.fit((X, Y), 1, 8, verbose=0)
        expected = seeded()
        expected.fit(X, Y, 8, 2, shuffle=False, verbose=0)
        assert_close(one.get_model(), expected)


class TestCheck:
    def test_a_batch_is_tried(self):
        report = make().check((X, Y), 8, validation_data=(X, Y))
        assert report.ok
        assert "32 rows went forward and backward, the loss is" in str(report)
        assert "keras 3." in str(report)

    def test_what_fit_would_raise(self):
        report = make().check((X[:, :3], Y), 8)
        with pytest.raises(BatchError, match="cannot take the rows of data"):
            report.raise_first()


class TestBadInput:
    def test_what_is_no_model(self):
        with pytest.raises(InvalidArgumentError, match="model_creator must be a function"):
            make(3)
        with pytest.raises(InvalidArgumentError, match=r"must return a keras\.Model, but returned a builtins\.int"):
            make(lambda config: 3).fit((X, Y), verbose=0)
        with pytest.raises(PreconditionError, match="must not hold batch_size"):
            make(config={"batch_size": 3})
        with pytest.raises(InvalidArgumentError, match="backend must be one of 'tf2'"):
            make(backend="bigdl")

    def test_a_model_that_is_not_compiled(self):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        with pytest.raises(PreconditionError, match=r"not compiled.*model\.compile"):
            make(model).fit((X, Y), verbose=0)
        with pytest.raises(PreconditionError, match=r"not compiled.*model\.compile"):
            make(lambda config: keras.Sequential([keras.layers.Dense(1)])).fit((X, Y), verbose=0)

    def test_rows_that_do_not_fit(self):
        with pytest.raises(BatchError, match=r"cannot take the rows of data.*float32 \(2, 3\).*\(None, 4\)"):
            make(make_model({})).fit((X[:, :3], Y), verbose=0)

    def test_a_lambda_in_a_model(self):
        model = make_model({})
        model.compile("sgd", loss=lambda y, found: keras.ops.mean((y - found) ** 2))
        with pytest.raises(NotPicklableError, match=r"holds a lambda.*model_creator"):
            make(model).fit((X, Y), verbose=0)

    def test_no_whole_batch(self):
        with pytest.raises(InvalidArgumentError, match="no whole batch of 64 rows"):
            make(config={"drop_last": True}).fit((X, Y), 1, 64, verbose=0)

    def test_a_creator_that_cannot_be_sent(self):
        lock = threading.Lock()
        with pytest.raises(NotPicklableError, match="lock"):
            make(lambda config: lock).fit((X, Y), verbose=0)

    def test_a_tf_keras_model(self):
        import tf_keras

        model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
        with pytest.raises(InvalidArgumentError, match="tf_keras"):
            make(model)

    def test_data_without_an_end(self):
        rows = tf.data.Dataset.from_tensor_slices((X, Y)).repeat()

        def creator(config, batch_size):
            return tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(batch_size)

        for endless in (rows, rows.batch(8), creator):
            with pytest.raises(PreconditionError, match=r"repeats without end.*Pass steps_per_epoch"):
                make().fit(endless, verbose=0)
        with pytest.raises(PreconditionError, match=r"validation_data is a dataset.*Pass validation_steps"):
            make().fit(rows, validation_data=rows, steps_per_epoch=2, verbose=0)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("steps_per_epoch", 0), ("validation_steps", -1), ("validation_freq", 0), ("class_weight", [1, 2])],
    )
    def test_arguments(self, name, value):
        with pytest.raises(InvalidArgumentError, match=name):
            make().fit((X, Y), validation_data=(X, Y), **{name: value})
