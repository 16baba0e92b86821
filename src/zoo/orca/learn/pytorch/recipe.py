"""What the user gave to `from_torch`, instances or creators, and how a worker builds it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.metrics import Metric
from zoo.orca.learn.optimizers import SGD, Optimizer
from zoo.orca.learn.pytorch.loss import Criterion
from zoo.orca.learn.pytorch.numerics import Numerics
from zoo.orca.learn.pytorch.training_operator import TrainingOperator


@dataclass
class TorchRecipe:
    """Everything a worker needs to build the model and train it.

    Instances travel in one pickle, so that an optimizer still holds the parameters of the model it was made for.
    """

    model: Any
    optimizer: Any = None
    loss: Any = None
    scheduler: Any = None
    metrics: Any = None
    metric_backend: str = "bigdl"
    operator_cls: type[TrainingOperator] = TrainingOperator
    initialization_hook: Callable[[], Any] | None = None
    config: dict[str, Any] = field(default_factory=dict)
    scheduler_step_freq: str | None = "batch"
    use_tqdm: bool = False
    seed: int = 0
    numerics: Numerics = field(default_factory=Numerics)

    def check(self) -> None:
        """Raise a typed error for what cannot work, on the driver, before anything is started."""
        self._check_model()
        self._check_optimizer()
        self._check_callables()
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise InvalidArgumentError(f"seed must be a whole number, but is {self.seed!r}.")
        Metric.convert_metrics_dict(self.metrics, self.metric_backend)

    def check_loss(self) -> None:
        """Raise a typed error if training needs a loss and there is none; prediction does without."""
        if self.loss is None and self.operator_cls.forward_batch is TrainingOperator.forward_batch:
            raise InvalidArgumentError(
                "loss must be given: a torch loss such as torch.nn.MSELoss(), a function loss(output, target), or a "
                "creator loss(config). Only prediction, and a TrainingOperator with its own forward_batch, do without."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Torch leaves out of an optimizer's pickle what its class added to it (LBFGS has such), so add it here."""
        given = as_list(self.optimizer) if self.optimizer is not None else []
        return vars(self) | {"_beside": [_unpickled(each) for each in given]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        beside = state.pop("_beside")
        vars(self).update(state)
        for optimizer, attributes in zip(as_list(self.optimizer), beside, strict=False):
            for name, value in attributes.items():
                if not hasattr(optimizer, name):
                    setattr(optimizer, name, value)

    def check_unlabelled(self, what: str) -> None:
        """Raise a typed error if the loss cannot do without labels; a loss of the user's own is given -1 for each."""
        criterion = self.build_criterion() if self.operator_cls is TrainingOperator else None
        if criterion is None or not _needs_labels(criterion.loss):
            return
        raise InvalidArgumentError(
            f"the loss compares outputs with labels, but {what} has none. Give them: label_cols=[...] for columns, "
            '(x, y) or {"x": x, "y": y} for arrays and shards.'
        )

    def build_models(self) -> list[torch.nn.Module]:
        torch.manual_seed(self.seed)  # every rank starts with the same weights
        made = call_creator(self.model, self.config) if is_creator(self.model) else self.model
        models = as_list(made)
        for model in models:
            if not isinstance(model, torch.nn.Module):
                raise InvalidArgumentError(
                    f"the model creator must return a torch.nn.Module (or a list of them), but returned a "
                    f"{type(model).__name__}."
                )
        return models

    def build_optimizers(self, models: list[torch.nn.Module]) -> list[torch.optim.Optimizer]:
        if isinstance(self.optimizer, Optimizer):
            return [self.optimizer.torch_optimizer([each for model in models for each in model.parameters()])]
        if not is_creator(self.optimizer):
            return as_list(self.optimizer)
        made = as_list(call_creator(self.optimizer, models if len(models) > 1 else models[0], self.config))
        for optimizer in made:
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise InvalidArgumentError(
                    "the optimizer creator must return a torch optimizer (or a list of them), but returned a "
                    f"{type(optimizer).__name__}."
                )
        return made

    def build_schedulers(self, optimizers: list[torch.optim.Optimizer]) -> list[Any]:
        """The user's own schedulers, which an operator steps."""
        if self.scheduler is None:
            return []
        if not callable(self.scheduler) or isinstance(self.scheduler, LRScheduler | ReduceLROnPlateau):
            return as_list(self.scheduler)
        chosen = optimizers if len(optimizers) > 1 else optimizers[0]
        return as_list(call_creator(self.scheduler, chosen, self.config))

    def build_schedule(self, optimizers: list[torch.optim.Optimizer]) -> Any:
        """The schedule of an orca optimizer, stepped after every iteration; None for others."""
        return self.optimizer.torch_scheduler(optimizers[0]) if isinstance(self.optimizer, Optimizer) else None

    def build_criterion(self) -> Criterion | None:
        loss = self.loss
        if isinstance(loss, type):
            loss = loss()
        elif is_loss_creator(loss):
            loss = call_creator(loss, self.config)
        return None if loss is None else Criterion(loss)

    def build_metrics(self) -> dict[str, Any]:
        return Metric.convert_metrics_dict(self.metrics, self.metric_backend)

    def build_operator(
        self, models: list[torch.nn.Module], optimizers: list[Any], schedulers: list[Any], rank: int
    ) -> TrainingOperator:
        return self.operator_cls(
            self.config,
            models=models,
            optimizers=optimizers,
            world_rank=rank,
            criterion=self.build_criterion(),
            schedulers=schedulers,
            use_fp16=self.numerics.scales_loss,
            use_tqdm=self.use_tqdm,
        )

    def _check_callables(self) -> None:
        if self.loss is not None and not callable(self.loss):
            raise InvalidArgumentError(
                "loss must be a torch loss such as torch.nn.MSELoss(), a function loss(output, target), or a creator "
                f"loss(config), but is {self.loss!r}."
            )
        known = LRScheduler | ReduceLROnPlateau
        if self.scheduler is not None and not all(
            callable(each) or isinstance(each, known) for each in as_list(self.scheduler)
        ):
            raise InvalidArgumentError(
                "scheduler_creator must be a function scheduler(optimizer, config) that returns a torch scheduler, or "
                f"a torch scheduler, but is {self.scheduler!r}."
            )
        if self.initialization_hook is not None and not callable(self.initialization_hook):
            raise InvalidArgumentError(
                f"initialization_hook must be a function without arguments, but is {self.initialization_hook!r}."
            )

    def _check_model(self) -> None:
        if isinstance(self.model, type):
            raise InvalidArgumentError(
                f"model must be an instance or a function of config, but is the class {self.model.__name__}. "
                f"Give {self.model.__name__}(...), or lambda config: {self.model.__name__}(...)."
            )
        models = as_list(self.model)
        if not is_creator(self.model) and not all(isinstance(each, torch.nn.Module) for each in models):
            raise InvalidArgumentError(
                "model must be a torch.nn.Module or a function model(config) that returns one, but is a "
                f"{type(self.model).__name__}."
            )

    def _check_optimizer(self) -> None:
        self.optimizer = SGD() if self.optimizer is None else self.optimizer
        if isinstance(self.optimizer, Optimizer) or is_creator(self.optimizer):
            return
        if not all(isinstance(each, torch.optim.Optimizer) for each in as_list(self.optimizer)):
            raise InvalidArgumentError(
                "optimizer must be a torch optimizer, an orca optimizer (zoo.orca.learn.optimizers), or a function "
                f"optimizer(model, config) that returns a torch optimizer, but is a {type(self.optimizer).__name__}."
            )
        known = set() if is_creator(self.model) else {id(p) for m in as_list(self.model) for p in m.parameters()}
        held = [p for each in as_list(self.optimizer) for group in each.param_groups for p in group["params"]]
        if not all(id(each) in known for each in held):
            raise InvalidArgumentError(
                "the optimizer holds parameters that are not the model's. An optimizer instance needs the model "
                "instance that it was made for; with a model creator give a function optimizer(model, config)."
            )


def is_creator(value: Any) -> bool:
    """Whether value is a function that makes a model or an optimizer."""
    kinds = torch.nn.Module | torch.optim.Optimizer | Optimizer | list | tuple
    return callable(value) and not isinstance(value, kinds)


def is_loss_creator(loss: Any) -> bool:
    """A function of one argument makes a loss from config; a loss takes (output, target)."""
    if loss is None or isinstance(loss, torch.nn.Module) or not callable(loss):
        return False
    try:
        return len(_required(loss)) == 1
    except ValueError:  # functions written in C do not tell what they take
        return False


def call_creator(creator: Callable[..., Any], *arguments: Any) -> Any:
    """Call a creator with as many of the arguments as it takes."""
    parameters = inspect.signature(creator).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return creator(*arguments)
    takes = sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters)
    return creator(*arguments[:takes])


def _needs_labels(loss: Any) -> bool:
    """Whether it is one of torch's losses, all of which compare with labels, or says itself that it does."""
    if getattr(loss, "_orca_needs_labels", False):
        return True
    return isinstance(loss, torch.nn.modules.loss._Loss) or getattr(loss, "__module__", "") == "torch.nn.functional"


def as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _unpickled(optimizer: Any) -> dict[str, Any]:
    """The attributes of a torch optimizer that its pickle does not hold; hooks and methods are made anew there."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        return {}
    held = optimizer.__getstate__()
    return {
        name: value
        for name, value in vars(optimizer).items()
        if name not in held and not name.startswith("_optimizer_") and not callable(value)
    }


def _required(function: Callable[..., Any]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [each for each in parameters if each.kind in kinds and each.default is each.empty]
