"""NNEstimator and NNClassifier: models of BigDL and PyTorch as estimators of Spark ML."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.ml import Estimator
from pyspark.ml.base import _FitMultipleIterator
from pyspark.sql import DataFrame

from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.feed import engine_of
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.bigdl.preprocessing import prepare
from zoo.orca.learn.bigdl.sized import CLASS_LOSSES
from zoo.orca.learn.bigdl.training import LayerEstimator, function_of, module_of
from zoo.orca.learn.optimizers import Adadelta
from zoo.orca.learn.stage_files import Saved, pickled, unpickled
from zoo.orca.learn.trigger import MaxEpoch
from zoo.pipeline.api.torch import TorchOptim
from zoo.pipeline.nnframes.nn_model import NNClassifierModel, NNModel, need_frame
from zoo.pipeline.nnframes.params import ClassParams, TrainingParams
from zoo.pipeline.nnframes.settings import HasSettings, Settings, first_settings

__all__ = ["NNClassifier", "NNClassifierModel", "NNEstimator", "NNModel"]

logger = logging.getLogger("zoo.orca")


class NNEstimator(Estimator, HasSettings, TrainingParams, Saved):
    """Trains a model on a DataFrame's columns of features and labels, and gives an `NNModel`.

    The model object that is given is the one that is trained. With a ParamMap (`fit(df, params)`, ParamGridBuilder,
    CrossValidator) a copy of it is, with a copy of the optim method that starts anew.

    Args:
        model: a BigDL layer, a TorchModel or a torch.nn.Module.
        criterion: a BigDL criterion, a TorchLoss, a torch loss, or a function of (output, label).
        feature_preprocessing: None, the size of a row's tensor ([1, 28, 28]), a list of sizes for several inputs, or a
            Preprocessing of zoo.feature.common.
        label_preprocessing: None, a size, or a Preprocessing.

    Example:
        estimator = NNEstimator(torch.nn.Linear(2, 1), torch.nn.MSELoss()).setBatchSize(32).setMaxEpoch(5)
        estimator.fit(df).transform(df)
    """

    def __init__(
        self,
        model: Any,
        criterion: Any,
        feature_preprocessing: Any = None,
        label_preprocessing: Any = None,
        jvalue: Any = None,
        bigdl_type: str = "float",
    ) -> None:
        super().__init__()
        module_of(model)
        function_of(criterion)
        self.model = model
        self.criterion = criterion
        self.feature_preprocessing = feature_preprocessing
        self.label_preprocessing = label_preprocessing
        self._settings = first_settings()

    def setSamplePreprocessing(self, val: Any) -> NNEstimator:
        """Use other preprocessings for both: a FeatureLabelPreprocessing, with one for each, or a chain of it."""
        for each in (val, *getattr(val, "transformers", ())):
            if hasattr(each, "feature_transformer") and hasattr(each, "label_transformer"):
                self.feature_preprocessing, self.label_preprocessing = each.feature_transformer, each.label_transformer
                break
        else:
            raise InvalidArgumentError(
                "setSamplePreprocessing takes a FeatureLabelPreprocessing(feature_transformer, label_transformer) of "
                f"zoo.feature.common, but got a {type(val).__name__}."
            )
        self._sample_preprocessing = val
        return self

    def getSamplePreprocessing(self) -> Any:
        """What `setSamplePreprocessing` was given; None before."""
        return getattr(self, "_sample_preprocessing", None)

    def fitMultiple(self, dataset: DataFrame, paramMaps: Sequence[Any]) -> Any:
        """A model for each ParamMap, each trained on a copy of the model and the optim method."""
        return _FitMultipleIterator(lambda index: self.copy(paramMaps[index])._fit(dataset), len(paramMaps))

    def copy(self, extra: Any = None) -> NNEstimator:
        """A copy with some Params changed, whose model and optim method are copies, too; it starts anew."""
        made = super().copy(extra)
        settings = dataclasses.replace(self._settings)
        # Together, so that a torch optimizer holds the parameters of the model's copy.
        made.model, settings.method = copy.deepcopy((self.model, self._settings.method))
        settings.optim_method = _as_given(settings)
        made._settings = settings
        return made

    def _fit(self, dataset: DataFrame) -> NNModel:
        need_frame(dataset, "fit")
        self._check()
        frame, columns, sizes = self._prepared(dataset)
        with self._rates():
            estimator = self._layer_estimator(dataset, sizes)
            estimator.train_until(frame, self._end_trigger(), self.getBatchSize(), columns, **self._validation())
        return self._make_model(sizes[0], estimator)

    def _check(self) -> None:
        """Raise a typed error for settings that do not go together."""
        settings = self._settings
        if settings.end_when is not None and self.isSet(self.maxEpoch):
            raise PreconditionError(
                f"maxEpoch ({self.getMaxEpoch()}) and endWhen ({settings.end_when!r}) are both set, and both say when "
                "training ends. Set one of them: setEndWhen(MaxEpoch(5)) is what setMaxEpoch(5) is."
            )
        if settings.validation is not None:
            need_frame(settings.validation[1], "setValidation")
        elif settings.validation_summary is not None:
            raise PreconditionError(
                "a validation summary is set, but nothing will be validated. Type: "
                "setValidation(EveryEpoch(), val_df, [Top1Accuracy()], batch_size), or leave the summary out."
            )
        if settings.validation is None and getattr(settings.method, "needs_score", False):
            raise PreconditionError(
                f"{settings.optim_method!r} follows the score of validation data, but there is none. Type: "
                "setValidation(EveryEpoch(), val_df, [MAE()], batch_size)."
            )
        if isinstance(settings.method, TorchOptim) and self.getLearningRateDecay():
            raise InvalidArgumentError(
                "learningRateDecay is for optim methods of bigdl.optim.optimizer. Give a torch optimizer a scheduler: "
                "TorchOptim.from_pytorch(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))."
            )

    def _prepared(self, dataset: DataFrame) -> tuple[DataFrame, Columns, tuple[Any, Any]]:
        """The DataFrame, the columns to train on, and the sizes of features and labels."""
        frame, features, size = prepare(dataset, self.getFeaturesCol(), self.feature_preprocessing)
        frame, label, label_size = prepare(frame, self.getLabelCol(), self.label_preprocessing, "label_preprocessing")
        return frame, Columns((features,), (label,)), (size, label_size)

    def _layer_estimator(self, dataset: DataFrame, sizes: tuple[Any, Any]) -> LayerEstimator:
        settings = self._settings
        nodes = engine_of(dataset).nodes
        estimator = LayerEstimator(
            self.model,
            self.criterion,
            settings.method,
            feature_size=sizes[0],
            label_size=sizes[1],
            # A batch cannot be of fewer rows than there are workers, and the default is one row.
            num_workers=self.getBatchSize() if 0 < self.getBatchSize() < nodes else None,
        )
        estimator.set_clip(settings.clip_constant, settings.clip_l2)
        estimator.set_summaries(settings.train_summary, settings.validation_summary)
        if settings.checkpoint is not None:
            estimator.set_checkpoint(*settings.checkpoint)
        return estimator

    def _end_trigger(self) -> Any:
        return self._settings.end_when or MaxEpoch(self.getMaxEpoch())

    def _validation(self) -> dict[str, Any]:
        if self._settings.validation is None:
            return {}
        trigger, frame, methods, _ = self._settings.validation
        return {"validation_data": self._prepared(frame)[0], "validation_trigger": trigger, "metrics": methods}

    @contextlib.contextmanager
    def _rates(self) -> Iterator[None]:
        """Let rates that were set here replace the optim method's, while a fit lasts."""
        method = self._settings.method
        names = {"learningrate": self.learningRate, "learningrate_decay": self.learningRateDecay}
        wanted = {name: self.getOrDefault(param) for name, param in names.items() if self.isSet(param)}
        if isinstance(method, Adadelta):
            wanted.pop("learningrate", None)  # it has none, and does without one here as it did in BigDL
        before = {name: vars(method)[name] for name in wanted if name in vars(method)}
        vars(method).update(wanted)
        try:
            yield
        finally:
            for name in wanted:
                del vars(method)[name]
            vars(method).update(before)

    def _make_model(self, size: Any, estimator: LayerEstimator) -> NNModel:
        """The fitted stage, with the columns of this one."""
        made = self._model_class()(self.model, self.feature_preprocessing)
        made._estimator = (size, estimator)
        batch_size = made.getOrDefault(made.batchSize)
        self._copyValues(made)
        made.clear(made.batchSize)
        made._setDefault(batchSize=batch_size)
        return made

    def _model_class(self) -> type[NNModel]:
        return NNModel

    def _files(self) -> dict[str, bytes]:
        settings = self._settings
        if settings.validation is not None:
            logger.warning("the validation DataFrame is not saved with the stage: set it again after load.")
        kept = dataclasses.replace(settings, validation=None, train_summary=None, validation_summary=None)
        stage = (self.model, self.criterion, self.feature_preprocessing, self.label_preprocessing, kept)
        return {"stage": pickled(stage, "the stage")}

    @classmethod
    def _from_files(cls, files: dict[str, bytes]) -> NNEstimator:
        model, criterion, feature_preprocessing, label_preprocessing, settings = unpickled(files["stage"])
        stage = cls(model, criterion, feature_preprocessing)
        stage.label_preprocessing = label_preprocessing
        stage._settings = settings
        return stage


class NNClassifier(NNEstimator, ClassParams):
    """An NNEstimator whose label is a class, a number a row; `fit` gives an `NNClassifierModel`.

    Classes count from 1, as BigDL's criterions count them. Torch's own losses of classes (CrossEntropyLoss, NLLLoss)
    count from 0: given one that is not wrapped, labels and predictions count from 0, too.

    Example:
        NNClassifier(torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss()).setMaxEpoch(10).fit(df)
    """

    def __init__(
        self,
        model: Any,
        criterion: Any,
        feature_preprocessing: Any = None,
        jvalue: Any = None,
        bigdl_type: str = "float",
    ) -> None:
        super().__init__(model, criterion, feature_preprocessing, None, jvalue, bigdl_type)
        self._setDefault(zeroBasedLabel=isinstance(criterion, CLASS_LOSSES))

    def _model_class(self) -> type[NNModel]:
        return NNClassifierModel


def _as_given(settings: Settings) -> Any:
    """The optim method of a copy, in the form that the user gave the first one in."""
    if not isinstance(settings.method, TorchOptim) or isinstance(settings.optim_method, TorchOptim):
        return settings.method
    return settings.method.scheduler or settings.method.optimizer
