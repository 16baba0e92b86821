"""Image sets and their preprocessings, and the names that a star import of this package has always brought."""

from __future__ import annotations

from bigdl.util import common as _bigdl
from zoo.feature.image.imagePreprocessing import (
    ImageAspectScale,
    ImageBrightness,
    ImageBytesToMat,
    ImageCenterCrop,
    ImageChannelNormalize,
    ImageChannelOrder,
    ImageChannelScaledNormalizer,
    ImageColorJitter,
    ImageContrast,
    ImageExpand,
    ImageFeatureToSample,
    ImageFeatureToTensor,
    ImageFiller,
    ImageFixedCrop,
    ImageHFlip,
    ImageHue,
    ImageMatToFloats,
    ImageMatToTensor,
    ImageMirror,
    ImagePixelBytesToMat,
    ImagePixelNormalize,
    ImagePreprocessing,
    ImageRandomAspectScale,
    ImageRandomCrop,
    ImageRandomCropper,
    ImageRandomPreprocessing,
    ImageRandomResize,
    ImageResize,
    ImageSaturation,
    ImageSetToSample,
    PerImageNormalize,
    RowToImageFeature,
)
from zoo.feature.image.imageset import DistributedImageSet, ImageSet, LocalImageSet
from zoo.orca.names import public_names

__all__ = [
    "DistributedImageSet",
    "ImageAspectScale",
    "ImageBrightness",
    "ImageBytesToMat",
    "ImageCenterCrop",
    "ImageChannelNormalize",
    "ImageChannelOrder",
    "ImageChannelScaledNormalizer",
    "ImageColorJitter",
    "ImageContrast",
    "ImageExpand",
    "ImageFeatureToSample",
    "ImageFeatureToTensor",
    "ImageFiller",
    "ImageFixedCrop",
    "ImageHFlip",
    "ImageHue",
    "ImageMatToFloats",
    "ImageMatToTensor",
    "ImageMirror",
    "ImagePixelBytesToMat",
    "ImagePixelNormalize",
    "ImagePreprocessing",
    "ImageRandomAspectScale",
    "ImageRandomCrop",
    "ImageRandomCropper",
    "ImageRandomPreprocessing",
    "ImageRandomResize",
    "ImageResize",
    "ImageSaturation",
    "ImageSet",
    "ImageSetToSample",
    "LocalImageSet",
    "PerImageNormalize",
    "RowToImageFeature",
    *_bigdl.__all__,
]

# Existing code counts on the star import for the names of bigdl.util.common.
__getattr__ = _bigdl.brought_along(__name__)

__dir__ = public_names(globals(), _bigdl.__all__)
