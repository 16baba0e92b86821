"""Data, a model and the plain torch loop that every estimator is measured against."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zoo.orca.feed.plan import Plan
from zoo.orca.learn.pytorch import TrainingOperator

CLASSES = 3
# Partitions of all kinds: ragged, empty at the start, in the middle and at the end, and of one row.
RAGGED = (0, 5, 0, 1, 9, 2, 0)


class Net(torch.nn.Module):
    """Takes any number of features of any shape (or a dict of them), side by side. Doubles, to compare closely."""

    def __init__(self, outputs: int = CLASSES, width: int = 4, dropout: float = 0.0, norm: bool = False):
        super().__init__()
        torch.manual_seed(7)
        middle = [torch.nn.Linear(width, 6), torch.nn.Tanh(), torch.nn.Dropout(dropout)]
        self.layers = torch.nn.Sequential(
            *([torch.nn.BatchNorm1d(width)] if norm else []), *middle, torch.nn.Linear(6, outputs)
        )
        self.double()

    def forward(self, *features: Any) -> torch.Tensor:
        parts = [each for one in features for each in (one.values() if isinstance(one, dict) else [one])]
        kind = self.layers[-1].weight.dtype
        return self.layers(torch.cat([part.reshape(len(part), -1).to(kind) for part in parts], dim=1))


class Rows:
    """Rows with labels of all kinds; `x[:, 0]` tells them apart."""

    def __init__(self, count: int, seed: int = 0):
        random = np.random.default_rng(seed)
        self.x = random.normal(size=(count, 4)).astype(np.float32)
        self.classes = random.integers(CLASSES, size=count)
        self.values = random.normal(size=(count, CLASSES))
        self.bits = random.integers(2, size=(count, CLASSES)).astype(np.float64)
        self.weights = random.uniform(0.2, 3, size=count)
        self.ignored = np.where(random.random(count) < 0.4, -1, self.classes)

    def cut(self, sizes: Sequence[int], labels: str = "classes") -> list[list[dict[str, Any]]]:
        """Partitions of one dict shard each, as an engine places them."""
        ends = np.cumsum(sizes)
        return [
            [{"x": self.x[end - size : end], "y": getattr(self, labels)[end - size : end]}]
            for size, end in zip(sizes, ends, strict=True)
        ]


def global_batches(
    sizes: Sequence[int], batch_size: int, epochs: Iterable[int] = (0,), seed: int = 0, shuffle: bool = True
) -> Iterator[np.ndarray]:
    """The rows of every global batch, numbered through all shards."""
    plan = Plan(tuple(sizes), batch_size, seed, shuffle)
    starts = np.cumsum([0, *sizes])
    for epoch in epochs:
        for pieces in plan.batches(epoch):
            yield np.concatenate([starts[each.shard] + _places(plan, epoch, each) for each in pieces])


def _places(plan: Plan, epoch: int, piece: Any) -> np.ndarray:
    order = plan.order(epoch, piece.shard)
    return np.arange(piece.start, piece.stop) if order is None else order[piece.start : piece.stop]


def train_by_hand(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[..., torch.Tensor],
    x: np.ndarray,
    y: np.ndarray,
    batches: Iterable[np.ndarray],
    weights: np.ndarray | None = None,
    clip: Callable[[Any], Any] | None = None,
) -> torch.nn.Module:
    """What one process does in plain torch."""
    features, target = torch.from_numpy(x).double(), torch.from_numpy(y)
    model.train()
    for rows in batches:

        def closure(rows: np.ndarray = rows) -> torch.Tensor:
            optimizer.zero_grad()
            found = loss(model(features[rows]), target[rows])
            if weights is not None:
                of_rows = torch.from_numpy(weights)[rows]
                found = (found.reshape(len(rows), -1).mean(dim=1) * of_rows).sum() / of_rows.sum()
            found.backward()
            if clip is not None:
                clip(model.parameters())
            return found

        optimizer.step(closure)
    return model


def weights_of(model: torch.nn.Module) -> np.ndarray:
    """All parameters, side by side."""
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).numpy()


def digest_of(model: torch.nn.Module) -> dict[str, bytes]:
    """Every parameter and buffer to the bit."""
    return {name: value.numpy().tobytes() for name, value in model.state_dict().items()}


def assert_same_weights(model: torch.nn.Module, expected: torch.nn.Module, rtol: float = 1e-9) -> None:
    np.testing.assert_allclose(weights_of(model), weights_of(expected), rtol=rtol, atol=rtol)


class Recording(TrainingOperator):
    """Trains as ever, and writes down which rows it was given, and its weights after every epoch."""

    def train_epoch(self, iterator: Any, info: dict[str, Any]) -> dict[str, Any]:
        watched = Watched(iterator)
        figures = super().train_epoch(watched, info)
        name = f"{info['epoch_idx']}-{self.world_rank}.json"
        found = {"rows": watched.ids, "weights": weights_of(self.model).tolist(), "pid": os.getpid()}
        (Path(self.config["folder"]) / name).write_text(json.dumps(found))
        return figures


class Watched:
    """An epoch's batches, with the first feature of every row that counts written down."""

    def __init__(self, batches: Any):
        self._batches = batches
        self.ids: list[float] = []

    @property
    def rows(self) -> int:
        return self._batches.rows

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            if self.rows:
                self.ids += batch[0][:, 0].tolist()
            yield batch


def recorded(folder: Path, epoch: int, rank: int) -> dict[str, Any]:
    return json.loads((folder / f"{epoch}-{rank}.json").read_text())


class OwnLoss(TrainingOperator):
    """Makes its steps without the estimator's loss."""

    def train_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
        *features, target = batch
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(*features), target)
        loss.backward()
        self.optimizer.step()
        return {"train_loss": loss.item(), "num_samples": len(target)}


def limit_memory(mebibytes: int = 48) -> None:
    """Let this process take so much more memory of its own, until `unlimit_memory`; maps of files are not counted."""
    torch.optim.Adam(torch.nn.Linear(1, 1).parameters())  # the first optimizer imports as much again
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData")]
    used = int(line.split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + mebibytes * 2**20, resource.RLIM_INFINITY))


def unlimit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Limited(TrainingOperator):
    """Trains below a limit of memory, and gives it up afterwards, for the process may be used again."""

    def train_epoch(self, iterator: Any, info: dict[str, Any]) -> dict[str, Any]:
        try:
            return super().train_epoch(iterator, info)
        finally:
            unlimit_memory()


class Hoarding(Limited):
    """Holds every batch it was given."""

    def setup(self, config: dict[str, Any]) -> None:
        self.held: list[Any] = []

    def train_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
        self.held.append(batch)
        return super().train_batch(batch, batch_info)


class Stream(torch.utils.data.IterableDataset):
    """Rows one after the other; worker processes take turns."""

    def __init__(self, x: np.ndarray, y: np.ndarray):
        self.x, self.y = x, y

    def __iter__(self) -> Iterator[Any]:
        yield from zip(self.x, self.y, strict=True)


def two_losses(output: torch.Tensor, target: Any, reduction: str = "mean") -> torch.Tensor:
    """For two labels: a class and a number."""
    label, number = target
    of_label = torch.nn.functional.cross_entropy(output, label.long(), reduction="none")
    both = of_label + (output.sum(dim=1) - number) ** 2
    return both.mean() if reduction == "mean" else both
