"""PyTorch as a learner: one replica on a worker, which trains with the others, measures and gives its state."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from zoo.orca.errors import BatchError, InvalidArgumentError, sentence
from zoo.orca.learn.learner import Learner
from zoo.orca.learn.pytorch.devices import find_device, follow_parameters
from zoo.orca.learn.pytorch.generators import generators_state, load_generators, seed_generators
from zoo.orca.learn.pytorch.loss import LossSum, words
from zoo.orca.learn.pytorch.numerics import (
    LossScale,
    compile_model,
    compute_in,
    deterministic_algorithms,
    names_of_the_script,
)
from zoo.orca.learn.pytorch.predictor import load_operator
from zoo.orca.learn.pytorch.recipe import TorchRecipe
from zoo.orca.learn.pytorch.replica import Replica
from zoo.orca.learn.pytorch.tensors import device_of, float_type, named_buffers, snapshot, to_device, to_tensors
from zoo.orca.learn.pytorch.training_operator import SCHEDULER_STEP, TrainingOperator, need_dict, unpack
from zoo.orca.learn.pytorch.utils import AverageMeterCollection

if TYPE_CHECKING:
    from zoo.orca.engine.pickling import Packed
    from zoo.orca.engine.worker import Worker
    from zoo.orca.feed.base import Share
    from zoo.orca.learn.sync import Group

logger = logging.getLogger("zoo.orca")


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
        self.rank = worker.rank
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // worker.local_size))
        if recipe.initialization_hook is not None:
            recipe.initialization_hook()
        with contextlib.ExitStack() as undo:
            self._build(learning, worker, group, undo)
            self._count_from_zero()
            if state is not None:
                self._load(state)
            self._undo = undo.pop_all()

    def _build(self, learning: TorchLearning, worker: Worker, group: Group, undo: contextlib.ExitStack) -> None:
        recipe, numerics = self.recipe, self.recipe.numerics
        if numerics.deterministic:
            undo.enter_context(deterministic_algorithms())
        self.device = find_device(numerics.device, worker.local_rank)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self.models = [model.to(self.device) for model in recipe.build_models()]
        optimizers = recipe.build_optimizers(self.models)
        if self.device.type != "cpu":
            for optimizer in optimizers:
                follow_parameters(optimizer)
        scale = LossScale() if numerics.scales_loss else None
        self.replica = Replica(group, optimizers, learning.sharded, learning.clip, scale, numerics.stop_on_nan)
        self.replica.broadcast_models(self.models)
        self.schedulers = recipe.build_schedulers(optimizers)
        self.schedule = recipe.build_schedule(optimizers)
        self.operator = recipe.build_operator(self.models, optimizers, self.schedulers, worker.rank)
        self.operator._replica = self.replica
        compute_in(numerics, self.models, self.operator.criterion, self.device, undo)
        if numerics.compile:
            undo.enter_context(names_of_the_script(self.models))
            for model in self.models:
                undo.callback(compile_model(model))
        self._float = float_type(self.models)
        self._loss_sum: LossSum | None = None
        self._measured_rows = 0
        if self.operator.criterion is not None:
            self.operator.criterion.tell = self._hear
            self.replica.is_mean = not self.operator.criterion.is_sum

    def _count_from_zero(self) -> None:
        self._share: Share | None = None
        self._before_ghost: list[tuple[Tensor, Tensor]] = []
        self._iterations = 0
        self._epoch = 0
        self._batch = 0
        self._rows = 0
        self._has_own_buffers = False

    def start_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._batch = self._rows = 0
        self._has_own_buffers = True
        self.operator._meters = AverageMeterCollection()
        seed_generators(hash((self.recipe.seed, epoch, self.rank)) % 2**63)

    def take(self, share: Share, last: bool = False) -> Any:
        """A share as the operator's batch; from now on the replica counts for the share's part of the whole batch."""
        self._forget_ghost()
        self._share = share
        self._iterations += 1
        self._batch += 1
        self._rows += share.rows
        self.replica.begin(holds=not last and self._batch % self.recipe.numerics.accumulate != 0)
        self.replica.place = (self._iterations, self._epoch + 1, self._batch)
        if share.rows == 0:
            self._before_ghost = [(buffer, buffer.clone()) for model in self.models for buffer in model.buffers()]
        self._weigh(None)
        criterion = self.operator.criterion
        if criterion is not None:
            criterion.row_weights = None if share.weights is None else self._tensor(share.weights)
            criterion.rows_part = share.rows / share.total if share.total else 1.0
        return self._tensors(share.batch)

    def train_epoch(self, batches: Iterable[Any], info: dict[str, Any]) -> dict[str, Any]:
        info = {SCHEDULER_STEP: self.recipe.scheduler_step_freq} | info
        self.operator.timers.reset()
        self.operator._first_batch = self._batch = getattr(batches, "first", 0)
        if self._batch == 0:
            self.replica.drop_held()  # of an epoch that was broken off
        try:
            return need_dict(self.operator.train_epoch(batches, info), "train_epoch")
        finally:
            self._forget_ghost()
            self._share = None

    def after_step(self) -> None:
        self._forget_ghost()
        self.replica.finish()
        if self.schedule is not None and not self.replica.was_withheld:
            self.schedule.step()

    def after_epoch(self, rows: int, loss: float | None, score: float | None) -> None:
        self.replica.average_buffers(self.models, rows)
        self._has_own_buffers = False
        if self.replica.holds and self.rank == 0:
            logger.warning(
                "the epoch ended in the middle of a step of several batches (accumulate): the gradients of its last "
                "batches are left out. Was it stopped, or does the loader give fewer batches than its length says?"
            )
        if self.schedule is not None:
            self.schedule.observe(loss, score)

    def after_validation(self, score: float | None) -> None:
        if self.recipe.scheduler_step_freq == "score" and score is not None:
            for scheduler in self.schedulers:
                scheduler.step(score)

    def validate(self, shares: Iterable[Share], info: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        metrics = self.recipe.build_metrics()
        self._loss_sum = LossSum()
        before = [model.training for model in self.models]
        try:
            with self._agreed_buffers():
                figures = self.operator.validate(self._measured(shares), info, metrics)
        finally:
            loss_sum, self._loss_sum = self._loss_sum, None
            for model, training in zip(self.models, before, strict=True):
                model.train(training)
        return figures, metrics | ({"val_loss": loss_sum} if self._measures_plainly() else {})

    def measured_loss(self) -> float | None:
        return self._loss_sum.value() if self._loss_sum is not None and self._measures_plainly() else None

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

    @property
    def native(self) -> Any:
        return self.models[0] if len(self.models) == 1 else self.models

    def profile(self) -> dict[str, Any]:
        return self.operator.timers.stats()

    def state(self) -> dict[str, Any]:
        with self._agreed_buffers():
            models = [{name: snapshot(value) for name, value in model.state_dict().items()} for model in self.models]
        return {
            "models": models,
            "optimizers": self.replica.optimizer_states(),
            "schedulers": [snapshot(each.state_dict()) for each in self._all_schedulers],
            "operator": self._operator_state(),
        }

    def _operator_state(self) -> dict[str, Any]:
        state = {
            "global_step": self.operator.global_step,
            "own": snapshot(self.operator.state_dict()),
            "iterations": self._iterations,
            "loss": self.replica.global_loss,
        }
        if self.replica.scale is not None:
            state["scale"] = self.replica.scale.state()
        if self.replica.holds:
            state["held"] = self.replica.held_over_ranks()
        return state

    def local_state(self) -> dict[str, Any]:
        self._forget_ghost()
        return {
            "generators": generators_state(self.device),
            "buffers": {name: snapshot(buffer) for name, buffer in named_buffers(self.models)},
            "meters": self.operator._meters.state(),
            "batch": self._batch,
            "rows": self._rows,
            "held": self.replica.held(),
            # Rank 0's is in the state of all.
            "own": snapshot(self.operator.state_dict()) if self.rank else {},
        }

    @torch.no_grad()
    def load_local(self, state: dict[str, Any], within_epoch: bool) -> None:
        for name, buffer in named_buffers(self.models):
            buffer.copy_(state["buffers"][name])
        if state["own"]:
            self.operator.load_state_dict(state["own"])
        if within_epoch:
            self._batch, self._rows = state["batch"], state["rows"]
            self.operator._meters.load(state["meters"])
            self._take_held(state["held"], waits=self._batch % self.recipe.numerics.accumulate != 0)
            load_generators(state["generators"], self.device)

    def load_figures(self, states: list[dict[str, Any]]) -> None:
        for state in states:
            self.operator._meters.add(state["meters"])

    def digest(self) -> str:
        return self.replica.digest(self.models)

    def close(self) -> None:
        self.replica.close()
        if self.operator.criterion is not None:
            self.operator.criterion.tell = None
        self._undo.close()

    @property
    def _all_schedulers(self) -> list[Any]:
        return [*self.schedulers, *([self.schedule] if self.schedule is not None else [])]

    def _load(self, state: dict[str, Any]) -> None:
        for model, weights in zip(self.models, state["models"], strict=True):
            model.load_state_dict(weights)
        if state.get("optimizers"):
            self.replica.load_optimizer_states(state["optimizers"])
        for each, known in zip(self._all_schedulers, state.get("schedulers") or [], strict=False):
            each.load_state_dict(copy.deepcopy(known))
        load_operator(self.operator, state)
        known = state.get("operator") or {}
        self._iterations = known.get("iterations", 0)
        self.replica.global_loss = known.get("loss")
        if self.replica.scale is not None and "scale" in known:
            self.replica.scale.load(known["scale"])
        # Of all ranks' together; a rank that is given its own share of them takes that instead.
        if "held" in known:
            self._take_held(known["held"] if self.rank == 0 else [], waits=True)

    def _take_held(self, states: list[dict[str, Any]], waits: bool) -> None:
        """Go on where a step `waits` for more batches on all ranks, if steps still are of several batches."""
        if self.recipe.numerics.accumulate > 1:
            self.replica.load_held(states)
            self.replica.holds = waits

    @contextlib.contextmanager
    def _agreed_buffers(self) -> Iterator[None]:
        """In the middle of an epoch: let models have the buffers that ranks would agree on now, and each its own again.

        All ranks call it together."""
        self._forget_ghost()
        if not self._has_own_buffers:
            yield
            return
        own = [(buffer, buffer.clone()) for _, buffer in named_buffers(self.models)]
        self.replica.average_buffers(self.models, self._rows)
        try:
            yield
        finally:
            _put_back(own)

    def _forget_ghost(self) -> None:
        """Rows that count for nothing leave no trace in running statistics either."""
        _put_back(self._before_ghost)
        self._before_ghost = []

    def _hear(self, loss: Tensor, denominator: float | None) -> None:
        """The loss of a batch was computed, and divided by that (None: by the rows)."""
        if self._loss_sum is not None:
            rows = None if self.operator.criterion.is_sum else float(self._measured_rows)
            self._loss_sum.add(loss.item(), rows if denominator is None else denominator)
        elif self._share is not None:
            self.replica.hear_own(loss)
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
            # Of one batch the weights are parts of a whole, which need not be divided by their sum any more.
            whole = share.total if self.recipe.numerics.accumulate == 1 else 1
            self.replica.weight = (share.rows if denominator is None else denominator) / whole

    def _measured(self, shares: Iterable[Share]) -> Iterator[Any]:
        for share in shares:
            if share.rows:
                self._measured_rows = share.rows
                if self.operator.criterion is not None:
                    self.operator.criterion.row_weights = None if share.weights is None else self._tensor(share.weights)
                yield self._tensors(share.batch)

    def _tensors(self, batch: Any) -> Any:
        return to_device(to_tensors(batch, self._float), self.device)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device, self._float)


def dry_run(recipe: TorchRecipe, models: list[torch.nn.Module], batch: Any, what: str = "data") -> None:
    """Forward a few rows on the driver, so that shapes that do not fit are an error before anything is started.

    The model is left as it was: not trained, its buffers and the random state untouched.
    """
    if recipe.operator_cls is not TrainingOperator or len(models) != 1:
        return
    (model,) = models
    features, target = unpack(to_device(to_tensors(batch, float_type(models)), device_of(models)))
    with torch.random.fork_rng(devices=[]), torch.no_grad(), _evaluating(model):
        try:
            output = model(*features)
        except BatchError:  # says what is wrong itself
            raise
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            raise BatchError(
                f"the model cannot take {what}: it was called with {', '.join(map(words, features))}, and raised "
                f"{sentence(error)} Check the features (feature_cols, shapes, types) against forward()."
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


@torch.no_grad()
def _put_back(values: Iterable[tuple[Tensor, Tensor]]) -> None:
    for tensor, before in values:
        tensor.copy_(before)
