"""Linear layers in 8-bit integers: torch's dynamic quantization."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from bigdl.nn.parts import Part
from zoo.orca.errors import InvalidArgumentError

if TYPE_CHECKING:
    from bigdl.nn.base import Layer


class QuantizedLinear(Part):
    """A linear module whose weights are 8-bit integers, and whose input is made so batch by batch."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None):
        super().__init__()
        outputs, inputs = weight.shape
        linear = nn.Linear(inputs, outputs, bias is not None)
        linear.weight.data = weight.detach().clone()
        if bias is not None:
            linear.bias.data = bias.detach().clone()
        linear.qconfig = torch.ao.quantization.default_dynamic_qconfig
        self.inner = torch.ao.nn.quantized.dynamic.Linear.from_float(linear)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.contiguous())

    def __reduce__(self) -> Any:
        data = io.BytesIO()
        with quiet():
            torch.save(vars(self), data)
        return _unpacked, (data.getvalue(),)


def _unpacked(data: bytes) -> QuantizedLinear:
    """What was pickled again, without torch's notices in every worker."""
    made = QuantizedLinear.__new__(QuantizedLinear)
    with quiet():
        vars(made).update(torch.load(io.BytesIO(data), weights_only=False))
    return made


@contextmanager
def quiet() -> Iterator[None]:
    """Without torch's notice that its quantized tensors are to move to another library one day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def is_quantized(layer: Layer) -> bool:
    """Whether a layer came from `quantize`."""
    return any(isinstance(module, QuantizedLinear) for module in layer.module.modules())


def quantized(layer: Layer) -> Layer:
    """A copy of a layer with its linear modules quantized, for prediction."""
    found = copy.deepcopy(layer)
    with quiet():
        made = {
            module: QuantizedLinear(module.weight, module.bias)
            for module in found.module.modules()
            if getattr(type(module), "quantizable", False) or type(module) is nn.Linear
        }
    if not made:
        raise InvalidArgumentError(
            f"torch quantizes linear layers, of which {layer.name()} has none; other kinds stay as they are."
        )
    for parent in list(found.module.modules()):
        for name, child in list(parent._modules.items()):
            if child in made:
                parent._modules[name] = made[child]
    for each in found.flattened_layers(include_container=True):
        if each.module in made:
            name, each.module = each.name(), made[each.module]
            each.set_name(name)
    return found.evaluate()
