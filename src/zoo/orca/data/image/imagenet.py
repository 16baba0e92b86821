"""ImageNet folders: `train/<synset>/*.JPEG`, `validation/*.JPEG` and `synset_labels.txt`, as TensorFlow Examples."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass
from typing import Any

from zoo.orca.data.file import PathLike, filesystem_of, list_files, open_file, open_text
from zoo.orca.errors import InvalidArgumentError, InvalidKeyError, PathNotFoundError
from zoo.orca.optional import require

IMAGE_SUFFIXES = (".JPEG", ".jpeg", ".JPG", ".jpg")

# As high as JPEG goes: what is encoded a second time should not be seen to be.
JPEG_QUALITY = 100


@dataclass(frozen=True)
class LabelledImage:
    """An image file with its synset, and the synset's place, from 1, among all synsets in order."""

    path: str
    synset: str
    label: int


def training_images(imagenet_path: PathLike) -> list[LabelledImage]:
    """The images of every synset folder, mixed, in the same order each time."""
    labels = synset_labels(imagenet_path)
    train = f"{str(imagenet_path).rstrip('/')}/train"
    images = [
        LabelledImage(path, synset, label)
        for synset, label in labels.items()
        for path in list_files(f"{train}/{synset}", IMAGE_SUFFIXES)
    ]
    # A file of records that has one class only would make poor batches.
    random.Random(0).shuffle(images)
    return images


def validation_images(imagenet_path: PathLike) -> list[LabelledImage]:
    """The validation images by name; line i of synset_labels.txt is the synset of image i."""
    labels = synset_labels(imagenet_path)
    root = str(imagenet_path).rstrip("/")
    files = list_files(f"{root}/validation", IMAGE_SUFFIXES)
    synsets = [line for line in open_text(f"{root}/synset_labels.txt") if line]
    if len(files) != len(synsets):
        raise InvalidArgumentError(
            f"Expected one line in {root}/synset_labels.txt for each image in {root}/validation, "
            f"got {len(synsets)} lines and {len(files)} images."
        )
    unknown = sorted(set(synsets) - set(labels))
    if unknown:
        raise InvalidKeyError(f"Expected the synsets of {root}/synset_labels.txt to be folders of train, not {unknown}")
    return [LabelledImage(file, synset, labels[synset]) for file, synset in zip(files, synsets, strict=True)]


def synset_labels(imagenet_path: PathLike) -> dict[str, int]:
    """The synsets, which are the folders of `train`, with their labels, in order."""
    train = f"{str(imagenet_path).rstrip('/')}/train"
    fs, root = filesystem_of(train)
    if not fs.isdir(root):
        raise PathNotFoundError(f"No such file or directory: {train}")
    folders = [entry["name"] for entry in fs.ls(root, detail=True) if entry["type"] == "directory"]
    synsets = sorted(folder.rstrip("/").rsplit("/", 1)[-1] for folder in folders)
    return {synset: label for label, synset in enumerate(synsets, start=1)}


def to_example(image: LabelledImage) -> bytes:
    """A serialized tf.train.Example with the keys that ImageNet readers expect."""
    tf = require("tensorflow", "write_tfrecord")
    encoded, width, height = rgb_jpeg(image.path)
    features: dict[str, bytes | int] = {
        "image/encoded": encoded,
        "image/format": b"JPEG",
        "image/height": height,
        "image/width": width,
        "image/colorspace": b"RGB",
        "image/channels": 3,
        "image/class/label": image.label,
        "image/class/synset": image.synset.encode("utf-8"),
        "image/filename": image.path.rsplit("/", 1)[-1].encode("utf-8"),
    }
    feature = {name: _feature(tf, value) for name, value in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def _feature(tf: Any, value: bytes | int) -> Any:
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def rgb_jpeg(path: str) -> tuple[bytes, int, int]:
    """An image file as an RGB JPEG, its own bytes where it is one, with its width and height."""
    pil = require("PIL.Image", "write_tfrecord")
    with open_file(path) as file:
        data = file.read()
    try:
        with pil.open(io.BytesIO(data)) as image:
            if image.format != "JPEG" or image.mode != "RGB":
                # ImageNet has CMYK files, and PNG files that are called .JPEG, which readers cannot take.
                buffer = io.BytesIO()
                image.convert("RGB").save(buffer, format="JPEG", quality=JPEG_QUALITY)
                data = buffer.getvalue()
            return data, image.width, image.height
    except pil.UnidentifiedImageError as error:
        raise InvalidArgumentError(f"Expected {path} to be an image, got bytes that are none.") from error
