"""The weights of modules as arrays, in the order and shapes that BigDL shows them in."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from bigdl.nn.parts import Part
from bigdl.util.common import JTensor
from zoo.orca.errors import InvalidArgumentError

Place = tuple[nn.Module, str]
#: Buffers that belong into `parameters()`, and what BigDL calls them.
STATISTICS = {"running_mean": "runningMean", "running_var": "runningVar"}


def places(module: nn.Module) -> list[Place]:
    """Where each weight is, in order; a weight that several layers share comes once."""
    found: dict[int, Place] = {}
    for owner in module.modules():
        for name, weight in owner.named_parameters(recurse=False):
            found.setdefault(id(weight), (owner, name))
    return list(found.values())


def shown_shape(owner: nn.Module, name: str) -> tuple[int, ...]:
    """The shape that BigDL shows a weight in."""
    spec = owner.specs.get(name) if isinstance(owner, Part) else None
    return tuple(getattr(owner, name).shape) if spec is None else spec.shown


def shown(owner: nn.Module, name: str) -> np.ndarray:
    """A copy of a weight."""
    return getattr(owner, name).detach().cpu().numpy().reshape(shown_shape(owner, name)).copy()


def assign(whose: str, targets: Sequence[Place], values: Sequence[Any]) -> None:
    """Set weights, all or none of them."""
    if not isinstance(values, list | tuple):
        raise InvalidArgumentError(f"Expected a list of arrays, as get_weights() returns, got {type(values).__name__}")
    if len(values) != len(targets):
        raise InvalidArgumentError(
            f"{whose} has {len(targets)} weights, of shapes {[shown_shape(*place) for place in targets]}, "
            f"but {len(values)} came."
        )
    pairs = list(zip(targets, values, strict=True))
    arrays = [fitting(f"{whose}'s {name}", owner, name, value) for (owner, name), value in pairs]
    with torch.no_grad():
        for (owner, name), array in zip(targets, arrays, strict=True):
            getattr(owner, name).copy_(array)


def fitting(what: str, owner: nn.Module, name: str, value: Any) -> torch.Tensor:
    """A value in the shape of a weight: given as BigDL shows it, or as torch has it; sides of 1 do not count."""
    weight = getattr(owner, name)
    try:
        array = np.asarray(value.to_ndarray() if isinstance(value, JTensor) else value, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"Expected an array of numbers for {what}: {error}") from error
    fits = [_without_ones(shown_shape(owner, name)), _without_ones(weight.shape)]
    if _without_ones(array.shape) not in fits:
        raise InvalidArgumentError(f"Expected shape {shown_shape(owner, name)} for {what}, got {array.shape}")
    return torch.from_numpy(array.reshape(tuple(weight.shape)).copy())


def _without_ones(shape: Iterable[int]) -> tuple[int, ...]:
    return tuple(side for side in shape if side != 1)


def table(module: nn.Module) -> dict[str, np.ndarray]:
    """A layer's weights and gradients, named as BigDL does."""
    found: dict[str, np.ndarray] = {}
    for owner, name in places(module):
        gradient = getattr(owner, name).grad
        label = _free(_camel(name), found)
        found[label] = shown(owner, name)
        zeros = np.zeros(shown_shape(owner, name), np.float32)
        found[f"grad{label[0].upper()}{label[1:]}"] = (
            zeros if gradient is None else gradient.cpu().numpy().reshape(zeros.shape).copy()
        )
    for name, buffer in module.named_buffers(recurse=False):
        if name in STATISTICS:
            found[STATISTICS[name]] = buffer.cpu().numpy().copy()
    return found


def _free(label: str, taken: dict[str, np.ndarray]) -> str:
    candidates = itertools.chain([label], (f"{label}{number}" for number in itertools.count(2)))
    return next(each for each in candidates if each not in taken)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def versions(module: nn.Module) -> list[int]:
    """How often each weight was written to."""
    return [weight._version for weight in module.parameters()]


def no_such_layer(whose: str, name: str, known: Iterable[str]) -> str:
    """What to say to a name that no layer has."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"{whose} has no layer of name '{name}'.{hint} Its layers: {', '.join(known)}."
