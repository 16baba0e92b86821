"""KerasModel: Keras 3 and tf_keras in graph mode, in this process and over all workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from bigdl.optim.optimizer import SGD, MaxEpoch, MaxIteration
from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.learn.records import Records
from zoo.tfpark import KerasModel, TFDataset, TFOptimizer, TFPredictor

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 4)).astype(np.float32)
Y = (X.sum(axis=1) > 0).astype(np.int32)

pytestmark = pytest.mark.engines("local")


def classifier():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(2, "softmax")])
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def two_by_two():
    a, b = keras.Input((4,), name="a"), keras.Input((2,), name="b")
    both = keras.layers.Concatenate()([a, b])
    outputs = [keras.layers.Dense(1, name="one")(both), keras.layers.Dense(2, name="two")(both)]
    model = keras.Model([b, a], outputs)  # not in the order of their names
    model.compile("sgd", "mse")
    return model


def moved(before, after):
    return [not np.array_equal(one, other) for one, other in zip(before, after, strict=True)]


def test_fit_evaluate_predict(engine):
    model = KerasModel(classifier())
    before = model.get_weights()
    model.fit(TFDataset.from_ndarrays((X, Y), batch_size=8, val_tensors=(X, Y)), epochs=2)
    assert all(moved(before, model.get_weights()))
    after = model.get_weights()
    model.fit(X, Y, batch_size=8, epochs=1, validation_data=(X, Y), distributed=True)
    assert all(moved(after, model.get_weights()))
    history = model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2

    here = model.evaluate(X, Y)
    assert here.keys() == set(model.metrics_names) == {"loss", "accuracy"}
    for there in (
        model.evaluate(X, Y, distributed=True),
        model.evaluate(TFDataset.from_ndarrays((X, Y), batch_per_thread=3)),
    ):
        assert there == {
            "loss": pytest.approx(here["loss"], abs=1e-3),
            "acc Top1Accuracy": pytest.approx(here["accuracy"], abs=1e-3),
        }
    expected = model.predict(X)
    np.testing.assert_allclose(model.predict(X, distributed=True), expected, rtol=1e-5)
    records = Records.of(list(zip(X, Y, strict=True)), 1)
    pair = {"features": ("float32", [4]), "labels": ("int32", [])}
    found = model.predict(TFDataset.from_rdd(records, **pair, batch_per_thread=7))
    np.testing.assert_allclose(found.collect(), expected, rtol=1e-5)
    again = TFPredictor.from_keras(model.model, TFDataset.from_rdd(records, **pair, batch_per_thread=7)).predict()
    np.testing.assert_allclose(again.collect(), expected, rtol=1e-5)


def test_several_inputs_and_outputs_by_order_and_by_name(engine):
    model = KerasModel(two_by_two())
    one, two = X.sum(axis=1, keepdims=True), X[:, 2:]
    model.fit({"a": X, "b": X[:, :2]}, {"two": two, "one": one}, batch_size=8, distributed=True)
    here = model.evaluate([X[:, :2], X], [one, two])
    there = model.evaluate([X[:, :2], X], [one, two], distributed=True)
    by_name = TFDataset.from_ndarrays(({"a": X, "b": X[:, :2]}, {"one": one, "two": two}), batch_per_thread=5)
    assert here["loss"] == pytest.approx(there["loss"], abs=1e-3)
    assert model.evaluate(by_name)["loss"] == pytest.approx(here["loss"], abs=1e-3)
    expected = model.predict([X[:, :2], X])
    records = Records.of([{"a": x, "b": x[:2]} for x in X], 1)
    pairs = {"a": ("float32", [4]), "b": ("float32", [2])}
    found = model.predict(TFDataset.from_rdd(records, features=pairs, batch_per_thread=7)).collect()
    for row, first, second in zip(found, *expected, strict=True):
        np.testing.assert_allclose(row[0], first, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(row[1], second, rtol=1e-4, atol=1e-5)
    with pytest.raises(AssertionError, match="model_target number does not match data number"):
        model.fit([X[:, :2], X], one, batch_size=8, distributed=True)
    with pytest.raises(AssertionError, match="model_input number does not match data number"):
        model.predict(X, distributed=True)
    with pytest.raises(AssertionError, match="all model_input names should exist in data, but a is not among b, c"):
        model.predict({"b": X[:, :2], "c": X}, distributed=True)


def test_tf_optimizer_of_keras(engine, tmp_path):
    model = classifier()
    dataset = TFDataset.from_ndarrays((X, Y), batch_size=8)
    optimizer = TFOptimizer.from_keras(model, dataset, model_dir=str(tmp_path))
    before = optimizer.tf_model.training_helper_layer.get_weights()
    optimizer.optimize(MaxEpoch(1))
    trained = optimizer.tf_model.training_helper_layer.get_weights()
    assert all(moved(before, trained))
    optimizer.optimize(MaxEpoch(1))
    assert not any(moved(trained, optimizer.tf_model.training_helper_layer.get_weights()))
    optimizer.optimize(MaxIteration(6))
    assert int(model.optimizer.iterations) == 6
    again = TFOptimizer.from_keras(classifier(), dataset, model_dir=str(tmp_path))
    again.load_checkpoint(str(tmp_path), 6)
    assert not any(moved(trained, again.tf_model.training_helper_layer.get_weights()))
    with pytest.raises(NotOfferedError, match="has no session"):
        _ = optimizer.sess
    still = TFOptimizer.from_keras(classifier(), dataset, optimizer=SGD(0.0))
    before = still.tf_model.training_helper_layer.get_weights()
    still.optimize()
    assert not any(moved(before, still.tf_model.training_helper_layer.get_weights()))


def test_names_of_metrics_before_and_after_a_fit_on_workers(engine):
    model = KerasModel(classifier())
    assert model.metrics_names == ["loss", "accuracy"]
    model.fit(TFDataset.from_ndarrays((X, Y), batch_size=8), validation_data=(X, Y))
    assert model.metrics_names == ["loss", "accuracy"]
    assert model.evaluate(X, Y).keys() == {"loss", "accuracy"}
    heads = two_by_two()
    heads.compile("sgd", "mse", metrics={"one": ["mae"], "two": ["mae", "mse"]})
    names = KerasModel(heads).metrics_names
    heads.test_on_batch([X[:, :2], X], [Y, X[:, 2:]])
    assert set(names) <= set(KerasModel(heads).metrics_names)
    assert {"loss", "one_mae", "two_mae", "two_mse"} <= set(names)


def test_validation_data_beside_a_dataset_is_measured(engine):
    model, dataset = KerasModel(classifier()), TFDataset.from_ndarrays((X, Y), batch_size=8)
    for given in ((X[:8], Y[:8]), TFDataset.from_ndarrays((X[:8], Y[:8]), batch_per_thread=2)):
        model.fit(dataset, validation_data=given)
        expected = model.evaluate(X[:8], Y[:8])["loss"]
        assert model._estimator.result_.history["val_loss"].iloc[-1] == pytest.approx(expected, abs=1e-4)
    with pytest.raises(InvalidArgumentError, match="validation data of its own"):
        model.fit(TFDataset.from_ndarrays((X, Y), batch_size=8, val_tensors=(X, Y)), validation_data=(X, Y))
    with pytest.raises(InvalidArgumentError, match=r"a TFDataset or arrays \(x, y\), got a ndarray"):
        model.fit(dataset, validation_data=X)


def test_datasets_without_labels_and_without_a_batch(engine):
    model = KerasModel(two_by_two())
    expected = model.predict([X[:6, :2], X[:6]])
    records = Records.of([[x[:2], x] for x in X[:6]], 1)
    for batch in ({}, {"batch_per_thread": 4}):
        dataset = TFDataset.from_rdd(records, names=["b", "a"], shapes=[[2], [4]], **batch)
        found = TFPredictor.from_keras(model.model, dataset).predict().collect()
        for output in range(2):
            np.testing.assert_allclose([row[output] for row in found], expected[output], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="batch_per_thread of TFDataset must be specified"):
        TFPredictor.from_keras(model.model, TFDataset.from_ndarrays((X, Y), batch_size=8)).predict()


def test_a_hard_coded_batch_is_evaluated(engine):
    model = KerasModel(classifier())
    here = model.evaluate(X[:7], Y[:7])
    dataset = TFDataset.from_ndarrays((X[:7], Y[:7]), batch_per_thread=2, hard_code_batch_size=True)
    assert model.evaluate(dataset)["loss"] == pytest.approx(here["loss"], abs=1e-4)


def test_weights_are_trained_ones_in_the_order_of_paths(engine):
    inputs = keras.Input((4,))
    hidden = keras.layers.BatchNormalization(name="z")(keras.layers.Dense(3, name="m")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(2, name="a")(hidden))
    model.compile("sgd", "mse")
    optimizer = TFOptimizer.from_keras(model, TFDataset.from_ndarrays((X, X[:, :2]), batch_size=8))
    shapes = [each.shape for each in optimizer.tf_model.training_helper_layer.get_weights()]
    assert shapes == [(2,), (3, 2), (3,), (4, 3), (3,), (3,)]  # a/bias, a/kernel, m/..., z/beta, z/gamma


def test_files_and_single_batches(engine, tmp_path):
    model = KerasModel(classifier())
    expected = model.predict(X)
    for name in ("model.keras", "model.h5"):
        model.save_model(str(tmp_path / name))
        np.testing.assert_allclose(KerasModel.load_model(str(tmp_path / name)).predict(X), expected, rtol=1e-5)
    model.save_weights(str(tmp_path / "weights.h5"))
    with pytest.raises(FileExistsError, match="weights"):
        model.save_weights(str(tmp_path / "weights.h5"), overwrite=False)
    model.set_weights([np.zeros_like(each) for each in model.get_weights()])
    model.load_weights(str(tmp_path / "weights.h5"))
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-5)
    np.testing.assert_allclose(model.predict_on_batch(X), expected, rtol=1e-5)
    first, later = model.test_on_batch(X, Y)[0], None
    for _ in range(20):
        later = model.train_on_batch(X, Y)[0]
    assert later < first
    with pytest.raises(NotOfferedError, match="no metrics of a Keras 3 model"):
        model.add_metric(None, "mine")


def test_what_is_missing_is_named(engine):
    model = KerasModel(classifier())
    unbatched = TFDataset.from_ndarrays((X, Y))
    for call, text in [
        (model.fit, "The batch_size of TFDataset must be specified when used in KerasModel fit."),
        (model.evaluate, "The batch_per_thread of TFDataset must be specified when used in KerasModel evaluate."),
        (model.predict, "The batch_per_thread of TFDataset must be specified when used in KerasModel predict."),
    ]:
        with pytest.raises(ValueError, match=text):
            call(unbatched)
    with pytest.raises(InvalidArgumentError, match=r"a TFDataset of \(features, labels\)"):
        model.fit(TFDataset.from_ndarrays(X, batch_size=8))
    with pytest.raises(InvalidArgumentError, match="Expected a model of Keras 3 or of tf_keras, got a str"):
        KerasModel("model")


LEGACY = """
import json, sys
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
import tf_keras
from bigdl.optim.optimizer import MaxEpoch
from zoo.orca import init_orca_context, stop_orca_context
from zoo.tfpark import KerasModel, TFDataset, TFOptimizer, TFPredictor

init_orca_context("embedded", cores=2)
x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
y = (x.sum(axis=1) > 0).astype(np.int32)
keras_model = tf_keras.Sequential(
    [tf_keras.layers.Dense(8, "relu", input_shape=(4,)), tf_keras.layers.Dense(2, "softmax")]
)
keras_model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
model = KerasModel(keras_model)
told = {}
weights = [model.get_weights()]
model.fit(TFDataset.from_ndarrays((x, y), batch_size=8, val_tensors=(x, y)), epochs=2)
weights.append(model.get_weights())
model.fit(x, y, batch_size=8, distributed=True)
weights.append(model.get_weights())
model.fit(x, y, batch_size=8, verbose=0)
weights.append(model.get_weights())
TFOptimizer.from_keras(keras_model, TFDataset.from_ndarrays((x, y), batch_size=8)).optimize(MaxEpoch(1))
weights.append(model.get_weights())
told["moved"] = [any((a != b).any() for a, b in zip(*pair)) for pair in zip(weights, weights[1:])]
told["here"] = {name: float(value) for name, value in model.evaluate(x, y).items()}
told["there"] = model.evaluate(x, y, distributed=True)
told["dataset"] = model.evaluate(TFDataset.from_ndarrays((x, y), batch_per_thread=3))
expected = model.predict(x)
told["predicted"] = [
    float(np.abs(np.asarray(found) - expected).max())
    for found in (
        model.predict(x, distributed=True),
        model.predict(TFDataset.from_ndarrays((x, y), batch_per_thread=3)).collect(),
        TFPredictor.from_keras(keras_model, TFDataset.from_ndarrays(x, batch_per_thread=3)).predict().collect(),
    )
]
model.save_model(sys.argv[1] + "/model.h5")
told["loaded"] = float(np.abs(KerasModel.load_model(sys.argv[1] + "/model.h5").predict(x) - expected).max())
stop_orca_context()
print(json.dumps(told))
"""


def test_tf_keras_in_graph_mode(tmp_path):
    """In a process of its own: graph mode is chosen for good."""
    done = subprocess.run(
        [sys.executable, "-c", LEGACY, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=Path(__file__).parent,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["moved"] == [True] * 4
    assert told["here"].keys() == {"loss", "accuracy"}
    assert told["there"] == {
        "loss": pytest.approx(told["here"]["loss"], abs=1e-3),
        "acc Top1Accuracy": pytest.approx(told["here"]["accuracy"], abs=1e-3),
    }
    assert told["dataset"] == pytest.approx(told["there"])
    assert max(told["predicted"]) < 1e-5
    assert told["loaded"] < 1e-5
