"""Estimator: trains a BigDL layer or a TorchModel with FeatureSets, in place, over the layer estimator."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from bigdl.optim.training import as_method
from bigdl.util.common import EvaluatedResult
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.trigger import MaxEpoch, Trigger
from zoo.orca.optional import require

if TYPE_CHECKING:
    from zoo.orca.learn.bigdl.training import LayerEstimator


class Estimator:
    """Trains a model with FeatureSets until a trigger fires, counted in its optimization method.

    Args:
        model: a BigDL layer, a TorchModel or a torch module: the very object is trained.
        optim_methods: one method, or a dict of them by the names of submodules, for all parameters between them.
        model_dir: where checkpoints and summaries go; "" and None: nowhere.

    Example:
        estimator = Estimator(model, Adam(), "/tmp/run")
        estimator.train(FeatureSet.sample_rdd(rdd), MSECriterion(), MaxEpoch(5), EveryEpoch(), val_set, [MAE()], 32)
        estimator.evaluate(val_set, [MAE()], 32)[0].result
    """

    def __init__(
        self,
        model: Any,
        optim_methods: Any = None,
        model_dir: str | None = None,
        jvalue: Any = None,
        bigdl_type: str = "float",
    ) -> None:
        require("torch", "Training")
        from zoo.orca.learn.bigdl.training import LayerEstimator

        self.model = model
        self._model_dir = model_dir or None
        self._estimator: LayerEstimator = LayerEstimator(
            model, None, as_method(optim_methods), model_dir=self._model_dir
        )
        self._constant: tuple[float, float] | None = None
        self._l2: float | None = None

    def __repr__(self) -> str:
        return f"Estimator({type(self.model).__name__}, model_dir={self._model_dir!r})"

    def train(
        self,
        train_set: Any,
        criterion: Any,
        end_trigger: Any = None,
        checkpoint_trigger: Any = None,
        validation_set: Any = None,
        validation_method: Any = None,
        batch_size: int | None = 32,
    ) -> Estimator:
        """Train until end_trigger fires (an epoch, if left out).

        Validation data is measured whenever checkpoint_trigger fires: without one it is not.

        Args:
            train_set: a FeatureSet, or an RDD (Records, a list) of Samples.
        """
        data, columns = _data_of(train_set, "train_set")
        trigger = Trigger.convert_trigger(checkpoint_trigger)
        validation, methods = None, None
        if trigger is not None and validation_set is not None:
            validation, methods = _data_of(validation_set, "validation_set")[0], _methods(validation_method)
        self._estimator.set_criterion(criterion)
        self._estimator._config |= {"shuffle": getattr(train_set, "shuffle", True)}
        self._estimator.train_until(
            data,
            MaxEpoch(1) if end_trigger is None else end_trigger,
            batch_size,
            columns,
            validation_data=validation,
            metrics=methods,
            validation_trigger=copy.deepcopy(trigger),
            checkpoint_trigger=None if self._model_dir is None else trigger,
        )
        return self

    def train_minibatch(
        self,
        train_set: Any,
        criterion: Any,
        end_trigger: Any = None,
        checkpoint_trigger: Any = None,
        validation_set: Any = None,
        validation_method: Any = None,
    ) -> Estimator:
        """`train` with data that comes in batches already: FeatureSet.pytorch_dataloader(...)."""
        return self.train(
            train_set, criterion, end_trigger, checkpoint_trigger, validation_set, validation_method, batch_size=None
        )

    def train_imagefeature(
        self,
        train_set: Any,
        criterion: Any,
        end_trigger: Any = None,
        checkpoint_trigger: Any = None,
        validation_set: Any = None,
        validation_method: Any = None,
        batch_size: int = 32,
    ) -> Estimator:
        """`train` with images: FeatureSet.image_frame(...)."""
        return self.train(
            train_set, criterion, end_trigger, checkpoint_trigger, validation_set, validation_method, batch_size
        )

    def evaluate(
        self, validation_set: Any, validation_method: Any, batch_size: int | None = 32
    ) -> list[EvaluatedResult]:
        """The result of each method over all records, in their order."""
        data, columns = _data_of(validation_set, "validation_set")
        figures = self._estimator.measure(data, _methods(validation_method), batch_size, columns)
        return [EvaluatedResult(value, rows, name) for name, value, rows in figures]

    def evaluate_minibatch(self, validation_set: Any, validation_method: Any) -> list[EvaluatedResult]:
        """`evaluate` with data that comes in batches already."""
        return self.evaluate(validation_set, validation_method, batch_size=None)

    def evaluate_imagefeature(
        self, validation_set: Any, validation_method: Any, batch_size: int = 32
    ) -> list[EvaluatedResult]:
        """`evaluate` with images."""
        return self.evaluate(validation_set, validation_method, batch_size)

    def set_constant_gradient_clipping(self, min: float, max: float) -> None:
        """Clip each element of the gradient to a range."""
        self._constant = (min, max)
        self._clip()

    def set_l2_norm_gradient_clipping(self, clip_norm: float) -> None:
        """Clip the gradient to a norm."""
        self._l2 = clip_norm
        self._clip()

    def clear_gradient_clipping(self) -> None:
        """Clip nothing."""
        self._constant = self._l2 = None
        self._clip()

    def _clip(self) -> None:
        self._estimator.set_clip(self._constant, self._l2)

    def set_tensorboard(self, log_dir: str, app_name: str) -> None:
        """Write summaries to `log_dir/app_name/train` and `.../validation`."""
        self._estimator.set_tensorboard(log_dir, app_name)

    def get_train_summary(self, tag: str | None = None) -> list[list[float]] | None:
        """[iteration, value, time] of each entry of a tag: "Loss", "LearningRate" or "Throughput"."""
        return self._estimator.get_train_summary(tag)

    def get_validation_summary(self, tag: str | None = None) -> list[list[float]] | None:
        """[iteration, value, time] of each entry of a metric."""
        return self._estimator.get_validation_summary(tag)


def _data_of(given: Any, name: str) -> tuple[Any, Columns]:
    """What the layer estimator takes for a FeatureSet, or for Samples, and its columns."""
    if hasattr(given, "estimator_data"):
        return given.estimator_data()
    from zoo.orca.learn.bigdl.samples import sample_data

    try:
        return sample_data(given, name)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{error} A FeatureSet of zoo.feature.common is taken, too.") from error


def _methods(given: Any) -> list[Any]:
    from zoo.orca.learn.bigdl.records import as_methods

    return as_methods(given)
