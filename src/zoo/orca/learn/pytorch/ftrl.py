"""Follow the regularized leader as a torch optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class Ftrl(Optimizer):
    """FTRL-Proximal with L1, L2 and shrinkage, as in "Ad Click Prediction: a View from the Trenches" (2013)."""

    #: Every weight is updated by itself, so that any slice of the parameters can be updated alone.
    elementwise = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        lr_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1: float = 0.0,
        l2: float = 0.0,
        l2_shrinkage: float = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "lr_power": lr_power,
            "initial_accumulator_value": initial_accumulator_value,
            "l1": l1,
            "l2": l2,
            "l2_shrinkage": l2_shrinkage,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            # At a rate of 0 nothing moves; the rule itself divides by the rate.
            for parameter in group["params"] if group["lr"] else []:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["accumulator"] = torch.full_like(parameter, group["initial_accumulator_value"])
            state["linear"] = torch.zeros_like(parameter)
        gradient, rate, power = parameter.grad, group["lr"], -group["lr_power"]
        accumulator, linear = state["accumulator"], state["linear"]

        before = accumulator**power
        accumulator.addcmul_(gradient, gradient)
        after = accumulator**power
        linear.add_(gradient + 2 * group["l2_shrinkage"] * parameter - (after - before) / rate * parameter)
        curvature = after / rate + 2 * group["l2"]
        shrunk = linear.sign() * (linear.abs() - group["l1"]).clamp(min=0)
        # Where nothing has been seen yet there is no curvature either, and no reason to move from 0.
        parameter.copy_(torch.where(curvature > 0, -shrunk / curvature, 0.0))
