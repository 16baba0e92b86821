"""Preprocessings of images: the transformers of `bigdl.transform.vision.image` under zoo's names, and zoo's own."""  # noqa: N999 - published so

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from bigdl.dataset.records import as_sample
from bigdl.transform.vision import colour, convert, geometry
from bigdl.transform.vision.feature import ImageFeature
from bigdl.transform.vision.rows import DEPTHS
from bigdl.transform.vision.transformer import FeatureTransformer, RandomStep, check_probability
from bigdl.util.common import Sample
from zoo.feature.preprocessing import Preprocessing
from zoo.orca.errors import InvalidArgumentError

DTYPES = {number: name for name, number in DEPTHS.items()}


class ImagePreprocessing(Preprocessing):
    """A step on the way of an image to a model; a subclass of your own has a `transform` of an ImageFeature.

    Example:
        class Darker(ImagePreprocessing):
            def transform(self, feature):
                feature.put_mat(feature.mat() * 0.5)
                return feature

        ImageSet.read("photos/*.jpg").transform(Darker())
    """

    def transform(self, value: Any) -> Any:
        if not isinstance(value, ImageFeature):
            raise InvalidArgumentError(
                f"{type(self).__name__} takes an ImageFeature, but got a {type(value).__name__}. For images of a "
                "DataFrame begin with RowToImageFeature()."
            )
        return self.apply(value.copy())  # type: ignore[attr-defined]


class ImageBytesToMat(convert.BytesToMat, ImagePreprocessing): ...


class ImagePixelBytesToMat(convert.PixelBytesToMat, ImagePreprocessing): ...


class ImageMatToFloats(convert.MatToFloats, ImagePreprocessing): ...


class ImageResize(geometry.Resize, ImagePreprocessing): ...


class ImageAspectScale(geometry.AspectScale, ImagePreprocessing): ...


class ImageRandomAspectScale(geometry.RandomAspectScale, ImagePreprocessing): ...


class ImageRandomResize(geometry.RandomResize, ImagePreprocessing): ...


class ImageCenterCrop(geometry.CenterCrop, ImagePreprocessing): ...


class ImageRandomCrop(geometry.RandomCrop, ImagePreprocessing): ...


class ImageFixedCrop(geometry.FixedCrop, ImagePreprocessing): ...


class ImageRandomCropper(geometry.RandomCropper, ImagePreprocessing): ...


class ImageHFlip(geometry.HFlip, ImagePreprocessing): ...


class ImageMirror(geometry.Mirror, ImagePreprocessing): ...


class ImageExpand(geometry.Expand, ImagePreprocessing): ...


class ImageFiller(geometry.Filler, ImagePreprocessing): ...


class ImageBrightness(colour.Brightness, ImagePreprocessing): ...


class ImageContrast(colour.Contrast, ImagePreprocessing): ...


class ImageHue(colour.Hue, ImagePreprocessing): ...


class ImageSaturation(colour.Saturation, ImagePreprocessing): ...


class ImageColorJitter(colour.ColorJitter, ImagePreprocessing): ...


class ImageChannelOrder(colour.ChannelOrder, ImagePreprocessing): ...


class ImageChannelNormalize(colour.ChannelNormalize, ImagePreprocessing): ...


class ImageChannelScaledNormalizer(colour.ChannelScaledNormalizer, ImagePreprocessing): ...


class ImagePixelNormalize(colour.PixelNormalize, ImagePreprocessing): ...


class PerImageNormalize(colour.PerImageNormalize, ImagePreprocessing): ...


class ImageMatToTensor(FeatureTransformer, ImagePreprocessing):
    """The pixels as a model takes them, as float32.

    Args:
        to_RGB: whether the order of channels becomes red, green, blue.
        share_buffer: accepted as published.
        format: "NCHW" for channels first, "NHWC" for channels last.
    """

    to_RGB: bool = False
    tensor_key: str = "imageTensor"
    share_buffer: bool = True
    format: str = "NCHW"

    def __post_init__(self) -> None:
        if self.format not in ("NCHW", "NHWC"):
            raise InvalidArgumentError(f'format must be "NCHW" or "NHWC", but is {self.format!r}.')

    def apply(self, feature: ImageFeature) -> ImageFeature:
        feature[self.tensor_key] = convert.tensor_of(feature.mat(), self.to_RGB, self.format == "NCHW")
        return feature


class ImageSetToSample(convert.ImageFrameToSample, ImagePreprocessing):
    """What lies under some keys as a Sample; target_keys None leaves out the label."""

    input_keys: Sequence[str] = field(default_factory=lambda: ["imageTensor"])
    target_keys: Sequence[str] | None = field(default_factory=lambda: ["label"])
    sample_key: str = "sample"


class ImageRandomPreprocessing(RandomStep, ImagePreprocessing):
    """Another preprocessing, or a chain of them, with a probability; else the image is left as it is.

    Example: ``ImageRandomPreprocessing(ImageHFlip(), 0.5)``
    """

    preprocessing: Preprocessing
    prob: float

    def __post_init__(self) -> None:
        if not isinstance(self.preprocessing, Preprocessing):
            raise InvalidArgumentError(
                f"preprocessing must be a Preprocessing, such as ImageHFlip(), but is a "
                f"{type(self.preprocessing).__name__}."
            )
        check_probability(self.prob)
        super().__post_init__()

    def apply(self, feature: ImageFeature) -> ImageFeature:
        return self.preprocessing.transform(feature) if self.generator(feature).random() < self.prob else feature

    def reseed(self, entropy: Sequence[int]) -> None:
        super().reseed(entropy)
        self.preprocessing.reseed([*entropy, 0])


class ImageFeatureToTensor(ImagePreprocessing):
    """The tensor of an image, which ImageMatToTensor made; without one, its pixels with channels first."""

    def transform(self, value: ImageFeature) -> np.ndarray:
        return np.asarray(value["imageTensor"], np.float32) if "imageTensor" in value else value.get_image()


class ImageFeatureToSample(ImagePreprocessing):
    """The Sample of an image, which ImageSetToSample made; without one, its tensor and label."""

    def transform(self, value: ImageFeature) -> Sample:
        return as_sample(value)


class RowToImageFeature(ImagePreprocessing):
    """An image of a DataFrame's column, as NNImageReader and Spark's own "image" source have it."""

    def transform(self, value: Any) -> ImageFeature:
        image = value if isinstance(value, Mapping) else _fields(value)
        try:
            mode, shape = int(image["mode"]), tuple(int(image[name]) for name in ("height", "width", "nChannels"))
            data = image["data"]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgumentError(
                "RowToImageFeature takes rows of (origin, height, width, nChannels, mode, data), as "
                f"NNImageReader.readImages gives them, but got {value!r:.200}."
            ) from error
        pixels = np.frombuffer(data, DTYPES[mode % 8]).reshape(shape)
        feature = ImageFeature(pixels, path=image.get("origin"))
        if feature.get("uri"):
            # Random steps draw by it: the same for an image wherever its row lies.
            feature.record = (zlib.crc32(feature["uri"].encode()),)
        return feature


def _fields(row: Any) -> dict[str, Any]:
    fields = row.asDict() if hasattr(row, "asDict") else {}
    # A DataFrame's whole row may hold the image as its only column.
    inner = fields.get("image")
    return _fields(inner) if inner is not None and "data" not in fields else fields
