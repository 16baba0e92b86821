"""Trains tf_keras models in graph mode, which a process must choose for itself, and prints what it saw."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from learning import CLASSES, Rows, global_batches
from zoo.orca.data import XShards
from zoo.orca.learn.optimizers import SGD
from zoo.orca.learn.tf.estimator import Estimator
from zoo.orca.learn.tf2.quiet import start_here
from zoo.orca.learn.trigger import EveryEpoch

ROWS = Rows(16)
BATCH = 8


def make_model(keras: Any, optimizer: Any, norm: bool = False, metrics: Any = ("accuracy",)) -> Any:
    layers = [keras.layers.BatchNormalization()] if norm else []
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(6, activation="tanh", kernel_initializer=keras.initializers.RandomNormal(seed=1)),
            *layers,
            keras.layers.Dense(
                CLASSES, activation="softmax", kernel_initializer=keras.initializers.RandomNormal(seed=2)
            ),
        ]
    )
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=list(metrics))
    return model


def close(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, expected, strict=True))


def main(folder: Path) -> dict[str, Any]:
    tf = start_here()
    tf.compat.v1.disable_eager_execution()
    import tf_keras as keras
    from tf_keras.api._v1.keras.backend import get_session

    def decaying() -> Any:
        return keras.optimizers.legacy.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5), clipnorm=0.5)

    seen: dict[str, Any] = {}
    model, plain = make_model(keras, decaying()), make_model(keras, decaying())
    data = (ROWS.x, ROWS.classes)
    shards = XShards.partition({"x": ROWS.x, "y": ROWS.classes}, 1)
    est = Estimator.from_keras(model, model_dir=str(folder / "runs"), num_workers=2)
    before = est.evaluate(data, batch_size=5)
    seen["evaluates before fit"] = [before, model.evaluate(*data, verbose=0)]
    assert est.fit(shards, 1, BATCH) is est
    for batch in global_batches((16,), BATCH):
        plain.train_on_batch(ROWS.x[batch], ROWS.classes[batch])
    seen["is the model"] = est.get_model() is model
    seen["equals plain Keras"] = close(model.get_weights(), plain.get_weights())
    seen["iterations"] = int(get_session().run(model.optimizer.iterations))
    est.fit(data, 2, BATCH, validation_data=data, checkpoint_trigger=EveryEpoch())
    seen["evaluates"] = [est.evaluate(data), model.evaluate(*data, verbose=0)]
    seen["predicts"] = bool(np.allclose(est.predict(ROWS.x), model.predict(ROWS.x), atol=1e-6))
    seen["rates"] = [value for _, value, _ in est.get_train_summary("LearningRate")]
    seen["summaries"] = [len(est.get_validation_summary(tag)) for tag in ("Loss", "Top1Accuracy")]

    est.save(str(folder / "model"))
    again = Estimator.load_keras_model(str(folder / "model"), num_workers=2)
    seen["loaded"] = close(again.get_model().get_weights(), model.get_weights())
    trained = model.get_weights()
    est.save_keras_weights(str(folder / "weights.h5"))
    for by_name in (False, True):
        model.set_weights(plain.get_weights())
        est.load_keras_weights(str(folder / "weights.h5"), by_name)
        seen[f"weights, by name: {by_name}"] = close(model.get_weights(), trained)
    model.set_weights(plain.get_weights())
    est.load_orca_checkpoint(str(folder / "runs"))
    seen["checkpoint"] = close(model.get_weights(), trained)

    normed = make_model(keras, "sgd", norm=True, metrics=("mae",))
    with_orca = Estimator.from_keras(normed, optimizer=SGD(0.1), num_workers=2)
    with_orca.set_l2_norm_gradient_clipping(0.5)
    moving = normed.get_weights()[4]
    with_orca.fit(data, 2, BATCH)
    seen["statistics move"] = not np.allclose(normed.get_weights()[4], moving)
    seen["names"] = sorted(with_orca.evaluate(data))
    for name, optimizer in (("named", "rmsprop"), ("wrapped", tf.compat.v1.train.GradientDescentOptimizer(0.1))):
        other = make_model(keras, optimizer)
        Estimator.from_keras(other, num_workers=2).fit(data, 1, BATCH)
        seen[f"{name} iterations"] = int(get_session().run(other.optimizer.iterations))
    seen["errors"] = errors_of(keras, folder, est)
    return seen


def errors_of(keras: Any, folder: Path, est: Any) -> list[str]:
    uncompiled = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    acts = [
        lambda: Estimator.from_keras(uncompiled).fit((ROWS.x, ROWS.x[:, 0])),
        lambda: Estimator.from_keras(make_model(keras, keras.optimizers.Adam())),
        lambda: Estimator.from_keras(keras.Sequential([keras.layers.Dense(1)])),
        lambda: Estimator.from_keras(uncompiled, optimizer="adam"),
        lambda: est.save_keras_model(str(folder / "model.keras")),
        lambda: est.set_constant_gradient_clipping(2, 1),
    ]
    messages = []
    for act in acts:
        try:
            act()
        except Exception as error:
            messages.append(f"{type(error).__name__}: {error}")
        else:
            messages.append("nothing was raised")
    return messages


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1])), default=float))
