"""Files as memory that are not kept open.

Python's own `mmap` holds a descriptor for every map (until 3.13, where it may be told not to). A table of a thousand
partitions would need thousands of them, and many systems allow 1,024.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def mapped(path: str | Path, private: bool = False) -> memoryview:
    """A file's bytes, in memory only where they are looked at; unmapped with the last view of them.

    Args:
        private: whether they may be written to, which stays in this process.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return memoryview(b"")
        access = mmap.PROT_READ | mmap.PROT_WRITE if private else mmap.PROT_READ
        kind = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
        address = _libc.mmap(None, size, access, kind, file.fileno(), 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            if number != errno.ENOMEM:
                raise OSError(number, os.strerror(number), str(path))
            whole = memoryview(bytearray(file.read()))  # Linux lets a process have 65,530 maps
            return whole if private else whole.toreadonly()
    memory = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(memory, _libc.munmap, address, size).atexit = False  # then nobody may look at it any more
    view = memoryview(memory).cast("B")
    return view if private else view.toreadonly()
