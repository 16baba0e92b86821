"""Transformers that change the values of pixels: colours and scales.

What adds to or multiplies colours keeps the mat's type, as OpenCV does: whole numbers are rounded and end at 0 and 255.
What normalizes gives float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigdl.transform.vision.opencv import opencv
from bigdl.transform.vision.transformer import MatTransformer, RandomMatTransformer
from zoo.orca.errors import InvalidArgumentError


class ChannelNormalize(MatTransformer):
    """(value - mean) / std, for each channel.

    Example: ``ChannelNormalize(123.0, 117.0, 104.0)``
    """

    mean_r: float
    mean_g: float
    mean_b: float
    std_r: float = 1.0
    std_g: float = 1.0
    std_b: float = 1.0

    def __post_init__(self) -> None:
        if 0 in (self.std_r, self.std_g, self.std_b):
            raise InvalidArgumentError(
                f"{type(self).__name__} divides by std_r, std_g and std_b, so none may be 0, but they are "
                f"{self.std_r}, {self.std_g} and {self.std_b}."
            )

    def change(self, mat: np.ndarray) -> np.ndarray:
        made = without_means(need_colour(mat, self), self.mean_r, self.mean_g, self.mean_b)
        stds = np.array([self.std_b, self.std_g, self.std_r], np.float32)
        return np.divide(made, stds, out=made) if (stds != 1).any() else made


class ChannelScaledNormalizer(MatTransformer):
    """(value - mean) * scale, for each channel."""

    mean_r: float
    mean_g: float
    mean_b: float
    scale: float

    def change(self, mat: np.ndarray) -> np.ndarray:
        made = without_means(need_colour(mat, self), self.mean_r, self.mean_g, self.mean_b)
        return np.multiply(made, np.float32(self.scale), out=made)


class PixelNormalize(MatTransformer):
    """value - mean, with a mean for every value of the image.

    Args:
        means: as many numbers as the image has, by rows, columns and channels (BGR).
    """

    means: Any

    def change(self, mat: np.ndarray) -> np.ndarray:
        means = np.asarray(self.means, np.float32)
        if means.size != mat.size:
            raise InvalidArgumentError(
                f"PixelNormalize needs a mean for each of the {mat.size} values of an image of shape {mat.shape}, but "
                f"has {means.size}. Resize the images first."
            )
        return mat.astype(np.float32) - means.reshape(mat.shape)


class PerImageNormalize(MatTransformer):
    """Values brought to a range, or to a norm, image by image.

    Args:
        min, max: the range; for another norm `min` is the norm to reach.
        norm_type: OpenCV's number: 32 for the range, 4 for the L2 norm, 2 for L1, 1 for the largest value.
    """

    min: float
    max: float
    norm_type: int = 32

    def change(self, mat: np.ndarray) -> np.ndarray:
        return opencv().normalize(mat.astype(np.float32), None, self.min, self.max, self.norm_type)


class Brightness(RandomMatTransformer):
    """A random number between delta_low and delta_high added to every value."""

    delta_low: float
    delta_high: float

    def change(self, mat: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return scale(mat, 1.0, random.uniform(self.delta_low, self.delta_high))


class Contrast(RandomMatTransformer):
    """Every value times a random number between delta_low and delta_high."""

    delta_low: float
    delta_high: float

    def change(self, mat: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return scale(mat, random.uniform(self.delta_low, self.delta_high), 0.0)


class Hue(RandomMatTransformer):
    """Colours turned on their wheel by a random number between delta_low and delta_high (the wheel has 180)."""

    delta_low: float
    delta_high: float

    def change(self, mat: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return turn_hue(need_colour(mat, self), random.uniform(self.delta_low, self.delta_high))


class Saturation(RandomMatTransformer):
    """Colours made stronger or weaker by a random factor between delta_low and delta_high."""

    delta_low: float
    delta_high: float

    def change(self, mat: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return saturate(need_colour(mat, self), random.uniform(self.delta_low, self.delta_high))


class ChannelOrder(RandomMatTransformer):
    """The channels in a random order."""

    def change(self, mat: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return np.ascontiguousarray(mat[..., random.permutation(mat.shape[2])])


class ColorJitter(RandomMatTransformer):
    """Brightness, contrast, hue and saturation, each with a probability.

    Args:
        brightness_delta, hue_delta: the most that is added or taken away.
        random_order_prob: how often contrast comes last, and not after brightness.
        shuffle: whether the four come in a random order.
    """

    brightness_prob: float = 0.5
    brightness_delta: float = 32.0
    contrast_prob: float = 0.5
    contrast_lower: float = 0.5
    contrast_upper: float = 1.5
    hue_prob: float = 0.5
    hue_delta: float = 18.0
    saturation_prob: float = 0.5
    saturation_lower: float = 0.5
    saturation_upper: float = 1.5
    random_order_prob: float = 0.0
    shuffle: bool = False

    def change(self, mat: np.ndarray, random: np.random.Generator) -> np.ndarray:
        mat = need_colour(mat, self)
        brightness = random.uniform(-self.brightness_delta, self.brightness_delta)
        contrast = random.uniform(self.contrast_lower, self.contrast_upper)
        factor = random.uniform(self.saturation_lower, self.saturation_upper)
        hue = random.uniform(-self.hue_delta, self.hue_delta)
        steps = [
            (self.brightness_prob, lambda image: scale(image, 1.0, brightness)),
            (self.contrast_prob, lambda image: scale(image, contrast, 0.0)),
            (self.saturation_prob, lambda image: saturate(image, factor)),
            (self.hue_prob, lambda image: turn_hue(image, hue)),
        ]
        for number in self._order(random):
            prob, step = steps[number]
            if random.random() < prob:
                mat = step(mat)
        return mat

    def _order(self, random: np.random.Generator) -> list[int]:
        if self.shuffle:
            return random.permutation(4).tolist()
        return [0, 2, 3, 1] if random.random() < self.random_order_prob else [0, 1, 2, 3]


def need_colour(mat: np.ndarray, step: Any) -> np.ndarray:
    """A mat of three channels; others are refused."""
    if mat.shape[2] != 3:
        raise InvalidArgumentError(
            f"{type(step).__name__} needs images of three channels, but one has {mat.shape[2]}. Read them in colour: "
            "ImageSet.read(path, image_codec=1), or begin with BytesToMat(image_codec=1)."
        )
    return mat


def without_means(mat: np.ndarray, red: float, green: float, blue: float) -> np.ndarray:
    """The values less the means of their channels, as float32 of their own."""
    return np.subtract(mat, np.array([blue, green, red], np.float32), dtype=np.float32)


def scale(mat: np.ndarray, factor: float, added: float) -> np.ndarray:
    """mat * factor + added, in the mat's own type."""
    return _in_type(mat.astype(np.float32) * np.float32(factor) + np.float32(added), mat.dtype)


def turn_hue(mat: np.ndarray, delta: float) -> np.ndarray:
    """Colours turned on the wheel, which has 180 in 8 bits and 360 in floats."""
    hsv = _to_hsv(mat)
    wheel = 180 if mat.dtype == np.uint8 else 360
    turned = (hsv[..., 0].astype(np.float32) + delta * wheel / 180) % wheel
    hsv[..., 0] = np.rint(turned) % wheel if mat.dtype == np.uint8 else turned
    return opencv().cvtColor(hsv, opencv().COLOR_HSV2BGR)


def saturate(mat: np.ndarray, factor: float) -> np.ndarray:
    """Colours made stronger, above 1, or weaker."""
    hsv = _to_hsv(mat)
    most = 255 if mat.dtype == np.uint8 else 1
    stronger = np.clip(hsv[..., 1].astype(np.float32) * np.float32(factor), 0, most)
    hsv[..., 1] = np.rint(stronger) if mat.dtype == np.uint8 else stronger
    return opencv().cvtColor(hsv, opencv().COLOR_HSV2BGR)


def _to_hsv(mat: np.ndarray) -> np.ndarray:
    if mat.dtype not in (np.uint8, np.float32):
        mat = mat.astype(np.float32)
    return opencv().cvtColor(mat, opencv().COLOR_BGR2HSV)


def _in_type(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind != "u":
        return values
    return np.clip(np.rint(values), 0, np.iinfo(dtype).max).astype(dtype)
