"""The estimator behind every older door: it trains the user's own model object, and counts in the optimizer."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed import kind_of
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.bigdl.sized import Network, Size, SizedLoss
from zoo.orca.learn.callbacks import Callback, ModelCheckpoint
from zoo.orca.learn.checkpoint import Fit, stamped_folder, without_number
from zoo.orca.learn.estimator import Gang, as_columns, check_path
from zoo.orca.learn.optimizers import SGD, Optimizer
from zoo.orca.learn.optimizers.progress import at_rate, keep_progress, progress_of
from zoo.orca.learn.optimizers.saved import described
from zoo.orca.learn.predict import predict
from zoo.orca.learn.predict.output import PREDICTION, OutputType
from zoo.orca.learn.pytorch.estimator import PyTorchSparkEstimator
from zoo.orca.learn.pytorch.predictor import TorchPredictor
from zoo.orca.learn.pytorch.recipe import TorchRecipe
from zoo.orca.learn.trigger import TrainState, Trigger
from zoo.orca.learn.until import epochs_until, first_batch
from zoo.orca.learn.user_summaries import use_train_summary, use_validation_summary

if TYPE_CHECKING:
    from zoo.orca.learn.worker import Outcome

logger = logging.getLogger("zoo.orca")

# What of a fit's state belongs to the optimizer, and not to the model.
_OF_OPTIMIZER = ("optimizers", "schedulers", "operator")


class LayerEstimator(PyTorchSparkEstimator):
    """Trains a BigDL layer, a TorchModel or a torch module in place; each call begins with the weights it has then.

    Args:
        model: a layer (what has a torch module as `.module`), or a torch module.
        criterion: a criterion (the same), a torch loss, or a function of (output, target).
        optim_method: an orca or BigDL method (None: SGD), which keeps the counters; a torch optimizer of the model;
            what has `torch_parts(module)`; or a dict of methods by the names of submodules.
        feature_size, label_size: that of a row's tensor; see `Network`.
        name: of the files of checkpoints; the model's own if left out.
    """

    def __init__(
        self,
        model: Any,
        criterion: Any = None,
        optim_method: Any = None,
        metrics: Any = None,
        *,
        feature_size: Size = None,
        label_size: Size = None,
        model_dir: str | None = None,
        name: str | None = None,
        seed: int = 0,
        num_workers: int | None = None,
    ):
        recipe = self._recipe_of(model, criterion, optim_method, metrics, feature_size, label_size, seed)
        super().__init__(recipe, Gang("bigdl", num_workers=num_workers), model_dir)
        self._name = name or name_of(model)
        self._checkpoint: tuple[str, Any, bool] | None = None
        self._recall()

    def _recipe_of(
        self,
        model: Any,
        criterion: Any,
        optim_method: Any,
        metrics: Any,
        feature_size: Size = None,
        label_size: Size = None,
        seed: int = 0,
    ) -> TorchRecipe:
        """Take a model, and say how workers train it."""
        self.model = model
        self._network = Network(module_of(model), feature_size, takes_table(model))
        loss = None if criterion is None else SizedLoss(function_of(criterion), self._network, label_size)
        self._method = SGD() if optim_method is None else _not_a_class(optim_method)
        recipe = TorchRecipe(
            model=self._network, loss=loss, metrics=metrics, seed=seed, **_parts(self._method, self._network.module)
        )
        recipe.check()
        return recipe

    def fit(self, data: Any, *arguments: Any, **options: Any) -> LayerEstimator:
        """As for PyTorch models: train until so many epochs are done, counted in the optimizer."""
        self._recall()
        super().fit(data, *arguments, **options)
        return self

    def train_until(
        self,
        data: Any,
        end_trigger: Any,
        batch_size: int | None = None,
        columns: Columns = Columns(),  # noqa: B008 - frozen, so sharing it is safe
        validation_data: Any = None,
        metrics: Any = None,
        validation_trigger: Any = None,
        checkpoint_trigger: Any = None,
        callbacks: Any = None,
    ) -> LayerEstimator:
        """Train until a trigger fires; an epoch that the last call stopped in goes on with the rows not seen yet.

        Args:
            metrics: for validation_data, instead of the constructor's.
            validation_trigger: when to measure validation_data; checkpoint_trigger, or every epoch, if left out.
        """
        self._recall()
        self._check_batch_size(data, batch_size, 1)
        epochs, stops = epochs_until(end_trigger, self._where)
        if not epochs:
            logger.info("%r is reached already, so there is nothing to train.", end_trigger)
            return self
        with self._measuring(metrics):
            self._run_fit(
                data,
                epochs,
                batch_size,
                columns,
                validation_data,
                checkpoint_trigger,
                [*(callbacks or []), *stops, *self._policy()],
                validation_trigger=Trigger.convert_trigger(validation_trigger),
                first_batch=first_batch(self._where, batch_size),
            )
        return self

    def measure(
        self,
        data: Any,
        metrics: Any,
        batch_size: int | None = None,
        columns: Columns = Columns(),  # noqa: B008 - frozen, so sharing it is safe
    ) -> list[tuple[str, float, int]]:
        """(name, figure, rows) of each metric over all rows."""
        self._recall()
        with self._measuring(metrics):
            figures = self._run_evaluate(data, batch_size, columns)
            return [(name, figures[name], figures["num_samples"]) for name in self._recipe.build_metrics()]

    def evaluate(self, data: Any, *arguments: Any, **options: Any) -> dict[str, float]:
        self._recall()
        return super().evaluate(data, *arguments, **options)

    def predict(  # type: ignore[override]
        self,
        data: Any,
        batch_size: int | None = None,
        feature_cols: Any = None,
        head: Callable[[Any], Any] | None = None,
        prediction_col: str = PREDICTION,
        output: OutputType | None = None,
    ) -> Any:
        """The model's output for every row, in the data's order and of the data's kind.

        Args:
            head: what becomes of the outputs of a batch, on the workers.
            prediction_col: the name of a DataFrame's new column.
            output: what the model (with its head) gives, where that is known.
        """
        columns = as_columns(feature_cols, None)
        size = self._check_batch_size((), batch_size, 1) if batch_size is not None else self._predict_batch_size
        self._look_at(data, columns)
        return predict(
            data,
            self._predictor(head),
            size,
            columns.features,
            None,
            self._known_shapes,
            self.squeeze,
            prediction_col,
            output,
        )

    def get_model(self) -> Any:
        """The model that was given, which is the one that was trained."""
        return self.model

    def _trained_model(self) -> Network:
        return copy.deepcopy(self._network)

    def set_criterion(self, criterion: Any) -> None:
        """Train with another criterion from now on."""
        self._recipe.loss = SizedLoss(function_of(criterion), self._network)

    def set_clip(self, constant: tuple[float, float] | None = None, l2: float | None = None) -> None:
        """Clip the gradient over all workers: each element to a range, then all of it to a norm; or neither."""
        self.clear_gradient_clipping()
        if constant is not None:
            self.set_constant_gradient_clipping(*constant)
        value = self._clip
        if l2 is not None:
            self.set_l2_norm_gradient_clipping(l2)
            if value is not None:
                self._clip = ("both", *value[1:], float(l2))

    def set_summaries(self, train: Any = None, validation: Any = None) -> None:
        """Write figures where a TrainSummary and a ValidationSummary say."""
        if train is not None:
            use_train_summary(self, train)
        if validation is not None:
            use_validation_summary(self, validation)

    def set_checkpoint(self, path: str, trigger: Any, over_write: bool = True) -> None:
        """Write checkpoints to `path/<time>/` when a trigger fires; of those to be overwritten the last one stays."""
        self._model_dir = check_path(path, "path")
        self._checkpoint = (self._model_dir, Trigger.convert_trigger(trigger), bool(over_write))

    def load_orca_checkpoint(self, path: str, version: int | None = None, prefix: str | None = None) -> LayerEstimator:
        """Give the model and its optimizer the state of a checkpoint: the newest one, or the version given."""
        self._recall()
        super().load_orca_checkpoint(path, version, prefix)
        self._give()
        return self

    def _recall(self) -> None:
        """Begin with the model's weights as they are, and where the optimizer stands with this model."""
        self._state = {"models": [self._network.state_dict()]}
        self._where = TrainState()
        known = progress_of(self._progress_key)
        if known is not None and self._is_of_this_model(known):
            # The rate may be another by now than the one that the last call trained with.
            known = at_rate(known, self._rate)
            self._state |= {key: known[key] for key in _OF_OPTIMIZER if key in known}
            self._where = TrainState(epoch=known["epoch"], neval=known["neval"], records=known.get("records", 0))

    @property
    def _progress_key(self) -> Any:
        return self if isinstance(self._method, Mapping) else self._method

    @property
    def _rate(self) -> float | None:
        """The rate to train with; None where there is not one for all."""
        return getattr(self._method, "learningrate", None)

    def _is_of_this_model(self, progress: dict[str, Any]) -> bool:
        module = progress.get("module")
        if module is not None:
            return module() is self._network.module
        return progress.get("shapes") == self._shapes()

    def _shapes(self) -> list[list[int]]:
        return [list(each.shape) for each in self._network.parameters()]

    def _take(self, outcomes: list[Outcome]) -> None:
        super()._take(outcomes)
        self._give()

    def _give(self) -> None:
        """Give the model its weights, and the optimizer what it must remember."""
        state = self._state or {}
        self._network.load_state_dict(state["models"][0])
        progress = {key: state[key] for key in _OF_OPTIMIZER if key in state}
        where = {"epoch": self._where.epoch, "neval": self._where.neval, "records": self._where.records}
        module = weakref.ref(self._network.module)
        kept = {"shapes": self._shapes(), "module": module, "rate": self._rate}
        keep_progress(self._progress_key, progress | where | kept)

    def _run_fit(
        self, data: Any, epochs: range, batch_size: int | None, columns: Columns, *rest: Any, **options: Any
    ) -> list[Outcome]:
        if not any(each.requires_grad for each in self._network.parameters()):
            raise InvalidArgumentError(
                f"{self._name} has no weights to learn: it has none, or all are frozen. Type model.unfreeze(), or give "
                "it layers with weights, such as Linear(2, 1)."
            )
        self._look_at(data, columns)
        return super()._run_fit(data, epochs, batch_size, columns, *rest, **options)

    def _run_evaluate(
        self, data: Any, batch_size: int | None, columns: Columns, num_steps: int | None = None, **options: Any
    ) -> dict[str, Any]:
        self._look_at(data, columns)
        return super()._run_evaluate(data, batch_size, columns, num_steps, **options)

    def _policy(self) -> list[Callback]:
        """How checkpoints of `set_checkpoint` are written."""
        if self._checkpoint is None:
            return []
        _, trigger, over_write = self._checkpoint
        return [ModelCheckpoint(trigger, keep_last=1 if over_write else None)]

    @contextlib.contextmanager
    def _checkpoints_folder(
        self, fit: Fit, resume: str | None, asked: bool
    ) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
        if self._checkpoint is None:
            with super()._checkpoints_folder(fit, resume, asked) as found:
                yield found
            return
        path, _, over_write = self._checkpoint
        folder, name = stamped_folder(path), self._checkpoint_name()
        yield folder, name, None
        if over_write:
            without_number(folder, name)

    def _described(self) -> dict[str, Any]:
        """What BigDL's users make of a checkpoint's files: Model.load(model.<n>), OptimMethod.load(optimMethod-...)."""
        form: dict[str, Any] = getattr(self.model, "checkpoint_form", dict)()
        method = described(self._method) if isinstance(self._method, Optimizer) else None
        return {"of_model": form, "of_method": {} if method is None else method | {"shapes": self._shapes()}}

    def _look_at(self, data: Any, columns: Columns) -> None:
        """What columns become, and whether tensors are left as a loader made them."""
        raw = not columns.features and kind_of(data) not in ("XShards", "arrays")
        for part in (self._network, self._recipe.loss):
            if part is not None:
                part.assembles, part.raw = bool(columns.features), raw

    def _predictor(self, head: Callable[[Any], Any] | None = None) -> TorchPredictor:
        """The model as it is now; the same one, for processes that hold it already, until a weight changes."""
        network = self._network
        tensors = [*network.parameters(), *network.buffers()]
        now = (head, network.assembles, network.raw, *((id(each), each._version) for each in tensors))
        if self._predicting is None or self._predicting[0] != now:
            with torch.no_grad():
                own = copy.deepcopy(network)
            own.head = head
            recipe = dataclasses.replace(
                self._recipe, model=own, loss=None, metrics=None, optimizer=None, scheduler=None
            )
            self._predicting = (now, TorchPredictor(uuid.uuid4().hex, recipe, {}))
        return self._predicting[1]


def module_of(model: Any) -> torch.nn.Module:
    """The torch module of a model."""
    module = model if isinstance(model, torch.nn.Module) else getattr(model, "module", None)
    if not isinstance(module, torch.nn.Module):
        raise InvalidArgumentError(
            f"model must be a BigDL layer, a TorchModel or a torch.nn.Module, but is a {type(model).__name__}. Give "
            "Sequential().add(Linear(2, 1)), or TorchModel.from_pytorch(module)."
        )
    return module


def function_of(criterion: Any) -> Callable[[Any, Any], Any]:
    """What computes a loss."""
    found = criterion if isinstance(criterion, torch.nn.Module) else getattr(criterion, "module", criterion)
    if not callable(found) or isinstance(found, type):
        raise InvalidArgumentError(
            "the criterion must be a BigDL criterion such as MSECriterion(), a TorchLoss, a torch loss or a function "
            f"of (output, target), but is {criterion!r}."
        )
    return found


def _not_a_class(method: Any) -> Any:
    if isinstance(method, type):
        raise InvalidArgumentError(
            f"the optimization method must be an object, but is the class {method.__name__}. Type {method.__name__}()."
        )
    return method


def takes_table(model: Any) -> bool:
    """Whether several inputs are one list to a model, as to BigDL's layers."""
    return not isinstance(model, torch.nn.Module) and getattr(model, "takes_table", True)


def name_of(model: Any) -> str:
    """What files of a model are called."""
    name = getattr(model, "name", None)
    return name() if callable(name) else f"TorchModel{uuid.uuid4().hex[:8]}"


def _parts(method: Any, module: torch.nn.Module) -> dict[str, Any]:
    """What a recipe takes for a method."""
    if isinstance(method, Mapping):
        from zoo.orca.learn.bigdl.several import several_methods

        method = several_methods(method)
    if not hasattr(method, "torch_parts"):
        return {"optimizer": method}
    given = method.torch_parts(module)
    names = {"scheduler_creator": "scheduler", "training_operator_cls": "operator_cls"}
    return {names.get(name, name): value for name, value in given.items()}
