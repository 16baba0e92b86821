"""Keras 3 models given to the TensorFlow 1 estimator: the model itself is trained, figures have the published names."""

from __future__ import annotations

import numpy as np
import pytest
from tf_graphs import BATCH, ROWS, placed, tf

from learning import CLASSES, Rows, global_batches
from zoo.orca.errors import InvalidArgumentError, PathExistsError, PathNotFoundError, PreconditionError
from zoo.orca.learn.optimizers import SGD
from zoo.orca.learn.tf.estimator import Estimator
from zoo.orca.learn.trigger import EveryEpoch


def make_model(seed=0, **options):
    import keras

    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(6, activation="tanh", name="one"), keras.layers.Dense(CLASSES, name="two")]
    model = keras.Sequential([keras.Input((4,)), *layers])
    given = {
        "optimizer": keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)),
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": ["accuracy"],
    }
    model.compile(**(given | options))
    return model


def same(model, weights):
    return all(np.array_equal(a, b) for a, b in zip(model.get_weights(), weights, strict=True))


@pytest.mark.engines("local")
def test_the_model_is_trained_as_keras_would(engine, tmp_path):
    rows, model, plain = Rows(ROWS), make_model(), make_model()
    data = placed(engine, rows)
    est = Estimator.from_keras(model, model_dir=str(tmp_path), num_workers=2)
    assert est.fit(data, 1, BATCH, validation_data=data, checkpoint_trigger=EveryEpoch()) is est
    sizes = [len(part[0]["x"]) for part in rows.cut((0, 5, 0, 1, 9, 2, 0))]
    for batch in global_batches(sizes, BATCH):
        plain.train_on_batch(rows.x[batch], rows.classes[batch])
    assert est.get_model() is model
    # Asked before Keras has measured anything itself.
    accuracies, losses = (est.get_validation_summary(tag) for tag in ("Top1Accuracy", "Loss"))
    for found, expected in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert int(model.optimizer.iterations) == 3
    assert [rate for _, rate, _ in est.get_train_summary("LearningRate")] == pytest.approx([0.1, 0.05, 0.025])
    measured = model.evaluate(rows.x, rows.classes, verbose=0, return_dict=True)
    expected = {"loss": pytest.approx(measured["loss"]), "acc Top1Accuracy": pytest.approx(measured["accuracy"])}
    assert est.evaluate(data, batch_size=5) == expected
    assert accuracies[-1][1] == pytest.approx(measured["accuracy"])
    assert losses[-1][1] == pytest.approx(measured["loss"])
    predicted = np.concatenate([each["prediction"] for each in est.predict(data).collect()])
    np.testing.assert_allclose(predicted, model.predict(rows.x, verbose=0), rtol=1e-4, atol=1e-5)


@pytest.mark.engines("local")
class TestKept:
    def test_files_and_checkpoints(self, engine, tmp_path):
        rows, model = Rows(ROWS), make_model()
        data, first = (rows.x, rows.classes), model.get_weights()
        est = Estimator.from_keras(model, model_dir=str(tmp_path / "runs"), num_workers=2)
        est.fit(data, 1, ROWS)
        est.fit(data, 1, ROWS)
        trained, steps = model.get_weights(), int(model.optimizer.iterations)
        assert steps == 2
        for name in ("model.h5", "model", "model.keras"):
            est.save(str(tmp_path / name))
            assert same(Estimator.load_keras_model(str(tmp_path / name)).get_model(), trained)
            model.set_weights(first)
            assert same(est.load(str(tmp_path / name)).get_model(), trained)
        for name in ("weights.h5", "weights", "my.weights.h5"):
            est.save_keras_weights(str(tmp_path / name))
            for by_name in (False, True) if name != "my.weights.h5" else (False,):
                model.set_weights(first)
                est.load_keras_weights(str(tmp_path / name), by_name)
                assert same(model, trained)
        with pytest.raises(PathExistsError, match="overwrite=True"):
            est.save_keras_model(str(tmp_path / "model"), overwrite=False)
        with pytest.raises(PathNotFoundError, match="nothing"):
            est.load_keras_weights(str(tmp_path / "nothing"))

        other = Estimator.from_keras(make_model(1), num_workers=2)
        other.load_orca_checkpoint(str(tmp_path / "runs"))
        assert same(other.get_model(), trained)
        assert int(other.get_model().optimizer.iterations) == steps
        other.fit(data, 2, ROWS)  # two epochs were done already
        assert same(other.get_model(), trained)
        other.fit(data, 3, ROWS)
        assert int(other.get_model().optimizer.iterations) == steps + 1

    def test_an_orca_optimizer_goes_on_between_fits(self, engine):
        rows = Rows(ROWS)
        ended = []
        for epochs in ((2,), (1, 1)):
            model = make_model()
            est = Estimator.from_keras(model, optimizer=SGD(0.1, momentum=0.9), num_workers=2)
            est.set_l2_norm_gradient_clipping(0.3)
            for each in epochs:
                est.fit(placed(engine, rows), each, BATCH)
            ended.append(model.get_weights())
        assert all(np.array_equal(a, b) for a, b in zip(*ended, strict=True))

    def test_a_model_that_has_no_shape_yet(self, engine):
        import keras

        rows = Rows(ROWS)
        model = keras.Sequential([keras.layers.Dense(CLASSES)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        est = Estimator.from_keras(model, num_workers=2)
        est.fit((rows.x, rows.classes), 1, BATCH)
        assert int(model.optimizer.iterations) == 3
        np.testing.assert_allclose(est.predict(rows.x), model.predict(rows.x, verbose=0), rtol=1e-4, atol=1e-5)

    def test_what_cannot_work_is_said(self, engine):
        import keras

        rows = Rows(4)
        data = (rows.x, rows.classes)
        uncompiled = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        with pytest.raises(PreconditionError, match="is not compiled"):
            Estimator.from_keras(uncompiled).fit(data)
        assert Estimator.from_keras(uncompiled).predict(rows.x).shape == (4, 1)
        with pytest.raises(InvalidArgumentError, match="keras_model must be a compiled Keras model"):
            Estimator.from_keras("model")
        with pytest.raises(InvalidArgumentError, match="optimizer must be an orca optimizer"):
            Estimator.from_keras(make_model(), optimizer="adam")
        with pytest.raises(AssertionError, match="backend"):
            Estimator.from_keras(make_model(), backend="ray")
        est = Estimator.from_keras(make_model())
        with pytest.raises(AssertionError, match="min below max"):
            est.set_constant_gradient_clipping(2.0, 1.0)
        with pytest.raises(ValueError, match="elements are batches"):
            est.fit(tf.data.Dataset.from_tensor_slices(data).batch(2))
        with pytest.raises(AssertionError, match=r"got a tf\.data\.Dataset"):
            est.predict(tf.data.Dataset.from_tensor_slices(data))
