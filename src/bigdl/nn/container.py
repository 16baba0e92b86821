"""Layers of layers: one after the other, side by side, and over the entries of a table."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from bigdl.nn.base import Layer
from bigdl.nn.parts import Part, Table, axis, call
from bigdl.util.common import INTMAX
from zoo.orca.errors import InvalidArgumentError


class ContainerPart(Part):
    """Modules by number, some of which may be the same one."""

    def append(self, module: nn.Module) -> None:
        self.add_module(str(len(self._modules)), module)

    def held(self) -> list[nn.Module]:
        return [module for module in self._modules.values() if module is not None]

    def only(self) -> nn.Module:
        """The one module of a container that holds one."""
        for module in self.held():
            return module
        raise InvalidArgumentError(f"{self.layer_name} holds no layer yet: give it one with add(layer)")


class SequentialPart(ContainerPart):
    def forward(self, x: Any) -> Any:
        for module in self.held():
            x = call(module, x)
        return x


class ConcatPart(ContainerPart):
    def __init__(self, dimension: int):
        super().__init__()
        self.dimension = dimension

    def forward(self, x: Any) -> Tensor:
        outputs = [call(module, x) for module in self.held()]
        return torch.cat(outputs, axis(outputs[0], self.dimension))


class ConcatTablePart(ContainerPart):
    def forward(self, x: Any) -> Table:
        return [call(module, x) for module in self.held()]


class ParallelTablePart(ContainerPart):
    def forward(self, x: Table) -> Table:
        modules = self.held()
        if len(modules) != len(x):
            raise InvalidArgumentError(f"ParallelTable has {len(modules)} layers, but a table of {len(x)} came.")
        return [call(module, each) for module, each in zip(modules, x, strict=True)]


class MapTablePart(ContainerPart):
    def forward(self, x: Table) -> Table:
        module = self.only()
        return [call(module, each) for each in x]


class BottlePart(ContainerPart):
    def __init__(self, n_input_dim: int, n_output_dim: int):
        super().__init__()
        self.n_input_dim = n_input_dim
        self.n_output_dim = n_output_dim

    def forward(self, x: Tensor) -> Tensor:
        module = self.only()
        leading = x.shape[: x.dim() - self.n_input_dim + 1]
        output = call(module, x.reshape(-1, *x.shape[len(leading) :]))
        return output.reshape(*leading, *output.shape[output.dim() - self.n_output_dim + 1 :])


class TimeDistributedPart(ContainerPart):
    def forward(self, x: Tensor) -> Tensor:
        module = self.only()
        output = call(module, x.flatten(0, 1))
        return output.reshape(*x.shape[:2], *output.shape[1:])


class TableOperationPart(ContainerPart):
    def forward(self, x: Table) -> Any:
        module = self.only()
        return call(module, list(torch.broadcast_tensors(*x)))


class Container(Layer):
    """A layer that holds others."""

    module: ContainerPart

    def __init__(self, module: ContainerPart, bigdl_type: str = "float"):
        super().__init__(module)
        self._layers: list[Layer] = []

    def add(self, model: Layer) -> Container:
        """Put a layer behind those that are there; returns the container."""
        if not isinstance(model, Layer):
            raise InvalidArgumentError(
                f"Expected a layer of bigdl.nn.layer, got {type(model).__name__}. A torch module is made one with "
                "TorchModel.from_pytorch(module), and nodes make a Model(inputs, outputs)."
            )
        self._layers.append(model)
        self._hold(model)
        return self

    def _hold(self, model: Layer) -> None:
        self.module.append(model.module)

    @property
    def layers(self) -> list[Layer]:
        """The layers, in the order in which they were added."""
        return list(self._layers)

    def _children(self) -> list[Layer]:
        return self._layers

    def __repr__(self) -> str:
        inner = "".join(f"\n  {line}" for layer in self._layers for line in repr(layer).splitlines())
        return f"{super().__repr__()}[{inner}\n]" if inner else super().__repr__()

    def saved_form(self, pen: Any) -> dict[str, Any]:
        return {**super().saved_form(pen), "added": [pen.number(layer) for layer in self._added()]}

    def _added(self) -> list[Layer]:
        """The layers that came through `add`, and not with the constructor."""
        return self._layers

    @classmethod
    def from_saved(cls, form: dict[str, Any], reader: Any) -> Layer:
        made = cast(Container, super().from_saved(form, reader))
        for number in form["added"]:
            made.add(reader.layer(number))
        return made


class Sequential(Container):
    """Layers one after the other.

    Example: ``Sequential().add(Linear(10, 5)).add(ReLU()).add(Linear(5, 1))``
    """

    def __init__(self, bigdl_type: str = "float"):
        super().__init__(SequentialPart())

    def _up_to(self, name: str) -> Layer:
        cut = Sequential()
        cut.training(self.is_training())  # of itself: the layers keep theirs
        for layer in self._layers:
            found = any(each.name() == name for each in layer.flattened_layers(include_container=True))
            cut.add(layer._up_to(name) if found and layer.name() != name else layer)
            if found:
                return cut
        return self.layer(name)  # which says that there is none


class Concat(Container):
    """The outputs of several layers over one input, joined along a dimension (from 1, the batch's is the first)."""

    def __init__(self, dimension: int, bigdl_type: str = "float"):
        super().__init__(ConcatPart(dimension))


class ConcatTable(Container):
    """The table of the outputs of several layers over one input."""

    def __init__(self, bigdl_type: str = "float"):
        super().__init__(ConcatTablePart())


class ParallelTable(Container):
    """Each layer over its own entry of a table."""

    def __init__(self, bigdl_type: str = "float"):
        super().__init__(ParallelTablePart())


class _OneLayer(Container):
    """A container of exactly one layer, given to the constructor or added."""

    def add(self, model: Layer) -> Container:
        if self._layers:
            raise InvalidArgumentError(f"{type(self).__name__} holds one layer, and has {self._layers[0]!r} already.")
        return super().add(model)

    def _added(self) -> list[Layer]:
        given = any(isinstance(value, Layer) for value in self.arguments.values())
        return [] if given else self._layers


class MapTable(_OneLayer):
    """One layer, with the same weights, over every entry of a table.

    Example: ``MapTable(Linear(10, 3))``
    """

    def __init__(self, module: Layer | None = None, bigdl_type: str = "float"):
        super().__init__(MapTablePart())
        if module is not None:
            self.add(module)


class Bottle(_OneLayer):
    """A layer for few dimensions over an input of more: the first ones are joined for it, and split again.

    Args:
        n_input_dim: the dimensions that the layer takes, the joined one included.
        n_output_dim1: the dimensions that it gives; as many as it takes if left out.

    Example: ``Bottle(Linear(10, 2)).forward(np.ones((4, 5, 10))).shape`` is (4, 5, 2).
    """

    def __init__(self, module: Layer, n_input_dim: int = 2, n_output_dim1: int = INTMAX, bigdl_type: str = "float"):
        super().__init__(BottlePart(n_input_dim, n_input_dim if n_output_dim1 == INTMAX else n_output_dim1))
        self.add(module)


class TimeDistributed(_OneLayer):
    """One layer over every time step of (batch, time, ...).

    Example: ``TimeDistributed(Linear(10, 2))``
    """

    def __init__(self, model: Layer, bigdl_type: str = "float"):
        super().__init__(TimeDistributedPart())
        self.add(model)


class TableOperation(_OneLayer):
    """A layer over a table of two, such as CMulTable, whose tensors are brought to the same shape first."""

    def __init__(self, operation_layer: Layer, bigdl_type: str = "float"):
        super().__init__(TableOperationPart())
        self.add(operation_layer)
