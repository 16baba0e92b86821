"""TensorBoard's event files: records of length, checksum and bytes, each an Event message of protobuf.

Written here and not by a package: those that can are TensorFlow, TensorBoard's server, or one that loads torch and
starts threads, and of the format only the few fields below are needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np

VERSION = "brain.Event:2"

# Field numbers of Event, Summary, Summary.Value and HistogramProto.
WALL_TIME, STEP, FILE_VERSION, SUMMARY = 1, 2, 3, 5
VALUE = 1
TAG, SIMPLE_VALUE, HISTOGRAM = 1, 2, 5
MIN, MAX, NUM, SUM, SUM_SQUARES, BUCKET_LIMIT, BUCKET = 1, 2, 3, 4, 5, 6, 7

# How protobuf marks the kind of what follows a field number.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Histogram:
    """How many of some numbers lie in each of a few intervals; small enough to be sent from a worker."""

    minimum: float
    maximum: float
    count: int
    total: float
    total_squares: float
    limits: Sequence[float]
    counts: Sequence[float]

    @staticmethod
    def of(values: np.ndarray, bins: int = 30) -> Histogram:
        """The histogram of an array's finite values."""
        flat = np.asarray(values, dtype=np.float64).ravel()
        flat = flat[np.isfinite(flat)]
        if not flat.size:
            return Histogram(0.0, 0.0, 0, 0.0, 0.0, [0.0], [0.0])
        counts, edges = np.histogram(flat, bins=bins)
        return Histogram(
            float(flat.min()),
            float(flat.max()),
            flat.size,
            float(flat.sum()),
            float(flat @ flat),
            edges[1:].tolist(),
            counts.astype(float).tolist(),
        )


@dataclass(frozen=True)
class Scalar:
    """One value of an event file."""

    tag: str
    value: float
    step: int
    wall_time: float


def version_event(wall_time: float) -> bytes:
    """The event that every file begins with."""
    return _double(WALL_TIME, wall_time) + _bytes(FILE_VERSION, VERSION.encode())


def scalar_event(tag: str, value: float, step: int, wall_time: float) -> bytes:
    """The event of a number."""
    with np.errstate(over="ignore"):
        number = struct.pack("<f", np.float32(value))
    return _value_event(tag, _key(SIMPLE_VALUE, FIXED32) + number, step, wall_time)


def histogram_event(tag: str, histogram: Histogram, step: int, wall_time: float) -> bytes:
    """The event of a histogram."""
    message = (
        _double(MIN, histogram.minimum)
        + _double(MAX, histogram.maximum)
        + _double(NUM, histogram.count)
        + _double(SUM, histogram.total)
        + _double(SUM_SQUARES, histogram.total_squares)
        + _bytes(BUCKET_LIMIT, struct.pack(f"<{len(histogram.limits)}d", *histogram.limits))
        + _bytes(BUCKET, struct.pack(f"<{len(histogram.counts)}d", *histogram.counts))
    )
    return _value_event(tag, _bytes(HISTOGRAM, message), step, wall_time)


def record(data: bytes) -> bytes:
    """An event as it lies in the file."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _checksum(length)) + data + struct.pack("<I", _checksum(data))


def read_records(file: IO[bytes]) -> Iterator[bytes]:
    """The events of a file, up to its end or to where a crash cut or spoilt it."""
    while len(head := file.read(12)) == 12:
        (length, checksum) = struct.unpack("<QI", head)
        if checksum != _checksum(head[:8]):
            return
        data, tail = file.read(length), file.read(4)
        if len(tail) < 4 or struct.unpack("<I", tail)[0] != _checksum(data):
            return
        yield data


def scalars_of(event: bytes) -> Iterator[Scalar]:
    """The numbers of an event."""
    wall_time, step, summaries = 0.0, 0, []
    for field, content in _fields(event):
        if field == WALL_TIME and isinstance(content, bytes):
            (wall_time,) = struct.unpack("<d", content)
        elif field == STEP and isinstance(content, int):
            step = content
        elif field == SUMMARY and isinstance(content, bytes):
            summaries.append(content)
    for summary in summaries:
        for field, content in _fields(summary):
            if field == VALUE and isinstance(content, bytes):
                parts = dict(_fields(content))
                tag, value = parts.get(TAG), parts.get(SIMPLE_VALUE)
                if isinstance(tag, bytes) and isinstance(value, bytes):
                    yield Scalar(tag.decode(), struct.unpack("<f", value)[0], step, wall_time)


def _value_event(tag: str, content: bytes, step: int, wall_time: float) -> bytes:
    value = _bytes(TAG, tag.encode()) + content
    return _double(WALL_TIME, wall_time) + _key(STEP, VARINT) + _varint(step) + _bytes(SUMMARY, _bytes(VALUE, value))


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _double(field: int, value: float) -> bytes:
    return _key(field, FIXED64) + struct.pack("<d", value)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """A whole number from 0 on, seven bits to a byte."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: numbers of kind VARINT as such, all else as bytes."""
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        field, kind = key >> 3, key & 7
        if kind == VARINT:
            number, position = _read_varint(message, position)
            yield field, number
            continue
        if kind == BYTES:
            size, position = _read_varint(message, position)
        else:
            size = 8 if kind == FIXED64 else 4
        yield field, message[position : position + size]
        position += size


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position


def _crc_table() -> list[int]:
    """The table of the Castagnoli CRC, bits reversed."""
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_TABLE = _crc_table()


def _checksum(data: bytes) -> int:
    """The CRC-32C of some bytes, masked as these files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
