"""Keras as a learner: one replica on a worker, which trains with the others, measures and gives its state."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from zoo.orca.learn.learner import Learner
from zoo.orca.learn.tf2.batches import batch_of, describe
from zoo.orca.learn.tf2.gradients import Gradients, check_sums, clip_in, own_again, reduce_in
from zoo.orca.learn.tf2.keras_state import fresh_keras
from zoo.orca.learn.tf2.measures import Measures, as_numbers
from zoo.orca.learn.tf2.orca_optimizer import OrcaOptimizer
from zoo.orca.learn.tf2.randomness import seed_generators_of, seed_state
from zoo.orca.learn.tf2.recipe import KerasRecipe, need_compiled
from zoo.orca.learn.tf2.state import (
    describe_inputs,
    load_state,
    load_values,
    optimizers_of,
    pack_values,
    state_of,
    value_of,
)
from zoo.orca.learn.tf2.traced import Traced

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker
    from zoo.orca.feed.base import Share
    from zoo.orca.learn.sync import Group


class KerasLearner(Learner):
    """One rank's model. Steps are the model's own `train_step` and `test_step`, whatever the user made of them."""

    def __init__(self, recipe: KerasRecipe, worker: Worker, group: Group, state: dict[str, Any] | None):
        self.recipe = recipe
        self.rank = worker.rank
        self.group = group
        self._state = state
        with contextlib.ExitStack() as undo:
            undo.enter_context(fresh_keras(recipe.settings))
            self._build(undo)
            self.undo = undo.pop_all()

    def _build(self, undo: contextlib.ExitStack) -> None:
        model = self.model = self.recipe.build()
        need_compiled(model)
        if self.recipe.optimizer is not None:
            model.optimizer = OrcaOptimizer(self.recipe.optimizer)
        self._measures = Measures(model, self.group)
        of_keras = all(type(each).__module__.startswith("keras.") for each in optimizers_of(model))
        self._gradients = Gradients(self.group, copies=not of_keras)
        has_fixed_rows = any(each.shape[0] is not None for each in getattr(model, "inputs", None) or [])
        self._train = Traced(self._train_step, has_fixed_rows)
        self._test = Traced(self._test_step, has_fixed_rows)
        undo.callback(self._train.close)
        undo.callback(self._test.close)
        self._count_from_zero()
        self._agree(undo)
        # Before callbacks see it: what they change must not be overwritten by the first batch.
        if model.built or self._inputs is not None:
            self._take_weights()

    def _agree(self, undo: contextlib.ExitStack) -> None:
        """Let the model's steps be steps of all ranks."""
        model = self.model
        for number, optimizer in enumerate(optimizers_of(model)):
            reduce_in(optimizer, self._gradients, number)
            undo.callback(own_again, optimizer)
        # An optimizer that scales the loss has another one in it, for gradients as they are.
        plain = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        clip_in(plain, self.recipe.clip)
        undo.callback(own_again, plain)
        reductions = _reductions_of(model)
        self._gradients.is_mean = "sum" not in reductions
        self._weighs_by_weights = "mean_with_sample_weight" in reductions
        own = model.compute_loss

        def compute_loss(*args: Any, **kwargs: Any) -> Any:
            loss = self._gradients.traced_loss = own(*args, **kwargs)
            if not self._gradients.is_mean:
                check_sums(model, self.group.world_size)
            return loss

        object.__setattr__(model, "compute_loss", compute_loss)
        undo.callback(object.__delattr__, model, "compute_loss")

    def _train_step(self, data: Any) -> tuple[Any, Any]:
        self._gradients.traced_loss = None
        logs = self.model.train_step(data)
        loss = self._gradients.traced_loss
        self._knows_loss = loss is not None
        return logs, tf.constant(np.nan) if loss is None else loss

    def _test_step(self, data: Any) -> Any:
        return self.model.test_step(data)

    def _count_from_zero(self) -> None:
        self._is_built = self._has_weights = False
        self._when_built: list[Callable[[], None]] = []
        self._inputs: Any = ((self._state or {}).get("operator") or {}).get("inputs")
        self._knows_loss = False
        self._share: Share | None = None
        self._epoch = 0
        self._rows = 0
        self._has_own_buffers = False
        self._logs: dict[str, Any] | None = None
        self._test_logs: dict[str, Any] | None = None

    def _build_for(self, data: Any) -> None:
        """The first batch tells what models that were not built, and metrics, are made for."""
        if self._is_built:
            return
        with _naming(data):
            self.model._symbolic_build(data_batch=data)
        self._inputs = describe_inputs(data[0])
        if not self._has_weights:
            self._take_weights()
        self._is_built = True
        for act in self._when_built:
            act()
        self._when_built = []

    def _after_building(self, act: Callable[[], None]) -> None:
        """Do something now, or when all variables are there."""
        if self._is_built:
            act()
        else:
            self._when_built.append(act)

    def _take_weights(self) -> None:
        """The weights of the state, or rank 0's first ones."""
        self._has_weights = True
        if self._state is not None:
            load_state(self.model, self._state)
            known = self._state.get("operator") or {}
            self._gradients.loss = known.get("loss")
            if isinstance(self.model.optimizer, OrcaOptimizer) and known.get("update"):
                self.model.optimizer.load(known["update"])
            self._state = None
        elif self.group.world_size > 1:
            for variable in self.model.weights:
                value = value_of(variable)
                flat = np.ascontiguousarray(value).reshape(-1)
                self.group.broadcast(flat)
                variable.assign(flat.reshape(value.shape))

    def start_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._rows = 0
        self._has_own_buffers = True
        self._logs = None
        self._when_built = []
        self._after_building(self._begin)

    def _begin(self) -> None:
        """Nothing counted yet, and another sequence of random numbers for each rank, the same whenever it is run."""
        self._measures.reset()
        for number, generator in enumerate(seed_generators_of(self.model)):
            generator.state.assign(seed_state(self.recipe.seed, self._epoch, self.rank, number))

    def take(self, share: Share, last: bool = False) -> Any:
        data = batch_of(share, self.recipe.class_weight)
        self._build_for(data)
        self._share = share
        self._rows += share.rows
        self._gradients.weight = self._weight(share, data)
        return data

    def _weight(self, share: Share, data: Any) -> float:
        """How much this rank's gradient counts: by its rows, or by what its loss was divided by."""
        if share.rows == 0:
            return 0.0
        if not self._gradients.is_mean:
            return 1.0
        if self._weighs_by_weights and len(data) > 2:
            return float(np.sum(data[2]))
        return share.rows / share.total

    def train_epoch(self, batches: Iterable[Any], info: dict[str, Any]) -> dict[str, Any]:
        for data in batches:
            with self._nothing_of_a_ghost():
                self._step(data)
        self._share = None
        return self.so_far()

    def _step(self, data: Any) -> None:
        step = self._train_step if self.model.run_eagerly else self._train
        with _naming(data), self._first_cause():
            self._logs, loss = step(data)
        if self.group.world_size == 1:
            self._gradients.loss = float(loss) if self._knows_loss else None

    @contextlib.contextmanager
    def _first_cause(self) -> Iterator[None]:
        """What went wrong between ranks is raised as it was, and not as TensorFlow wraps it."""
        try:
            yield
        except tf.errors.OpError:
            error, self._gradients.error = self._gradients.error, None
            if error is not None:
                raise error from None
            raise

    @contextlib.contextmanager
    def _nothing_of_a_ghost(self) -> Iterator[None]:
        """Rows that count for nothing leave no trace in statistics and metrics."""
        if self._share is None or self._share.rows:
            yield
            return
        before = [(each, value_of(each)) for each in (*self._buffers, *self._measures.variables)]
        yield
        for variable, value in before:
            variable.assign(value)

    def after_step(self) -> None:
        """The rate of the next step is the optimizer's own business: it counts its steps."""

    def after_epoch(self, rows: int, loss: float | None, score: float | None) -> None:
        if isinstance(self.model.optimizer, OrcaOptimizer) and self.model.optimizer.update is not None:
            self.model.optimizer.update.end_epoch(loss, score)
        self._average_buffers()
        self._has_own_buffers = False

    def validate(self, shares: Iterable[Share], info: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        rows, logs = 0, None
        self._test_logs = None
        with self._agreed_buffers(), self._measures.apart():
            for share in shares:
                data = batch_of(share)
                self._build_for(data)
                if share.rows:
                    with _naming(data):
                        logs = self._test_step(data) if self.model.run_eagerly else self._test(data)
                    self._test_logs = logs
                rows += share.rows
            figures, metrics = {"num_samples": rows}, self._measures.taken()
        if logs is not None and not {_beside_training(name) for name in logs} <= set(metrics):
            # A test_step of the user's own, whose figures are those of its last batch.
            figures |= {_beside_training(name): value for name, value in as_numbers(logs).items()}
        return figures, metrics

    def measured_loss(self) -> float | None:
        return None if self._test_logs is None else as_numbers(self._test_logs).get("loss")

    @property
    def loss(self) -> float | None:
        return self._gradients.loss

    @property
    def rate(self) -> float:
        optimizer = self.model.optimizer
        if isinstance(optimizer, OrcaOptimizer):
            return 0.0 if optimizer.update is None else optimizer.update.rate
        return float(np.asarray(optimizer.learning_rate))

    @property
    def native(self) -> Any:
        return self.model

    def profile(self) -> dict[str, Any]:
        return {}

    def so_far(self) -> dict[str, Any]:
        figures = self._measures.over_ranks()
        if self._logs is not None and not set(self._logs) <= set(figures):
            # A train_step of the user's own, whose figures are those of its last batch.
            figures = as_numbers(self._logs)
        return {f"train_{name}": value for name, value in figures.items()}

    def state(self) -> dict[str, Any]:
        optimizer = self.model.optimizer
        operator: dict[str, Any] = {
            "loss": self._gradients.loss,
            "averages": bool(getattr(optimizer, "inner_optimizer", optimizer).use_ema),
            "inputs": self._inputs,
        }
        with self._agreed_buffers():
            state = state_of(self.model)
        if isinstance(optimizer, OrcaOptimizer):
            operator["update"] = optimizer.state()
            state["optimizers"] = []
        return state | {"operator": state["operator"] | operator}

    def local_state(self) -> dict[str, Any]:
        return {
            "buffers": pack_values(self._buffers),
            "seeds": pack_values([each.state for each in seed_generators_of(self.model)]),
            "measures": self._measures.state(),
            "rows": self._rows,
        }

    def load_local(self, state: dict[str, Any], within_epoch: bool) -> None:
        self._after_building(lambda: self._load_local(state, within_epoch))

    def _load_local(self, state: dict[str, Any], within_epoch: bool) -> None:
        load_values(self._buffers, state["buffers"], "this rank's statistics")
        if within_epoch:
            self._rows = state["rows"]
            load_values([each.state for each in seed_generators_of(self.model)], state["seeds"], "the random state")
            self._measures.load(state["measures"])

    def load_figures(self, states: list[dict[str, Any]]) -> None:
        self._after_building(lambda: self._measures.add([state["measures"] for state in states]))

    def digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for variable in self.model.weights:
            digest.update(value_of(variable).tobytes())
        return digest.hexdigest()

    def close(self) -> None:
        self.undo.close()
        self._gradients.close()

    @property
    def _buffers(self) -> list[Any]:
        """Weights that no optimizer trains, which each rank counts for itself: BatchNorm's statistics."""
        return [each for each in self.model.non_trainable_weights if each.dtype.startswith(("float", "bfloat"))]

    def _average_buffers(self) -> None:
        buffers = self._buffers
        if self.group.world_size == 1 or not buffers:
            return
        values = [value_of(each) for each in buffers]
        flat = np.concatenate([value.astype(np.float64).ravel() * self._rows for value in values] + [[self._rows]])
        self.group.all_reduce(flat)
        if not flat[-1]:
            return
        flat /= flat[-1]
        place = 0
        for variable, value in zip(buffers, values, strict=True):
            variable.assign(flat[place : place + value.size].reshape(value.shape).astype(value.dtype))
            place += value.size

    @contextlib.contextmanager
    def _agreed_buffers(self) -> Iterator[None]:
        """In the middle of an epoch: the statistics that ranks would agree on now, and then this rank's own again.

        All ranks call it together."""
        if not self._has_own_buffers or self.group.world_size == 1:
            yield
            return
        own = [(each, value_of(each)) for each in self._buffers]
        self._average_buffers()
        try:
            yield
        finally:
            for variable, value in own:
                variable.assign(value)


def _reductions_of(model: keras.Model) -> set[str | None]:
    """How the model's losses are made of the losses of rows."""
    losses = tf.nest.flatten(getattr(getattr(model, "_compile_loss", None), "_user_loss", None))
    return {each.reduction for each in losses if isinstance(each, keras.losses.Loss)}


def _beside_training(name: str) -> str:
    """What a figure of validation is called where those of training are, too."""
    return "val_loss" if name == "loss" else name


@contextlib.contextmanager
def _naming(data: Any) -> Iterator[None]:
    """Say which batch it was that the model could not take."""
    try:
        yield
    except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
        error.add_note(f"The model raised this for a batch of {describe(data)}.")
        raise
