"""TFPark: TensorFlow graphs and Keras models, trained and run where the rows of a TFDataset lie."""

from __future__ import annotations

from zoo.orca.names import public_names
from zoo.tfpark.estimator import TFEstimator
from zoo.tfpark.model import KerasModel
from zoo.tfpark.tf_dataset import TFDataset
from zoo.tfpark.tf_optimizer import TFOptimizer
from zoo.tfpark.tf_predictor import TFPredictor
from zoo.tfpark.tfnet import TFNet
from zoo.tfpark.zoo_optimizer import ZooOptimizer

__all__ = ["KerasModel", "TFDataset", "TFEstimator", "TFNet", "TFOptimizer", "TFPredictor", "ZooOptimizer"]

__dir__ = public_names(globals())
