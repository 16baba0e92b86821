"""What the user gave to `from_mxnet`, instances or creators, and how a worker builds it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zoo.orca import mxnet_library as library
from zoo.orca.errors import InvalidArgumentError, NotOfferedError, PreconditionError
from zoo.orca.optional import is_instance_of

DEFAULT_OPTIMIZER = "sgd"
_OPTIMIZER = ("mxnet.optimizer.optimizer", "Optimizer")
_METRIC = ("mxnet.metric", "EvalMetric")


@dataclass
class MXNetRecipe:
    """A model, its loss, its metrics and its optimizer, as given: functions of config, or the things themselves."""

    model: Any
    loss: Any = None
    eval_metrics: Any = None
    validation_metrics: Any = None
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        return self.config.get("seed") or 0

    @property
    def log_interval(self) -> int:
        return int(self.config.get("log_interval") or 0)

    def check(self) -> None:
        """Raise a typed error for what cannot work, as far as the driver can tell without MXNet."""
        if not callable(self.model) and not is_module(self.model):
            raise InvalidArgumentError(
                "model_creator must be a function of config that returns a gluon Block or a symbolic Module, or such a "
                f"model, but is {self.model!r}."
            )
        if self.loss is not None and not callable(self.loss):
            raise InvalidArgumentError(f"loss_creator must be a function of config, but is {self.loss!r}.")
        for name in ("eval_metrics", "validation_metrics"):
            _check_metrics(
                getattr(self, name), f"{name}_creator must be a function of config that returns metrics, but is"
            )
        if not isinstance(self.optimizer, str) and not is_instance_of(self.optimizer, *_OPTIMIZER):
            raise InvalidArgumentError(
                f"config's optimizer must be a name that MXNet knows or an mx.optimizer.Optimizer, but is "
                f"{self.optimizer!r}."
            )
        if is_block(self.model):
            need_loss(self.loss)

    def build_model(self) -> Any:
        """A Block or a Module; what is drawn for its first weights follows from the seed."""
        mx = library.load()
        with seeded(self.seed):
            model = self.model if is_block(self.model) or is_module(self.model) else self.model(dict(self.config))
        if is_block(model):
            need_loss(self.loss)
            return model
        if isinstance(model, mx.mod.Module):
            return model
        if is_module(model):
            raise NotOfferedError(
                f"from_mxnet takes a gluon Block or an mx.mod.Module, but model_creator returned a "
                f"{type(model).__name__}. Write it as a gluon Block, which may take batches of any length."
            )
        raise InvalidArgumentError(
            f"model_creator must return a gluon Block or an mx.mod.Module, but returned a "
            f"{type(model).__module__}.{type(model).__qualname__}."
        )

    def build_loss(self) -> Any:
        loss = self._made(self.loss)
        if not callable(loss):
            raise InvalidArgumentError(
                "loss_creator must return a loss, such as gluon.loss.L2Loss() or a function of outputs and labels, but "
                f"returned {loss!r}."
            )
        return loss

    def build_metrics(self, validation: bool) -> Any:
        """A metric of MXNet, a composite one where several were given; None where none was."""
        metrics = self._made(self.validation_metrics if validation else self.eval_metrics)
        if metrics is None:
            return None
        name = "validation_metrics_creator" if validation else "eval_metrics_creator"
        _check_metrics(metrics, f"{name} must return one or a list of mx.metric's or their names, but returned")
        mx = library.load()
        # A copy, for who gave an instance may have given it for training and for validation.
        metrics = copy.deepcopy(list(metrics) if isinstance(metrics, list | tuple) else metrics)
        try:
            return mx.metric.create(metrics)
        except AssertionError as error:  # so MXNet says that it does not know a name
            raise InvalidArgumentError(
                f"{name} returned {metrics!r}, of which MXNet makes no metric: {error}. Names are those of mx.metric, "
                'such as "acc".'
            ) from error

    def build_optimizer(self, **more: Any) -> Any:
        """MXNet's optimizer, one of this recipe's own; `more` is what it is told of the model."""
        mx = library.load()
        optimizer, params = copy.deepcopy((self.optimizer, self.optimizer_params))
        if not isinstance(optimizer, str):
            return optimizer
        scheduler, rate = params.get("lr_scheduler"), params.get("learning_rate")
        if scheduler is not None and rate is not None:
            scheduler.base_lr = rate  # as MXNet does it, which prints a line on it
        try:
            return mx.optimizer.create(optimizer, **params, **more)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"MXNet makes no optimizer of config's {optimizer!r} with {params}: {error}. Names are those of "
                'mx.optimizer, such as "sgd"; a learning rate is called "learning_rate".'
            ) from error

    @property
    def optimizer(self) -> Any:
        return self.config.get("optimizer") or DEFAULT_OPTIMIZER

    @property
    def optimizer_params(self) -> dict[str, Any]:
        given = self.config.get("optimizer_params")
        if given is None and isinstance(self.optimizer, str):
            return {"learning_rate": 0.01}
        return dict(given or {})

    def _made(self, given: Any) -> Any:
        """What a creator makes; an instance of MXNet's may be callable, but is no creator."""
        is_creator = callable(given) and not is_block(given)
        return given(dict(self.config)) if is_creator else given


def _check_metrics(metrics: Any, words: str) -> None:
    """Raise a typed error for what is no metric, nor makes one."""
    several = metrics if isinstance(metrics, list | tuple) else [metrics]
    if not all(
        each is None or isinstance(each, str) or callable(each) or is_instance_of(each, *_METRIC) for each in several
    ):
        raise InvalidArgumentError(f"{words} {metrics!r}.")


def is_block(value: Any) -> bool:
    return is_instance_of(value, "mxnet.gluon.block", "Block")


def is_module(value: Any) -> bool:
    return is_instance_of(value, "mxnet.module.base_module", "BaseModule")


def need_loss(loss: Any) -> None:
    if loss is None:
        raise PreconditionError(
            "a gluon Block needs a loss to be trained. Pass loss_creator=..., a function of config that returns one, "
            "such as gluon.loss.SoftmaxCrossEntropyLoss()."
        )


@contextlib.contextmanager
def seeded(seed: int, part: int = 0) -> Iterator[None]:
    """MXNet's and numpy's generators start from a seed; numpy's goes on afterwards where it stood.

    Args:
        part: what is drawn, so that no two things are drawn alike.
    """
    mx = library.load()
    before = np.random.get_state()
    (start,) = np.random.SeedSequence([seed, part]).generate_state(1)
    mx.random.seed(int(start >> 1))
    np.random.seed(int(start))
    try:
        yield
    finally:
        np.random.set_state(before)
