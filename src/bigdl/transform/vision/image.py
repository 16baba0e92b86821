"""Images for models: reading them, transforming them, predicting on them.

>>> import numpy as np
>>> frame = LocalImageFrame([np.full((8, 6, 3), 100.0)])
>>> chain = Pipeline([Resize(4, 4), ChannelNormalize(100.0, 90.0, 80.0), MatToTensor()])
>>> frame.transform(chain).get_image("imageTensor")[0][:, 0, 0]
array([20., 10.,  0.], dtype=float32)
"""

from __future__ import annotations

from bigdl.transform.vision.colour import (
    Brightness,
    ChannelNormalize,
    ChannelOrder,
    ChannelScaledNormalizer,
    ColorJitter,
    Contrast,
    Hue,
    PerImageNormalize,
    PixelNormalize,
    Saturation,
)
from bigdl.transform.vision.convert import (
    BytesToMat,
    ImageFrameToSample,
    MatToFloats,
    MatToTensor,
    PixelBytesToMat,
)
from bigdl.transform.vision.feature import ImageFeature
from bigdl.transform.vision.frame import DistributedImageFrame, ImageFrame, LocalImageFrame
from bigdl.transform.vision.geometry import (
    AspectScale,
    CenterCrop,
    DetectionCrop,
    Expand,
    Filler,
    FixedCrop,
    FixExpand,
    HFlip,
    Mirror,
    RandomAlterAspect,
    RandomAspectScale,
    RandomCrop,
    RandomCropper,
    RandomResize,
    Resize,
)
from bigdl.transform.vision.predicted import predict_frame
from bigdl.transform.vision.roi import RoiHFlip, RoiLabel, RoiNormalize, RoiProject, RoiResize
from bigdl.transform.vision.transformer import FeatureTransformer, Pipeline, RandomTransformer
from bigdl.util import common as _bigdl
from zoo.orca.names import public_names

__all__ = [
    "AspectScale",
    "Brightness",
    "BytesToMat",
    "CenterCrop",
    "ChannelNormalize",
    "ChannelOrder",
    "ChannelScaledNormalizer",
    "ColorJitter",
    "Contrast",
    "DetectionCrop",
    "DistributedImageFrame",
    "Expand",
    "FeatureTransformer",
    "Filler",
    "FixExpand",
    "FixedCrop",
    "HFlip",
    "Hue",
    "ImageFeature",
    "ImageFrame",
    "ImageFrameToSample",
    "LocalImageFrame",
    "MatToFloats",
    "MatToTensor",
    "Mirror",
    "PerImageNormalize",
    "Pipeline",
    "PixelBytesToMat",
    "PixelNormalize",
    "RandomAlterAspect",
    "RandomAspectScale",
    "RandomCrop",
    "RandomCropper",
    "RandomResize",
    "RandomTransformer",
    "Resize",
    "RoiHFlip",
    "RoiLabel",
    "RoiNormalize",
    "RoiProject",
    "RoiResize",
    "Saturation",
    "predict_frame",
    *_bigdl.__all__,
]

# Existing code counts on the star import for the names of bigdl.util.common.
__getattr__ = _bigdl.brought_along(__name__)

__dir__ = public_names(globals(), _bigdl.__all__)
