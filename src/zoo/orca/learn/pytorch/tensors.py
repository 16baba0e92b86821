"""Between what feeds and files hold and what models take: arrays, tensors, devices."""

from __future__ import annotations

import collections
import copy
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

CPU = torch.device("cpu")
HALVES = (torch.bfloat16, torch.float16)


def float_type(models: Iterable[torch.nn.Module]) -> torch.dtype:
    """The type that floating features and labels are given: the model's own."""
    for model in models:
        for parameter in model.parameters():
            if parameter.is_floating_point():
                return parameter.dtype
    return torch.get_default_dtype()


def to_tensors(value: Any, floats: torch.dtype) -> Any:
    """Arrays as tensors, however they are nested: doubles become the model's type, integers stay what they are.

    What a user's own loader made of its rows (tensors, text) is left as it is.
    """
    if isinstance(value, np.ndarray):
        tensor = _view(value)
        return tensor.to(floats) if tensor.is_floating_point() and tensor.dtype != floats else tensor
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_tensors(each, floats) for each in value))
    if isinstance(value, list | tuple):
        return type(value)(to_tensors(each, floats) for each in value)
    if isinstance(value, dict):
        return {key: to_tensors(each, floats) for key, each in value.items()}
    return value


def _view(array: np.ndarray) -> Tensor:
    """A tensor on the array's memory; on a copy where others read it, for a model may write into its input, and where
    it lies backwards, as no tensor can."""
    is_usable = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    return torch.from_numpy(array if is_usable else array.copy())


def to_arrays(output: Any) -> Any:
    """A model's output as an array, or a list of arrays for several outputs."""
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, list | tuple):
        return [to_arrays(each) for each in output]
    if not isinstance(output, Tensor):
        return np.asarray(output)
    output = output.detach().cpu()
    return (output.float() if output.dtype is torch.bfloat16 else output).numpy()  # numpy has no bfloat16


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on its way to a GPU: from pinned memory nobody waits for it, nor for what the GPU has to do before."""
    if device.type == "cuda" and tensor.device.type == "cpu" and tensor.layout is torch.strided:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class Leaving:
    """A number on its way here from a GPU; to read it waits for nothing that the GPU is given after it."""

    def __init__(self, number: Tensor):
        self._here = number.detach().to(CPU, non_blocking=True)
        self._event = torch.cuda.current_stream(number.device).record_event()

    def __float__(self) -> float:
        self._event.synchronize()
        return float(self._here)


def leaving(number: Tensor) -> Tensor | Leaving:
    """What `float` reads a number from, as early as it can."""
    return Leaving(number) if number.device.type == "cuda" and number.numel() == 1 else number.detach()


def to_device(value: Any, device: torch.device) -> Any:
    """A batch on a GPU, however it is nested; what cannot go there stays. Nothing is moved to the CPU."""
    if device.type == "cpu":
        return value
    if isinstance(value, Tensor):
        return _sent(value, device)
    if hasattr(value, "to"):
        return value.to(device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(each, device) for each in value))
    if isinstance(value, list | tuple):
        return type(value)(to_device(each, device) for each in value)
    if isinstance(value, dict):
        return {key: to_device(each, device) for key, each in value.items()}
    return value


def device_of(models: Iterable[torch.nn.Module]) -> torch.device:
    """Where models lie: where their first parameter or buffer is."""
    for model in models:
        for tensor in (*model.parameters(), *model.buffers()):
            return tensor.device
    return CPU


def in_full(output: Any) -> Any:
    """A model's output with its halves as float32."""
    if isinstance(output, Tensor):
        return output.float() if output.dtype in HALVES else output
    return type(output)(map(in_full, output)) if type(output) in (list, tuple) else output


def named_buffers(models: Iterable[torch.nn.Module]) -> Iterator[tuple[str, Tensor]]:
    """All buffers, those too that are not saved with a model."""
    for number, model in enumerate(models):
        for name, buffer in model.named_buffers():
            yield f"{number}.{name}", buffer


def snapshot(value: Any) -> Any:
    """The same in memory of its own, tensors on the CPU: it stays while training goes on."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if type(value) in (dict, collections.OrderedDict):
        return type(value)((key, snapshot(each)) for key, each in value.items())
    if type(value) in (list, tuple):
        return type(value)(map(snapshot, value))
    return copy.deepcopy(value)
