"""Functions and objects packed for the workers: what cannot be sent is named, what a script imports is found."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

import cloudpickle

from zoo.orca.errors import NotPicklableError, sentence

# Workers that were started before the script set these must still read its s3:// paths.
FILE_SETTINGS = "AWS_"
# So deep a part that cannot be sent is looked for.
DEPTH = 50


@dataclass(frozen=True)
class SlowImport:
    """What takes long to import, and how a pickle shows that it will be needed. None starts a thread before it is used.

    Attributes:
        hints: bytes that mean so where the driver has imported the first module, too.
        proofs: bytes that mean so wherever they are.
    """

    modules: tuple[str, ...]
    hints: tuple[bytes, ...]
    proofs: tuple[bytes, ...] = ()

    def is_needed_by(self, body: bytes) -> bool:
        hinted = self.modules[0] in sys.modules and any(hint in body for hint in self.hints)
        return hinted or any(proof in body for proof in self.proofs)


SLOW_IMPORTS = (
    SlowImport(("zoo.orca.learn.worker", "pandas"), (b"zoo.orca.learn",)),
    SlowImport(("torch",), (b"torch",)),
    SlowImport(("torch", "torch._dynamo"), (b"torch.optim", b"zoo.orca.learn.pytorch.learner")),  # optimizers import it
    SlowImport(("tensorflow", "keras"), (b"tensorflow", b"keras", b"zoo.orca.learn.tf"), (b"zoo.orca.learn.tf2",)),
)


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

    @property
    def slow_imports(self) -> tuple[str, ...]:
        """Modules that the value seems to need: to import them ahead is never wrong."""
        needed = (each for each in SLOW_IMPORTS if each.is_needed_by(self.body))
        return tuple(dict.fromkeys(name for each in needed for name in each.modules))

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


def dumps(value: Any, what: str, name: str = "") -> bytes:
    """Pickle value with cloudpickle, or raise NotPicklableError naming the part that cannot be sent.

    Args:
        what: what errors call the value.
        name: what the user's script calls it, so that a part is named as it would be typed: `model.layers[2].lock`.
    """
    try:
        return cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        culprit = find_culprit(value, name)
        part = f" It holds {culprit}." if culprit else ""
        raise NotPicklableError(
            f"{what} cannot be sent to the workers: {sentence(error)}{part} "
            "Expected something that cloudpickle can serialise; make such parts (locks, open files, connections, "
            "sessions) inside the function, on the worker, instead of capturing them."
        ) from error


@dataclass(frozen=True)
class _Part:
    """A part of a value: in words, and as one would type it."""

    words: str
    path: str
    value: Any

    def __str__(self) -> str:
        kind = type(self.value)
        is_below = any(mark in self.path[1:] for mark in ".[")  # else the words say as much
        typed = f" ({self.path})" if is_below else ""
        return f"{self.words}, a {kind.__module__}.{kind.__qualname__}{typed}"


def find_culprit(value: Any, name: str = "") -> str | None:
    """The innermost part of value that does not pickle, in words and with its path from `name`.

    >>> import threading
    >>> find_culprit({"guards": [threading.Lock()]}, "config")
    "item 0, a _thread.lock (config['guards'][0])"
    """
    innermost: _Part | None = None
    part: _Part | None = _Part("", name, value)
    seen: set[int] = set()
    while part is not None and len(seen) < DEPTH:
        seen.add(id(part.value))
        inner = (each for each in _parts(part.value, part.path) if id(each.value) not in seen)
        part = next((each for each in inner if not _pickles(each.value)), None)
        innermost = part or innermost
    return None if innermost is None else str(innermost)


def _pickles(value: Any) -> bool:
    try:
        cloudpickle.CloudPickler(_Nowhere(), protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception:
        return False
    return True


class _Nowhere:
    """A file that keeps nothing: whether something pickles is all that is asked."""

    def write(self, data: Any) -> int:
        return len(data)


def _parts(value: Any, path: str) -> Iterator[_Part]:
    """The named parts that pickling value would pickle too."""
    if inspect.ismethod(value):
        yield _Part(f"the object of the method '{value.__name__}'", path, value.__self__)
    elif inspect.isfunction(value):
        yield from _parts_of_function(value)
    elif inspect.isclass(value):
        yield from _parts_of_class(value)
    elif isinstance(value, functools.partial):
        yield _Part("the function of the partial", f"{path}.func", value.func)
        yield _Part("the arguments of the partial", f"{path}.args", value.args)
        yield _Part("the arguments of the partial", f"{path}.keywords", value.keywords)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield _Part(f"the entry {key!r}", f"{path}[{key!r}]", part)
    elif isinstance(value, list | tuple | set):
        for index, part in enumerate(value):
            yield _Part(f"item {index}", f"{path}[{index}]", part)
    else:
        yield from _parts_of_object(value, path)


def _parts_of_function(function: Any) -> Iterator[_Part]:
    """Variables have names of their own in the user's script, so their paths start anew."""
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield _Part(f"the variable '{name}'", name, function.__globals__[name])
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a variable that has no value yet
            yield _Part(f"the variable '{name}'", name, cell.cell_contents)
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            yield _Part(f"the default of the argument '{name}'", name, parameter.default)


def _parts_of_class(kind: type) -> Iterator[_Part]:
    for name, member in vars(kind).items():
        inner = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        yield _Part(f"'{name}' of the class {kind.__name__}", f"{kind.__name__}.{name}", inner)
    for base in kind.__bases__:
        yield _Part(f"the class {base.__name__}", base.__name__, base)


def _parts_of_object(value: Any, path: str) -> Iterator[_Part]:
    for name, part in _state(value).items():
        if isinstance(part, dict) and name.startswith("_"):
            yield from _entries(value, name, part, path)
        else:
            yield _Part(f"the attribute '{name}'", f"{path}.{name}".lstrip("."), part)
    yield _Part(f"the class {type(value).__name__}", type(value).__name__, type(value))


def _entries(owner: Any, name: str, entries: dict[Any, Any], path: str) -> Iterator[_Part]:
    """What an object keeps in a dict of its own, as users reach it: an attribute or an item of the object."""
    for key, part in entries.items():
        if str(key).isidentifier() and _gives(getattr, owner, key, part):
            yield _Part(f"the attribute '{key}'", f"{path}.{key}".lstrip("."), part)
        elif _gives(_item, owner, key, part):
            yield _Part(f"item {key}", f"{path}[{key}]", part)
        else:
            yield _Part(f"the entry {key!r}", f"{path}.{name}[{key!r}]".lstrip("."), part)


def _gives(look: Callable[[Any, Any], Any], owner: Any, key: Any, part: Any) -> bool:
    try:
        return look(owner, key) is part
    except Exception:  # what an object does when it is asked is its own business
        return False


def _item(owner: Any, key: str) -> Any:
    return owner[int(key)]


def _state(value: Any) -> dict[str, Any]:
    """What of an object is pickled, by name."""
    try:
        state = value.__getstate__()
    except Exception:
        state = getattr(value, "__dict__", None)
    parts = state if isinstance(state, tuple) else (state,)  # an object with slots gives two dicts
    return {name: part for each in parts if isinstance(each, dict) for name, part in each.items()}


def _names(code: CodeType) -> list[str]:
    """The names a function uses, those in its comprehensions and inner functions too."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return list(dict.fromkeys([*code.co_names, *(name for each in inner for name in _names(each))]))
