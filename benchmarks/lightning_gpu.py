"""A job of `benchmarks.one_gpu` by Lightning's Trainer; apart, because importing Lightning takes seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator

import lightning
import numpy as np
import torch

from benchmarks.one_gpu import EPOCHS, Batch, Job, host_batches, loss_of, make_model, make_optimizer

PRECISIONS = {"bf16": "bf16-mixed", "fp16": "16-mixed", "fp32": "32-true"}


class Module(lightning.LightningModule):
    def __init__(self, job: Job):
        super().__init__()
        self.model = make_model(job.config)
        if job.compiled:
            self.model.compile()
        self.total: torch.Tensor | float = 0.0

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        features, targets = batch
        loss = loss_of(self.model(features), targets)
        self.total = self.total + loss.detach()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return make_optimizer(self.model, {})


class Batches:
    """The batches of the plain loop: Lightning takes any iterable."""

    def __init__(self, job: Job, data: np.ndarray):
        self._job, self._data, self._epoch = job, data, 0

    def __iter__(self) -> Iterator[Batch]:
        self._epoch += 1
        return host_batches(self._job, self._data, self._epoch - 1)

    def __len__(self) -> int:
        return self._job.steps


class Clock(lightning.Callback):
    """Seconds and mean losses of the epochs."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.losses: list[float] = []

    def on_train_epoch_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        torch.cuda.synchronize()
        self._started, module.total = time.perf_counter(), 0.0

    def on_train_epoch_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        self.losses.append(float(module.total) / trainer.num_training_batches)
        torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self._started)


def train(job: Job, data: np.ndarray) -> tuple[float, list[float]]:
    """Sequences a second of the last epoch, and the loss of every epoch."""
    clock = Clock()
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="gpu",
        devices=1,
        precision=PRECISIONS[job.precision],
        callbacks=[clock],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(job), Batches(job, data))
    return len(data) / clock.seconds[-1], clock.losses
