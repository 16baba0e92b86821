"""The `Job` of a train row as a LightningModule; apart, because importing Lightning takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import lightning
import torch

from benchmarks.learn_job import Job, shuffled

Batch = tuple[torch.Tensor, torch.Tensor]


class Module(lightning.LightningModule):
    def __init__(self, job: Job, marks: str):
        super().__init__()
        self.job, self.model, self.loss = job, job.model(), job.loss(marks)

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        features, targets = batch
        return self.loss(self.model(features), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.job.optimizer(self.model)

    def train_dataloader(self) -> Batches:
        return Batches(self.job, self.trainer)


class Batches:
    """The batches of the hand-written loop: Lightning takes any iterable."""

    def __init__(self, job: Job, trainer: lightning.Trainer):
        self._job, self._trainer = job, trainer
        self._x, self._y = map(torch.as_tensor, job.arrays())

    def __iter__(self) -> Iterator[Batch]:
        rank, size = self._trainer.global_rank, self._trainer.world_size
        return shuffled(self._x, self._y, self._job.batch_size // size, self._trainer.current_epoch, rank, size)

    def __len__(self) -> int:
        return self._job.steps
