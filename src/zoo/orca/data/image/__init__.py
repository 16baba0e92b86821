"""Image sets: writing known kinds of data as Parquet or TFRecord, and reading them back."""

from __future__ import annotations

from zoo.orca.data.image.parquet_dataset import (
    write_from_directory,
    write_mnist,
    write_parquet,
    write_voc,
)
from zoo.orca.data.image.tfrecord_dataset import read_tfrecord, write_tfrecord
from zoo.orca.names import public_names

__all__ = [
    "read_tfrecord",
    "write_from_directory",
    "write_mnist",
    "write_parquet",
    "write_tfrecord",
    "write_voc",
]

__dir__ = public_names(globals())
