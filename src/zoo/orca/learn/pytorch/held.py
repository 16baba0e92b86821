"""Gradients that wait until their step is complete, when several global batches make one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

# Sums of narrower numbers would lose what batches add.
_NARROW = {torch.float16, torch.bfloat16}


class Held:
    """The gradients of an optimizer's batches so far, each weighted by what it counts for.

    Attributes:
        gradients: the weighted sums, by the number of the parameter.
        weight: the sum of the weights.
        loss: the weighted sum of the losses.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.gradients: dict[int, torch.Tensor] = {}
        self.weight = 0.0
        self.loss = 0.0

    @torch.no_grad()
    def add(self, params: Sequence[torch.Tensor], weight: float, loss: Any) -> None:
        """Keep the gradients that parameters have now."""
        if weight <= 0:
            return
        self.weight += weight
        self.loss += 0.0 if loss is None else weight * float(loss)
        for index, param in enumerate(params):
            if param.grad is None:
                continue
            part = weight * wide(param.grad)
            if index in self.gradients:
                self.gradients[index] += part
            else:
                self.gradients[index] = part

    def state(self) -> dict[str, Any]:
        """All of it, as tensors in memory of their own and plain data."""
        gradients = {index: each.to("cpu", copy=True) for index, each in self.gradients.items()}
        return {"gradients": gradients, "weight": self.weight, "loss": self.loss}

    def load(self, state: dict[str, Any], params: Sequence[torch.Tensor]) -> None:
        self.gradients = {index: each.to(params[index].device, copy=True) for index, each in state["gradients"].items()}
        self.weight, self.loss = state["weight"], state["loss"]


def wide(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient as it can be summed: dense, and of float32 at least."""
    dense = gradient if gradient.layout is torch.strided else gradient.to_dense()
    return dense.float() if dense.dtype in _NARROW else dense
