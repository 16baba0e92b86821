"""Bytes of a file, wherever it lies: a plain descriptor for local files, one ranged request for others."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from zoo.orca.data.file import filesystem_of, is_local
from zoo.orca.errors import PathNotFoundError


class Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True)
class Window:
    """A range of a file in memory, which the next window of a local file may overwrite."""

    memory: bytes | bytearray
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def holds(self, byte: bytes) -> bool:
        return self.memory.find(byte, self.start, self.stop) >= 0

    def is_surely_ascii(self) -> bool:
        """Whether all of the memory is ASCII; what lies there outside of the window counts too, for looking is cheap
        and cutting is not."""
        return self.memory.isascii()

    def head(self, size: int) -> bytes:
        return bytes(self.memory[self.start : min(self.start + size, self.stop)])

    def view(self) -> memoryview:
        return memoryview(self.memory)[self.start : self.stop]


class Source(Protocol):
    """A file that can be read from any byte to any other."""

    size: int

    def read(self, start: int, stop: int) -> bytes: ...

    def window(self, start: int, stop: int) -> Window: ...

    def stream(self, start: int, stop: int) -> Readable: ...


class _Scratch:
    """Memory that is used again for every block: new memory costs more than reading into it."""

    memory = bytearray()


def _scratch(size: int) -> bytearray:
    if len(_Scratch.memory) < size:
        _Scratch.memory = bytearray(size)
    return _Scratch.memory


class LocalSource:
    """A file of this machine, read where asked with no buffer of its own."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def read(self, start: int, stop: int) -> bytes:
        return os.pread(self.descriptor, stop - start, start)

    def window(self, start: int, stop: int) -> Window:
        # Not a memory map: a file that is cut short while it is read would end the process.
        memory, got = _scratch(stop - start), 0
        with memoryview(memory) as view:
            while start + got < stop and (more := os.preadv(self.descriptor, [view[got : stop - start]], start + got)):
                got += more
        return Window(memory, 0, got)

    def stream(self, start: int, stop: int) -> Readable:
        return _LocalStream(self.descriptor, start, stop)


class _LocalStream:
    def __init__(self, descriptor: int, start: int, stop: int):
        self.descriptor, self.at, self.stop = descriptor, start, stop

    def read(self, size: int = -1) -> bytes:
        left = self.stop - self.at
        data = os.pread(self.descriptor, left if size < 0 else min(size, left), self.at)
        self.at += len(data)
        return data


class MemorySource:
    """Bytes that are already here."""

    def __init__(self, data: bytes):
        self.data = data
        self.size = len(data)

    def read(self, start: int, stop: int) -> bytes:
        return self.data[start:stop]

    def window(self, start: int, stop: int) -> Window:
        return Window(self.data, start, stop)

    def stream(self, start: int, stop: int) -> Readable:
        return io.BytesIO(self.data[start:stop])


class RemoteSource:
    """A file of any fsspec filesystem; a stream is one request, since each costs a round trip."""

    def __init__(self, path: str):
        self.fs, self.name = filesystem_of(path)
        self.size = self.fs.size(self.name)

    def read(self, start: int, stop: int) -> bytes:
        return self.fs.cat_file(self.name, start=start, end=stop) if stop > start else b""

    def window(self, start: int, stop: int) -> Window:
        data = self.read(start, stop)
        return Window(data, 0, len(data))

    def stream(self, start: int, stop: int) -> Readable:
        return io.BytesIO(self.read(start, stop))


@contextmanager
def open_source(path: str) -> Iterator[Source]:
    """Open a file for reading by ranges."""
    if not is_local(path):
        yield RemoteSource(path)
        return
    descriptor = os.open(filesystem_of(path)[1], os.O_RDONLY)
    try:
        yield LocalSource(descriptor)
    finally:
        os.close(descriptor)


def size_of(path: str) -> int:
    """How many bytes a file has."""
    if is_local(path):
        return os.stat(filesystem_of(path)[1]).st_size
    fs, name = filesystem_of(path)
    size = fs.size(name)
    if size is None:
        raise PathNotFoundError(f"No such file or directory: {path} has no size, so it is no file.")
    return size


class ByteStream:
    """What pandas reads from: some bytes ahead, then a stream.

    It is deliberately no `io` class: pandas would put a text decoder on it and encode the text again for its parser,
    which wants UTF-8 bytes, as they are here.
    """

    def __init__(self, ahead: bytes, stream: Readable | None):
        self.ahead, self.stream = ahead, stream

    def read(self, size: int = -1) -> bytes:
        if not self.ahead:
            return self.stream.read(size) if self.stream else b""
        data, self.ahead = self.ahead, b""
        return data

    def __iter__(self) -> Iterator[bytes]:
        while line := self.read():
            yield line
