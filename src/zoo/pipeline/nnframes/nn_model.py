"""NNModel and NNClassifierModel: trained models as transformers of Spark ML."""

from __future__ import annotations

from typing import Any

import torch
from pyspark.ml import Model
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.sql import DataFrame

from zoo.orca.engine.session import active_spark_context
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.columns import spark_column
from zoo.orca.learn.bigdl.preprocessing import prepare, without_prepared
from zoo.orca.learn.bigdl.training import LayerEstimator, module_of
from zoo.orca.learn.predict.output import OutputType
from zoo.orca.learn.stage_files import Saved, pickled, unpickled
from zoo.pipeline.nnframes.heads import ClassOf, flat_rows
from zoo.pipeline.nnframes.params import BatchParams, ClassParams
from zoo.pipeline.nnframes.persistence import model_from_bytes, model_to_bytes

# Rows of a forward pass for each core of Spark.
BATCHES_A_CORE = 4


class NNModel(Model, BatchParams, Saved):
    """A transformer that adds a column of the model's outputs, an array of float a row.

    Args:
        model: a BigDL layer, a TorchModel or a torch.nn.Module.
        feature_preprocessing: None, a size, a list of sizes, or a Preprocessing.

    Example:
        NNModel(torch.nn.Linear(2, 1)).setPredictionCol("scores").transform(df)
    """

    #: An array of float a row.
    _output = OutputType((1,), arrays=True)

    def __init__(
        self, model: Any, feature_preprocessing: Any = None, jvalue: Any = None, bigdl_type: str = "float"
    ) -> None:
        super().__init__()
        module_of(model)
        self.model = model
        self.feature_preprocessing = feature_preprocessing
        self._estimator: tuple[Any, LayerEstimator] | None = None
        self._after_load()

    def setSamplePreprocessing(self, value: Any) -> NNModel:
        """Use another preprocessing of the features."""
        self.feature_preprocessing = value
        return self

    def getSamplePreprocessing(self) -> Any:
        return self.feature_preprocessing

    def _transform(self, dataset: DataFrame) -> DataFrame:
        need_frame(dataset, "transform")
        frame, column, size = prepare(dataset, self.getFeaturesCol(), _of_features(self.feature_preprocessing))
        predicted = self._layer_estimator(size).predict(
            frame, self.getBatchSize(), [column], self._head(), self.getPredictionCol(), self._output
        )
        return self._typed(predicted if frame is dataset else without_prepared(predicted))

    def _layer_estimator(self, size: Any) -> LayerEstimator:
        """One estimator for all calls: processes that hold its model need not be sent it again."""
        if self._estimator is None or self._estimator[0] != size:
            self._estimator = (size, LayerEstimator(self.model, feature_size=size))
        return self._estimator[1]

    def _head(self) -> Any:
        return flat_rows

    def _typed(self, predicted: DataFrame) -> DataFrame:
        return predicted

    def _files(self) -> dict[str, bytes]:
        is_plain = isinstance(self.model, torch.nn.Module)
        return {
            "torch_module" if is_plain else "model": model_to_bytes(self.model),
            "preprocessing": pickled(self.feature_preprocessing, "feature_preprocessing"),
        }

    @classmethod
    def _from_files(cls, files: dict[str, bytes]) -> NNModel:
        is_plain = "torch_module" in files
        model = model_from_bytes(files["torch_module" if is_plain else "model"], is_plain)
        return cls(model, unpickled(files["preprocessing"]))

    def _after_load(self) -> None:
        # The cores are those of the Spark that is there now, not of the one that wrote the stage.
        context = active_spark_context()
        self._setDefault(batchSize=BATCHES_A_CORE * (1 if context is None else context.defaultParallelism))


class NNClassifierModel(NNModel, ClassParams):
    """A transformer that adds a column of the classes, as doubles.

    Of one output value a row the class is 1.0 above the threshold and 0.0 else; of several it is the place of the
    largest, counted from 1 (from 0 where `zeroBasedLabel` says so).
    """

    #: A number a row.
    _output = OutputType((0,))

    threshold: Param[float] = Param(
        Params._dummy(), "threshold", "above it a single output is class 1.0", TypeConverters.toFloat
    )

    def __init__(
        self, model: Any, feature_preprocessing: Any = None, jvalue: Any = None, bigdl_type: str = "float"
    ) -> None:
        super().__init__(model, feature_preprocessing, jvalue, bigdl_type)
        self._setDefault(threshold=0.5)

    def setThreshold(self, value: float) -> NNClassifierModel:
        return self._set(threshold=value)

    def getThreshold(self) -> float:
        return self.getOrDefault(self.threshold)

    def _head(self) -> Any:
        return ClassOf(self.getThreshold(), 0 if self.getZeroBasedLabel() else 1)

    def _typed(self, predicted: DataFrame) -> DataFrame:
        name = self.getPredictionCol()
        return predicted.withColumn(name, spark_column(name).cast("double"))


def need_frame(data: Any, what: str) -> None:
    """Raise a typed error for what is no DataFrame of Spark."""
    if not isinstance(data, DataFrame):
        raise InvalidArgumentError(
            f"{what} takes a Spark DataFrame, but got a {type(data).__name__}. Type: spark.createDataFrame(rows, "
            '["features", "label"]).'
        )


def _of_features(preprocessing: Any) -> Any:
    """The part for features of a preprocessing for features and labels; any other as it is."""
    inner = getattr(preprocessing, "sample_transformer", preprocessing)
    return getattr(inner, "feature_transformer", inner)
