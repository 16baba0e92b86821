"""`est.export` of Keras estimators: to OpenVINO by TensorFlow, to all else by the same model on torch."""

from __future__ import annotations

import logging

import numpy as np
import onnxruntime
import pytest

from zoo.orca.errors import NotOfferedError
from zoo.orca.learn.openvino import Estimator as ServingEstimator
from zoo.orca.learn.tf2 import Estimator
from zoo.orca.learn.tf2.exported import KerasOriginal

pytestmark = pytest.mark.engines("local")

RANDOM = np.random.default_rng(3)
X = RANDOM.random((60, 8, 8, 1))
Y = (X.mean(axis=(1, 2, 3)) > 0.5).astype(np.int64)


def convolutional(config):
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    return model


def two_of_each(config):
    import keras

    class Bent(keras.layers.Layer):
        def call(self, x):
            return keras.ops.tanh(x) * 2

    class Squared(keras.layers.Layer):
        """Of TensorFlow, which Keras on torch cannot follow."""

        def call(self, x):
            import tensorflow as tf

            return tf.math.square(x)

    zeta, alpha = keras.Input((4,), name="zeta"), keras.Input((3,), name="alpha")
    bent = Squared()(zeta) if config["of_tensorflow"] else Bent()(zeta)
    first = keras.layers.Dense(2)(keras.layers.Concatenate()([bent, alpha]))
    return keras.Model([zeta, alpha], [first, keras.layers.Dense(1)(zeta)])


@pytest.fixture(scope="module")
def trained():
    est = Estimator.from_keras(model_creator=convolutional)
    est.fit((X, Y), epochs=2, batch_size=20)
    return est


def test_openvino_predicts_what_keras_does(trained, tmp_path, engine, capfd):
    report = trained.export("openvino", str(tmp_path / "model"), int8=X)
    assert report.agreement.within(1e-5)
    assert (report.int8.before, report.int8.loss) == ({}, {})
    assert report.int8.same_choice > 0.9
    assert report.int8.agreement.relative < 0.1
    report = trained.export("openvino", str(tmp_path / "model"), overwrite=True)
    assert (str(report.inputs[0]), report.by) == ("input: float32 (?, 8, 8, 1)", "TensorFlow")
    served = ServingEstimator.from_openvino(model_path=report.path)
    np.testing.assert_allclose(served.predict(X), trained.predict(X), atol=1e-5)
    assert capfd.readouterr().out == ""


def test_onnx_by_keras_on_torch(tmp_path, engine):
    est = Estimator.from_keras(model_creator=two_of_each, config={"of_tensorflow": False})
    x = [RANDOM.random((9, 4)), RANDOM.random((9, 3))]
    report = est.export("onnx", str(tmp_path / "model"), sample=x)
    assert report.by == "Keras on torch, torch.export"
    session = onnxruntime.InferenceSession(report.path)
    for rows in (1, 9):
        some = [each[:rows].astype(np.float32) for each in x]
        found = session.run(None, dict(zip(["zeta", "alpha"], some, strict=True)))
        for mine, wanted in zip(found, est.predict({"x": some}), strict=True):
            np.testing.assert_allclose(mine, wanted, atol=1e-5)


def test_several_inputs_in_any_order(tmp_path, engine):
    x = {"zeta": RANDOM.random((9, 4), np.float32), "alpha": RANDOM.random((9, 3), np.float32)}
    est = Estimator.from_keras(model_creator=two_of_each, config={"of_tensorflow": True})
    expected = est.predict(x)
    for sample in (x, [x["zeta"], x["alpha"]]):
        report = est.export("openvino", str(tmp_path / "model"), sample=sample, overwrite=True)
        assert sorted(each.name for each in report.inputs) == ["alpha", "zeta"]
        found = ServingEstimator.from_openvino(model_path=report.path).predict(x)
        for mine, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, wanted, atol=1e-5)
    with pytest.raises(NotOfferedError, match=r"made of keras\.ops.*openvino"):
        est.export("torchscript", str(tmp_path / "model"), sample=x)
    assert not (tmp_path / "model.pt").exists()


def recurrent(config):
    import keras

    layers = [keras.Input((2, 3)), keras.layers.SimpleRNN(2), keras.layers.Dense(1, dtype="mixed_float16")]
    return keras.Sequential(layers)


def test_what_tensorflow_cannot_write_goes_by_torch(tmp_path, engine, monkeypatch):
    tried = []

    def by_torch(self, format, path, rows, half):
        tried.append((format, half, self.tolerance))
        raise NotOfferedError("torch cannot, either")

    level = logging.getLogger().level
    monkeypatch.setattr(KerasOriginal, "_write_by_torch", by_torch)
    est = Estimator.from_keras(model_creator=recurrent)
    with pytest.raises(NotOfferedError, match="cannot be written as openvino: OpConversionFailure: "):
        est.export("openvino", str(tmp_path / "model"), sample=RANDOM.random((5, 2, 3)), half=True)
    assert tried == [("openvino", True, 2e-2)]
    assert logging.getLogger().level == level  # which OpenVINO's converter sets to ERROR


def test_models_of_other_estimators(tmp_path, engine):
    import keras

    from zoo.orca.learn.tf.estimator import Estimator as GraphEstimator

    class Own(keras.Model):
        def __init__(self, **options):
            super().__init__(**options)
            self.layer = keras.layers.Dense(2)

        def call(self, x):
            return self.layer(x)

    x = X.reshape(60, 64)
    model = Own()
    model.compile(optimizer="sgd", loss="mse")
    est = GraphEstimator.from_keras(model)
    est.fit((x, x[:, :2]), epochs=1, batch_size=20)
    report = est.export("openvino", str(tmp_path / "model"))
    found = ServingEstimator.from_openvino(model_path=report.path).predict(x)
    np.testing.assert_allclose(found, model.predict(x, verbose=0), atol=1e-5)
