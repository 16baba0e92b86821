"""Models for prediction alone."""

from __future__ import annotations

from zoo.pipeline.inference.inference_model import InferenceModel

__all__ = ["InferenceModel"]
