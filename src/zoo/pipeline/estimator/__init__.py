"""The estimator of BigDL models and FeatureSets."""

from zoo.pipeline.estimator.estimator import Estimator

__all__ = ["Estimator"]
