"""Transformers that change where pixels lie: sizes, crops, flips, borders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from bigdl.transform.vision.feature import ImageFeature
from bigdl.transform.vision.opencv import resize
from bigdl.transform.vision.transformer import FeatureTransformer, MatTransformer, RandomMatTransformer, RandomStep
from zoo.orca.errors import InvalidArgumentError

#: OpenCV's numbers of ways to interpolate, which `resize_mode` is.
INTERPOLATIONS = {"NEAREST": 0, "LINEAR": 1, "CUBIC": 2, "AREA": 3, "LANCZOS": 4}


class Resize(MatTransformer):
    """Another size.

    Args:
        resize_mode: how OpenCV interpolates: 0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos.
        use_scale_factor: accepted as published; OpenCV takes the factors from the sizes.

    Example: ``Resize(256, 256)``
    """

    resize_h: int
    resize_w: int
    resize_mode: int = 1
    use_scale_factor: bool = True

    def __post_init__(self) -> None:
        check_pixels(self, "resize_h", "resize_w")
        check_resize_mode(self.resize_mode)

    def change(self, mat: np.ndarray) -> np.ndarray:
        return resize(mat, self.resize_h, self.resize_w, self.resize_mode)


class AspectScale(MatTransformer):
    """A size whose shorter side is min_size, as long as the longer one is no more than max_size; the ratio is kept.

    Args:
        scale_multiple_of: what both sides are rounded down to a multiple of.
        min_scale: the least factor; none if it is not above 0.
    """

    min_size: int
    scale_multiple_of: int = 1
    max_size: int = 1000
    resize_mode: int = 1
    use_scale_factor: bool = True
    min_scale: float = -1.0

    def __post_init__(self) -> None:
        check_pixels(self, "min_size", "scale_multiple_of", "max_size")
        check_resize_mode(self.resize_mode)

    def change(self, mat: np.ndarray) -> np.ndarray:
        height, width = scaled_size(mat, self.min_size, self.max_size, self.scale_multiple_of, self.min_scale)
        return resize(mat, height, width, self.resize_mode)


class RandomAspectScale(RandomMatTransformer):
    """AspectScale with one of several sizes."""

    scales: Sequence[int]
    scale_multiple_of: int = 1
    max_size: int = 1000

    def change(self, mat: np.ndarray, random: np.random.Generator) -> np.ndarray:
        size = int(random.choice(list(self.scales)))
        return resize(mat, *scaled_size(mat, size, self.max_size, self.scale_multiple_of))


class RandomResize(RandomMatTransformer):
    """A shorter side of a random length from min_size to max_size; the ratio is kept."""

    min_size: int
    max_size: int

    def __post_init__(self) -> None:
        check_pixels(self, "min_size", "max_size")
        if self.min_size > self.max_size:
            raise InvalidArgumentError(
                f"RandomResize goes from min_size to max_size, but these are {self.min_size} and {self.max_size}."
            )
        super().__post_init__()

    def change(self, mat: np.ndarray, random: np.random.Generator) -> np.ndarray:
        size = int(random.integers(self.min_size, self.max_size + 1))
        return resize(mat, *scaled_size(mat, size, max_size=None))


class Crop(FeatureTransformer):
    """The part of an image in a window; the window is kept under 'boundingBox', for boxes of regions."""

    def crop(self, feature: ImageFeature, window: Iterable[float], is_clip: bool) -> ImageFeature:
        """Cut the window (left, top, right, bottom, in pixels) out of a feature."""
        mat = feature.mat()
        left, top, right, bottom = (round(float(edge)) for edge in window)
        if is_clip:
            left, right = (min(max(edge, 0), mat.shape[1]) for edge in (left, right))
            top, bottom = (min(max(edge, 0), mat.shape[0]) for edge in (top, bottom))
        if not (0 <= left < right <= mat.shape[1] and 0 <= top < bottom <= mat.shape[0]):
            raise InvalidArgumentError(
                f"{type(self).__name__} cannot cut x {left} to {right}, y {top} to {bottom} out of an image of "
                f"{mat.shape[1]} x {mat.shape[0]} pixels ({feature.get('uri', 'without a name')}). Resize it first, or "
                "pass is_clip=True to cut off what reaches beyond it."
            )
        feature["boundingBox"] = np.array([left, top, right, bottom], np.float32)
        feature.put_mat(np.ascontiguousarray(mat[top:bottom, left:right]))
        return feature


class CenterCrop(Crop):
    """The middle of an image.

    Args:
        is_clip: whether a window larger than the image is made smaller, instead of being an error.

    Example: ``CenterCrop(224, 224)``
    """

    crop_width: int
    crop_height: int
    is_clip: bool = True

    def __post_init__(self) -> None:
        check_pixels(self, "crop_width", "crop_height")

    def apply(self, feature: ImageFeature) -> ImageFeature:
        height, width, _ = feature.mat().shape
        left, top = (width - self.crop_width) // 2, (height - self.crop_height) // 2
        return self.crop(feature, (left, top, left + self.crop_width, top + self.crop_height), self.is_clip)


class RandomCrop(Crop, RandomStep):
    """A window of this size somewhere in the image.

    Args:
        is_clip: whether a window larger than the image is made smaller, instead of being an error.
    """

    crop_width: int
    crop_height: int
    is_clip: bool = True

    def __post_init__(self) -> None:
        check_pixels(self, "crop_width", "crop_height")
        super().__post_init__()

    def apply(self, feature: ImageFeature) -> ImageFeature:
        height, width, _ = feature.mat().shape
        random = self.generator(feature)
        left = int(random.integers(0, max(width - self.crop_width, 0) + 1))
        top = int(random.integers(0, max(height - self.crop_height, 0) + 1))
        return self.crop(feature, (left, top, left + self.crop_width, top + self.crop_height), self.is_clip)


class FixedCrop(Crop):
    """The window between two corners.

    Args:
        normalized: whether the corners are parts of the width and height, from 0 to 1, and not pixels.
    """

    x1: float
    y1: float
    x2: float
    y2: float
    normalized: bool = True
    is_clip: bool = True

    def apply(self, feature: ImageFeature) -> ImageFeature:
        window = np.array([self.x1, self.y1, self.x2, self.y2], np.float64)
        return self.crop(feature, window * _unit(feature, self.normalized), self.is_clip)


class DetectionCrop(Crop):
    """The window that lies under a key of the feature, as (left, top, right, bottom)."""

    roi_key: str
    normalized: bool = True

    def apply(self, feature: ImageFeature) -> ImageFeature:
        window = np.asarray(feature.need(self.roi_key), np.float64).reshape(-1)[-4:]
        return self.crop(feature, window * _unit(feature, self.normalized), is_clip=True)


class RandomCropper(Crop, RandomStep):
    """A window at random or in the middle, perhaps mirrored.

    Args:
        mirror: whether half of the images are flipped.
        cropper_method: "Random" or "Center".
    """

    crop_w: int
    crop_h: int
    mirror: bool
    cropper_method: str = "Random"
    channels: int = 3

    def __post_init__(self) -> None:
        check_pixels(self, "crop_w", "crop_h")
        if self.cropper_method not in ("Random", "Center"):
            raise InvalidArgumentError(f'cropper_method must be "Random" or "Center", but is {self.cropper_method!r}.')
        super().__post_init__()

    def apply(self, feature: ImageFeature) -> ImageFeature:
        height, width, _ = feature.mat().shape
        random = self.generator(feature)
        room = np.maximum([width - self.crop_w, height - self.crop_h], 0)
        left, top = random.integers(0, room + 1) if self.cropper_method == "Random" else room // 2
        self.crop(feature, (left, top, left + self.crop_w, top + self.crop_h), is_clip=True)
        if self.mirror and random.random() < 0.5:
            feature.put_mat(np.ascontiguousarray(feature["mat"][:, ::-1]))
        return feature


class RandomAlterAspect(RandomMatTransformer):
    """A random part of the image, of a random ratio of its sides, brought to a square of crop_length pixels."""

    min_area_ratio: float = 0.08
    max_area_ratio: float = 1.0
    min_aspect_ratio_change: float = 0.75
    interp_mode: str = "CUBIC"
    crop_length: int = 224

    def __post_init__(self) -> None:
        check_pixels(self, "crop_length")
        if self.interp_mode not in INTERPOLATIONS:
            raise InvalidArgumentError(
                f"interp_mode must be one of {', '.join(INTERPOLATIONS)}, but is {self.interp_mode!r}."
            )
        super().__post_init__()

    def change(self, mat: np.ndarray, random: np.random.Generator) -> np.ndarray:
        height, width, _ = mat.shape
        for _ in range(10):  # a part may be wider or higher than the image: try others
            area = height * width * random.uniform(self.min_area_ratio, self.max_area_ratio)
            ratio = random.uniform(self.min_aspect_ratio_change, 1 / self.min_aspect_ratio_change)
            across, down = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
            if 0 < across <= width and 0 < down <= height:
                break
        else:
            across = down = min(height, width)
        left, top = random.integers(0, width - across + 1), random.integers(0, height - down + 1)
        part = np.ascontiguousarray(mat[top : top + down, left : left + across])
        return resize(part, self.crop_length, self.crop_length, INTERPOLATIONS[self.interp_mode])


class HFlip(MatTransformer):
    """Left is right."""

    def change(self, mat: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(mat[:, ::-1])


class Mirror(MatTransformer):
    """Left is right, and top is bottom."""

    def change(self, mat: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(mat[::-1, ::-1])


class Expand(RandomMatTransformer):
    """A larger image of one colour, with the image somewhere in it.

    Args:
        means_r, means_g, means_b: the colour.
        min_expand_ratio, max_expand_ratio: between which factors the sides grow.
    """

    means_r: float = 123
    means_g: float = 117
    means_b: float = 104
    min_expand_ratio: float = 1.0
    max_expand_ratio: float = 4.0

    def change(self, mat: np.ndarray, random: np.random.Generator) -> np.ndarray:
        height, width, channels = mat.shape
        ratio = random.uniform(self.min_expand_ratio, self.max_expand_ratio)
        rows, columns = max(height, int(height * ratio)), max(width, int(width * ratio))
        colour = np.resize(np.array([self.means_b, self.means_g, self.means_r]), channels)
        left, top = random.integers(0, columns - width + 1), random.integers(0, rows - height + 1)
        return framed(mat, rows, columns, top, left, colour)


class FixExpand(MatTransformer):
    """A larger black image of this size, with the image in its middle."""

    expand_height: int
    expand_width: int

    def __post_init__(self) -> None:
        check_pixels(self, "expand_height", "expand_width")

    def change(self, mat: np.ndarray) -> np.ndarray:
        height, width, _ = mat.shape
        if height > self.expand_height or width > self.expand_width:
            raise InvalidArgumentError(
                f"FixExpand({self.expand_height}, {self.expand_width}) cannot hold an image of {height} x {width} "
                "(rows x columns). Resize it first."
            )
        top, left = (self.expand_height - height) // 2, (self.expand_width - width) // 2
        return framed(mat, self.expand_height, self.expand_width, top, left, 0)


class Filler(MatTransformer):
    """A rectangle of one value; its corners are parts of the width and height, from 0 to 1."""

    start_x: float
    start_y: float
    end_x: float
    end_y: float
    value: int = 255

    def __post_init__(self) -> None:
        if not (0 <= self.start_x <= self.end_x <= 1 and 0 <= self.start_y <= self.end_y <= 1):
            raise InvalidArgumentError(
                "Filler's corners must be parts of the width and height, from 0 to 1, the start before the end, but "
                f"are ({self.start_x}, {self.start_y}) and ({self.end_x}, {self.end_y})."
            )

    def change(self, mat: np.ndarray) -> np.ndarray:
        height, width, _ = mat.shape
        left, right = int(np.floor(self.start_x * width)), int(np.ceil(self.end_x * width))
        top, bottom = int(np.floor(self.start_y * height)), int(np.ceil(self.end_y * height))
        filled = mat.copy()
        filled[top:bottom, left:right] = self.value
        return filled


def check_pixels(step: FeatureTransformer, *names: str) -> None:
    """Raise a typed error for lengths that are no whole numbers of 1 and more."""
    for name in names:
        length = getattr(step, name)
        if not isinstance(length, int | float | np.number) or length < 1 or length != int(length):
            raise InvalidArgumentError(
                f"{name} of {type(step).__name__} must be a whole number of pixels, 1 or more, but is {length!r}."
            )
        setattr(step, name, int(length))


def check_resize_mode(mode: int) -> None:
    """Raise a typed error for what is no number of a way to interpolate."""
    if mode not in INTERPOLATIONS.values():
        raise InvalidArgumentError(
            f"resize_mode must be 0 (nearest), 1 (linear), 2 (cubic), 3 (area) or 4 (Lanczos), but is {mode!r}."
        )


def scaled_size(
    mat: np.ndarray, min_size: int, max_size: int | None, multiple_of: int = 1, min_scale: float = -1.0
) -> tuple[int, int]:
    """(rows, columns) of an image whose shorter side is to be min_size, and the longer one no more than max_size."""
    height, width, _ = mat.shape
    factor = min_size / min(height, width)
    if max_size is not None and round(factor * max(height, width)) > max_size:
        factor = max_size / max(height, width)
    factor = max(factor, min_scale)
    rows, columns = (max(multiple_of, round(factor * side) // multiple_of * multiple_of) for side in (height, width))
    return rows, columns


def framed(mat: np.ndarray, rows: int, columns: int, top: int, left: int, colour: np.ndarray | float) -> np.ndarray:
    """An image of one colour with another in it."""
    made = np.empty((rows, columns, mat.shape[2]), mat.dtype)
    made[:] = colour
    made[top : top + mat.shape[0], left : left + mat.shape[1]] = mat
    return made


def _unit(feature: ImageFeature, normalized: bool) -> np.ndarray | float:
    """What corners are multiplied with to be pixels."""
    height, width, _ = feature.mat().shape
    return np.array([width, height, width, height], np.float64) if normalized else 1.0
