"""PyTorch's part of `est.check`: one batch forward and backward, on the driver, through what a worker would build."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from zoo.orca.errors import InvalidArgumentError, OrcaError
from zoo.orca.feed.base import Share
from zoo.orca.feed.loader_cut import count_rows, take
from zoo.orca.feed.loader_order import Rng
from zoo.orca.feed.taste import Alone
from zoo.orca.learn.check_report import Finding, words_of
from zoo.orca.learn.pytorch.gpu_room import GPURoom
from zoo.orca.learn.pytorch.learner import TorchLearner, TorchLearning, dry_run
from zoo.orca.learn.pytorch.recipe import TorchRecipe, as_list
from zoo.orca.learn.pytorch.training_operator import SCHEDULER_STEP, TrainingOperator, need_dict
from zoo.orca.learn.pytorch.updates import can_be_sharded
from zoo.orca.learn.rehearsal import Load, Memory, Rehearsal, in_words
from zoo.orca.learn.surroundings import free_memory
from zoo.orca.learn.sync.solo import SoloGroup

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker
    from zoo.orca.learn.learner import Learning

# More rows would tell no more of a model, and take time.
ROWS = 32
# The weights as bytes and as a model, their gradients, and what most optimizers keep of them.
COPIES = 5
NAMES_SHOWN = 5
# What torch takes for itself in a process that has trained, whatever the model.
LIBRARIES = 350_000_000
# What batches bring along in fit; here it is the first one.
INFO = {"batch_idx": 0, "global_step": 0, "epoch_idx": 0, "num_steps": 1, SCHEDULER_STEP: None}


class TorchRehearsal(Rehearsal):
    """A learner of one rank, on the driver's CPU.

    Args:
        recipe: what `from_torch` was given.
        state: what a fit before left, which workers start from.
    """

    packages = ("torch",)

    def __init__(self, recipe: TorchRecipe, state: dict[str, Any] | None):
        self._recipe = recipe
        self._state = state
        self._sharded = False
        self._learner: TorchLearner | None = None
        if recipe.numerics.device != "cpu":
            self.room = GPURoom(recipe.numerics.device)

    def parts(self) -> dict[str, Any]:
        recipe = self._recipe
        named = {
            "model": recipe.model,
            "optimizer": recipe.optimizer,
            "loss": recipe.loss,
            "metrics": recipe.metrics,
            "scheduler_creator": recipe.scheduler,
            "training_operator_cls": None if recipe.operator_cls is TrainingOperator else recipe.operator_cls,
            "initialization_hook": recipe.initialization_hook,
            "config": recipe.config or None,
        }
        return {name: part for name, part in named.items() if part is not None}

    def build(self, learning: Learning, world_size: int) -> str | None:
        sent = cast(TorchLearning, learning)
        self._sharded = sent.sharded
        need, free = COPIES * len(sent.recipe.body), free_memory()
        if need > free:
            self.memory = self._at_least(as_list(self._recipe.model), world_size)
            return f"a copy to try takes {in_words(need)} here, but {in_words(free)} are free"
        recipe: TorchRecipe = sent.recipe.load()
        # Hooks are for the workers' processes; compiling takes longer than a check may; a GPU once used is kept.
        numerics = dataclasses.replace(recipe.numerics, compile=False, device="cpu")
        here = dataclasses.replace(recipe, initialization_hook=None, numerics=numerics)
        try:
            with _untouched():
                self._learner = TorchLearner(
                    dataclasses.replace(sent, recipe=cast(Any, _Loaded(here))),
                    cast("Worker", Alone()),
                    SoloGroup(),
                    self._state,
                )
        except Exception as error:
            if self._lacks and not isinstance(error, OrcaError):
                return f"{words_of(error)} On workers it may do: {self._lacks}"
            raise
        return None

    def look(self, share: Share, what: str, is_labelled: bool = True) -> None:
        learner = self._built
        if not is_labelled:
            learner.recipe.check_unlabelled(what)
        with _untouched():
            dry_run(learner.recipe, learner.models, _few(share, 2 * ROWS).batch, what)

    def train(self, share: Share, load: Load) -> list[Finding]:
        few = _few(share, ROWS)
        with _untouched():
            with _watched(self._built.models) as without_gradient:
                try:
                    loss = self._step(few)
                except Exception as error:
                    return [self._failed("model", "training on one batch", error)]
            findings = [_about_loss(loss, few), _about_gradients(self._built.models, without_gradient)]
            if load.least == 1 and few.rows > 1:
                findings += self._one_row(_few(share, 1))
            self.memory = self._at_least(self._built.models, load.world_size)
            with contextlib.suppress(Exception):  # an operator may not take the same batch again and again
                self.memory = self._measure(few, load)
        return findings

    def close(self) -> None:
        if self._learner is not None:
            self._learner.close()
            self._learner = None

    @property
    def _built(self) -> TorchLearner:
        if self._learner is None:
            raise InvalidArgumentError("expected build() before a batch is tried.")
        return self._learner

    def _step(self, share: Share) -> Any:
        """One step, as a worker makes it; gives the loss."""
        learner = self._built
        learner.operator.set_training(True)
        figures = learner.operator.train_batch(learner.take(share, True), dict(INFO))
        return need_dict(figures, "train_batch").get("train_loss")

    @property
    def _lacks(self) -> str:
        """What only workers have, in words: without it, what fails here need not fail there."""
        recipe = self._recipe
        lacks = {
            "your TrainingOperator was not in a gang": recipe.operator_cls is not TrainingOperator,
            "initialization_hook was not called here": recipe.initialization_hook is not None,
            "it ran on the CPU": torch.cuda.is_available() and recipe.numerics.device != "cpu",
        }
        return ", ".join(words for words, is_so in lacks.items() if is_so)

    def _failed(self, name: str, what: str, error: Exception) -> Finding:
        text = f"{what} failed: {words_of(error)}"
        if self._lacks and not isinstance(error, OrcaError):
            return Finding(name, "warning", f"{text} On workers it may not: {self._lacks}.", error)
        return Finding.of(name, error, text)

    def _one_row(self, share: Share) -> list[Finding]:
        """The end of an epoch may leave a rank one row, which layers that normalise over the batch cannot take."""
        try:
            self._step(share)
        except Exception as error:
            failed = self._failed("last batch", "training on one row, which a batch leaves for a worker,", error)
            remedy = ' Pass another batch_size, or config={"drop_last": True} to the estimator.'
            return [dataclasses.replace(failed, text=failed.text + remedy)]
        return []

    def _at_least(self, models: list[Any], world_size: int) -> Memory:
        """What follows from the weights alone."""
        weights = _bytes(_tensors(models))
        trained = _bytes(param for model in models for param in model.parameters() if param.requires_grad)
        shards = self._sharded and world_size > 1
        return Memory(
            weights=weights,
            gradients=trained * (2 if self._recipe.numerics.accumulate > 1 else 1),
            # Gradients lie side by side to be combined; new weights too, where each rank makes a slice of them.
            exchange=(trained if world_size > 1 else 0) + (weights if shards else 0),
            libraries=LIBRARIES,
        )

    def _measure(self, few: Share, load: Load) -> Memory:
        optimizers = self._built.operator.optimizers
        ranks = [load.world_size if self._sharded and can_be_sharded(each) else 1 for each in optimizers]
        return dataclasses.replace(
            self._at_least(self._built.models, load.world_size),
            optimizer=sum(_state_bytes(each) // count for each, count in zip(optimizers, ranks, strict=True)),
            batch=_bytes(_leaves(few.batch)) * load.rows // max(few.rows, 1),
            activations=self._activations(few, load.rows),
        )

    def _activations(self, few: Share, rows: int) -> int:
        """What a step keeps for its backward pass, on so many rows: by two steps on fewer, along a line."""
        most = self._saved(few)
        half = _few(few, few.rows // 2)
        if half.rows < 2 or half.rows == few.rows:
            return int(most * rows / max(few.rows, 1))
        of_a_row = (most - self._saved(half)) / (few.rows - half.rows)
        return max(0, int(most + of_a_row * (rows - few.rows)))

    def _saved(self, share: Share) -> int:
        learner = self._built
        known = {_place(each) for each in (*_tensors(learner.models), *_leaves(share.batch))}
        saved: dict[int, int] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            if _place(tensor) not in known:
                saved[_place(tensor)] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            self._step(share)
        return sum(saved.values())


@dataclasses.dataclass
class _Loaded:
    """A recipe where a packed one is expected."""

    recipe: TorchRecipe

    def load(self) -> TorchRecipe:
        return self.recipe


@contextlib.contextmanager
def _untouched() -> Iterator[None]:
    """Random numbers and threads are afterwards as they were."""
    threads = torch.get_num_threads()
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        with Rng().on(), torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(threads)
        if on_gpus:
            torch.cuda.set_rng_state_all(on_gpus)


@contextlib.contextmanager
def _watched(models: list[torch.nn.Module]) -> Iterator[Callable[[], list[str]]]:
    """Gives a function that names the trainable parameters that have got no gradient since."""
    reached: set[int] = set()
    params = dict(_named(models))
    hooks = [
        param.register_post_accumulate_grad_hook(lambda param: reached.add(id(param))) for param in params.values()
    ]
    try:
        yield lambda: [name for name, param in params.items() if id(param) not in reached]
    finally:
        for hook in hooks:
            hook.remove()


def _named(models: list[torch.nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    for number, model in enumerate(models):
        for name, param in model.named_parameters():
            if param.requires_grad:
                yield name if len(models) == 1 else f"{number}.{name}", param


def _about_loss(loss: Any, share: Share) -> Finding:
    text = f"{share.rows} rows went forward and backward"
    if not isinstance(loss, int | float):
        return Finding("model", "ok", text)
    if math.isfinite(loss):
        return Finding("model", "ok", f"{text}, the loss is {loss:.4g}")
    finite = all(map(_is_finite, _leaves(share.batch)))
    hint = "look at the loss and the scale of the data" if finite else "the batch holds NaN or inf: fill or drop them"
    return Finding("model", "warning", f"{text}, but the loss is {loss}: {hint}")


def _is_finite(value: Any) -> bool:
    return bool(torch.isfinite(torch.as_tensor(value)).all())


def _about_gradients(models: list[torch.nn.Module], without: Callable[[], list[str]]) -> Finding:
    names, total = without(), len(list(_named(models)))
    if not total:
        return Finding("gradients", "warning", "the model has no parameters to train: is requires_grad off?")
    if not names:
        return Finding("gradients", "ok", f"all {total} trainable parameters get one")
    shown = ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
    return Finding(
        "gradients",
        "warning",
        f"{len(names)} of {total} trainable parameters get none, so they stay as they are: {shown}. Use them in "
        "forward() (without detach), or call requires_grad_(False) on them.",
    )


def _few(share: Share, rows: int) -> Share:
    """The first rows of a batch, where it can be cut."""
    try:
        total = count_rows(share.batch)
    except InvalidArgumentError:
        return share
    rows = max(1, min(rows, total))
    weights = None if share.weights is None else share.weights[:rows]
    return Share(take(share.batch, slice(0, rows), total), rows, rows, weights)


def _tensors(models: Iterable[torch.nn.Module]) -> list[torch.Tensor]:
    return [tensor for model in models for tensor in (*model.parameters(), *model.buffers())]


def _bytes(values: Iterable[Any]) -> int:
    """The memory of tensors and arrays, counted once where several share it."""
    return sum({_place(each): each.nbytes for each in values if hasattr(each, "nbytes")}.values())


def _place(value: Any) -> int:
    """Where in memory it lies; a tensor that was made of an array lies where that does."""
    if isinstance(value, torch.Tensor):
        return value.untyped_storage().data_ptr()
    return value.ctypes.data if isinstance(value, np.ndarray) else id(value)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    elif hasattr(value, "nbytes"):
        yield value


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    if not optimizer.state:  # a step that was skipped, for fp16, made none
        with contextlib.suppress(Exception):
            for group in optimizer.param_groups:
                for param in group["params"]:
                    param.grad = torch.zeros_like(param)
            type(optimizer).step(optimizer)
    return _bytes(value for state in optimizer.state.values() for value in state.values())
