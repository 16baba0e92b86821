"""OpenVINO on every engine: `Estimator.from_openvino` and `Estimator.from_onnx` predict with a model file."""

from __future__ import annotations

from zoo.orca.learn.openvino.estimator import Estimator, OpenVINOEstimator
from zoo.orca.names import public_names

__all__ = ["Estimator", "OpenVINOEstimator"]

__dir__ = public_names(globals())
