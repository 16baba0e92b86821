"""TorchModel: a torch module as a layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from bigdl.nn.base import Layer
from bigdl.nn.parts import Part
from zoo.orca.errors import InvalidArgumentError
from zoo.pipeline.api.torch.utils import trainable_param


class Foreign(Part):
    """A torch module that takes and gives several tensors as layers do: in a list."""

    def __init__(self, net: torch.nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x: Any) -> Any:
        output = self.net(*x) if isinstance(x, list | tuple) else self.net(x)
        return list(output) if isinstance(output, tuple) else output


class TorchModel(Layer):
    """A torch module as a layer of BigDL: it can be called with arrays, trained by the older front doors, and saved.

    It is the very module that was given, so an optimizer that was made for that fits.

    Example:
        >>> TorchModel.from_pytorch(torch.nn.Linear(2, 1)).forward(np.ones((3, 2))).shape
        (3, 1)
    """

    def __init__(self, module: torch.nn.Module):
        super().__init__(Foreign(module))

    @staticmethod
    def from_pytorch(model: torch.nn.Module | Callable[[], torch.nn.Module]) -> TorchModel:
        """A layer from a module, or from a function without arguments that returns one."""
        made = model if isinstance(model, torch.nn.Module) or not callable(model) else model()
        if not isinstance(made, torch.nn.Module):
            raise InvalidArgumentError(
                "TorchModel takes a torch.nn.Module, or a function without arguments that returns one, but got a "
                f"{type(made).__name__}."
            )
        return TorchModel(made)

    @staticmethod
    def from_value(model_value: Any) -> TorchModel:
        """A layer from the `value` of one, such as `Model.load(path).value`."""
        return TorchModel.from_pytorch(model_value.net if isinstance(model_value, Foreign) else model_value)

    def to_pytorch(self) -> torch.nn.Module:
        """The module, with its weights and buffers as they are now."""
        return self.module.net

    def get_weights(self) -> list[np.ndarray]:
        """One flat array of all parameters that training changes, in order."""
        flat = [each.detach().cpu().float().reshape(-1) for each in trainable_param(self.module)]
        return [torch.cat(flat).numpy() if flat else np.zeros(0, np.float32)]

    def set_weights(self, new_weights: Sequence[Any]) -> None:
        """Set them, given as `get_weights` returns them; what is frozen stays."""
        parameters = trainable_param(self.module)
        count = sum(each.numel() for each in parameters)
        flat = [np.asarray(each, np.float32).reshape(-1) for each in new_weights]
        if len(flat) != 1 or flat[0].size != count:
            raise InvalidArgumentError(
                f"set_weights takes a list of one array of {count} values, as get_weights() returns it, but got "
                f"{len(flat)} of {[each.size for each in flat]} values."
            )
        values = torch.from_numpy(flat[0]).split([each.numel() for each in parameters])
        with torch.no_grad():
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(value.reshape(parameter.shape))

    def saved_form(self, pen: Any) -> dict[str, Any]:
        return {"module": pen.pickled(self.to_pytorch())}

    @classmethod
    def from_saved(cls, form: dict[str, Any], reader: Any) -> TorchModel:
        return cls(reader.unpickled(form["module"]))

    def __repr__(self) -> str:
        return f"TorchModel({type(self.to_pytorch()).__name__})"
