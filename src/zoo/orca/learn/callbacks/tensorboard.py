"""Figures for TensorBoard, written by the driver."""

from __future__ import annotations

import os
from typing import Any

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.callbacks.base import Callback, Run, numbers_of
from zoo.orca.learn.summary import SummaryWriter


class TensorBoard(Callback):
    """Writes figures to `log_dir/train` and `log_dir/validation`, as `tensorboard --logdir log_dir` shows them.

    Every step writes "loss", "lr" and "rows_per_second"; every validation its figures without their "val_", so that a
    training and a validation curve lie in one drawing; every epoch its figures as "epoch/train_loss" and so on.

    Args:
        log_dir: a folder of this machine; it is made when the fit starts.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> board = TensorBoard(folder)
        >>> for hook in (board.on_fit_start, board.on_step_end, board.on_fit_end):
        ...     hook(Run(step=1, loss=0.5))
        >>> [value for step, value, _ in SummaryWriter(f"{folder}/train").read_scalar("loss")]
        [0.5]
    """

    on_driver = True

    def __init__(self, log_dir: str | os.PathLike[str]) -> None:
        if not isinstance(log_dir, str | os.PathLike):
            raise InvalidArgumentError(f"Expected log_dir to be a folder, got {log_dir!r}")
        self.log_dir = os.fspath(log_dir)
        self._train: SummaryWriter | None = None
        self._validation: SummaryWriter | None = None

    def on_fit_start(self, run: Run) -> None:
        self._train = SummaryWriter(os.path.join(self.log_dir, "train"))
        self._validation = SummaryWriter(os.path.join(self.log_dir, "validation"))

    def on_step_end(self, run: Run) -> None:
        _write(self._train, {"loss": run.loss, "lr": run.rate, "rows_per_second": run.speed}, run.step, run.time)

    def on_validation_end(self, run: Run) -> None:
        figures = {name.removeprefix("val_"): value for name, value in run.figures.items()}
        _write(self._validation, figures, run.step, run.time)

    def on_epoch_end(self, run: Run) -> None:
        _write(self._train, {f"epoch/{name}": value for name, value in run.figures.items()}, run.epoch, run.time)

    def on_fit_end(self, run: Run) -> None:
        for writer in (self._train, self._validation):
            if writer is not None:
                writer.close()


def _write(writer: SummaryWriter | None, figures: dict[str, Any], step: int, when: float | None) -> None:
    if writer is not None:
        for name, value in numbers_of(figures).items():
            writer.add_scalar(name, value, step, when)
