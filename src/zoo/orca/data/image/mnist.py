"""MNIST's idx files: a magic number, a shape, then bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO

import numpy as np

from zoo.orca.data.file import PathLike, open_file
from zoo.orca.errors import InvalidArgumentError

IMAGE_MAGIC = 2051
LABEL_MAGIC = 2049


def idx_image_shape(path: PathLike) -> tuple[int, int, int, int]:
    """The shape of all images of a file together: (count, rows, columns, 1)."""
    with open_file(path, compression="infer") as file:
        count, rows, columns = _header(file, path, IMAGE_MAGIC, 3)
    return count, rows, columns, 1


def read_idx_images(path: PathLike) -> Iterator[np.ndarray]:
    """The images one by one, never all in memory."""
    with open_file(path, compression="infer") as file:
        count, rows, columns = _header(file, path, IMAGE_MAGIC, 3)
        for _ in range(count):
            data = _exactly(file, rows * columns, path)
            yield np.frombuffer(data, np.uint8).reshape(rows, columns, 1)


def read_idx_labels(path: PathLike) -> list[int]:
    """The labels, which are small."""
    with open_file(path, compression="infer") as file:
        (count,) = _header(file, path, LABEL_MAGIC, 1)
        return list(_exactly(file, count, path))


def _header(file: IO[bytes], path: PathLike, magic: int, dimensions: int) -> tuple[int, ...]:
    (found,) = struct.unpack(">I", _exactly(file, 4, path))
    if found != magic:
        kind = "images" if magic == IMAGE_MAGIC else "labels"
        raise InvalidArgumentError(
            f"Expected {path} to be an idx file of {kind}, with the magic number {magic}, got {found}"
        )
    return struct.unpack(f">{dimensions}I", _exactly(file, 4 * dimensions, path))


def _exactly(file: IO[bytes], size: int, path: PathLike) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise InvalidArgumentError(f"Expected {size} bytes more in the idx file {path}, got {len(data)}")
    return data
