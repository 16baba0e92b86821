"""What becomes of a model's output for a DataFrame's column of predictions, on the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def flat_rows(output: Any) -> Tensor:
    """All values of each row, side by side; several outputs one after the other.

    >>> flat_rows([torch.zeros(2, 3, 2), torch.zeros(2)]).shape
    torch.Size([2, 7])
    """
    parts = list(output) if isinstance(output, list | tuple) else [output]
    flat = [part.reshape(len(part), -1) for part in parts]
    return flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)


@dataclass(frozen=True)
class ClassOf:
    """The class of each row: of one value 1 or 0, by a threshold; of several the place of the largest.

    >>> ClassOf()(torch.tensor([[0.1, 0.9], [0.8, 0.2]])), ClassOf()(torch.tensor([[0.6], [0.4]]))
    (tensor([2., 1.]), tensor([1., 0.]))
    """

    threshold: float = 0.5
    first: int = 1

    def __call__(self, output: Any) -> Tensor:
        values = flat_rows(output)
        if values.shape[1] == 1:
            return (values[:, 0] > self.threshold).float()
        return (values.argmax(dim=1) + self.first).float()
