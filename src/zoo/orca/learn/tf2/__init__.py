"""Keras 3 on every engine: `Estimator.from_keras(model_creator=...)`."""

from zoo.orca.learn.tf2.estimator import Estimator, TensorFlow2Estimator
from zoo.orca.names import public_names

__all__ = ["Estimator", "TensorFlow2Estimator"]

__dir__ = public_names(globals())
