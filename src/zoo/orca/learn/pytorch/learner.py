"""PyTorch as a learner: one replica on a worker, which trains with the others, measures and gives its state."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from zoo.orca.errors import BatchError, InvalidArgumentError
from zoo.orca.learn.learner import Learner
from zoo.orca.learn.pytorch.loss import LossSum, words
from zoo.orca.learn.pytorch.recipe import TorchRecipe
from zoo.orca.learn.pytorch.replica import Replica
from zoo.orca.learn.pytorch.training_operator import SCHEDULER_STEP, TrainingOperator, need_dict, unpack

if TYPE_CHECKING:
    from zoo.orca.engine.pickling import Packed
    from zoo.orca.engine.worker import Worker
    from zoo.orca.feed.base import Share
    from zoo.orca.learn.sync import Group


@dataclass
class TorchLearning:
    """How a worker makes its replica: what `from_torch` was given, and what was set on the estimator since."""

    recipe: Packed
    sharded: bool = False
    clip: tuple[Any, ...] | None = None

    def build(self, worker: Worker, group: Group, state: dict[str, Any] | None) -> TorchLearner:
        return TorchLearner(self, worker, group, state)


class TorchLearner(Learner):
    """One rank's model, optimizer and operator."""

    def __init__(self, learning: TorchLearning, worker: Worker, group: Group, state: dict[str, Any] | None):
        recipe: TorchRecipe = learning.recipe.load()
        self.recipe = recipe
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // worker.local_size))
        if recipe.initialization_hook is not None:
            recipe.initialization_hook()
        self.rank = worker.rank
        self.models = recipe.build_models()
        optimizers = recipe.build_optimizers(self.models)
        self.replica = Replica(group, optimizers, learning.sharded, learning.clip)
        self.replica.broadcast_models(self.models)
        self.schedulers = recipe.build_schedulers(optimizers)
        self.schedule = recipe.build_schedule(optimizers)
        self.operator = recipe.build_operator(self.models, optimizers, self.schedulers, worker.rank)
        self._float = float_type(self.models)
        self._share: Share | None = None
        self._loss_sum: LossSum | None = None
        self._before_ghost: list[tuple[Tensor, Tensor]] = []
        self._measured_rows = 0
        if self.operator.criterion is not None:
            self.operator.criterion.tell = self._hear
            self.replica.is_mean = not self.operator.criterion.is_sum
        if state is not None:
            self._load(state)

    def start_epoch(self, epoch: int) -> None:
        torch.manual_seed(hash((self.recipe.seed, epoch, self.rank)) % 2**63)

    def take(self, share: Share) -> Any:
        """A share as the operator's batch; from now on the replica counts for the share's part of the whole batch."""
        self._forget_ghost()
        self._share = share
        if share.rows == 0:
            self._before_ghost = [(buffer, buffer.clone()) for model in self.models for buffer in model.buffers()]
        self._weigh(None)
        criterion = self.operator.criterion
        if criterion is not None:
            criterion.row_weights = None if share.weights is None else self._tensor(share.weights)
        return self._tensors(share.batch)

    def train_epoch(self, batches: Iterable[Any], info: dict[str, Any]) -> dict[str, Any]:
        info = {SCHEDULER_STEP: self.recipe.scheduler_step_freq} | info
        self.operator.timers.reset()
        try:
            return need_dict(self.operator.train_epoch(batches, info), "train_epoch")
        finally:
            self._forget_ghost()
            self._share = None

    def after_step(self) -> None:
        if self.schedule is not None:
            self.schedule.step()

    def after_epoch(self, rows: int, loss: float | None, score: float | None) -> None:
        self.replica.average_buffers(self.models, rows)
        if self.schedule is not None:
            self.schedule.observe(loss, score)

    def validate(self, shares: Iterable[Share], info: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        metrics = self.recipe.build_metrics()
        self._loss_sum = LossSum()
        before = [model.training for model in self.models]
        try:
            figures = self.operator.validate(self._measured(shares), info, metrics)
        finally:
            loss_sum, self._loss_sum = self._loss_sum, None
            for model, training in zip(self.models, before, strict=True):
                model.train(training)
        return figures, metrics | ({"val_loss": loss_sum} if self._measures_plainly() else {})

    def _measures_plainly(self) -> bool:
        """Whether "val_loss" is the loss of the batches and nothing else."""
        hooks = ("validate", "validate_batch", "forward_batch")
        plain = all(getattr(type(self.operator), hook) is getattr(TrainingOperator, hook) for hook in hooks)
        return plain and self.operator.criterion is not None

    @property
    def loss(self) -> float | None:
        return self.replica.global_loss

    @property
    def rate(self) -> float:
        return float(self.operator.optimizer.param_groups[0]["lr"])

    def profile(self) -> dict[str, Any]:
        return self.operator.timers.stats()

    def state(self) -> dict[str, Any]:
        return {
            "models": [{name: on_cpu(value) for name, value in model.state_dict().items()} for model in self.models],
            "optimizers": self.replica.optimizer_states(),
            "schedulers": [each.state_dict() for each in self._all_schedulers],
            "operator": {"global_step": self.operator.global_step, "own": self.operator.state_dict()},
        }

    def digest(self) -> str:
        return self.replica.digest(self.models)

    def close(self) -> None:
        self.replica.close()

    @property
    def _all_schedulers(self) -> list[Any]:
        return [*self.schedulers, *([self.schedule] if self.schedule is not None else [])]

    def _load(self, state: dict[str, Any]) -> None:
        for model, weights in zip(self.models, state["models"], strict=True):
            model.load_state_dict(weights)
        if state.get("optimizers"):
            self.replica.load_optimizer_states(state["optimizers"])
        for each, known in zip(self._all_schedulers, state.get("schedulers") or [], strict=False):
            each.load_state_dict(known)
        load_operator(self.operator, state)

    @torch.no_grad()
    def _forget_ghost(self) -> None:
        """Rows that count for nothing leave no trace in running statistics either."""
        for buffer, before in self._before_ghost:
            buffer.copy_(before)
        self._before_ghost = []

    def _hear(self, loss: Tensor, denominator: float | None) -> None:
        """The loss of a batch was computed, and divided by that (None: by the rows)."""
        if self._loss_sum is not None:
            rows = None if self.operator.criterion.is_sum else float(self._measured_rows)
            self._loss_sum.add(loss.item(), rows if denominator is None else denominator)
        elif self._share is not None:
            self.replica.loss = loss.detach()
            self._weigh(denominator)

    def _weigh(self, denominator: float | None) -> None:
        """How much this rank's gradient counts: by its rows, or by what its loss was divided by."""
        share, criterion = self._share, self.operator.criterion
        if share is None:
            return
        if share.rows == 0:
            self.replica.weight = 0.0
        elif criterion is not None and criterion.is_sum:
            self.replica.weight = 1.0
        else:
            self.replica.weight = (share.rows if denominator is None else denominator) / share.total

    def _measured(self, shares: Iterable[Share]) -> Iterator[Any]:
        for share in shares:
            if share.rows:
                self._measured_rows = share.rows
                if self.operator.criterion is not None:
                    self.operator.criterion.row_weights = None if share.weights is None else self._tensor(share.weights)
                yield self._tensors(share.batch)

    def _tensors(self, batch: Any) -> Any:
        return to_tensors(batch, self._float)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._float)


class TorchPredictor:
    """The model for prediction, as it travels to the workers; loaded once in each process."""

    def __init__(self, key: str, recipe: TorchRecipe, state: dict[str, Any]):
        self.key = key
        self._recipe = recipe
        self._state = state

    def load(self) -> Callable[[tuple[Any, ...]], Any]:
        """A function from a tuple of features to an array, or a list of them for several outputs."""
        recipe = self._recipe
        with torch.random.fork_rng(devices=[]):
            models = recipe.build_models()
        for model, weights in zip(models, self._state.get("models", []), strict=False):
            model.load_state_dict(weights)
        # An operator of the user's own may look for its optimizers when it is made.
        optimizers = [] if recipe.optimizer is None else recipe.build_optimizers(models)
        operator = recipe.build_operator(models, optimizers, recipe.build_schedulers(optimizers), rank=0)
        load_operator(operator, self._state)
        dtype = float_type(models)

        def predict(features: tuple[Any, ...]) -> Any:
            (output,) = operator.predict([tuple(to_tensors(each, dtype) for each in features)])
            return to_arrays(output)

        return predict


def load_operator(operator: TrainingOperator, state: dict[str, Any]) -> None:
    """Give an operator what it said of itself; one that said nothing is not asked to take it."""
    known = state.get("operator") or {}
    operator.global_step = known.get("global_step", 0)
    if known.get("own"):
        operator.load_state_dict(known["own"])


def dry_run(recipe: TorchRecipe, models: list[torch.nn.Module], batch: Any, what: str = "data") -> None:
    """Forward a few rows on the driver, so that shapes that do not fit are an error before anything is started.

    The model is left as it was: not trained, its buffers and the random state untouched.
    """
    if recipe.operator_cls is not TrainingOperator or len(models) != 1:
        return
    (model,) = models
    features, target = unpack(to_tensors(batch, float_type(models)))
    with torch.random.fork_rng(devices=[]), torch.no_grad(), _evaluating(model):
        try:
            output = model(*features)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            raise BatchError(
                f"the model cannot take {what}: it was called with {', '.join(map(words, features))}, and raised "
                f"{type(error).__name__}: {error} Check the features (feature_cols, shapes, types) against forward()."
            ) from error
        criterion = recipe.build_criterion()
        if criterion is not None:
            try:
                criterion(output, target)
            except InvalidArgumentError as error:
                error.add_note(f"The first rows of {what} were tried before anything was started.")
                raise


@contextlib.contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def float_type(models: Iterable[torch.nn.Module]) -> torch.dtype:
    """The type that floating features and labels are given: the model's own."""
    for model in models:
        for parameter in model.parameters():
            if parameter.is_floating_point():
                return parameter.dtype
    return torch.get_default_dtype()


def to_tensors(value: Any, floats: torch.dtype) -> Any:
    """Arrays as tensors, however they are nested: doubles become the model's type, integers stay what they are.

    What a user's own loader made of its rows (tensors, text) is left as it is.
    """
    if isinstance(value, np.ndarray):
        tensor = _view(value)
        return tensor.to(floats) if tensor.is_floating_point() and tensor.dtype != floats else tensor
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_tensors(each, floats) for each in value))
    if isinstance(value, list | tuple):
        return type(value)(to_tensors(each, floats) for each in value)
    if isinstance(value, dict):
        return {key: to_tensors(each, floats) for key, each in value.items()}
    return value


def _view(array: np.ndarray) -> Tensor:
    """A tensor on the array's memory; a model that writes into its input gets what it asked for."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def to_arrays(output: Any) -> Any:
    """A model's output as an array, or a list of arrays for several outputs."""
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, list | tuple):
        return [to_arrays(each) for each in output]
    return output.detach().cpu().numpy() if isinstance(output, Tensor) else np.asarray(output)


def on_cpu(value: Any) -> Any:
    return value.detach().cpu().clone() if isinstance(value, Tensor) else value
