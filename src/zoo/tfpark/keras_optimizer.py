"""TFOptimizer and TFPredictor of a Keras model."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.orca.errors import NotOfferedError
from zoo.orca.learn.tf.estimator import Estimator
from zoo.orca.learn.tf2.recipe import is_keras3
from zoo.orca.learn.until import epochs_until, first_batch
from zoo.tfpark.model import KerasModel
from zoo.tfpark.tf_dataset import TFDataset
from zoo.tfpark.tf_optimizer import TFOptimizer
from zoo.tfpark.tf_predictor import TFPredictor


class KerasTFOptimizer(TFOptimizer):
    """Trains a compiled Keras model on a dataset of (features, labels); `TFOptimizer.from_keras` makes one."""

    def __init__(
        self,
        keras_model: Any,
        dataset: TFDataset,
        session_config: Any = None,
        model_dir: str | None = None,
        metrics: dict[str, Any] | None = None,
        optimizer: Any = None,
    ):
        dataset.need_batch_size("for training")
        self._model = keras_model
        sides = KerasModel(keras_model).columns(dataset)
        self._begin(Estimator.from_keras(keras_model, metrics, model_dir, optimizer), dataset, sides, session_config)

    def __repr__(self) -> str:
        return f"KerasTFOptimizer({self._model!r})"

    @property
    def sess(self) -> Any:
        """The session of a tf_keras model."""
        if is_keras3(self._model):
            raise NotOfferedError("A Keras 3 model has no session. Its weights are in model.get_weights().")
        return self.estimator.sess

    def set_constant_gradient_clipping(self, min_value: float, max_value: float) -> None:
        self.estimator.set_constant_gradient_clipping(min_value, max_value)

    def set_gradient_clipping_by_l2_norm(self, clip_norm: float) -> None:
        self.estimator.set_l2_norm_gradient_clipping(clip_norm)

    def _train_until(
        self, data: Any, end_trigger: Any, batch_size: int, columns: Any, validation: Any, checkpoint_trigger: Any
    ) -> None:
        epochs, stops = epochs_until(end_trigger, self.estimator._where)
        if epochs:
            self.estimator._fit_model(
                data,
                epochs,
                batch_size,
                columns,
                validation,
                checkpoint_trigger,
                self._session_config,
                callbacks=stops,
                first_batch=first_batch(self.estimator._where, batch_size),
            )

    def _weights(self) -> list[np.ndarray]:
        trained = {id(each) for each in self._model.trainable_weights}
        # In Keras 3 `name` is that of the weight within its layer alone.
        named = [
            (getattr(weight, "path", weight.name), value)
            for weight, value in zip(self._model.weights, self._model.get_weights(), strict=True)
            if id(weight) in trained
        ]
        return [value for _, value in sorted(named, key=lambda pair: pair[0])]


class KerasTFPredictor(TFPredictor):
    """Predicts with a Keras model for the features of a dataset; `TFPredictor.from_keras` makes one."""

    def __init__(self, keras_model: Any, dataset: TFDataset):
        self._keras = KerasModel(keras_model)
        self._dataset = dataset

    def __repr__(self) -> str:
        return f"KerasTFPredictor({self._keras.model!r} on {self._dataset!r})"

    def predict(self) -> Any:
        if self._dataset.has_batch:
            return self._keras.predict(self._dataset)
        return self._keras.predict_records(self._dataset, 1)
