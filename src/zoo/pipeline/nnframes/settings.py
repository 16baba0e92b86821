"""What an NNEstimator is told besides its Params, and the methods that tell it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

from bigdl.optim.optimizer import SGD
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.optimizers import Optimizer
from zoo.pipeline.api.torch import TorchOptim

CACHE_LEVELS = ("DRAM", "PMEM", "DISK_AND_DRAM")


@dataclass
class Settings:
    """How to train, but for what Params say.

    Attributes:
        optim_method: as the user gave it.
        method: what training is given for it: itself, or the TorchOptim of a torch optimizer or scheduler.
        validation: [trigger, DataFrame, methods, batch size].
        checkpoint: [path, trigger, whether to overwrite].
    """

    optim_method: Any = None
    method: Any = None
    end_when: Any = None
    validation: list[Any] | None = None
    train_summary: Any = None
    validation_summary: Any = None
    checkpoint: list[Any] | None = None
    clip_constant: tuple[float, float] | None = None
    clip_l2: float | None = None
    cache_level: tuple[str, int | None] = ("DRAM", None)

    def use(self, method: Any) -> None:
        """Train with an optimization method, a torch optimizer or a torch scheduler."""
        is_torchs = isinstance(method, torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler)
        made = TorchOptim.from_pytorch(method, _decay_of(method)) if is_torchs else method
        if not isinstance(made, Optimizer | TorchOptim):
            got = f"the class {method.__name__}" if isinstance(method, type) else f"a {type(method).__name__}"
            raise InvalidArgumentError(
                "setOptimMethod takes an optim method such as Adam(1e-3) of bigdl.optim.optimizer, a TorchOptim, or a "
                f"torch optimizer, but got {got}."
            )
        self.optim_method, self.method = method, made


class HasSettings:
    """The setters and getters of what is no Param; setters return the stage."""

    _settings: Settings

    def setOptimMethod(self, val: Any) -> Any:
        """Train with an optim method of bigdl.optim.optimizer, a TorchOptim, or a torch optimizer or scheduler."""
        self._settings.use(val)
        return self

    def getOptimMethod(self) -> Any:
        """The optim method that was set, the very object."""
        return self._settings.optim_method

    def setEndWhen(self, trigger: Any) -> Any:
        """Train until a trigger fires, instead of for `maxEpoch` epochs."""
        self._settings.end_when = trigger
        return self

    def getEndWhen(self) -> Any:
        return self._settings.end_when

    def setValidation(self, trigger: Any, val_df: Any, val_method: Any, batch_size: int) -> Any:
        """Measure a DataFrame like the one that is trained on, with some validation methods, when a trigger fires.

        Figures are over all rows, whatever the batch_size; they are measured in batches of training.
        """
        methods = list(val_method) if isinstance(val_method, list | tuple) else [val_method]
        self._settings.validation = [trigger, val_df, methods, batch_size]
        return self

    def getValidation(self) -> list[Any] | None:
        """[trigger, DataFrame, validation methods, batch size], or None."""
        return self._settings.validation

    def setTrainSummary(self, summary: Any) -> Any:
        """Write the figures of training where a TrainSummary says."""
        self._settings.train_summary = summary
        return self

    def getTrainSummary(self) -> Any:
        return self._settings.train_summary

    def setValidationSummary(self, summary: Any) -> Any:
        """Write the figures of validation where a ValidationSummary says."""
        self._settings.validation_summary = summary
        return self

    def getValidationSummary(self) -> Any:
        return self._settings.validation_summary

    def setCheckpoint(self, path: str, trigger: Any, isOverWrite: bool = True) -> Any:
        """Write checkpoints into folders of a path when a trigger fires."""
        if not path or not isinstance(path, str | os.PathLike):
            raise InvalidArgumentError(f'setCheckpoint takes a folder, such as "/tmp/checkpoints", but got {path!r}.')
        self._settings.checkpoint = [path, trigger, isOverWrite]
        return self

    def getCheckpoint(self) -> list[Any] | None:
        """[path, trigger, whether to overwrite], or None."""
        return self._settings.checkpoint

    def setConstantGradientClipping(self, min: float, max: float) -> Any:
        """Clip every element of the gradient to a range."""
        self._settings.clip_constant = (min, max)
        return self

    def setGradientClippingByL2Norm(self, clip_norm: float) -> Any:
        """Scale the gradient down to an L2 norm of at most this; after the range, if both are on."""
        self._settings.clip_l2 = clip_norm
        return self

    def clearGradientClipping(self) -> Any:
        """Use gradients as they are."""
        self._settings.clip_constant = self._settings.clip_l2 = None
        return self

    def setDataCacheLevel(self, level: str, numSlice: int | None = None) -> Any:
        """Accepted as published: rows are kept where the engine keeps them, in memory and on disk when it is full."""
        if level not in CACHE_LEVELS:
            raise InvalidArgumentError(
                f"the level must be one of {', '.join(map(repr, CACHE_LEVELS))}, but is {level!r}."
            )
        if (level == "DISK_AND_DRAM") != (numSlice is not None):
            raise InvalidArgumentError(
                'numSlice goes with "DISK_AND_DRAM" and with no other level: '
                f"the level is {level!r}, and numSlice {numSlice!r}."
            )
        self._settings.cache_level = (level, numSlice)
        return self

    def getDataCacheLevel(self) -> Any:
        """The level; with its numSlice, if it has one."""
        level, slices = self._settings.cache_level
        return level if slices is None else (level, slices)


def first_settings() -> Settings:
    """Those of a new estimator."""
    settings = Settings()
    settings.use(SGD())
    return settings


def _decay_of(method: Any) -> str:
    plateau = isinstance(method, torch.optim.lr_scheduler.ReduceLROnPlateau)
    return "EpochDecayByScore" if plateau else "EpochDecay"
