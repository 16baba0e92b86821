"""TorchLoss: a loss of PyTorch, or a function, as a criterion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bigdl.nn.criterion import Criterion
from zoo.orca.errors import InvalidArgumentError


class TorchLoss(Criterion):
    """A torch loss for the older front doors.

    Example:
        TorchLoss.from_pytorch(torch.nn.MSELoss())
        TorchLoss.from_pytorch(lambda output, label: (output - label).abs().mean())
    """

    def __init__(self, criterion: Callable[[Any, Any], Any]):
        self.module = criterion

    @staticmethod
    def from_pytorch(criterion: Any) -> TorchLoss:
        """A criterion from a loss module, or from a function of (output, label); several outputs come as a list."""
        if not callable(criterion) or isinstance(criterion, type):
            raise InvalidArgumentError(
                "TorchLoss takes a loss such as torch.nn.MSELoss(), or a function of (output, label), but got "
                f"{criterion!r}."
            )
        return TorchLoss(criterion)

    def __repr__(self) -> str:
        return f"TorchLoss({getattr(self.module, '__name__', type(self.module).__name__)})"
