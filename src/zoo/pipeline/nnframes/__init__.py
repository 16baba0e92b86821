"""NNFrames: models of BigDL and PyTorch as stages of Spark ML, and the names that its star import always brought."""

from __future__ import annotations

from bigdl.util import common
from zoo.orca.names import public_names
from zoo.orca.optional import require

require("pyspark", "NNFrames")
require("torch", "NNFrames")

from zoo.pipeline.nnframes.nn_classifier import (  # noqa: E402 - says first what is missing
    NNClassifier,
    NNClassifierModel,
    NNEstimator,
    NNModel,
)
from zoo.pipeline.nnframes.nn_image_reader import NNImageReader  # noqa: E402
from zoo.pipeline.nnframes.nn_image_schema import with_origin_column  # noqa: E402

__all__ = [
    "NNClassifier",
    "NNClassifierModel",
    "NNEstimator",
    "NNImageReader",
    "NNModel",
    "with_origin_column",
    *common.__all__,
]


# Existing code counts on the star import for these.
__getattr__ = common.brought_along(__name__)

__dir__ = public_names(globals(), common.__all__)
