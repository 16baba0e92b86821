"""TensorFlow graphs as layers and trainers: the names of `zoo.tfpark`, where older documents look for them."""

from __future__ import annotations

from zoo.tfpark import TFDataset, TFNet, TFOptimizer, TFPredictor

__all__ = ["TFDataset", "TFNet", "TFOptimizer", "TFPredictor"]
