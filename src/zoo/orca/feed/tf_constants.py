"""The large constants of a serialised dataset: taken out of its graph into files of their own, and mapped back.

A graph that holds 200 MB of numbers would be copied by everything that touches it: the parser, the pickler, every
worker, every epoch. So the bytes of the graph are read without parsing the large parts of it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from zoo.orca.feed.tf_graph import tensorflow

#: Constants of more bytes than this leave the graph.
LARGE = 1 << 20

# The numbers of fields in TensorFlow's protocol buffers: GraphDef, NodeDef, the entries of its attr, TensorProto.
_NODE = 1
_NODE_NAME, _NODE_ATTR = 1, 5
_KEY, _VALUE = 1, 2
_ATTR_TENSOR = 8
_TENSOR_DTYPE, _TENSOR_SHAPE, _TENSOR_CONTENT = 1, 2, 4
_SHAPE_DIM, _DIM_SIZE = 2, 1
_STRING = 7
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Constant:
    """A constant that lies in a file, or travels as bytes to machines that do not see the file.

    Attributes:
        name: the node that it was.
        dtype: its type, by TensorFlow's number.
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    path: str
    body: bytes | None = None

    def whole(self) -> Constant:
        """This constant with its bytes, for other machines."""
        return replace(self, body=Path(self.path).read_bytes())

    def tensor(self) -> Any:
        """The constant as a tensor over the mapped file: no copy is made, and ranks of one machine share its pages."""
        tf = tensorflow()
        with self._file() as file:
            # Numpy lends out only what may be written; nobody does, so that nothing is copied.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        numbers = np.frombuffer(mapped, tf.as_dtype(self.dtype).as_numpy_dtype).reshape(self.shape)
        try:
            return tf.experimental.dlpack.from_dlpack(numbers.__dlpack__())
        except (BufferError, tf.errors.OpError):  # a type that cannot be lent
            return tf.convert_to_tensor(numbers)

    @contextlib.contextmanager
    def _file(self) -> Iterator[Any]:
        if self.body is None:
            with open(self.path, "rb") as file:
                yield file
        else:
            with tempfile.TemporaryFile(prefix="orca-feed-") as file:
                file.write(self.body)
                file.flush()
                yield file


def take_out(path: str, folder: str) -> tuple[bytes, list[Constant]]:
    """The graph that lies in a file without its large constants, and these in files of the folder."""
    with open(path, "rb") as file:
        if os.path.getsize(path) <= LARGE:
            return file.read(), []
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            rest, found = bytearray(), list[Constant]()
            for number, start, value, stop in _fields(mapped, 0, len(mapped)):
                node = _large_constant(mapped, value, stop) if number == _NODE and stop - value > LARGE else None
                if node is None:
                    rest += mapped[start:stop]
                else:
                    name, dtype, shape, content = node
                    target = os.path.join(folder, f"constant-{len(found)}")
                    _copy(file, content, target)
                    found.append(Constant(name, dtype, shape, target))
            return bytes(rest), found


def _copy(file: Any, part: tuple[int, int], target: str) -> None:
    file.seek(part[0])
    with open(target, "wb") as out:
        left = part[1] - part[0]
        while left:
            piece = file.read(min(left, 1 << 20))
            out.write(piece)
            left -= len(piece)


def _large_constant(data: Any, start: int, stop: int) -> tuple[str, int, tuple[int, ...], tuple[int, int]] | None:
    """(name, type, shape, where its bytes are) of a node that is a large constant of numbers."""
    name, tensor = "", None
    for number, _, value, end in _fields(data, start, stop):
        if number == _NODE_NAME:
            name = data[value:end].decode()
        elif number == _NODE_ATTR:
            entry = {key: (first, last) for key, _, first, last in _fields(data, value, end)}
            if data[slice(*entry[_KEY])] == b"value":
                parts = {key: (first, last) for key, _, first, last in _fields(data, *entry[_VALUE])}
                tensor = parts.get(_ATTR_TENSOR)
    if tensor is None:
        return None
    inner = {key: (first, last) for key, _, first, last in _fields(data, *tensor)}
    content = inner.get(_TENSOR_CONTENT, (0, 0))
    dtype = _varint(data, inner[_TENSOR_DTYPE][0])[0]
    if content[1] - content[0] <= LARGE or dtype == _STRING:
        return None
    return name, dtype, _shape(data, *inner[_TENSOR_SHAPE]), content


def _shape(data: Any, start: int, stop: int) -> tuple[int, ...]:
    sizes = []
    for number, _, value, end in _fields(data, start, stop):
        if number == _SHAPE_DIM:
            dim = {key: first for key, _, first, _ in _fields(data, value, end)}
            sizes.append(_varint(data, dim[_DIM_SIZE])[0])
    return tuple(sizes)


def _fields(data: Any, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, where the field, its value, and the field's end are) of each field of a message."""
    while start < stop:
        tag, value = _varint(data, start)
        kind = tag & 7
        if kind == _BYTES:
            length, value = _varint(data, value)
            end = value + length
        else:
            end = {_VARINT: lambda at: _varint(data, at)[1], _FIXED64: lambda at: at + 8, _FIXED32: lambda at: at + 4}[
                kind
            ](value)
        yield tag >> 3, start, value, end
        start = end


def _varint(data: Any, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at
