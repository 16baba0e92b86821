"""Transformers between the forms of an image: bytes, mat, floats, tensor, sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from bigdl.transform.vision.feature import ImageFeature, need_arrays
from bigdl.transform.vision.transformer import FeatureTransformer
from bigdl.util.common import Sample
from zoo.orca.errors import InvalidArgumentError


class BytesToMat(FeatureTransformer):
    """The encoded image as pixels; an image that was given as an array is left as it is.

    Args:
        image_codec: above 0 for colour, 0 for grey, below 0 for the image as it is.
    """

    byte_key: str = "bytes"
    image_codec: int = -1

    def apply(self, feature: ImageFeature) -> ImageFeature:
        if self.byte_key in feature or "mat" not in feature:
            feature.decode(self.byte_key, self.image_codec)
        return feature


class PixelBytesToMat(FeatureTransformer):
    """Bytes that are the pixels themselves, of the shape under 'originalSize' or 'size'."""

    byte_key: str = "bytes"

    def apply(self, feature: ImageFeature) -> ImageFeature:
        data = np.frombuffer(feature.need(self.byte_key), np.uint8)
        shape = tuple(map(int, feature.get("originalSize") or feature.need("size")))
        if data.size != np.prod(shape):
            raise InvalidArgumentError(
                f"The image {feature.get('uri', '')} has {data.size} bytes, but {shape} needs {np.prod(shape)}. Bytes "
                "of an encoded image, such as a PNG, are for BytesToMat()."
            )
        feature.put_mat(data.reshape(shape).copy())
        feature["originalSize"] = feature["size"]
        return feature


class MatToFloats(FeatureTransformer):
    """The pixels as float32, by rows, columns and channels.

    Args:
        valid_height, valid_width, valid_channel, share_buffer: accepted as published; an image that cannot be read is
            an error here.
    """

    valid_height: int = 300
    valid_width: int = 300
    valid_channel: int = 3
    out_key: str = "floats"
    share_buffer: bool = True

    def apply(self, feature: ImageFeature) -> ImageFeature:
        feature[self.out_key] = feature.mat().astype(np.float32)
        return feature


class MatToTensor(FeatureTransformer):
    """The pixels as a model takes them: float32, channels first.

    Args:
        to_rgb: whether the order of channels becomes red, green, blue.
        tensor_key: where the tensor is put.

    Example: ``MatToTensor(to_rgb=True)``
    """

    to_rgb: bool = False
    tensor_key: str = "imageTensor"

    def apply(self, feature: ImageFeature) -> ImageFeature:
        feature[self.tensor_key] = tensor_of(feature.mat(), self.to_rgb)
        return feature


class ImageFrameToSample(FeatureTransformer):
    """What lies under some keys as a Sample.

    Args:
        input_keys: the features.
        target_keys: the labels; None for none.
    """

    input_keys: Sequence[str] = field(default_factory=lambda: ["imageTensor"])
    target_keys: Sequence[str] | None = None
    sample_key: str = "sample"

    def apply(self, feature: ImageFeature) -> ImageFeature:
        inputs = need_arrays(feature, self.input_keys)
        feature[self.sample_key] = Sample.from_ndarray(inputs, need_arrays(feature, self.target_keys or []))
        return feature


def tensor_of(mat: np.ndarray, to_rgb: bool = False, channels_first: bool = True) -> np.ndarray:
    """Pixels as float32, with their channels where a model wants them."""
    if to_rgb:
        mat = mat[..., ::-1]
    return np.ascontiguousarray(mat.transpose(2, 0, 1) if channels_first else mat, dtype=np.float32)
