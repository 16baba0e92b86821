"""How training computes: in which precision, over how many batches a step, how large gradients may be, and where."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import shutil
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from zoo.orca.errors import InvalidArgumentError, MissingPackageError
from zoo.orca.learn.pytorch.loss import Criterion

Context = Callable[[], AbstractContextManager[Any]]

#: Each precision, and the type that autocast computes in; None computes in that of the weights.
PRECISIONS: dict[str, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_DEVICE = re.compile(r"cpu|cuda(:\d+)?")
_COMPILERS = ("c++", "g++", "clang++")
# What cuBLAS needs to give the same bits again; it is read when a process first uses it.
_CUBLAS, _CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"


@dataclass(frozen=True)
class Numerics:
    """The keywords of `Estimator.from_torch` that say how to compute, checked.

    Args:
        precision: "fp32", "bf16" or "fp16": what models and losses compute in; weights stay as they are.
        accumulate: so many global batches make one step of the optimizer.
        compile: whether torch.compile compiles the models.
        clip_norm: the largest L2 norm of the gradient over all workers.
        clip_value: the largest absolute value of each element of the gradient over all workers.
        deterministic: whether torch may use only algorithms that give the same bits again.
        device: "cpu", "cuda", "cuda:1"; None is a GPU where there is one.
        stop_on_nan: whether a loss that is NaN or inf ends training.

    Example:
        >>> Numerics(precision="bf16", clip_value=0.5).clip
        ('value', -0.5, 0.5)
    """

    precision: str = "fp32"
    accumulate: int = 1
    compile: bool = False
    clip_norm: float | None = None
    clip_value: float | None = None
    deterministic: bool = False
    device: str | None = None
    stop_on_nan: bool = False

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise InvalidArgumentError(
                f"precision must be one of {', '.join(map(repr, PRECISIONS))}, but is {self.precision!r}."
            )
        if isinstance(self.accumulate, bool) or not isinstance(self.accumulate, int) or self.accumulate < 1:
            raise InvalidArgumentError(
                f"accumulate must be a whole number of at least 1, the batches of a step, but is {self.accumulate!r}."
            )
        for name in ("compile", "deterministic", "stop_on_nan"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgumentError(f"{name} must be True or False, but is {getattr(self, name)!r}.")
        self._check_clips()
        if isinstance(self.device, torch.device):
            object.__setattr__(self, "device", str(self.device))
        if self.device is not None and not (isinstance(self.device, str) and _DEVICE.fullmatch(self.device)):
            raise InvalidArgumentError(
                f'device must be "cpu", "cuda", "cuda:<number>" or None, but is {self.device!r}.'
            )

    def _check_clips(self) -> None:
        for name in ("clip_norm", "clip_value"):
            value = getattr(self, name)
            if value is not None and not (is_real(value) and 0 < value < math.inf):
                raise InvalidArgumentError(f"{name} must be a number above 0, or None, but is {value!r}.")
        if self.clip_norm is not None and self.clip_value is not None:
            raise InvalidArgumentError(
                f"clip_norm ({self.clip_norm}) and clip_value ({self.clip_value}) are two ways to clip the gradient. "
                "Give one of them."
            )

    @property
    def clip(self) -> tuple[Any, ...] | None:
        """How combined gradients are clipped, as a replica takes it."""
        if self.clip_norm is not None:
            return ("norm", float(self.clip_norm))
        return None if self.clip_value is None else ("value", -float(self.clip_value), float(self.clip_value))

    @property
    def scales_loss(self) -> bool:
        """Whether gradients would be lost below the smallest number without a scale."""
        return self.precision == "fp16"

    def context(self, device: torch.device) -> Context | None:
        """Makes what forward passes and losses run in; None where there is nothing to do."""
        dtype = PRECISIONS[self.precision]
        return None if dtype is None else functools.partial(torch.autocast, device.type, dtype=dtype)


class LossScale:
    """What the loss is multiplied by before the backward pass, so that small gradients survive in fp16.

    It halves when a gradient was too large for fp16, and doubles after many steps without such.
    """

    first = 2.0**16
    growth_interval = 2000
    #: A scale this small helps nobody: something else must be wrong.
    suspicious = 1.0
    least = 2.0**-16

    def __init__(self) -> None:
        self.value = self.first
        self.good_steps = 0

    def shrink(self) -> None:
        self.value = max(self.value / 2, self.least)
        self.good_steps = 0

    def keep(self) -> None:
        """A step went well."""
        self.good_steps += 1
        if self.good_steps == self.growth_interval:
            self.value *= 2
            self.good_steps = 0

    def state(self) -> dict[str, Any]:
        return {"value": self.value, "good_steps": self.good_steps}

    def load(self, state: dict[str, Any]) -> None:
        self.value, self.good_steps = state["value"], state["good_steps"]


def run_in(model: torch.nn.Module, context: Context) -> Callable[[], None]:
    """Let a model's forward run in a context, whoever calls it; gives a function that takes this back.

    Copies of the model run their own forward in the context, and what is saved of it does not hold it.
    """
    before = vars(model).get("forward")
    forward = model.forward
    function = getattr(forward, "__func__", None)
    if function is None or forward.__self__ is not model:  # a function that somebody put there

        def function(_: Any, *args: Any, **named: Any) -> Any:
            return forward(*args, **named)

    @functools.wraps(function)
    def inside(self: Any, *args: Any, **named: Any) -> Any:
        with context():
            return function(self, *args, **named)

    model.forward = types.MethodType(inside, model)

    def take_back() -> None:
        del model.forward
        if before is not None:
            model.forward = before

    return take_back


def compute_in(
    numerics: Numerics,
    models: Iterable[torch.nn.Module],
    criterion: Criterion | None,
    device: torch.device,
    undo: contextlib.ExitStack | None = None,
) -> None:
    """Let models and the loss compute in the precision asked for, on their device; `undo` takes it back."""
    if criterion is not None and isinstance(criterion.loss, torch.nn.Module):
        criterion.loss.to(device)  # class weights
    context = numerics.context(device)
    if context is None:
        return
    if criterion is not None:
        criterion.context = context
    for model in models:
        take_back = run_in(model, context)
        if undo is not None:
            undo.callback(take_back)


def compile_model(model: torch.nn.Module) -> Callable[[], None]:
    """Compile in place, so that names in its state_dict stay; gives a function that takes this back.

    The work is done at the first batch."""
    if not (os.environ.get("CXX") or any(map(shutil.which, _COMPILERS))):
        raise MissingPackageError(
            "compile=True needs a C++ compiler on every worker, but none of "
            f"{', '.join(_COMPILERS)} is on this one's PATH. Type: apt-get install g++, set CXX, or leave out compile."
        )
    # Torch compiles none of its own files, as which it takes the forward of a model such as nn.Sequential.
    take_back = run_in(model, contextlib.nullcontext)
    # Compiler processes of torch's own would outlive the fit.
    model.compile(options={"compile_threads": 1})
    return take_back


@contextlib.contextmanager
def names_of_the_script(models: Iterable[torch.nn.Module]) -> Iterator[None]:
    """Let torch's compiler find the names that models of the user's script use.

    It looks for them in the module that a function says it is of. Functions of the script came here by value, with
    names of their own, while `__main__` is another one here."""
    main = vars(sys.modules["__main__"])
    classes = {kind for model in models for module in model.modules() for kind in type(module).__mro__}
    spaces = [getattr(each, "__globals__", {}) for kind in classes for each in vars(kind).values()]
    names = {
        name: value
        for space in spaces
        if space is not main and space.get("__name__") == "__main__"
        for name, value in space.items()
        if not name.startswith("__")
    }
    before = {name: main[name] for name in names if name in main}
    main.update(names)
    try:
        yield
    finally:
        for name in names:
            del main[name]
        main.update(before)


@contextlib.contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Only algorithms that give the same bits again; afterwards what was set before."""
    cudnn = torch.backends.cudnn
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    flags, workspace = (cudnn.deterministic, cudnn.benchmark), os.environ.get(_CUBLAS)
    os.environ.setdefault(_CUBLAS, _CUBLAS_WORKSPACE)
    torch.use_deterministic_algorithms(True)
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        cudnn.deterministic, cudnn.benchmark = flags
        if workspace is None:
            os.environ.pop(_CUBLAS, None)


def is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
