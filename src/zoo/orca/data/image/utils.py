"""The words of an image set's schema, and cutting a stream into chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from zoo.orca.errors import InvalidArgumentError

Item = TypeVar("Item")


class DType(Enum):
    """What a value, or each element of an array, is."""

    STRING = "string"
    BYTES = "bytes"
    INT32 = "int32"
    FLOAT32 = "float32"
    UINT8 = "uint8"


class FeatureType(Enum):
    """How a value is stored: the bytes of an image file, a compressed array, or as it is."""

    IMAGE = "image"
    NDARRAY = "ndarray"
    SCALAR = "scalar"


class SchemaField(NamedTuple):
    """One column of an image set; a None in the shape is a length that differs between records.

    Example: ``SchemaField(feature_type=FeatureType.NDARRAY, dtype=DType.UINT8, shape=(28, 28, 1))``
    """

    feature_type: FeatureType
    dtype: DType
    shape: tuple[int | None, ...]


def chunks(iterable: Iterable[Item], size: int = 10) -> Iterator[Iterator[Item]]:
    """Cut a stream into iterators of at most size items; take each one's items before the next one.

    >>> [list(chunk) for chunk in chunks(range(5), size=2)]
    [[0, 1], [2, 3], [4]]
    """
    if size < 1:
        raise InvalidArgumentError(f"Expected a chunk size of 1 or more, got {size}")
    iterator = iter(iterable)
    for first in iterator:
        yield chain([first], islice(iterator, size - 1))
