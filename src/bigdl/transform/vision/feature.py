"""One image on its way through transformations, with all that is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigdl.transform.vision.opencv import decode, with_channels
from bigdl.util.common import Sample
from zoo.orca.errors import InvalidArgumentError, InvalidKeyError

#: What to type where something is missing in a feature.
MADE_BY = {
    "label": "Read images with with_label=True, give labels with the arrays, or leave them out: target_keys=None.",
    "floats": "Transform it with MatToFloats() first.",
    "imageTensor": "Transform it with MatToTensor() first.",
    "sample": "Transform it with MatToTensor() and ImageFrameToSample() first (ImageSetToSample() for an ImageSet).",
}


class ImageFeature(dict[str, Any]):
    """An image and what belongs to it, under these keys as far as they are known:

    bytes (the encoded file), mat (pixels: rows, columns, channels in the order BGR), floats (the same, as float32),
    imageTensor (what a model takes: channels first), label, uri, size and originalSize (rows, columns, channels),
    sample and predict.

    Args:
        image: the bytes of an encoded image, or an array of rows, columns and channels.
        path: the image's uri.

    Attributes:
        record: what tells this record from the others of its frame; random transformations draw by it.

    Example:
        >>> ImageFeature(np.zeros((4, 6, 3)), label=1.0, path="a.png").get_image().shape
        (3, 4, 6)
    """

    record: tuple[int, ...] | None = None

    def __init__(self, image: Any = None, label: Any = None, path: str | None = None, bigdl_type: str = "float"):
        super().__init__()
        if isinstance(image, bytes | bytearray | memoryview):
            self["bytes"] = bytes(image)
        elif image is not None:
            self.put_mat(_checked(image))
            self["originalSize"] = self["size"]
        if label is not None:
            self["label"] = as_label(label)
        if path is not None:
            self["uri"] = str(path)

    def mat(self) -> np.ndarray:
        """The pixels as they are now; an image that is still encoded is decoded as it is."""
        if "mat" not in self:
            if "bytes" not in self:
                raise InvalidKeyError(
                    f"The image {self.get('uri', '')} has neither 'mat' nor 'bytes', only {sorted(self)}."
                )
            self.decode()
        return self["mat"]

    def decode(self, byte_key: str = "bytes", image_codec: int = -1) -> None:
        """Put the pixels of the encoded image under 'mat'."""
        self.put_mat(decode(self.need(byte_key), self.get("uri"), image_codec))
        self["originalSize"] = self["size"]

    def put_mat(self, mat: np.ndarray) -> None:
        """Replace the pixels."""
        self["mat"] = with_channels(mat)
        self["size"] = self["mat"].shape

    def get_image(self, key: str = "floats", to_chw: bool = True) -> np.ndarray:
        """The image as float32: pixels, channels first unless `to_chw` is false, or what lies under another key."""
        if key != "floats":
            return np.asarray(self.need(key), np.float32)
        pixels = np.asarray(self["floats"] if "floats" in self else self.mat(), np.float32)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)) if to_chw else pixels

    def get_label(self) -> Any:
        """The label, or None."""
        return self.get("label")

    def to_sample(
        self,
        float_key: str = "floats",
        to_chw: bool = True,
        with_im_info: bool = False,
        bigdl_type: str = "float",
    ) -> Sample:
        """The image, and its label where there is one, as a Sample.

        Args:
            with_im_info: whether [height, width, scale of the height, scale of the width] follows the image.
        """
        inputs = [self.get_image(float_key, to_chw)]
        if with_im_info:
            (height, width), (rows, columns) = self["size"][:2], self["originalSize"][:2]
            inputs.append(np.array([height, width, height / rows, width / columns], np.float32))
        return Sample.from_ndarray(inputs, [] if self.get_label() is None else [np.asarray(self.get_label())])

    def need(self, key: str) -> Any:
        """What lies under a key, or an error that says what there is."""
        if key not in self:
            advice = MADE_BY.get(key, "Is a transformer missing that makes it?")
            raise InvalidKeyError(
                f"The image {self.get('uri', '')} has no {key!r}, only {', '.join(map(repr, sorted(self)))}. {advice}"
            )
        return self[key]

    def copy(self) -> ImageFeature:
        """Another feature with the same values."""
        made = ImageFeature()
        made.update(self)
        made.record = self.record
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (dict(self), self.record)

    def __repr__(self) -> str:
        return f"ImageFeature({self.get('uri', '')!r}, size {self.get('size')}, keys {sorted(self)})"


def as_label(label: Any) -> Any:
    """A label as an array of float32 with a dimension; boxes of regions are left as they are."""
    if hasattr(label, "bboxes"):
        return label
    return np.atleast_1d(np.asarray(label, np.float32))


def need_arrays(feature: ImageFeature, keys: Sequence[str]) -> list[np.ndarray]:
    """What lies under some keys, as arrays."""
    return [np.asarray(feature.need(key), np.float32) for key in keys]


def _checked(image: Any) -> np.ndarray:
    array = np.asarray(image)
    if array.dtype.kind not in "uif" or array.ndim not in (2, 3):
        raise InvalidArgumentError(
            "An image must be the bytes of a file, or an array of numbers with rows, columns and channels, but is "
            f"a {type(image).__name__}" + (f" of {array.dtype} {array.shape}." if array.dtype.kind != "O" else ".")
        )
    # OpenCV knows no float64 for half of what it does.
    return array if array.dtype in (np.uint8, np.uint16) else array.astype(np.float32)


def _restored(values: dict[str, Any], record: tuple[int, ...] | None) -> ImageFeature:
    feature = ImageFeature()
    feature.update(values)
    feature.record = record
    return feature
