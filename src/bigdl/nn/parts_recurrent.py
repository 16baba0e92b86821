"""Cells: how one time step follows from the one before. `Recurrent` takes them through time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from bigdl.nn.parts import Part
from bigdl.nn.parts_convolution import CONVOLVE, padded
from zoo.orca.errors import InvalidArgumentError

State = list[Tensor]
#: Names of activations, as Keras writes them, and their layers.
ACTIVATIONS = {
    "tanh": "Tanh", "sigmoid": "Sigmoid", "hard_sigmoid": "HardSigmoid", "relu": "ReLU", "softmax": "SoftMax",
    "softplus": "SoftPlus", "softsign": "SoftSign", "linear": "Identity",
}  # fmt: skip


def activation_of(given: Any, default: str) -> nn.Module:
    """The module of an activation: a layer, a name, or None for the default."""
    from bigdl.nn import layer

    if isinstance(given, layer.Layer):
        return given.module
    name = default if given is None else given
    if name not in ACTIVATIONS:
        raise InvalidArgumentError(f"Expected a layer or one of {', '.join(ACTIVATIONS)} as activation, got {given!r}")
    return getattr(layer, ACTIVATIONS[name])().module


class Cell(Part):
    """One time step.

    What depends on the inputs alone is computed for all steps at once, by `project`.
    """

    def project(self, x: Tensor) -> Tensor:
        """What of the steps' inputs does not depend on the state, with time among the leading dimensions."""
        return x

    def initial(self, x: Tensor) -> State:
        """The state before the first step, for that step's input."""
        raise NotImplementedError

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        """The output of a step, and the state after it."""
        raise NotImplementedError

    def whole(self, x: Tensor, state: State) -> tuple[Tensor, State] | None:
        """All steps of (batch, time, ...) at once, where torch can do that."""
        return None

    def forward(self, x: Tensor) -> Tensor:
        raise InvalidArgumentError(f"A cell runs within Recurrent: Recurrent().add({self.layer_name})")


class LinearCell(Cell):
    """A cell with linear gates over the input and over the hidden state.

    Args:
        p: the part of values that each gate drops while training.
    """

    def __init__(self, input_size: int, hidden_size: int, gates: int, p: float = 0.0, states: int = 1,
                 with_bias: bool = True):  # fmt: skip
        super().__init__()
        self.hidden, self.gates, self.p, self.states = hidden_size, gates, p, states
        self.add_weight("weight", (gates * hidden_size, input_size), (input_size, gates * hidden_size))
        self.add_bias("bias", gates * hidden_size, (input_size, gates * hidden_size), with_bias)
        self.add_weight("hidden_weight", (gates * hidden_size, hidden_size), (hidden_size, gates * hidden_size))

    def initial(self, x: Tensor) -> State:
        return [x.new_zeros(len(x), self.hidden) for _ in range(self.states)]

    def project(self, x: Tensor) -> Tensor:
        return self.through_gates(x, self.weight, self.bias)

    def through_gates(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.p == 0 or not self.training:
            return fn.linear(x, weight, bias)
        count = len(weight) // self.hidden
        biases = [None] * count if bias is None else bias.chunk(count)
        parts = zip(weight.chunk(count), biases, strict=True)
        return torch.cat([fn.linear(fn.dropout(x, self.p), each, shift) for each, shift in parts], dim=-1)


class Rnn(LinearCell):
    def __init__(self, input_size: int, hidden_size: int, activation: Any, isInputWithBias: bool,
                 isHiddenWithBias: bool):  # fmt: skip
        super().__init__(input_size, hidden_size, 1, with_bias=isInputWithBias)
        self.add_bias("bias_hidden", hidden_size, (hidden_size, hidden_size), isHiddenWithBias)
        self.activation = activation_of(activation, "tanh")

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        hidden = self.activation(projected + fn.linear(state[0], self.hidden_weight, self.bias_hidden))
        return hidden, [hidden]


class Lstm(LinearCell):
    """The gates are input, forget, candidate and output, as in torch."""

    def __init__(self, input_size: int, hidden_size: int, p: float, activation: Any, inner_activation: Any):
        super().__init__(input_size, hidden_size, 4, p, states=2)
        self.activation = activation_of(activation, "tanh")
        self.inner_activation = activation_of(inner_activation, "sigmoid")
        self.usual = activation in (None, "tanh") and inner_activation in (None, "sigmoid")

    def whole(self, x: Tensor, state: State) -> tuple[Tensor, State] | None:
        if not self.usual or (self.p > 0 and self.training):
            return None
        weights = [self.weight, self.hidden_weight, self.bias, torch.zeros_like(self.bias)]
        before = tuple(each.unsqueeze(0) for each in state)
        output, hidden, cell = torch.lstm(x, before, weights, True, 1, 0.0, self.training, False, True)
        return output, [hidden[0], cell[0]]

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        hidden, cell = state
        gates = projected + self.through_gates(hidden, self.hidden_weight, None)
        take, keep, candidate, give = gates.chunk(4, dim=-1)
        inner, outer = self.inner_activation, self.activation
        cell = inner(keep) * cell + inner(take) * outer(candidate)
        hidden = inner(give) * outer(cell)
        return hidden, [hidden, cell]


class LstmPeephole(LinearCell):
    def __init__(self, input_size: int, hidden_size: int, p: float):
        super().__init__(input_size, hidden_size, 4, p, states=2)
        self.add_weight("cell_weight", (3, hidden_size), (hidden_size, hidden_size))

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        hidden, cell = state
        gates = projected + self.through_gates(hidden, self.hidden_weight, None)
        take, keep, candidate, give = gates.chunk(4, dim=-1)
        to_take, to_keep, to_give = self.cell_weight
        take, keep = torch.sigmoid(take + to_take * cell), torch.sigmoid(keep + to_keep * cell)
        cell = keep * cell + take * torch.tanh(candidate)
        hidden = torch.sigmoid(give + to_give * cell) * torch.tanh(cell)
        return hidden, [hidden, cell]


class Gru(LinearCell):
    """The gates are reset, update and candidate; the state is reset before it is multiplied, not after as in torch."""

    def __init__(self, input_size: int, hidden_size: int, p: float, activation: Any, inner_activation: Any):
        super().__init__(input_size, hidden_size, 3, p)
        self.activation = activation_of(activation, "tanh")
        self.inner_activation = activation_of(inner_activation, "sigmoid")

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        (hidden,) = state
        size = self.hidden
        gates = projected[..., : 2 * size] + self.through_gates(hidden, self.hidden_weight[: 2 * size], None)
        reset, update = self.inner_activation(gates).chunk(2, dim=-1)
        past = self.through_gates(reset * hidden, self.hidden_weight[2 * size :], None)
        candidate = self.activation(projected[..., 2 * size :] + past)
        hidden = (1 - update) * candidate + update * hidden
        return hidden, [hidden]


class ConvLstm(Cell):
    """An LSTM whose gates are convolutions over images, or volumes."""

    sides = 2

    def __init__(self, input_size: int, output_size: int, kernel_i: int, kernel_c: int, stride: int, padding: int,
                 activation: Any, inner_activation: Any, with_peephole: bool):  # fmt: skip
        super().__init__()
        self.size, self.stride, self.padding = output_size, (stride,) * self.sides, (padding,) * self.sides
        self.kernels = ((kernel_i,) * self.sides, (kernel_c,) * self.sides)
        outer, inner = (input_size * kernel_i**self.sides, output_size * kernel_c**self.sides)
        self.add_weight("weight", (4 * output_size, input_size, *self.kernels[0]), (outer, 4 * output_size))
        self.add_bias("bias", 4 * output_size, (outer, 4 * output_size))
        self.add_weight("hidden_weight", (4 * output_size, output_size, *self.kernels[1]), (inner, 4 * output_size))
        if with_peephole:
            self.add_weight("cell_weight", (3, output_size, *(1,) * self.sides), (output_size, output_size))
        else:
            self.register_parameter("cell_weight", None)
        self.activation = activation_of(activation, "tanh")
        self.inner_activation = activation_of(inner_activation, "sigmoid")

    def initial(self, x: Tensor) -> State:
        sides = [-(-side // step) for side, step in zip(x.shape[-self.sides :], self.stride, strict=True)]
        return [x.new_zeros(len(x), self.size, *sides) for _ in range(2)]

    def project(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -self.sides - 2)
        wide, pad = padded(flat, self.kernels[0], self.stride, self.padding)
        output = CONVOLVE[self.sides](wide, self.weight, self.bias, self.stride, pad)
        return output.unflatten(0, x.shape[: -self.sides - 1])

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        hidden, cell = state
        ones = (1,) * self.sides
        wide, pad = padded(hidden, self.kernels[1], ones, (-1,) * self.sides)
        gates = projected + CONVOLVE[self.sides](wide, self.hidden_weight, None, ones, pad)
        take, keep, candidate, give = gates.chunk(4, dim=1)
        to_take, to_keep, to_give = (0.0, 0.0, 0.0) if self.cell_weight is None else self.cell_weight
        inner = self.inner_activation
        take, keep = inner(take + to_take * cell), inner(keep + to_keep * cell)
        cell = keep * cell + take * self.activation(candidate)
        hidden = inner(give + to_give * cell) * self.activation(cell)
        return hidden, [hidden, cell]


class ConvLstm3D(ConvLstm):
    sides = 3

    def __init__(self, input_size: int, output_size: int, kernel_i: int, kernel_c: int, stride: int, padding: int,
                 with_peephole: bool):  # fmt: skip
        super().__init__(input_size, output_size, kernel_i, kernel_c, stride, padding, None, None, with_peephole)


class Stacked(Cell):
    """Cells one upon the other, taken as one."""

    def __init__(self, cells: Any):
        super().__init__()
        strangers = [cell for cell in cells if not isinstance(getattr(cell, "module", None), Cell)]
        if strangers or not cells:
            raise InvalidArgumentError(f"MultiRNNCell takes a list of cells such as LSTM(4, 4), got {cells!r}")
        self.cells = nn.ModuleList([cell.module for cell in cells])

    def initial(self, x: Tensor) -> State:
        return [state for cell in self.cells for state in cell.initial(x)]

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        after: State = []
        for cell in self.cells:
            count = len(cell.initial(projected[:1]))
            projected, new = cell.step(cell.project(projected), state[len(after) : len(after) + count])
            after += new
        return projected, after
