"""Optimizers in files: what they are made with and how far training came, as plain data and tensors."""

from __future__ import annotations

import os
from typing import Any

from zoo.orca.data.file import exists
from zoo.orca.errors import CheckpointError, InvalidArgumentError, PathExistsError
from zoo.orca.learn.checkpoint import need_plain, read_dict, write_state
from zoo.orca.learn.optimizers import schedule
from zoo.orca.learn.optimizers.schedule import Scheduler

_SCHEDULE = "schedule"
# Of how far training came: which object was trained is nothing for a file.
_OF_THIS_PROCESS = ("module",)


def save(method: Any, path: str | os.PathLike[str], over_write: bool = False) -> None:
    """Write an optimizer with its counters and its state."""
    if exists(path) and not over_write:
        raise PathExistsError(f"{path} exists already. To replace it type: save(path, overWrite=True).")
    progress = {key: value for key, value in (method.progress or {}).items() if key not in _OF_THIS_PROCESS}
    write_state(path, _described(method) | {"progress": progress or None})


def described(method: Any) -> dict[str, Any] | None:
    """What `load` makes an optimizer from, as plain data; None where that cannot be said."""
    try:
        form = _described(method)
        need_plain(form)
    except (InvalidArgumentError, CheckpointError):
        return None
    return form


def load(path: str | os.PathLike[str], base: type) -> Any:
    """Read what `save` or a checkpoint wrote.

    The class must be below the base already, so that reading a file imports nothing.
    """
    return made(read_dict(os.fspath(path)), os.fspath(path), base)


def made(state: dict[str, Any], path: str, base: type) -> Any:
    """The optimizer of a file, or of a checkpoint, that was read."""
    if not {"class", "made_with"} <= state.keys():
        raise CheckpointError(
            f"{path} holds no optimization method. Expected what OptimMethod.save(path) or a checkpoint wrote."
        )
    known = {_name(kind): kind for kind in _below(base)}
    kind = known.get(state["class"])
    if kind is None:
        raise CheckpointError(
            f"{path} holds a {state['class']}, which is not there. Import the module that has it, then load again."
        )
    method: Any = object.__new__(kind)
    vars(method).update(_made(state["made_with"]))
    method.progress = _of_checkpoint(state) if "optimizers" in state else state["progress"]
    return method


def _of_checkpoint(state: dict[str, Any]) -> dict[str, Any]:
    """Where a checkpoint stands; an epoch that it was written in begins anew, as with load_orca_checkpoint."""
    kept = ("optimizers", "schedulers", "operator", "epoch", "neval", "shapes")
    return {key: state[key] for key in kept if key in state} | {"rate": state["made_with"].get("learningrate")}


def _described(method: Any) -> dict[str, Any]:
    return {"class": _name(type(method)), "made_with": _plain(vars(method))}


def _below(base: type) -> list[type]:
    direct: list[type] = base.__subclasses__()
    return [*direct, *(kind for each in direct for kind in _below(each))]


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _plain(value: Any) -> Any:
    """Arguments as plain data; a schedule is its class and its own."""
    if isinstance(value, Scheduler):
        name = type(value).__name__
        if getattr(schedule, name, None) is not type(value):
            raise InvalidArgumentError(
                f"{name} is a schedule of your own, which cannot be written to a file. "
                "Use one of zoo.orca.learn.optimizers.schedule, or give your own again after loading."
            )
        return {_SCHEDULE: name, "made_with": _plain(vars(value))}
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _made(value: Any) -> Any:
    if isinstance(value, list):
        return [_made(each) for each in value]
    if not isinstance(value, dict):
        return value
    if _SCHEDULE not in value:
        return {key: _made(each) for key, each in value.items()}
    made: Any = object.__new__(getattr(schedule, value[_SCHEDULE]))
    vars(made).update(_made(value["made_with"]))
    return made
