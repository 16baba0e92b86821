"""Optimizers as users name them, with BigDL's arguments and their meaning; torch does the work on the workers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.learn.optimizers.progress import keep_progress, progress_of
from zoo.orca.learn.optimizers.schedule import Default, Scheduler
from zoo.orca.names import public_names
from zoo.orca.optional import require

if TYPE_CHECKING:
    import torch

    from zoo.orca.learn.pytorch.schedules import ScheduleLR

#: BigDL's "not given": for dampening, as much as the momentum; for max_eval, no limit.
DOUBLEMAX = 1.7976931348623157e308


class Optimizer(ABC):
    """An optimizer: what it is made with, and how to make it in torch."""

    #: Whether a step must be able to compute the loss again (`step(closure)`).
    needs_closure = False
    learningrate: float
    learningrate_decay: float = 0.0
    learningrate_schedule: Scheduler = Default()

    @abstractmethod
    def torch_optimizer(self, params: Iterable[Any]) -> torch.optim.Optimizer:
        """A torch optimizer of parameters that does the same."""

    def torch_scheduler(self, optimizer: torch.optim.Optimizer) -> ScheduleLR | None:
        """What sets the torch optimizer's rate, to be stepped after each iteration; None if it never changes."""
        if isinstance(self.learningrate_schedule, Default) and not self.learningrate_decay:
            return None
        require("torch", "A learning rate schedule")
        from zoo.orca.learn.pytorch.schedules import ScheduleLR

        return ScheduleLR(optimizer, self.learningrate_schedule, self.learningrate_decay)

    def get_optimizer(self) -> Optimizer:
        """The optimizer that training uses: this one, which `bigdl.optim.optimizer` offers under the same name."""
        return self

    @property
    def progress(self) -> dict[str, Any] | None:
        """How far training with it came: counters and state, in tensors and plain data; None before the first fit."""
        return progress_of(self)

    @progress.setter
    def progress(self, progress: dict[str, Any] | None) -> None:
        keep_progress(self, progress)

    def save(self, path: str, overWrite: bool = False) -> None:
        """Write it to a file, with its counters and its state."""
        from zoo.orca.learn.optimizers import saved

        saved.save(self, path, overWrite)

    @staticmethod
    def load(path: str) -> Optimizer:
        """Read what `save` wrote: training goes on where it stood."""
        from zoo.orca.learn.optimizers import saved

        return saved.load(path, Optimizer)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({arguments})"


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, weight decay and a schedule.

    Args:
        dampening: how much less of a new gradient goes into the momentum; as much as the momentum if not given.
        learningrate_schedule: a rule of `zoo.orca.learn.optimizers.schedule`; None is Default().
    """

    def __init__(
        self,
        learningrate: float = 1e-3,
        learningrate_decay: float = 0.0,
        weightdecay: float = 0.0,
        momentum: float = 0.0,
        dampening: float = DOUBLEMAX,
        nesterov: bool = False,
        learningrate_schedule: Scheduler | None = None,
        learningrates: Any = None,
        weightdecays: Any = None,
    ) -> None:
        _not_negative(
            learningrate=learningrate, learningrate_decay=learningrate_decay, weightdecay=weightdecay, momentum=momentum
        )
        if learningrates is not None or weightdecays is not None:
            raise NotOfferedError(
                "Rates for single parameters (learningrates, weightdecays) are not offered. Give from_torch a torch "
                "optimizer with parameter groups: torch.optim.SGD([{'params': ..., 'lr': ...}, ...])"
            )
        if learningrate_schedule is not None and not isinstance(learningrate_schedule, Scheduler):
            raise InvalidArgumentError(
                "Expected learningrate_schedule to be a schedule of zoo.orca.learn.optimizers.schedule, "
                f"got {learningrate_schedule!r}"
            )
        self.learningrate = learningrate
        self.learningrate_decay = learningrate_decay
        self.weightdecay = weightdecay
        self.momentum = momentum
        self.dampening = momentum if dampening == DOUBLEMAX else dampening
        self.nesterov = nesterov
        self.learningrate_schedule = learningrate_schedule or Default()
        if nesterov and not (momentum > 0 and self.dampening == 0):
            raise InvalidArgumentError(
                f"Expected nesterov=True together with a momentum above 0 and dampening=0, got momentum={momentum} and "
                f"dampening={self.dampening} (not given, it equals the momentum). Add dampening=0."
            )

    def torch_optimizer(self, params: Iterable[Any]) -> torch.optim.Optimizer:
        return _torch().SGD(
            params,
            lr=self.learningrate,
            momentum=self.momentum,
            dampening=self.dampening,
            weight_decay=self.weightdecay,
            nesterov=self.nesterov,
        )


class Adagrad(Optimizer):
    """Rates that shrink with the squares of all past gradients."""

    def __init__(self, learningrate: float = 1e-3, learningrate_decay: float = 0.0, weightdecay: float = 0.0) -> None:
        _not_negative(learningrate=learningrate, learningrate_decay=learningrate_decay, weightdecay=weightdecay)
        self.learningrate = learningrate
        self.learningrate_decay = learningrate_decay
        self.weightdecay = weightdecay

    def torch_optimizer(self, params: Iterable[Any]) -> torch.optim.Optimizer:
        return _torch().Adagrad(params, lr=self.learningrate, weight_decay=self.weightdecay, eps=1e-10)


class LBFGS(Optimizer):
    """Limited-memory BFGS: several evaluations of one batch's loss to a step."""

    needs_closure = True

    def __init__(
        self,
        max_iter: int = 20,
        max_eval: float = DOUBLEMAX,
        tolfun: float = 1e-5,
        tolx: float = 1e-9,
        ncorrection: int = 100,
        learningrate: float = 1.0,
        verbose: bool = False,
        linesearch: Any = None,
        linesearch_options: Any = None,
    ) -> None:
        _not_negative(max_iter=max_iter, tolfun=tolfun, tolx=tolx, learningrate=learningrate)
        if linesearch is not None or linesearch_options is not None:
            raise NotOfferedError(
                "LBFGS has no line search of its own here. Give from_torch "
                "torch.optim.LBFGS(model.parameters(), line_search_fn='strong_wolfe')"
            )
        self.max_iter = max_iter
        self.max_eval = max_eval
        self.tolfun = tolfun
        self.tolx = tolx
        self.ncorrection = ncorrection
        self.learningrate = learningrate
        self.verbose = verbose

    def torch_optimizer(self, params: Iterable[Any]) -> torch.optim.Optimizer:
        # Torch takes a whole number; without a limit of evaluations the limit of iterations decides.
        most = 2**31 - 1 if self.max_eval == DOUBLEMAX else int(self.max_eval)
        return _torch().LBFGS(
            params,
            lr=self.learningrate,
            max_iter=self.max_iter,
            max_eval=most,
            tolerance_grad=self.tolfun,
            tolerance_change=self.tolx,
            history_size=self.ncorrection,
        )


class Adadelta(Optimizer):
    """Steps as large as past steps relative to past gradients; it has no rate."""

    learningrate = 1.0

    def __init__(self, decayrate: float = 0.9, epsilon: float = 1e-10) -> None:
        _not_negative(decayrate=decayrate, epsilon=epsilon)
        self.decayrate = decayrate
        self.epsilon = epsilon

    def torch_optimizer(self, params: Iterable[Any]) -> torch.optim.Optimizer:
        return _torch().Adadelta(params, lr=self.learningrate, rho=self.decayrate, eps=self.epsilon)


class Adam(Optimizer):
    """Adaptive moments."""

    def __init__(
        self,
        learningrate: float = 1e-3,
        learningrate_decay: float = 0.0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
    ) -> None:
        _not_negative(learningrate=learningrate, learningrate_decay=learningrate_decay, epsilon=epsilon)
        self.learningrate = learningrate
        self.learningrate_decay = learningrate_decay
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def torch_optimizer(self, params: Iterable[Any]) -> torch.optim.Optimizer:
        return _torch().Adam(params, lr=self.learningrate, betas=(self.beta1, self.beta2), eps=self.epsilon)


class ParallelAdam(Adam):
    """Adam; how many threads update the weights is torch's own business."""

    def __init__(
        self,
        learningrate: float = 1e-3,
        learningrate_decay: float = 0.0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parallel_num: int = -1,
    ) -> None:
        super().__init__(learningrate, learningrate_decay, beta1, beta2, epsilon)
        self.parallel_num = parallel_num


class Ftrl(Optimizer):
    """Follow the regularized leader: weights that L1 keeps at zero until they matter."""

    def __init__(
        self,
        learningrate: float = 1e-3,
        learningrate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0,
    ) -> None:
        _not_negative(
            learningrate=learningrate,
            initial_accumulator_value=initial_accumulator_value,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
            l2_shrinkage_regularization_strength=l2_shrinkage_regularization_strength,
        )
        if learningrate_power > 0:
            raise InvalidArgumentError(f"Expected learningrate_power to be 0 or less, got {learningrate_power!r}")
        self.learningrate = learningrate
        self.learningrate_power = learningrate_power
        self.initial_accumulator_value = initial_accumulator_value
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength
        self.l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength

    def torch_optimizer(self, params: Iterable[Any]) -> torch.optim.Optimizer:
        require("torch", "An optimizer")
        from zoo.orca.learn.pytorch.ftrl import Ftrl as TorchFtrl

        return TorchFtrl(
            params,
            lr=self.learningrate,
            lr_power=self.learningrate_power,
            initial_accumulator_value=self.initial_accumulator_value,
            l1=self.l1_regularization_strength,
            l2=self.l2_regularization_strength,
            l2_shrinkage=self.l2_shrinkage_regularization_strength,
        )


class Adamax(Optimizer):
    """Adam with the largest of past gradients in place of their mean square."""

    def __init__(
        self, learningrate: float = 0.002, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-38
    ) -> None:
        _not_negative(learningrate=learningrate, epsilon=epsilon)
        self.learningrate = learningrate
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def torch_optimizer(self, params: Iterable[Any]) -> torch.optim.Optimizer:
        return _torch().Adamax(params, lr=self.learningrate, betas=(self.beta1, self.beta2), eps=self.epsilon)


class RMSprop(Optimizer):
    """Gradients over the root of their running mean square."""

    def __init__(
        self,
        learningrate: float = 1e-2,
        learningrate_decay: float = 0.0,
        decayrate: float = 0.99,
        epsilon: float = 1e-8,
    ) -> None:
        _not_negative(learningrate=learningrate, learningrate_decay=learningrate_decay, epsilon=epsilon)
        self.learningrate = learningrate
        self.learningrate_decay = learningrate_decay
        self.decayrate = decayrate
        self.epsilon = epsilon

    def torch_optimizer(self, params: Iterable[Any]) -> torch.optim.Optimizer:
        return _torch().RMSprop(params, lr=self.learningrate, alpha=self.decayrate, eps=self.epsilon)


def _torch() -> Any:
    """`torch.optim`, loaded on first use."""
    return require("torch.optim", "An optimizer")


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not isinstance(value, int | float) or math.isnan(value) or value < 0:
            raise InvalidArgumentError(f"Expected {name} to be a number from 0 on, got {value!r}")


__dir__ = public_names(globals())
