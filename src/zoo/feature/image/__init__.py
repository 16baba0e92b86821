"""Image sets and their preprocessings, and the names that a star import of this package has always brought."""

from __future__ import annotations

from typing import Any

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


def __getattr__(name: str) -> Any:
    # Existing code counts on the star import for these; they are loaded when first asked for.
    if name in _bigdl.__all__:
        return getattr(_bigdl, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
