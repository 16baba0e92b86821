"""BigDL's Optimizer: training settings collected one by one, and `optimize()`, over the layer estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.metrics import Accuracy
from zoo.orca.learn.optimizers import SGD
from zoo.orca.learn.trigger import MaxEpoch, Trigger
from zoo.orca.optional import require

if TYPE_CHECKING:
    from zoo.orca.learn.bigdl.training import LayerEstimator


class BaseOptimizer:
    """What all optimizers can be told before `optimize()`; subclasses say where the data is."""

    def __init__(
        self, model: Any, criterion: Any, end_trigger: Any, batch_size: int | None, optim_method: Any = None
    ) -> None:
        require("torch", "Training")
        self.model = model
        self.criterion = criterion
        self.end_trigger = _trigger(end_trigger, "end_trigger") or MaxEpoch(1)
        self.batch_size = batch_size
        self.optim_method = as_method(optim_method)
        self._checkpoint: tuple[str, Any, bool] | None = None
        self._validation: tuple[Any, Any, list[Any]] | None = None
        self._summaries: dict[str, Any] = {}
        self._constant: tuple[float, float] | None = None
        self._l2: float | None = None

    def __repr__(self) -> str:
        method, end = self.optim_method, self.end_trigger
        return f"{type(self).__name__}({type(self.model).__name__}, {self.criterion}, {method}, until {end})"

    def set_model(self, model: Any) -> None:
        """Train another model."""
        self.model = model

    def set_criterion(self, criterion: Any) -> None:
        """Train with another criterion."""
        self.criterion = criterion

    def set_end_when(self, end_when: Any) -> None:
        """Train until another trigger fires."""
        self.end_trigger = _trigger(end_when, "end_when")

    def set_validation(self, batch_size: int, val_rdd: Any, trigger: Any, val_method: Any = None) -> None:
        """Measure validation data whenever a trigger fires; by Top1Accuracy if no method is given."""
        from zoo.orca.learn.bigdl.records import as_methods

        methods = as_methods(val_method) if val_method is not None else [Accuracy(zero_based_label=False)]
        self._validation = (val_rdd, _trigger(trigger, "trigger"), methods)

    def set_checkpoint(self, checkpoint_trigger: Any, checkpoint_path: str, isOverWrite: bool = True) -> None:
        """Write checkpoints to `checkpoint_path/<time>/` whenever a trigger fires."""
        self._checkpoint = (checkpoint_path, _trigger(checkpoint_trigger, "checkpoint_trigger"), isOverWrite)

    def set_train_summary(self, summary: Any) -> None:
        """Write the figures of training where a TrainSummary says."""
        self._summaries["train"] = summary

    def set_val_summary(self, summary: Any) -> None:
        """Write the figures of validation where a ValidationSummary says."""
        self._summaries["validation"] = summary

    def set_gradclip_const(self, min_value: float, max_value: float) -> None:
        """Clip each element of the gradient to a range."""
        self._constant = (min_value, max_value)

    def set_gradclip_l2norm(self, clip_norm: float) -> None:
        """Clip the gradient to a norm."""
        self._l2 = clip_norm

    def disable_gradclip(self) -> None:
        """Clip nothing."""
        self._constant = self._l2 = None

    def prepare_input(self) -> None:
        """Look at the training data now, and not when `optimize` does."""
        self._data()

    def optimize(self) -> Any:
        """Train until the end trigger fires, counted in the optimization method; gives the model, which was trained."""
        estimator = self._estimator()
        data, columns = self._data()
        validation, trigger, methods = self._validation or (None, None, None)
        estimator.train_until(
            data,
            self.end_trigger,
            self.batch_size,
            columns,
            validation_data=None if validation is None else self._validation_data(validation),
            metrics=methods,
            validation_trigger=trigger,
        )
        return self.model

    def _estimator(self) -> LayerEstimator:
        from zoo.orca.learn.bigdl.training import LayerEstimator

        if "validation" in self._summaries and self._validation is None:
            raise InvalidArgumentError("A validation summary needs validation data: call set_validation(...) as well.")
        estimator = LayerEstimator(self.model, self.criterion, self.optim_method)
        estimator.set_clip(self._constant, self._l2)
        estimator.set_summaries(**self._summaries)
        if self._checkpoint is not None:
            estimator.set_checkpoint(*self._checkpoint)
        return estimator

    def _data(self) -> tuple[Any, Columns]:
        """What the estimator takes for training, and its columns."""
        raise NotImplementedError

    def _validation_data(self, given: Any) -> Any:
        """What the estimator takes for validation."""
        from zoo.orca.learn.bigdl.samples import sample_data

        return _arrays(*given) if _is_arrays(given) else sample_data(given, "val_rdd")[0]


class DistriOptimizer(BaseOptimizer):
    """Trains a model with an RDD of Samples; elsewhere than on Spark with Records of Samples, or a list of them.

    Example:
        optimizer = Optimizer(model, rdd, MSECriterion(), MaxEpoch(5), batch_size=32, optim_method=Adam())
        optimizer.set_validation(32, rdd, EveryEpoch(), [MAE()])
        trained = optimizer.optimize()
    """

    def __init__(
        self,
        model: Any,
        training_rdd: Any,
        criterion: Any,
        end_trigger: Any = None,
        batch_size: int = 32,
        optim_method: Any = None,
        bigdl_type: str = "float",
    ) -> None:
        super().__init__(model, criterion, end_trigger, batch_size, optim_method)
        self.set_traindata(training_rdd, batch_size)

    def set_traindata(self, training_rdd: Any, batch_size: int) -> None:
        """Train with other data."""
        self.training_rdd = training_rdd
        self.batch_size = batch_size

    def _data(self) -> tuple[Any, Columns]:
        from zoo.orca.learn.bigdl.samples import sample_data

        if hasattr(self.training_rdd, "estimator_data"):  # a DataSet
            return self.training_rdd.estimator_data()
        if _is_arrays(self.training_rdd):
            raise InvalidArgumentError(
                "Expected training_rdd to be an RDD of Samples, got two arrays. For arrays type: "
                "Optimizer.create(model, (x, y), criterion, ...)."
            )
        return sample_data(self.training_rdd)


class Optimizer(DistriOptimizer):
    """BigDL's name for it; `create` looks at the data."""

    @staticmethod
    def create(
        model: Any,
        training_set: Any,
        criterion: Any,
        end_trigger: Any = None,
        batch_size: int = 32,
        optim_method: Any = None,
        cores: int | None = None,
        bigdl_type: str = "float",
    ) -> BaseOptimizer:
        """A LocalOptimizer for arrays (X, y), a DistriOptimizer for an RDD."""
        if _is_arrays(training_set):
            return LocalOptimizer(*training_set, model, criterion, end_trigger, batch_size, optim_method, cores)
        return DistriOptimizer(model, training_set, criterion, end_trigger, batch_size, optim_method)


class LocalOptimizer(BaseOptimizer):
    """Trains a model with arrays of this process.

    Args:
        X, y: an array each, or lists of them.
        cores: taken for BigDL's sake; the current engine says how many workers there are.

    Example:
        LocalOptimizer(x, y, model, MSECriterion(), MaxEpoch(5), batch_size=32).optimize()
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        model: Any,
        criterion: Any,
        end_trigger: Any = None,
        batch_size: int = 32,
        optim_method: Any = None,
        cores: int | None = None,
        bigdl_type: str = "float",
    ) -> None:
        super().__init__(model, criterion, end_trigger, batch_size, optim_method)
        self.X = X
        self.y = y

    def set_validation(  # type: ignore[override]
        self, batch_size: int, X_val: Any, Y_val: Any = None, trigger: Any = None, val_method: Any = None
    ) -> None:
        """Measure validation arrays whenever a trigger fires."""
        super().set_validation(batch_size, (X_val, Y_val), trigger, val_method)

    def _data(self) -> tuple[Any, Columns]:
        return _arrays(self.X, self.y), Columns()


def as_method(given: Any) -> Any:
    """An optimization method as the layer estimator takes it; a dict is made one, so that it keeps its counters."""
    if isinstance(given, Mapping):
        from zoo.orca.learn.bigdl.several import several_methods

        return several_methods(given)
    return SGD() if given is None else given


def _arrays(features: Any, labels: Any) -> dict[str, Any]:
    def side(given: Any) -> Any:
        return [np.asarray(each) for each in given] if isinstance(given, list | tuple) else np.asarray(given)

    return {"x": side(features), "y": side(labels)}


def _is_arrays(given: Any) -> bool:
    """Whether this is (X, y) and not records."""
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    firsts = [each[0] if isinstance(each, list | tuple) and each else each for each in given]
    return all(isinstance(each, np.ndarray) for each in firsts)


def _trigger(given: Any, name: str) -> Any:
    """A trigger, in any of the forms that are taken."""
    try:
        return Trigger.convert_trigger(given)
    except Exception as error:
        raise InvalidArgumentError(f"Expected {name} to be a trigger, such as MaxEpoch(5): {error}") from error
