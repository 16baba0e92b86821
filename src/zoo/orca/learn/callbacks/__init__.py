"""Callbacks: what else to do while an estimator trains, for every framework, engine and backend.

>>> from zoo.orca.learn.callbacks import EarlyStopping, LRMonitor
>>> callbacks = [EarlyStopping(patience=2), LRMonitor()]
"""

from __future__ import annotations

from zoo.orca.learn.callbacks.base import Callback, Callbacks, Run
from zoo.orca.learn.callbacks.figures import LRMonitor, Throughput
from zoo.orca.learn.callbacks.mlflow import MLflow
from zoo.orca.learn.callbacks.monitor import EarlyStopping, ModelCheckpoint, Monitor
from zoo.orca.learn.callbacks.progress import Progress
from zoo.orca.learn.callbacks.tensorboard import TensorBoard
from zoo.orca.names import public_names

__all__ = [
    "Callback",
    "Callbacks",
    "EarlyStopping",
    "LRMonitor",
    "MLflow",
    "ModelCheckpoint",
    "Monitor",
    "Progress",
    "Run",
    "TensorBoard",
    "Throughput",
]

__dir__ = public_names(globals())
