"""Image sets as TFRecord files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zoo.orca.data.file import PathLike, filesystem_of, is_local, list_files, makedirs
from zoo.orca.data.image.imagenet import LabelledImage, to_example, training_images, validation_images
from zoo.orca.engine.base import deal
from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.optional import require

if TYPE_CHECKING:
    import tensorflow as tf

TRAIN_FILES = 1024
VALIDATION_FILES = 128

# How many files of a training set are read at once, so that a batch mixes their records.
INTERLEAVED_FILES = 10


def write_tfrecord(format: str, output_path: PathLike, *args: Any, **kwargs: Any) -> None:
    """Write an ImageNet folder as TFRecord files: 1024 for training and 128 for validation.

    Example: ``write_tfrecord(format="imagenet", output_path="/data/records", imagenet_path="/data/imagenet")``
    """
    _check_format(format)
    _write_imagenet(output_path, *args, **kwargs)


def _write_imagenet(output_path: PathLike, imagenet_path: PathLike | None = None) -> None:
    if imagenet_path is None:
        raise PreconditionError("Expected imagenet_path, the folder that has train, validation and synset_labels.txt.")
    # Both are looked at before either is written, so that a fault in the folder costs nothing.
    training, validation = training_images(imagenet_path), validation_images(imagenet_path)
    _write_files(output_path, "train", training, TRAIN_FILES)
    _write_files(output_path, "validation", validation, VALIDATION_FILES)


def _write_files(output_path: PathLike, split: str, images: Sequence[LabelledImage], count: int) -> None:
    folder = f"{str(output_path).rstrip('/')}/{split}"
    makedirs(folder)
    for number, mine in enumerate(deal(len(images), count)):
        _write_file(f"{folder}/{split}-{number:05d}-of-{count:05d}", [images[index] for index in mine])


def _write_file(path: str, images: Sequence[LabelledImage]) -> None:
    tf = require("tensorflow", "write_tfrecord")
    fs, name = filesystem_of(path)
    # TensorFlow writes only to filesystems of its own, so every other one gets the finished file.
    with tempfile.TemporaryDirectory() as folder:
        local = name if is_local(path) else os.path.join(folder, "records")
        with tf.io.TFRecordWriter(local) as writer:
            for image in images:
                writer.write(to_example(image))
        if not is_local(path):
            fs.put_file(local, name)


def read_tfrecord(format: str, path: PathLike, *args: Any, **kwargs: Any) -> tf.data.Dataset:
    """Read what `write_tfrecord` wrote as a tf.data.Dataset of serialized Examples.

    Training files are read in a new order each time, validation files in writing order.

    Example: ``read_tfrecord(format="imagenet", path="/data/records", is_training=True)``
    """
    _check_format(format)
    return _read_imagenet(path, *args, **kwargs)


def _read_imagenet(path: PathLike, is_training: bool | None = None) -> tf.data.Dataset:
    if is_training is None:
        raise PreconditionError("Expected is_training, True for the training files and False for the validation files.")
    tf = require("tensorflow", "read_tfrecord")
    split = "train" if is_training else "validation"
    files = list_files(f"{str(path).rstrip('/')}/{split}/{split}-*")
    names = tf.data.Dataset.from_tensor_slices(files)
    if is_training:
        names = names.shuffle(len(files))
    read = tf.data.TFRecordDataset if is_local(path) else _read_remote
    return names.interleave(read, cycle_length=INTERLEAVED_FILES if is_training else 1)


def _read_remote(file: Any) -> tf.data.Dataset:
    """The records of a file that TensorFlow cannot open itself."""
    tf = require("tensorflow", "read_tfrecord")
    signature = tf.TensorSpec(shape=(), dtype=tf.string)
    return tf.data.Dataset.from_generator(_remote_records, args=(file,), output_signature=signature)


def _remote_records(file: bytes) -> Iterator[bytes]:
    tf = require("tensorflow", "read_tfrecord")
    fs, name = filesystem_of(file.decode("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, "records")
        fs.get_file(name, local)
        yield from tf.data.TFRecordDataset(local).as_numpy_iterator()


def _check_format(format: str) -> None:
    if format != "imagenet":
        raise InvalidArgumentError(f'Expected format to be "imagenet", got {format!r}')
