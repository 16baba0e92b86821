"""Models for prediction alone."""

from __future__ import annotations

from zoo.orca.names import public_names
from zoo.pipeline.inference.inference_model import InferenceModel

__all__ = ["InferenceModel"]

__dir__ = public_names(globals())
