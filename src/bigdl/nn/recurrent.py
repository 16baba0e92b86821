"""Layers that take a cell through time."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bigdl.nn.base import Layer
from bigdl.nn.container import Container, ContainerPart
from bigdl.nn.criterion_base import as_tensors
from bigdl.nn.parts import call
from bigdl.nn.parts_recurrent import Cell, State
from zoo.orca.errors import InvalidArgumentError


class RecurrentPart(ContainerPart):
    """(batch, time, ...) through the time steps of a cell.

    Attributes:
        begins: the state before the first step; None for the cell's own.
        ended: the state after the last step.
    """

    def __init__(self, backwards: bool = False):
        super().__init__()
        self.backwards = backwards
        self.begins: State | None = None
        self.ended: State | None = None

    def forward(self, x: Tensor) -> Tensor:
        cell: Any = self.only()
        x = x.flip(1) if self.backwards else x
        state = cell.initial(x[:, 0]) if self.begins is None else self.begins
        output, state = cell.whole(x, state) or self._step_by_step(cell, x, state)
        self.ended = [each.detach() for each in state]
        return output.flip(1) if self.backwards else output

    @staticmethod
    def _step_by_step(cell: Cell, x: Tensor, state: State) -> tuple[Tensor, State]:
        outputs = []
        for step in cell.project(x).unbind(1):
            output, state = cell.step(step, state)
            outputs.append(output)
        return torch.stack(outputs, dim=1), state

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "ended": None}


class DecoderPart(RecurrentPart):
    """One input, and each output as the input of the next step."""

    def __init__(self, length: int):
        super().__init__()
        self.length = length

    def forward(self, x: Tensor) -> Tensor:
        cell: Any = self.only()
        state = cell.initial(x) if self.begins is None else self.begins
        outputs = []
        for _ in range(self.length):
            x, state = cell.step(cell.project(x), state)
            outputs.append(x)
        self.ended = [each.detach() for each in state]
        return torch.stack(outputs, dim=1)


class BiRecurrentPart(ContainerPart):
    def __init__(self, merge: nn.Module | None):
        super().__init__()
        self.ways = nn.ModuleList([RecurrentPart(), RecurrentPart(backwards=True)])
        self.merge = merge

    def forward(self, x: Tensor) -> Any:
        outputs = [way(x) for way in self.ways]
        return outputs[0] + outputs[1] if self.merge is None else call(self.merge, outputs)


class Recurrent(Container):
    """A cell over every time step of (batch, time, size), with what it remembers.

    Example: ``Recurrent().add(LSTM(10, 5))``
    """

    module: RecurrentPart

    def __init__(self, bigdl_type: str = "float"):
        super().__init__(RecurrentPart())

    def add(self, model: Layer) -> Container:
        if not isinstance(getattr(model, "module", None), Cell):
            raise InvalidArgumentError(f"{type(self).__name__} takes a cell such as LSTM(10, 5), got {model!r}")
        if self._layers:
            raise InvalidArgumentError("There is a cell already. For several, add MultiRNNCell([first, second])")
        return super().add(model)

    def get_hidden_state(self) -> Any:
        """The state after the last pass: an array, or a list of arrays for LSTMs."""
        state = self.module.ended
        if state is None:
            raise InvalidArgumentError("There is no hidden state before the first forward(x)")
        return state[0].numpy() if len(state) == 1 else [each.numpy() for each in state]

    def set_hidden_state(self, states: Any) -> None:
        """Begin passes with this state, given as `get_hidden_state` returns it; None for zeros again."""
        given = states if states is None or isinstance(states, list | tuple) else [states]
        self.module.begins = None if given is None else [as_tensors(np.asarray(each)) for each in given]


class RecurrentDecoder(Recurrent):
    """A cell that goes on from one input: each output is the next input, so many times.

    Example: ``RecurrentDecoder(5).add(LSTM(10, 10)).forward(np.ones((2, 10))).shape`` is (2, 5, 10).
    """

    def __init__(self, output_length: int, bigdl_type: str = "float"):
        Container.__init__(self, DecoderPart(output_length))


class BiRecurrent(Recurrent):
    """A cell forwards through time, its copy backwards, and their outputs merged: added, if nothing else is said.

    Example: ``BiRecurrent(JoinTable(3, 3)).add(GRU(10, 5))``
    """

    module: BiRecurrentPart

    def __init__(self, merge: Layer | None = None, bigdl_type: str = "float"):
        Container.__init__(self, BiRecurrentPart(None if merge is None else merge.module))

    def _hold(self, model: Layer) -> None:
        back = copy.deepcopy(model)
        back.set_name(f"{model.name()}_back")
        self._back = back
        for way, layer in zip(self.module.ways, (model, back), strict=True):
            way.append(layer.module)

    def _children(self) -> list[Layer]:
        return [*self._layers, *([self._back] if self._layers else [])]

    def get_hidden_state(self) -> Any:
        """A pass both ways has no one state."""
        raise InvalidArgumentError("BiRecurrent has a state for each way, and none to get or set.")

    def set_hidden_state(self, states: Any) -> None:
        """A pass both ways has no one state."""
        self.get_hidden_state()
