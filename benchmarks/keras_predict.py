"""A Keras model with the layers and the weights of the PyTorch one of `predict.py`, for the `predict-keras` rows."""

from __future__ import annotations

from typing import Any

from benchmarks import predict
from benchmarks.learn_data import CLASSES, FEATURES, PIXELS, WIDTH
from benchmarks.ranks import WORKERS


def make_estimator(kind: predict.Kind, by_columns: bool) -> Any:
    """Ours; where rows come as columns, each is an input of the model's."""
    from zoo.orca.learn.tf2 import Estimator

    config = {"kind": kind, "by_columns": by_columns}
    return Estimator.from_keras(model_creator=create_model, config=config, num_workers=WORKERS)


def create_model(config: dict[str, Any]) -> Any:
    """The torch model's weights, turned, in layers of Keras."""
    import keras

    is_scalar = config["kind"] == "columns"
    if is_scalar and config["by_columns"]:
        inputs = [keras.Input((), name=name) for name in FEATURES]
        rows = keras.ops.stack(inputs, axis=1)
    else:
        inputs = rows = keras.Input((WIDTH if is_scalar else PIXELS,))
    widths, last = ((64, 64, 1), "sigmoid") if is_scalar else ((256, CLASSES), "softmax")
    layers = [keras.layers.Dense(width, activation="relu") for width in widths[:-1]]
    layers.append(keras.layers.Dense(widths[-1], activation=last))
    for layer in layers:
        rows = layer(rows)
    model = keras.Model(inputs, keras.ops.squeeze(rows, axis=-1) if is_scalar else rows)
    weights = [each.detach().numpy() for each in predict.create_model(config).parameters()]
    for layer, place in zip(layers, range(0, len(weights), 2), strict=True):
        layer.set_weights([weights[place].T, weights[place + 1]])
    return model
