"""What is trained: the model, the data, the batches, the stopwatch. One description for us and for every peer.

Workers of all kinds import this module; it travels to them as a `Job`, which JSON can carry.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from benchmarks.learn_data import WIDTHS
from benchmarks.ranks import WORKERS

Kind = Literal["mlp", "small", "5m", "25m"]


class Mlp(nn.Module):
    """Linear layers with ReLU between them; takes a matrix, or its columns as arguments."""

    def __init__(self, *widths: int, last: nn.Module | None = None):
        super().__init__()
        layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())][:-1]
        self.layers = nn.Sequential(*layers, *([last] if last else []))
        self.is_scalar = widths[-1] == 1

    def forward(self, *columns: torch.Tensor) -> torch.Tensor:
        output = self.layers(columns[0] if len(columns) == 1 else torch.stack(columns, dim=1))
        return output.squeeze(-1) if self.is_scalar else output


class _Clocked:
    """A loss that counts its calls and rows, and tells the time of the epochs after the first.

    The one thing that every contender calls once a step on every rank, so that all are timed the same way: from the
    first step of the second epoch to the last step of the last. The cost is an addition and two comparisons a step.
    """

    def __init__(self, folder: str, steps: int, epochs: int):
        super().__init__()
        self.folder, self.first, self.last = folder, steps + 1, steps * epochs
        self.calls = self.rows = 0
        self.started = 0.0

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.rows += len(target)
        if self.calls == self.first:
            self.started = time.perf_counter()
        if self.calls == self.last:
            facts = {"seconds": time.perf_counter() - self.started, "rows": self.rows}
            Path(self.folder, f"rank-{os.getpid()}").write_text(json.dumps(facts))
        return super().forward(output, target)


class ClockedCrossEntropy(_Clocked, nn.CrossEntropyLoss):
    pass


class ClockedSquares(_Clocked, nn.MSELoss):
    pass


@dataclass(frozen=True)
class Job:
    """One training: `folder` holds the data, `batch_size` is that of all workers together.

    Attributes:
        kind: "mlp", 5.8 million parameters on ten classes; "5m" and "25m", about so many of them; "small", 1409 on a
            plane.
    """

    folder: str
    kind: Kind
    rows: int
    batch_size: int
    epochs: int

    @property
    def steps(self) -> int:
        """Steps in an epoch."""
        return math.ceil(self.rows / self.batch_size)

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return Mlp(*WIDTHS[self.kind])

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    def loss(self, marks: str) -> nn.Module:
        return (ClockedSquares if self.kind == "small" else ClockedCrossEntropy)(marks, self.steps, self.epochs)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """The data as mapped files, in the page cache of the machine."""
        x, y = (np.load(Path(self.folder, f"{name}.npy"), mmap_mode="c") for name in "xy")
        return x, y

    def has_learnt(self, state: dict[str, Any], x: np.ndarray, y: np.ndarray) -> bool:
        """Whether weights are better on some rows than those that every contender begins with."""
        rows, targets = torch.as_tensor(x[:500]), torch.as_tensor(y[:500])
        plain = nn.MSELoss() if self.kind == "small" else nn.CrossEntropyLoss()
        model = self.model()
        with torch.no_grad():
            before = plain(model(rows), targets)
            model.load_state_dict(state)
            return bool(plain(model(rows), targets) < 0.8 * before)


def create_model(config: dict[str, Any]) -> nn.Module:
    """For our estimators."""
    return Job(**config["job"]).model()


def create_optimizer(model: nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    """For our estimators."""
    return Job(**config["job"]).optimizer(model)


def config_of(job: Job) -> dict[str, Any]:
    """What the creators need."""
    return {"job": asdict(job)}


def shuffled(
    x: torch.Tensor, y: torch.Tensor, size: int, seed: int, rank: int = 0, world_size: int = 1
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """A rank's share of an epoch in batches of `size`, in the order that the seed gives; one index gathers a batch."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    for indices in order[rank::world_size].split(size):
        yield x[indices], y[indices]


def read_marks(job: Job, marks: str, ranks: int = WORKERS) -> tuple[float, int]:
    """Rows a second of all ranks in the steady epochs, and the rows that all of them saw in all epochs."""
    facts = [json.loads(path.read_text()) for path in Path(marks).glob("rank-*")]
    if len(facts) != ranks:
        raise RuntimeError(f"{len(facts)} of {ranks} ranks took {job.steps} steps in each of {job.epochs} epochs.")
    steps = job.steps * (job.epochs - 1)
    rows = job.rows * (job.epochs - 1) * (steps - 1) / steps  # between n moments there are n - 1 steps
    return rows / max(each["seconds"] for each in facts), sum(each["rows"] for each in facts)
