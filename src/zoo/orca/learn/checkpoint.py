"""Checkpoints and saved models: tensors and plain data, written whole or not at all, read without running code."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections import Counter, OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.orca.errors import CheckpointError, InvalidArgumentError, PathNotFoundError
from zoo.orca.optional import require

_STAMP = re.compile(r"\d{4}-\d{2}-\d{2}_\d{2}-\d{2}-\d{2}|\d{8}_\d{6}")
_MODEL = re.compile(r"model\.(\d+)")
# What torch reads back with weights_only=True, beside its own types; of exactly these types.
_PLAIN = {type(None), bool, int, float, complex, str, bytes, bytearray}
_PLAIN_DICTS = {dict, OrderedDict, Counter}


@dataclass(frozen=True)
class Checkpoints:
    """The folder of one run's checkpoints: `model.<n>` and `optimMethod-<name>.<n>`, n being the next iteration."""

    folder: str
    name: str

    def write(self, number: int, state: dict[str, Any]) -> None:
        rest = {key: value for key, value in state.items() if key != "models"}
        write_state(f"{self.folder}/optimMethod-{self.name}.{number}", rest)
        # The model last: a checkpoint is there when its model is.
        write_state(f"{self.folder}/model.{number}", {"models": state["models"]})


def run_folder(model_dir: str) -> Path:
    """A new folder for one run, named by the time; runs that start in one second get the seconds that follow."""
    now = time.time()
    while True:
        folder = Path(model_dir) / time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now))
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            now += 1
        else:
            return folder


def models_folder(run: Path) -> Path:
    """Where a run writes its checkpoints."""
    return run / "models" / time.strftime("%Y%m%d_%H%M%S")


def write_state(path: str, state: Any) -> None:
    """Write tensors and plain data to a path: aside, synced, renamed, so that a reader finds all of it or nothing."""
    torch = require("torch", "Writing a checkpoint")
    _need_plain(state, "", (torch.Tensor, torch.dtype, torch.device, torch.layout))
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with open(aside, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)


def _need_plain(value: Any, place: str, tensors: tuple[type, ...]) -> None:
    """Refuse what weights-only loading would refuse to read back."""
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


def read_state(path: str) -> Any:
    """Read what `write_state` wrote, or any file of tensors and plain data that torch.save wrote."""
    torch = require("torch", "Reading a checkpoint")
    if not os.path.isfile(path):
        raise PathNotFoundError(f"there is no file {path}. Expected one that save() or torch.save() wrote.")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CheckpointError(
            f"{path} cannot be read: it is damaged, or holds more than tensors and plain data. Expected what save() or "
            f"torch.save(model.state_dict(), path) writes. ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
        ) from error


def read_dict(path: str) -> dict[str, Any]:
    """Read a file that must hold a dict."""
    state = read_state(path)
    if not isinstance(state, dict):
        raise CheckpointError(
            f"{path} holds a {type(state).__name__}. Expected what save() or a checkpoint wrote, or a state_dict."
        )
    return state


def find_checkpoint(folder: str, version: int | None = None, prefix: str | None = None) -> tuple[Path, int]:
    """The folder and number of a run's checkpoint: of the newest run the highest, or the version asked for."""
    root = Path(folder)
    if not root.is_dir():
        raise PathNotFoundError(f"there is no folder {folder}. Expected the model_dir of an estimator.")
    found = [
        (_stamps(file.parent, root), int(match.group(1)), file.parent)
        for file in root.rglob("model.*")
        if (match := _MODEL.fullmatch(file.name))
    ]
    if prefix is not None:
        found = [each for each in found if _optimizer_file(each[2], each[1], prefix) is not None]
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
    rest = _optimizer_file(parent, number, prefix)
    return read_dict(str(parent / f"model.{number}")) | (read_dict(str(rest)) if rest is not None else {})


def _optimizer_file(parent: Path, number: int, prefix: str | None) -> Path | None:
    matches = sorted(parent.glob(f"optimMethod-{prefix or '*'}.{number}"))
    return matches[0] if matches else None


def _stamps(parent: Path, root: Path) -> tuple[str, ...]:
    """The times in a path, which order runs."""
    return tuple(part for part in parent.relative_to(root).parts if _STAMP.fullmatch(part))
