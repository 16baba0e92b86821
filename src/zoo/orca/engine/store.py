"""Shards in files: written once with their buffers out of band, read as private memory maps.

A shard read back is a view of the file until it is written to, so ranks of one host share one copy, a file larger than
memory can be read, and what a function changes in place changes nobody else's copy.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import cloudpickle

from zoo.orca.engine.maps import mapped

_HEAD = struct.Struct("!QQ")  # bytes of pickle, number of buffers
_SIZE = struct.Struct("!Q")
_ALIGN = 64


def write_shards(path: Path, shards: Iterable[Any]) -> int:
    """Write shards one after the other and return how many there were; the file appears when it is whole."""
    with _whole_file(path) as file:
        return sum(1 for shard in shards if _write(file, shard))


def read_shards(path: Path) -> Iterator[Any]:
    """The shards of a file, in the order in which they were written."""
    memory, position = mapped(path, private=True), 0
    while position < len(memory):
        found = list(_read(memory, position))
        position = found.pop()
        yield found.pop()  # and hold it no longer, so that whoever keeps it need not copy it


def write_pieces(path: Path, pairs: Iterable[tuple[int, Any]]) -> list[int]:
    """Write the pieces of an exchange, so that each target's can be read without touching the others'; the targets."""
    offsets: dict[int, list[int]] = {}
    with _whole_file(path) as file:
        for target, piece in pairs:
            offsets.setdefault(int(target), []).append(file.tell())
            _write(file, piece)
        index = pickle.dumps(offsets)
        file.write(index + _SIZE.pack(len(index)))
    return list(offsets)


def read_pieces(path: Path, target: int) -> Iterator[Any]:
    """The pieces that `write_pieces` wrote for a target, in order."""
    memory = mapped(path, private=True)
    (length,) = _SIZE.unpack_from(memory, len(memory) - _SIZE.size)
    offsets = pickle.loads(memory[-_SIZE.size - length : -_SIZE.size])
    for position in offsets.get(target, []):
        yield _read(memory, position)[0]


@contextlib.contextmanager
def _whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name only when everything is written."""
    unfinished = path.with_name(path.name + ".part")
    try:
        with open(unfinished, "wb") as file:
            yield file
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _write(file: BinaryIO, shard: Any) -> bool:
    buffers: list[pickle.PickleBuffer] = []
    body = cloudpickle.dumps(shard, protocol=5, buffer_callback=buffers.append)
    raws = [buffer.raw() for buffer in buffers]
    file.write(_HEAD.pack(len(body), len(raws)))
    for raw in raws:
        file.write(_SIZE.pack(raw.nbytes))
    file.write(body)
    for raw in raws:
        _pad(file)
        file.write(raw)
    _pad(file)
    return True


def _pad(file: BinaryIO) -> None:
    file.write(b"\0" * (-file.tell() % _ALIGN))


def _read(memory: memoryview, position: int) -> tuple[Any, int]:
    length, count = _HEAD.unpack_from(memory, position)
    position += _HEAD.size
    sizes = [_SIZE.unpack_from(memory, position + index * _SIZE.size)[0] for index in range(count)]
    position += count * _SIZE.size
    body = memory[position : position + length]
    position += length
    buffers = []
    for size in sizes:
        position += -position % _ALIGN
        buffers.append(memory[position : position + size])
        position += size
    return pickle.loads(body, buffers=buffers), position + -position % _ALIGN
