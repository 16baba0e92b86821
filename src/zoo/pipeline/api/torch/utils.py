"""Helpers of the published interface for torch modules and datasets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler

from zoo.orca.errors import InvalidArgumentError


def trainable_param(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters of a module that training changes, in order.

    >>> [tuple(each.shape) for each in trainable_param(torch.nn.Linear(2, 3))]
    [(3, 2), (3,)]
    """
    return [each for each in model.parameters() if each.requires_grad]


class DistributedSequentialSampler(Sampler[int]):
    """The rows of one replica: a piece of the dataset in its order, as long as every other's.

    The last pieces begin again at the first row where the rows do not suffice.

    >>> [list(DistributedSequentialSampler(range(5), 2, rank)) for rank in (0, 1)]
    [[0, 1, 2], [3, 4, 0]]
    """

    def __init__(self, dataset: Sized, num_replicas: int, rank: int):
        if num_replicas < 1 or not 0 <= rank < num_replicas:
            raise InvalidArgumentError(
                f"rank must be 0 to num_replicas - 1, but rank is {rank!r} and num_replicas {num_replicas!r}."
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.num_samples = math.ceil(len(dataset) / num_replicas)

    def __repr__(self) -> str:
        return f"DistributedSequentialSampler(rank {self.rank} of {self.num_replicas}, {self.num_samples} rows)"

    def __iter__(self) -> Iterator[int]:
        first = self.rank * self.num_samples
        return (number % len(self.dataset) for number in range(first, first + self.num_samples))

    def __len__(self) -> int:
        return self.num_samples
