"""TorchOptim: a torch optimizer, or a learning rate scheduler of one, as an optimization method."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.optimizers.progress import groups_at
from zoo.pipeline.api.torch.utils import trainable_param

#: When a scheduler steps, by the published names.
DECAYS = {"EpochDecay": "epoch", "IterationDecay": "batch", "EpochDecayByScore": "score"}


class TorchOptim:
    """A torch optimizer for the older front doors, which have the module that it was made for, or a clone of it.

    Training works with copies: the optimizer that was given stays as it is. How far training came is remembered for
    this object, and not for its copies, which start anew.

    Attributes:
        learningrate: a rate that replaces those of the optimizer; None leaves them.

    Example:
        optim = TorchOptim.from_pytorch(torch.optim.Adam(net.parameters(), lr=1e-3))
        NNEstimator(TorchModel.from_pytorch(net), loss).setOptimMethod(optim)
    """

    def __init__(self, optimizer: torch.optim.Optimizer, scheduler: LRScheduler | None, decay_type: str):
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.decay_type = decay_type
        self.learningrate: float | None = None

    @staticmethod
    def from_pytorch(optim: Any, decayType: str = "EpochDecay") -> TorchOptim:
        """An optimization method from a torch optimizer or scheduler.

        Args:
            optim: a torch.optim optimizer, or a scheduler of torch.optim.lr_scheduler.
            decayType: when the scheduler steps: "EpochDecay" after every epoch, "IterationDecay" after every
                iteration, "EpochDecayByScore" after every validation, with its score (for ReduceLROnPlateau).
        """
        if decayType not in DECAYS:
            raise InvalidArgumentError(
                f"decayType must be one of {', '.join(map(repr, DECAYS))}, but is {decayType!r}."
            )
        if isinstance(optim, torch.optim.Optimizer):
            return TorchOptim(optim, None, decayType)
        if not isinstance(optim, LRScheduler):
            raise InvalidArgumentError(
                "TorchOptim takes a torch optimizer (torch.optim.Adam(model.parameters())) or a scheduler of "
                f"torch.optim.lr_scheduler, but got a {type(optim).__name__}."
            )
        needs_score = isinstance(optim, torch.optim.lr_scheduler.ReduceLROnPlateau)
        if needs_score != (decayType == "EpochDecayByScore"):
            raise InvalidArgumentError(
                "ReduceLROnPlateau is told a score, and no other scheduler is: it goes with "
                f'decayType="EpochDecayByScore", but {type(optim).__name__} came with decayType={decayType!r}.'
            )
        return TorchOptim(optim.optimizer, optim, decayType)

    @property
    def needs_score(self) -> bool:
        """Whether the rate follows the score of validation data."""
        return self.scheduler is not None and self.decay_type == "EpochDecayByScore"

    def torch_parts(self, module: torch.nn.Module) -> dict[str, Any]:
        """What trains a module, as `Estimator.from_torch` names it: copies of optimizer and scheduler for it."""
        memo: dict[int, Any] = self._counterparts(module)
        optimizer = _copied(self.optimizer, memo)
        scheduler = copy.deepcopy(self.scheduler, memo)
        if scheduler is not None:
            # Torch looks at a scheduler's first step for an `optimizer.step` of its own making, which no copy has.
            scheduler._step_count = max(2, getattr(scheduler, "_step_count", 0))
        if self.learningrate is not None:
            _set_rate(optimizer, scheduler, self.learningrate)
        if scheduler is None:
            return {"optimizer": optimizer}
        return {
            "optimizer": optimizer,
            "scheduler_creator": scheduler,
            "scheduler_step_freq": DECAYS[self.decay_type],
        }

    def _counterparts(self, module: torch.nn.Module) -> dict[int, Any]:
        """The module's parameter for each of the optimizer's: itself, or the one in its place of a clone."""
        held = _parameters(self.optimizer)
        own = {id(each) for each in module.parameters()}
        if all(id(each) in own for each in held):
            return {id(each): each for each in held}
        shapes = [each.shape for each in held]
        for candidates in (list(module.parameters()), trainable_param(module)):
            if shapes == [each.shape for each in candidates]:
                return {id(old): new for old, new in zip(held, candidates, strict=True)}
        raise InvalidArgumentError(
            f"the optimizer was made for other parameters than this {type(module).__name__}'s: it holds "
            f"{_shapes(held)}, and the model has {_shapes(list(module.parameters()))}. Make it of the model that is "
            "trained: torch.optim.Adam(model.parameters())."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchOptim:
        """A copy that starts anew. Copied together with its model it is for the copy, alone for the same model."""
        for each in _parameters(self.optimizer):
            memo.setdefault(id(each), each)
        made = TorchOptim(_copied(self.optimizer, memo), copy.deepcopy(self.scheduler, memo), self.decay_type)
        made.learningrate = self.learningrate
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "beside": _beside(self.optimizer, self.optimizer.__getstate__())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        beside = state.pop("beside")
        vars(self).update(state)
        vars(self.optimizer).update(beside)

    def __repr__(self) -> str:
        shown = self.optimizer if self.scheduler is None else self.scheduler
        return f"TorchOptim({type(shown).__name__}, {self.decay_type!r})"


def _copied(optimizer: torch.optim.Optimizer, memo: dict[int, Any]) -> torch.optim.Optimizer:
    made = copy.deepcopy(optimizer, memo)
    vars(made).update(copy.deepcopy(_beside(optimizer, vars(made)), memo))
    return made


def _beside(optimizer: torch.optim.Optimizer, copied: Mapping[str, Any]) -> dict[str, Any]:
    """What an optimizer's class added to it: torch's own copies and pickles leave that out (LBFGS has such)."""
    return {name: value for name, value in vars(optimizer).items() if name not in copied and not callable(value)}


def _set_rate(optimizer: torch.optim.Optimizer, scheduler: Any, rate: float) -> None:
    """Begin with another rate; what a scheduler has made of the old one it makes of the new one."""
    for group, changed in zip(optimizer.param_groups, groups_at(optimizer.param_groups, rate), strict=True):
        group.update(changed)
    for each in [scheduler, *getattr(scheduler, "_schedulers", [])] if scheduler is not None else []:
        if hasattr(each, "base_lrs"):
            each.base_lrs = [rate] * len(optimizer.param_groups)
        each._last_lr = [group["lr"] for group in optimizer.param_groups]


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _shapes(parameters: list[Any]) -> str:
    return f"{len(parameters)} of shapes " + ", ".join(str(tuple(each.shape)) for each in parameters[:4])
