"""The estimator of BigDL models and FeatureSets."""

from zoo.orca.names import public_names
from zoo.pipeline.estimator.estimator import Estimator

__all__ = ["Estimator"]

__dir__ = public_names(globals())
