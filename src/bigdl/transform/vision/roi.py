"""Boxes of regions in an image, which must follow what happens to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigdl.transform.vision.feature import ImageFeature
from bigdl.transform.vision.transformer import FeatureTransformer
from zoo.orca.errors import InvalidArgumentError


class RoiLabel:
    """Classes of the things in an image, and the box of each, as rows of (left, top, right, bottom).

    Example: ``RoiLabel([1, 2], [[0, 0, 10, 10], [5, 5, 20, 30]])``
    """

    def __init__(self, classes: Any, bboxes: Any):
        self.classes = np.asarray(classes, np.float32)
        self.bboxes = np.asarray(bboxes, np.float32).reshape(-1, 4)
        if self.classes.shape[-1] != len(self.bboxes):
            raise InvalidArgumentError(
                f"A RoiLabel needs a box for each class, but there are {self.classes.shape[-1]} classes and "
                f"{len(self.bboxes)} boxes."
            )

    def __repr__(self) -> str:
        return f"RoiLabel({self.classes.tolist()}, {self.bboxes.tolist()})"


class RoiTransformer(FeatureTransformer):
    """A step that changes the boxes of a feature's label, a RoiLabel."""

    def apply(self, feature: ImageFeature) -> ImageFeature:
        label = feature.need("label")
        if not isinstance(label, RoiLabel):
            raise InvalidArgumentError(
                f"{type(self).__name__} needs a label with boxes, RoiLabel(classes, bboxes), but the label of "
                f"{feature.get('uri', 'an image')} is a {type(label).__name__}."
            )
        feature["label"] = self.change(feature, label)
        return feature

    def change(self, feature: ImageFeature, label: RoiLabel) -> RoiLabel:
        """The label after this step."""
        raise NotImplementedError(f"{type(self).__name__} must have a method change(feature, label)")


class RoiNormalize(RoiTransformer):
    """Boxes in pixels become parts of the width and height."""

    def change(self, feature: ImageFeature, label: RoiLabel) -> RoiLabel:
        return RoiLabel(label.classes, label.bboxes / _sides(feature["mat"].shape))


class RoiResize(RoiTransformer):
    """Boxes after the image was resized.

    Args:
        normalized: whether boxes are parts of the width and height; these stay as they are.
    """

    normalized: bool = False

    def change(self, feature: ImageFeature, label: RoiLabel) -> RoiLabel:
        if self.normalized:
            return label
        return RoiLabel(label.classes, label.bboxes * _sides(feature["mat"].shape) / _sides(feature["originalSize"]))


class RoiHFlip(RoiTransformer):
    """Boxes after the image was flipped.

    Args:
        normalized: whether boxes are parts of the width and height, and not pixels.
    """

    normalized: bool = True

    def change(self, feature: ImageFeature, label: RoiLabel) -> RoiLabel:
        width = 1.0 if self.normalized else feature["mat"].shape[1]
        left, top, right, bottom = label.bboxes.T
        return RoiLabel(label.classes, np.stack([width - right, top, width - left, bottom], axis=1))


class RoiProject(RoiTransformer):
    """Boxes, in pixels, after the image was cropped: moved to the window, cut off at its edges, dropped outside it.

    Args:
        need_meet_center_constraint: whether a box stays only if its centre lies in the window.
    """

    need_meet_center_constraint: bool = True

    def change(self, feature: ImageFeature, label: RoiLabel) -> RoiLabel:
        window = feature.need("boundingBox")
        low, high = window[:2], window[2:]
        centres = (label.bboxes[:, :2] + label.bboxes[:, 2:]) / 2
        moved = np.clip(label.bboxes, np.tile(low, 2), np.tile(high, 2)) - np.tile(low, 2)
        stays = (moved[:, :2] < moved[:, 2:]).all(axis=1)
        if self.need_meet_center_constraint:
            stays &= ((centres >= low) & (centres < high)).all(axis=1)
        return RoiLabel(label.classes[..., stays], moved[stays])


def _sides(shape: Any) -> np.ndarray:
    return np.array([shape[1], shape[0], shape[1], shape[0]], np.float32)
