"""Pascal VOC folders: lists of image ids a split, one XML file of boxes an image."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence

import numpy as np

from zoo.orca.data.file import PathLike, open_file, open_text
from zoo.orca.data.image.records import Record
from zoo.orca.errors import InvalidArgumentError, InvalidKeyError

VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip

CORNERS = ("xmin", "ymin", "xmax", "ymax")


def read_voc(root: PathLike, splits_names: Sequence[tuple[int, str]], classes: Sequence[str]) -> Iterator[Record]:
    """The records of some splits, given as (year, name), in the order of their lists."""
    for entry in splits_names:
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            raise InvalidArgumentError(
                f'Expected splits_names to be a list of (year, split) such as (2007, "trainval"), got {entry!r}'
            )
        year, split = entry
        folder = f"{str(root).rstrip('/')}/VOC{year}"
        for line in open_text(f"{folder}/ImageSets/Main/{split}.txt"):
            # The lists of one class have a second column, which says whether the class is in the image.
            if line:
                yield _record(folder, line.split()[0], classes)


def _record(folder: str, image_id: str, classes: Sequence[str]) -> Record:
    boxes = _boxes(f"{folder}/Annotations/{image_id}.xml", classes)
    return {"image": f"{folder}/JPEGImages/{image_id}.jpg", "label": boxes, "image_id": image_id}


def _boxes(path: str, classes: Sequence[str]) -> np.ndarray:
    with open_file(path) as file:
        tree = ElementTree.parse(file).getroot()
    width, height = _number(tree, "size/width", path), _number(tree, "size/height", path)
    if width <= 0 or height <= 0:
        raise InvalidArgumentError(f"Expected the size of an image in {path}, got {width} x {height}")
    scale = (width, height, width, height)
    rows = []
    for box in tree.iter("object"):
        corners = [_number(box, f"bndbox/{corner}", path) for corner in CORNERS]
        fractions = [corner / whole for corner, whole in zip(corners, scale, strict=True)]
        rows.append([*fractions, _class_number(box, path, classes)])
    return np.array(rows, dtype=np.float32).reshape(-1, 5)


def _number(element: ElementTree.Element, name: str, path: str) -> float:
    text = element.findtext(name, "").strip()
    try:
        return float(text)
    except ValueError as error:
        raise InvalidArgumentError(f"Expected a number in <{name}> of {path}, got '{text}'.") from error


def _class_number(box: ElementTree.Element, path: str, classes: Sequence[str]) -> int:
    name = box.findtext("name", "").strip().lower()
    lowered = [known.lower() for known in classes]
    if name not in lowered:
        raise InvalidKeyError(f"Expected every box in {path} to be one of the classes {list(classes)}, got '{name}'.")
    return lowered.index(name)
