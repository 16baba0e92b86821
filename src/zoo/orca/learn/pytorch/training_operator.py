"""TrainingOperator: one epoch, one batch, as hooks that users override."""

# ruff: noqa: E402 - what is missing is said first
from __future__ import annotations

from zoo.orca.optional import require

require("torch", "The PyTorch estimator")

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from zoo.orca.errors import BatchError, InvalidArgumentError
from zoo.orca.learn.pytorch.loss import words
from zoo.orca.learn.pytorch.tensors import device_of, in_full
from zoo.orca.learn.pytorch.utils import AverageMeterCollection, TimerCollection
from zoo.orca.names import public_names

if TYPE_CHECKING:
    from zoo.orca.learn.pytorch.replica import Replica

SCHEDULER_STEP = "scheduler_step"


class TrainingOperator:
    """What a worker does with its batches. Subclass it and give the class to `Estimator.from_torch`.

    `optimizer.step()` acts on the gradients of all workers together, weighted by their rows, wherever it is called.
    Models and `criterion` compute in the estimator's `precision`, on `self.device`, where batches are already.

    Example:
        class Mine(TrainingOperator):
            def train_batch(self, batch, batch_info):
                features, target = batch
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(features), target)
                self.backward(loss)
                self.optimizer.step()
                return {"train_loss": loss.item(), "num_samples": len(target)}
    """

    def __init__(
        self,
        config: dict[str, Any],
        models: list[torch.nn.Module],
        optimizers: list[torch.optim.Optimizer],
        world_rank: int,
        criterion: Any = None,
        schedulers: list[Any] | None = None,
        use_fp16: bool = False,
        use_tqdm: bool = False,
    ):
        self._config = config
        self._models = list(models)
        self._optimizers = list(optimizers)
        self._world_rank = world_rank
        self._criterion = criterion
        self._schedulers = list(schedulers or [])
        self._use_fp16 = use_fp16
        self._use_tqdm = use_tqdm
        self.global_step = 0
        self.timers = TimerCollection()
        self.device = device_of(self._models)
        # Set by the learner: how steps are made, and what of this epoch was done before a restart.
        self._replica: Replica | None = None
        self._meters = AverageMeterCollection()
        self._first_batch = 0
        if type(self) is TrainingOperator:
            self._check_single()
        self.setup(config)

    def __repr__(self) -> str:
        models = ", ".join(type(model).__name__ for model in self._models)
        return f"{type(self).__name__}({models}, rank {self._world_rank}, step {self.global_step})"

    def _check_single(self) -> None:
        if len(self._models) > 1 or len(self._optimizers) > 1:
            raise InvalidArgumentError(
                f"the default TrainingOperator trains one model with one optimizer, but there are {len(self._models)} "
                f"models and {len(self._optimizers)} optimizers. Subclass TrainingOperator, with your own train_batch, "
                "and pass training_operator_cls=YourOperator."
            )

    def setup(self, config: dict[str, Any]) -> None:
        """Called once, at the end of construction: make what your hooks need."""

    def train_epoch(self, iterator: Iterable[Any], info: dict[str, Any]) -> dict[str, Any]:
        """One epoch over this worker's batches; gives the means of what `train_batch` returned.

        After a restart in the middle of an epoch the iterator has the rest of it; the means are still over all of it.
        """
        first, self._first_batch = self._first_batch, 0
        if not first:
            self._meters = AverageMeterCollection()
        meters = self._meters
        self.set_training(True)
        for batch_idx, batch in enumerate(iterator, first):
            batch_info = {"batch_idx": batch_idx, "global_step": self.global_step} | info
            with self.timers.record("train_batch"):
                metrics = dict(need_dict(self.train_batch(batch, batch_info), "train_batch"))
            self._step_schedulers("batch", info)
            samples = metrics.pop("num_samples", 1)
            meters.update(metrics, n=getattr(iterator, "rows", samples))
            self.global_step += 1
        self._step_schedulers("epoch", info)
        return meters.summary()

    def train_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
        """One step: zero the gradients, forward, backward, step. Returns "train_loss", "num_samples", and more."""

        def closure() -> Tensor:
            self.optimizer.zero_grad()
            loss = self.forward_batch(batch, batch_info)[2]
            self.backward(loss)
            return loss

        if isinstance(self.optimizer, torch.optim.LBFGS):
            loss = self.optimizer.step(closure)
        else:
            loss = closure()
            self.optimizer.step()
        number = loss.item() if self._replica is None else self._replica.number_of(loss)
        return {"train_loss": number, "num_samples": count_rows(batch)}

    def backward(self, loss: Tensor, **options: Any) -> None:
        """`loss.backward(**options)`, by way of a larger loss where precision="fp16" needs it.

        Gradients have their true size afterwards. Plain `loss.backward()` is right, too; in fp16 it loses the smallest.
        """
        if self._replica is None:
            loss.backward(**options)
        else:
            self._replica.backward(loss, **options)

    def forward_batch(self, batch: Any, batch_info: dict[str, Any]) -> tuple[Any, Any, Tensor]:
        """(output, target, loss) of a batch `(*features, target)`."""
        features, target = unpack(batch)
        with self.timers.record("fwd"):
            output = self.call_model(features)
            return output, target, self.criterion(output, target)

    def validate(self, val_iterator: Iterable[Any], info: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
        """Measure this worker's batches: feed `metrics` and give "val_loss" and "num_samples".

        Metrics are objects called with (output, target); their figures are taken over all workers afterwards.
        """
        meters = AverageMeterCollection()
        rows = 0
        self.set_training(False)
        with torch.no_grad():
            for batch_idx, batch in enumerate(val_iterator):
                batch_info = {"batch_idx": batch_idx, "global_step": self.global_step} | info
                if type(self).validate_batch is not TrainingOperator.validate_batch:
                    figures = dict(need_dict(self.validate_batch(batch, batch_info), "validate_batch"))
                else:
                    figures = self._measure(batch, batch_info, metrics)
                samples = figures.pop("num_samples", count_rows(batch))
                meters.update(figures, n=samples)
                rows += samples
        return meters.averages() | {"num_samples": rows}

    def validate_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
        """Measure one batch: override it to return figures of your own beside "num_samples"."""
        return self._measure(batch, batch_info, {})

    def predict(self, pred_iterator: Iterable[Any]) -> list[Any]:
        """The model's output for each batch."""
        self.set_training(False)
        with torch.no_grad():
            return [self.predict_batch(batch) for batch in pred_iterator]

    def predict_batch(self, batch: Any) -> Any:
        """The model's output for one batch of features: a tuple or list of them is several arguments."""
        return self.call_model(batch if isinstance(batch, list | tuple) else (batch,))

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold beside models, optimizers and schedulers: tensors and plain data."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""

    def call_model(self, features: Any) -> Any:
        try:
            return self.model(*features)
        except (RuntimeError, IndexError, TypeError) as error:
            error.add_note(f"The model was called with {', '.join(map(words, features))}.")
            raise

    def _step_schedulers(self, now: str, info: dict[str, Any]) -> None:
        waits = now == "batch" and self._replica is not None and self._replica.was_withheld
        if info.get(SCHEDULER_STEP) != now or waits:
            return
        for scheduler in self.schedulers:
            if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                raise InvalidArgumentError(
                    "ReduceLROnPlateau must be told a figure, so it cannot be stepped for you. Pass "
                    'scheduler_step_freq="score", for the score of the validation data, or '
                    'scheduler_step_freq="manual", and call self.scheduler.step(figure) in a TrainingOperator, or use '
                    "an orca optimizer with Plateau (zoo.orca.learn.optimizers.schedule)."
                )
            scheduler.step()

    def set_training(self, training: bool) -> None:
        for model in self.models:
            model.train(training)

    def _measure(self, batch: Any, batch_info: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
        if self.criterion is not None or type(self).forward_batch is not TrainingOperator.forward_batch:
            output, target, loss = self.forward_batch(batch, batch_info)
            figures = {"val_loss": loss.item()}
        else:
            features, target = unpack(batch)
            output, figures = self.call_model(features), {}
        for metric in metrics.values():
            metric(in_full(output), target)
        return figures | {"num_samples": count_rows(batch)}

    @property
    def config(self) -> dict[str, Any]:
        return self._config

    @property
    def model(self) -> torch.nn.Module:
        return self._models[0]

    @property
    def models(self) -> list[torch.nn.Module]:
        return self._models

    @property
    def optimizer(self) -> Any:
        return self._optimizers[0] if self._optimizers else None

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        return self._optimizers

    @property
    def scheduler(self) -> Any:
        return self._schedulers[0] if self._schedulers else None

    @property
    def schedulers(self) -> list[Any]:
        return self._schedulers

    @property
    def criterion(self) -> Any:
        return self._criterion

    @property
    def world_rank(self) -> int:
        return self._world_rank

    @property
    def use_fp16(self) -> bool:
        return self._use_fp16

    @property
    def use_tqdm(self) -> bool:
        return self._use_tqdm


def need_dict(figures: Any, hook: str) -> dict[str, Any]:
    """What a hook gave, if it is a dict of figures."""
    if isinstance(figures, dict):
        return figures
    raise InvalidArgumentError(
        f"the TrainingOperator's {hook} must return a dict of figures, such as "
        f'{{"train_loss": loss.item(), "num_samples": len(target)}}, but returned a {type(figures).__name__}.'
    )


def unpack(batch: Any) -> tuple[tuple[Any, ...], Any]:
    """A batch `(*features, target)`; features given as one tuple or list are several arguments."""
    if not isinstance(batch, list | tuple) or len(batch) < 2:
        raise BatchError(
            f"a batch must be (*features, target), but it is {words(batch)}. Let the dataset yield (x, y), or subclass "
            "TrainingOperator and override forward_batch (or train_batch)."
        )
    *features, target = batch
    if len(features) == 1 and isinstance(features[0], list | tuple):
        features = list(features[0])
    return tuple(features), target


def count_rows(batch: Any) -> int:
    """The rows of a batch: the length of the first tensor in it."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 1
    parts = list(batch.values()) if isinstance(batch, dict) else batch
    return count_rows(parts[0]) if isinstance(parts, list | tuple) and parts else 1


__dir__ = public_names(globals())
