"""Checkpoints and saved models: tensors and plain data, written whole or not at all, read without running code.

A path may be on this machine or any fsspec URL (`s3://bucket/runs`).
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import time
import uuid
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from zoo.orca.data.file import filesystem_of, is_local
from zoo.orca.errors import CheckpointError, InvalidArgumentError, PathNotFoundError
from zoo.orca.optional import require

logger = logging.getLogger("zoo.orca")

_STAMP = re.compile(r"\d{4}-\d{2}-\d{2}_\d{2}-\d{2}-\d{2}|\d{8}_\d{6}")
_MODEL = re.compile(r"model(?:\.(\d+))?")
# The number of a checkpoint that has none in its name.
_NO_NUMBER = 0
_ASIDE = re.compile(r"\.(?:model|optimMethod-.*)\.\d+\.[0-9a-f]{32}")
_FIT = "fit.json"
# What marks a folder in a zip file.
_ZIP_FOLDER = 0x10
# What torch reads back with weights_only=True, beside its own types; of exactly these types.
_PLAIN = {type(None), bool, int, float, complex, str, bytes, bytearray}
_PLAIN_DICTS = {dict, OrderedDict, Counter}
# Their uploads appear whole or not at all, and a rename there would be another upload.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "az", "oci", "oss"}


@dataclass(frozen=True)
class Fit:
    """What a fit was asked to do: a checkpoint in the middle of an epoch means something to the same fit alone."""

    first_epoch: int
    batch_size: int
    seed: int


@dataclass(frozen=True)
class Checkpoints:
    """The folder of one fit's checkpoints: `model.<n>` and `optimMethod-<name>.<n>`, n being the next iteration.

    Attributes:
        keep_last: how many are kept, beside the best one; None keeps all.
        monitor: the figure that says which is the best.
        mode: whether the best one is the "min" or the "max".
        of_model, of_method: plain data beside the state, for those who make the model or the optimizer from its file.
    """

    folder: str
    name: str
    keep_last: int | None = None
    monitor: str | None = None
    mode: str = "min"
    of_model: dict[str, Any] = field(default_factory=dict)
    of_method: dict[str, Any] = field(default_factory=dict)

    def path(self, number: int) -> str:
        return _file(self.folder, "model", number)

    def write(self, number: int, state: dict[str, Any]) -> None:
        for path, part in self._parts(number, state):
            write_state(path, part)

    def packed(self, number: int, state: dict[str, Any]) -> list[tuple[str, bytes]]:
        """What `write` would write, as paths and bytes in the order in which they must be written."""
        return [(path, _pack(part)) for path, part in self._parts(number, state)]

    def _parts(self, number: int, state: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        rest = {key: value for key, value in state.items() if key != "models"}
        # The model last: a checkpoint is there when its model is.
        return [
            (_file(self.folder, f"optimMethod-{self.name}", number), self.of_method | rest),
            (self.path(number), self.of_model | {"models": state["models"]}),
        ]

    def files(self, number: int) -> list[str]:
        """Its files in the order in which they may be removed: without its model a checkpoint is none."""
        return [self.path(number), _file(self.folder, f"optimMethod-{self.name}", number)]

    def begin(self, fit: Fit) -> None:
        """Say what the fit was asked to do, for a later one that is to go on with it."""
        write_file(_join(self.folder, _FIT), lambda file: file.write(json.dumps(asdict(fit)).encode()))

    def tidy(self) -> None:
        """Remove what a process that was killed left half written."""
        fs, folder = filesystem_of(self.folder)
        for name in fs.ls(folder, detail=False) if fs.isdir(folder) else []:
            if _ASIDE.fullmatch(_base(name)):
                remove_file(_join(self.folder, _base(name)))

    def newest(self) -> dict[str, Any] | None:
        """The state of the newest checkpoint here that a fit can go on from; None when there is none."""
        for number in sorted((number for _, number, _ in _found(self.folder)), reverse=True):
            try:
                state = read_checkpoint(self.folder, number)
            except CheckpointError as error:
                logger.warning("%s The one before is tried.", str(error))
                continue
            if "progress" in state:
                self._remove_dropped(state["progress"]["keeper"]["numbers"], number)
                return state
            logger.warning("%s holds weights alone. The one before is tried.", self.path(number))
        return None

    def _remove_dropped(self, kept: list[int], newest: int) -> None:
        """Remove what a process was killed before removing."""
        if self.keep_last is None:
            return
        for _, number, _ in _found(self.folder):
            if number < newest and number not in kept:
                for path in self.files(number):
                    remove_file(path)


def run_folder(model_dir: str) -> str:
    """A new folder for one run, named by the time; runs that start in one second get the seconds that follow."""
    fs, _ = filesystem_of(model_dir)
    now = time.time()
    while True:
        folder = _join(model_dir, time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now)))
        name = filesystem_of(folder)[1]
        if not fs.exists(name):  # object stores have no folders that a second maker would stumble over
            try:
                fs.makedirs(name, exist_ok=False)
            except FileExistsError:
                pass
            else:
                return folder
        now += 1


def models_folder(run: str) -> str:
    """A new folder in which a fit of a run writes its checkpoints."""
    return stamped_folder(_join(run, "models"))


def stamped_folder(parent: str) -> str:
    """A new folder below another, named by the time."""
    now = time.time()
    fs, _ = filesystem_of(parent)
    while True:
        folder = _join(parent, time.strftime("%Y%m%d_%H%M%S", time.localtime(now)))
        if not fs.exists(filesystem_of(folder)[1]):
            return folder
        now += 1


def without_number(folder: str, name: str) -> None:
    """Call the newest checkpoint of a folder `model` and `optimMethod-<name>`."""
    numbers = [number for _, number, _ in _found(folder)] if is_folder(folder) else []
    if not numbers:
        return
    newest = Checkpoints(folder, name)
    fs, _ = filesystem_of(folder)
    for old, new in zip(newest.files(max(numbers)), newest.files(_NO_NUMBER), strict=True):
        fs.mv(filesystem_of(old)[1], filesystem_of(new)[1])


def run_of(folder: str) -> str:
    """The run that a folder of checkpoints belongs to."""
    return folder.rsplit("/", 2)[0]


def write_state(path: str | os.PathLike[str], state: Any) -> None:
    """Write tensors and plain data to a path, so that a reader finds all of it or nothing."""
    torch = require("torch", "Writing a checkpoint")
    need_plain(state)
    write_file(path, lambda file: torch.save(state, file))


def _pack(state: Any) -> bytes:
    torch = require("torch", "Writing a checkpoint")
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def write_file(path: str | os.PathLike[str], write: Callable[[IO[bytes]], Any]) -> None:
    """Let `write` fill a file: aside, synced, renamed; object stores show a file only when all of it is there."""
    fs, name = filesystem_of(path)
    if not is_local(path):
        _write_remote(fs, name, write)
        return
    target = Path(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with open(aside, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, target)
        _sync_folder(target.parent)
    finally:
        aside.unlink(missing_ok=True)


def _write_remote(fs: Any, name: str, write: Callable[[IO[bytes]], Any]) -> None:
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    if protocols & _OBJECT_STORES:
        # A file that is closed after an error would be uploaded as far as it went.
        content = io.BytesIO()
        write(content)
        fs.pipe_file(name, content.getvalue())
        return
    folder, _, base = name.rpartition("/")
    fs.makedirs(folder, exist_ok=True)
    aside = f"{folder}/.{base}.{uuid.uuid4().hex}"
    try:
        with fs.open(aside, "wb") as file:
            write(file)
        fs.mv(aside, name)
    finally:
        if fs.exists(aside):
            fs.rm(aside)


def _sync_folder(folder: Path) -> None:
    """A renamed file is there for good when its folder is on the disk, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_file(path: str) -> None:
    """Remove a file that may be gone already."""
    fs, name = filesystem_of(path)
    if fs.exists(name):
        fs.rm(name)


def need_plain(state: Any) -> None:
    """Refuse what weights-only loading would refuse to read back."""
    torch = require("torch", "Writing a checkpoint")
    _need_plain(state, "", (torch.Tensor, torch.dtype, torch.device, torch.layout))


def _need_plain(value: Any, place: str, tensors: tuple[type, ...]) -> None:
    if isinstance(value, dict) and type(value) in _PLAIN_DICTS:
        for key, each in value.items():
            _need_plain(each, f"{place}[{key!r}]", tensors)
    elif isinstance(value, list | tuple | set):
        for number, each in enumerate(value):
            _need_plain(each, f"{place}[{number}]", tensors)
    elif type(value) not in _PLAIN and not isinstance(value, tensors):
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise CheckpointError(
            f"a checkpoint holds tensors and plain data, so that reading one runs no code, but there is a {kind} at "
            f"state{place}. Let state_dict() give a number, text, list, dict or tensor instead: float(value), "
            "torch.from_numpy(value)."
        )


def as_plain(value: Any) -> Any:
    """Figures as a checkpoint takes them: numpy's numbers as Python's, arrays as lists; what is not plain is None."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: as_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(each) for each in value]
    return value if type(value) in _PLAIN else None


def read_state(path: str | os.PathLike[str]) -> Any:
    """Read what `write_state` wrote, or any file of tensors and plain data that torch.save wrote."""
    torch = require("torch", "Reading a checkpoint")
    with _opened(path) as file:
        try:
            check_whole(file)
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:
            raise CheckpointError(
                f"{path} cannot be read: it is damaged, or holds more than tensors and plain data. Expected what "
                "save() or torch.save(model.state_dict(), path) writes. "
                f"({type(error).__name__}: {str(error).partition(chr(10))[0]})"
            ) from error


def check_whole(file: IO[bytes]) -> None:
    """Raise `zipfile.BadZipFile` for a damaged file: torch does not look at the sums that it writes, and takes folders
    for tensors. Files of torch's older form have none."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as parts:
            folders = (each.filename for each in parts.infolist() if each.external_attr & _ZIP_FOLDER)
            damaged = parts.testzip() or next(folders, None)
        if damaged is not None:
            raise zipfile.BadZipFile(f"{damaged} in it is not what was written")
    file.seek(0)


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    fs, name = filesystem_of(path)
    if not fs.isfile(name):
        raise PathNotFoundError(f"there is no file {path}. Expected one that save() or torch.save() wrote.")
    with fs.open(name, "rb") as file:
        yield file


def read_dict(path: str) -> dict[str, Any]:
    """Read a file that must hold a dict."""
    state = read_state(path)
    if not isinstance(state, dict):
        raise CheckpointError(
            f"{path} holds a {type(state).__name__}. Expected what save() or a checkpoint wrote, or a state_dict."
        )
    return state


def is_folder(path: str) -> bool:
    fs, name = filesystem_of(path)
    return fs.isdir(name)


def find_checkpoint(folder: str, version: int | None = None, prefix: str | None = None) -> tuple[str, int]:
    """The folder and number of a run's checkpoint: of the newest run the highest, or the version asked for."""
    if not is_folder(folder):
        raise PathNotFoundError(f"there is no folder {folder}. Expected the model_dir of an estimator.")
    found = _found(folder)
    if prefix is not None:
        found = [each for each in found if optimizer_name(each[2], each[1], prefix) is not None]
    if version is not None:
        found = [each for each in found if each[1] == version]
    if not found:
        wanted = "" if version is None else f" with the number {version}"
        raise InvalidArgumentError(
            f"no checkpoint{wanted} was found below {folder}. Expected files model.<n> and optimMethod-<name>.<n>, as "
            "fit(..., checkpoint_trigger=EveryEpoch()) writes them into model_dir."
        )
    _, number, parent = max(found, key=lambda each: each[:2])
    return parent, number


def read_checkpoint(folder: str, version: int | None = None, prefix: str | None = None) -> dict[str, Any]:
    """The state in a folder of checkpoints, the newest by default."""
    parent, number = find_checkpoint(folder, version, prefix)
    name = optimizer_name(parent, number, prefix)
    rest = {} if name is None else read_dict(_file(parent, f"optimMethod-{name}", number))
    return read_dict(_file(parent, "model", number)) | rest


def split_checkpoint(path: str) -> tuple[str, int] | None:
    """The folder and the number, if a path is that of a checkpoint's model."""
    folder, _, base = path.rpartition("/")
    match = _MODEL.fullmatch(base)
    return (folder, int(match.group(1))) if match and match.group(1) else None


def optimizer_name(parent: str, number: int, prefix: str | None = None) -> str | None:
    """The name in `optimMethod-<name>.<number>`, the first one where there are several."""
    fs, folder = filesystem_of(parent)
    ending = "" if number == _NO_NUMBER else f".{number}"
    matches = sorted(map(_base, fs.glob(f"{folder}/optimMethod-{prefix or '*'}{ending}")))
    return matches[0].removeprefix("optimMethod-").removesuffix(ending) if matches else None


def find_fit(model_dir: str, fit: Fit) -> tuple[str, str] | None:
    """The folder of the newest fit below model_dir that began as this one does and left a checkpoint, and its name.

    A `CheckpointError` tells where that one was asked for something else, so that its position would be wrong here.
    """
    if not is_folder(model_dir):
        return None
    for parent in sorted({parent for _, _, parent in _found(model_dir)}, key=lambda each: _stamps(each), reverse=True):
        fs, name = filesystem_of(_join(parent, _FIT))
        if not fs.exists(name):
            continue
        before = Fit(**json.loads(fs.cat_file(name)))
        if before.first_epoch == fit.first_epoch:
            _need_same(before, fit, parent)
            number = max(number for _, number, _ in _found(parent))
            found = optimizer_name(parent, number)
            return None if found is None else (parent, found)
    return None


def _need_same(before: Fit, now: Fit, folder: str) -> None:
    for name, value in asdict(before).items():
        if value != getattr(now, name):
            raise CheckpointError(
                f"the checkpoints in {folder} are of a fit with {name}={value}, but this one has {getattr(now, name)}: "
                f"it could not go on in the middle of an epoch. Use {name}={value}, or leave out resume to begin anew."
            )


def _found(folder: str) -> list[tuple[tuple[str, ...], int, str]]:
    """All checkpoints below a folder: the times in their paths, which order runs, their numbers and folders."""
    fs, root = filesystem_of(folder)
    found = []
    for name in fs.find(root):
        match = _MODEL.fullmatch(_base(name))
        if match:
            inside = name.rpartition("/")[0].removeprefix(root.rstrip("/")).strip("/")
            parent = _join(folder, inside) if inside else folder.rstrip("/")
            if match.group(1) or _STAMP.fullmatch(_base(parent)):  # else a file of another's that is called "model"
                found.append((_stamps(parent), int(match.group(1) or _NO_NUMBER), parent))
    return found


def _stamps(path: str) -> tuple[str, ...]:
    """The times in a path, which order runs."""
    return tuple(part for part in path.split("/") if _STAMP.fullmatch(part))


def _file(folder: str, stem: str, number: int) -> str:
    return _join(folder, stem if number == _NO_NUMBER else f"{stem}.{number}")


def _join(*parts: str) -> str:
    first, *rest = (os.fspath(part) for part in parts)
    return "/".join([first.rstrip("/"), *rest])


def _base(name: str) -> str:
    return name.rstrip("/").rsplit("/", 1)[-1]
