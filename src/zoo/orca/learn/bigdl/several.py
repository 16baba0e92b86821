"""Several optimization methods in one training, each for its own submodules of the model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.optimizers import Optimizer


class Several:
    """Methods by the names of submodules, as `LayerEstimator` takes them."""

    def __init__(self, methods: Mapping[str, Optimizer]):
        self.methods = methods

    def torch_parts(self, module: torch.nn.Module) -> dict[str, Any]:
        """One optimizer of all the module's parameters."""
        return {"optimizer": SeveralMethods(list(self.methods.values()), parts_of(module, list(self.methods)))}


def several_methods(methods: Mapping[str, Optimizer]) -> Several:
    """A method for each of several submodules, which have all parameters between them.

    Example:
        several_methods({"features": SGD(0.01), "classifier": Adam(1e-3)})
    """
    if not methods:
        raise InvalidArgumentError("Expected an optimization method for each submodule, got an empty dict.")
    for name, method in methods.items():
        if not isinstance(method, Optimizer):
            raise InvalidArgumentError(
                f"Expected an optimization method for '{name}', such as SGD(0.01), got a {type(method).__name__}."
            )
        if method.needs_closure:
            raise InvalidArgumentError(
                f"{type(method).__name__} evaluates the loss several times in a step, so it cannot be one of several "
                f"methods, but it is that of '{name}'. Use it alone, or another one, such as Adam."
            )
    return Several(methods)


def parts_of(module: torch.nn.Module, names: Sequence[str]) -> list[list[int]]:
    """The parameters of each named submodule, by their numbers among the module's; each must be in one part."""
    numbers = {id(param): number for number, param in enumerate(module.parameters())}
    labels = {id(param): name for name, param in module.named_parameters()}
    owners: dict[int, str] = {}
    parts = []
    for name in names:
        part = [numbers[id(param)] for param in submodule(module, name).parameters()]
        for number in part:
            if number in owners:
                raise InvalidArgumentError(
                    f"Expected each parameter to have one optimization method, but '{owners[number]}' and '{name}' "
                    "share some. Name submodules that lie side by side."
                )
            owners[number] = name
        parts.append(part)
    forgotten = [labels[key] for key, number in numbers.items() if number not in owners]
    if forgotten:
        raise InvalidArgumentError(
            f"Expected an optimization method for every parameter, but these have none: {', '.join(forgotten)}. The "
            f"methods are for {', '.join(names)}; add one for the rest."
        )
    return parts


def submodule(module: torch.nn.Module, name: str) -> torch.nn.Module:
    """A submodule by the name that a layer was given, or by its path in the module."""
    found = [each for each in module.modules() if _given_name(each) == name]
    paths = dict(module.named_modules())
    if not found and name in paths:
        found = [paths[name]]
    if found:
        return found[0]
    known = [given for each in module.modules() if (given := _given_name(each))] or [path for path in paths if path]
    raise InvalidArgumentError(f"There is no submodule '{name}'. The model has: {', '.join(known)}.")


class SeveralMethods(Optimizer):
    """One method made of several, each for its part of the parameters.

    Args:
        parts: the parameters of each, by their numbers.
    """

    def __init__(self, methods: list[Optimizer], parts: list[list[int]]):
        self.methods = methods
        self.parts = parts
        self.learningrate = methods[0].learningrate

    def torch_optimizer(self, params: Iterable[Any]) -> PartsOptimizer:
        chosen = list(params)
        return PartsOptimizer(
            [
                method.torch_optimizer([chosen[number] for number in part])
                for method, part in zip(self.methods, self.parts, strict=True)
                if part
            ]
        )

    def torch_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        methods = [method for method, part in zip(self.methods, self.parts, strict=True) if part]
        members = getattr(optimizer, "members", [])
        made = [method.torch_scheduler(member) for method, member in zip(methods, members, strict=True)]
        schedules = [each for each in made if each is not None]
        return PartsSchedule(schedules) if schedules else None


class PartsOptimizer(torch.optim.Optimizer):
    """A torch optimizer that steps several, each over its own parameters."""

    #: Members know their own parameters, not slices of them.
    elementwise = False

    def __init__(self, members: list[torch.optim.Optimizer]):
        self.members = members
        super().__init__([group for member in members for group in member.param_groups], {})
        self._share_groups()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for member in self.members:
            member.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        return {"members": [member.state_dict() for member in self.members]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for member, state in zip(self.members, state_dict["members"], strict=True):
            member.load_state_dict(state)
        self._share_groups()

    def _share_groups(self) -> None:
        """Schedules set the members' rates, and readers look here: they must be the same groups."""
        self.param_groups = [group for member in self.members for group in member.param_groups]


class PartsSchedule:
    """Several schedules as one, each of its own optimizer."""

    def __init__(self, schedules: list[Any]):
        self.schedules = schedules

    @property
    def monitors(self) -> set[str]:
        return set().union(*(each.monitors for each in self.schedules))

    def step(self) -> None:
        for each in self.schedules:
            each.step()

    def observe(self, loss: float | None = None, score: float | None = None) -> None:
        for each in self.schedules:
            each.observe(loss, score)

    def state_dict(self) -> dict[str, Any]:
        return {"schedules": [each.state_dict() for each in self.schedules]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for each, state in zip(self.schedules, copy.deepcopy(state_dict["schedules"]), strict=True):
            each.load_state_dict(state)


def _given_name(module: torch.nn.Module) -> str | None:
    """The name that the user gave to the layer of a module."""
    return getattr(module, "layer_name", None)
