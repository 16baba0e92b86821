"""What the estimators have that return statistics of their workers."""

from __future__ import annotations

from zoo.orca.learn.base_estimator import BaseEstimator


class Estimator(BaseEstimator):
    """An estimator whose `fit` returns the workers' statistics; see the framework's own for how to make one."""
