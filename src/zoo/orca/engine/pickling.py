"""Functions and objects packed for the workers: what cannot be sent is named, what a script imports is found."""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

import cloudpickle

from zoo.orca.errors import NotPicklableError

# Workers that were started before the script set these must still read its s3:// paths.
FILE_SETTINGS = "AWS_"


@dataclass(frozen=True)
class Packed:
    """A pickled value, where the driver finds the modules it may refer to, and how the driver reaches its files."""

    body: bytes
    path: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]

    def load(self) -> Any:
        """Unpickle a fresh value; modules beside the driver's script are found if this machine has them."""
        for entry in self.path:
            if entry not in sys.path:
                sys.path.append(entry)
        os.environ.update(self.settings)
        return cloudpickle.loads(self.body)

    def load_once(self) -> Any:
        """The value, unpickled once in each process: for functions."""
        return _load_once(self)


@functools.lru_cache(maxsize=64)
def _load_once(packed: Packed) -> Any:
    return packed.load()


def pack(value: Any, what: str = "the function") -> Packed:
    """Pickle value for the workers, or raise NotPicklableError naming the part that cannot be sent."""
    path = tuple(os.getcwd() if entry == "" else entry for entry in sys.path)
    settings = tuple((name, value) for name, value in os.environ.items() if name.startswith(FILE_SETTINGS))
    return Packed(dumps(value, what), path, settings)


def dumps(value: Any, what: str) -> bytes:
    """Pickle value with cloudpickle, or raise NotPicklableError naming the part that cannot be sent."""
    try:
        return cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        culprit = _find_culprit(value)
        part = f" It holds {culprit}." if culprit else ""
        raise NotPicklableError(
            f"{what} cannot be sent to the workers: {type(error).__name__}: {error}.{part} "
            "Expected something that cloudpickle can serialise; make such parts (locks, open files, connections, "
            "sessions) inside the function, on the worker, instead of capturing them."
        ) from error


def _find_culprit(value: Any, depth: int = 5) -> str | None:
    """The innermost part of value that does not pickle, in words."""
    if depth == 0:
        return None
    for name, part in _parts(value):
        if not _pickles(part):
            return _find_culprit(part, depth - 1) or f"{name}, a {type(part).__module__}.{type(part).__qualname__}"
    return None


def _pickles(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The named parts that pickling value would pickle too."""
    if inspect.ismethod(value):
        yield f"the object of the method '{value.__name__}'", value.__self__
    elif inspect.isfunction(value):
        for name in _names(value.__code__):
            if name in value.__globals__:
                yield f"the variable '{name}'", value.__globals__[name]
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield f"the variable '{name}'", cell.cell_contents
    elif isinstance(value, dict):
        for key, part in value.items():
            yield f"the entry {key!r}", part
    elif isinstance(value, list | tuple | set):
        for index, part in enumerate(value):
            yield f"item {index}", part
    elif hasattr(value, "__dict__"):
        for name, part in vars(value).items():
            yield f"the attribute '{name}'", part


def _names(code: CodeType) -> set[str]:
    """The names a function uses, those in its comprehensions and inner functions too."""
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*map(_names, inner))
