"""Writing known kinds of data as image sets: MNIST's idx files, folders of images, Pascal VOC, arrays."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.orca.data.file import PathLike, filesystem_of, url_of
from zoo.orca.data.image.mnist import idx_image_shape, read_idx_images, read_idx_labels
from zoo.orca.data.image.records import Record
from zoo.orca.data.image.store import store_records
from zoo.orca.data.image.utils import DType, FeatureType, SchemaField
from zoo.orca.data.image.voc import VOC_CLASSES, read_voc
from zoo.orca.errors import InvalidArgumentError, InvalidKeyError, PathNotFoundError, PreconditionError

IMAGE = SchemaField(FeatureType.IMAGE, DType.BYTES, ())
INTEGER = SchemaField(FeatureType.SCALAR, DType.INT32, ())
TEXT = SchemaField(FeatureType.SCALAR, DType.STRING, ())


def write_mnist(image_file: PathLike, label_file: PathLike, output_path: PathLike, **kwargs: Any) -> None:
    """Write a pair of MNIST's idx files (plain or .gz) as an image set with the columns image and label.

    Example: ``write_mnist("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "file:///data/mnist")``
    """
    count, *shape = idx_image_shape(image_file)
    labels = read_idx_labels(label_file)
    if count != len(labels):
        raise InvalidArgumentError(
            f"Expected as many images as labels, got {count} images in {image_file} and {len(labels)} labels "
            f"in {label_file}"
        )
    records = (
        {"image": image, "label": label} for image, label in zip(read_idx_images(image_file), labels, strict=True)
    )
    schema = {"image": SchemaField(FeatureType.NDARRAY, DType.UINT8, tuple(shape)), "label": INTEGER}
    store_records(output_path, records, schema, **kwargs)


def write_from_directory(
    directory: PathLike,
    label_map: Mapping[str, int],
    output_path: PathLike,
    shuffle: bool = True,
    **kwargs: Any,
) -> None:
    """Write a folder with one subfolder of images a class as an image set: image, label, image_id, label_str.

    The order is the same each time, shuffled or not.

    Example: ``write_from_directory("pets", {"cat": 0, "dog": 1}, "file:///data/pets")``
    """
    files = _labelled_files(directory, label_map)
    if shuffle:
        random.Random(0).shuffle(files)
    records = (
        {"image": file, "label": label_map[label], "image_id": file, "label_str": label} for label, file in files
    )
    schema = {"image": IMAGE, "label": INTEGER, "image_id": TEXT, "label_str": TEXT}
    store_records(output_path, records, schema, **kwargs)


def _labelled_files(directory: PathLike, label_map: Mapping[str, int]) -> list[tuple[str, str]]:
    """The files one folder below, each with that folder's name."""
    fs, root = filesystem_of(directory)
    if not fs.isdir(root):
        raise PathNotFoundError(f"No such file or directory: {directory}")
    found = []
    for name in sorted(fs.find(root, maxdepth=2)):
        label, _, base = name.removeprefix(root).lstrip("/").partition("/")
        if base and not base.startswith(("_", ".")):
            found.append((label, url_of(os.fspath(directory), root, name)))
    unknown = sorted({label for label, _ in found} - set(label_map))
    if unknown:
        raise InvalidKeyError(
            f"Expected label_map to have every folder in {directory}; it has {sorted(label_map)}, not {unknown}"
        )
    return found


def write_voc(
    voc_root_path: PathLike, splits_names: Sequence[tuple[int, str]], output_path: PathLike, **kwargs: Any
) -> None:
    """Write splits of a Pascal VOC folder as an image set: image, label (boxes), image_id.

    A label has a row [xmin, ymin, xmax, ymax, class] a box, as fractions of the image's size and the class's
    place in `classes` (default: VOC's twenty).

    Example: ``write_voc("VOCdevkit", [(2007, "trainval")], "file:///data/voc", classes=["cat", "dog"])``
    """
    classes = kwargs.pop("classes", VOC_CLASSES)
    label = SchemaField(FeatureType.NDARRAY, DType.FLOAT32, (None, 5))
    schema = {"image": IMAGE, "label": label, "image_id": TEXT}
    store_records(output_path, read_voc(voc_root_path, splits_names, classes), schema, **kwargs)


def _write_ndarrays(images: np.ndarray, labels: np.ndarray, output_path: PathLike, **kwargs: Any) -> None:
    """Write arrays with one image and one label a row as an image set with the columns image and label."""
    if len(images) != len(labels):
        raise PreconditionError(f"Expected as many images as labels, got {len(images)} and {len(labels)}")
    whole_numbers = labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer)
    schema = {"image": _array_field(images), "label": INTEGER if whole_numbers else _array_field(labels)}
    records: Iterator[Record] = ({"image": image, "label": label} for image, label in zip(images, labels, strict=True))
    store_records(output_path, records, schema, **kwargs)


def _array_field(array: np.ndarray) -> SchemaField:
    # Arrays are stored with their own dtype; the schema has only three words for what is nearest to it.
    if array.dtype == np.uint8:
        dtype = DType.UINT8
    else:
        dtype = DType.INT32 if np.issubdtype(array.dtype, np.integer) else DType.FLOAT32
    return SchemaField(FeatureType.NDARRAY, dtype, array.shape[1:])


FORMATS: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    "mnist": (write_mnist, ("image_file", "label_file")),
    "image_folder": (write_from_directory, ("directory", "label_map")),
    "voc": (write_voc, ("voc_root_path", "splits_names")),
}


def write_parquet(format: str, output_path: PathLike, *args: Any, **kwargs: Any) -> None:
    """Write data of a known format, "mnist", "image_folder" or "voc", as an image set.

    Example: ``write_parquet("image_folder", "file:///out", directory="pets", label_map={"cat": 0})``
    """
    if format not in FORMATS:
        raise InvalidArgumentError(f"Expected format to be one of {sorted(FORMATS)}, got {format!r}")
    writer, names = FORMATS[format]
    if len(args) > len(names):
        raise PreconditionError(f'Expected {names} for format "{format}", got {len(args)} arguments more than these.')
    kwargs.update(zip(names, args, strict=False))
    missing = [name for name in names if name not in kwargs]
    if missing:
        raise PreconditionError(
            f'Expected {" and ".join(names)} for format "{format}", and {" and ".join(missing)} was not given.'
        )
    writer(output_path=output_path, **kwargs)
