"""Any estimator of ours as a stage of Spark ML: `est.as_stage(...)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.orca.engine.pickling import pack
from zoo.orca.learn.stage_files import Saved, need_pickles_allowed, pickled, pickles_allowed, unpickled
from zoo.orca.optional import require

require("pyspark", "A stage of Spark ML")

from pyspark.ml import Estimator, Model  # noqa: E402 - what is missing is said first
from pyspark.ml.param import Param, Params, TypeConverters  # noqa: E402
from pyspark.ml.param.shared import HasPredictionCol  # noqa: E402
from pyspark.sql import DataFrame  # noqa: E402

from zoo.orca.learn.predict.output import PREDICTION  # noqa: E402


class ColumnParams(HasPredictionCol):
    """The columns of a stage, and the rows of a batch."""

    featuresCols: Param[list[str]] = Param(
        Params._dummy(), "featuresCols", "the columns that the model takes", TypeConverters.toListString
    )
    batchSize: Param[int] = Param(Params._dummy(), "batchSize", "rows of a batch", TypeConverters.toInt)

    def getFeaturesCols(self) -> list[str]:
        return self.getOrDefault(self.featuresCols)

    def setPredictionCol(self, value: str) -> Any:
        return self._set(predictionCol=value)

    def setBatchSize(self, value: int) -> Any:
        return self._set(batchSize=value)

    def getBatchSize(self) -> int | None:
        """Rows of a batch; None leaves them to the estimator."""
        return self.getOrDefault(self.batchSize) if self.isDefined(self.batchSize) else None

    def _options(self) -> dict[str, Any]:
        """Arguments for fit and predict."""
        size = self.getBatchSize()
        return {"feature_cols": self.getFeaturesCols()} | ({} if size is None else {"batch_size": size})


class StageModel(Model, ColumnParams, Saved):
    """A fitted stage: adds a column of what the estimator predicts.

    Attributes:
        estimator: the estimator that was trained, with evaluate, save and the rest of its methods.
    """

    def __init__(self, estimator: Any):
        super().__init__()
        self.estimator = estimator

    def _transform(self, dataset: DataFrame) -> DataFrame:
        # Other names on the way: one column may be called as predict calls its own.
        names = {name: f"column{number}" for number, name in enumerate(dataset.columns)}
        features = [names.get(name, name) for name in self.getFeaturesCols()]
        options = self._options() | {"feature_cols": features}
        predicted = self.estimator.predict(dataset.toDF(*names.values()), **options)
        return predicted.withColumnRenamed(PREDICTION, self.getPredictionCol()).toDF(
            *dataset.columns, self.getPredictionCol()
        )

    def _files(self) -> dict[str, bytes]:
        return {"estimator": pickled(self.estimator, "the estimator of the stage")}

    @classmethod
    def _from_files(cls, files: dict[str, bytes]) -> StageModel:
        need_pickles_allowed("the estimator of the stage")
        return cls(unpickled(files["estimator"]))

    @classmethod
    def load(cls, path: str, allow_pickle: bool = False) -> StageModel:
        """Read what `save` wrote: it holds a pickle, so load only what you trust, and say so."""
        if not allow_pickle:
            return super().load(path)
        with pickles_allowed():
            return super().load(path)


class EstimatorStage(Estimator, ColumnParams):
    """An estimator as a stage of Spark ML: `fit` trains it on columns of a DataFrame, and gives a `StageModel`.

    A copy of the stage, which Spark ML makes for ParamMaps and the folds of a CrossValidator, trains a copy of the
    estimator as it was then.
    """

    labelCols: Param[list[str]] = Param(
        Params._dummy(), "labelCols", "the columns of labels", TypeConverters.toListString
    )
    epochs: Param[int] = Param(Params._dummy(), "epochs", "as the estimator's fit takes them", TypeConverters.toInt)

    def __init__(self, estimator: Any):
        super().__init__()
        self.estimator = estimator
        self._setDefault(epochs=1)

    def setEpochs(self, value: int) -> EstimatorStage:
        return self._set(epochs=value)

    def getEpochs(self) -> int:
        return self.getOrDefault(self.epochs)

    def getLabelCols(self) -> list[str]:
        return self.getOrDefault(self.labelCols)

    def copy(self, extra: Any = None) -> EstimatorStage:
        """A copy with some Params changed, and a copy of the estimator, as it is now."""
        made = super().copy(extra)
        made.estimator = pack(self.estimator, "the estimator of the stage").load()
        return made

    def _fit(self, dataset: DataFrame) -> StageModel:
        self.estimator.fit(dataset, epochs=self.getEpochs(), label_cols=self.getLabelCols(), **self._options())
        return self._copyValues(StageModel(self.estimator))


def as_stage(
    estimator: Any,
    features_col: str | Sequence[str],
    label_col: str | Sequence[str],
    prediction_col: str,
    batch_size: int | None,
    epochs: int,
) -> EstimatorStage:
    """What `Estimator.as_stage` returns."""
    columns = {name: [each] if isinstance(each, str) else list(each) for name, each in
               (("featuresCols", features_col), ("labelCols", label_col))}  # fmt: skip
    stage = EstimatorStage(estimator)._set(**columns, predictionCol=prediction_col, epochs=epochs)
    return stage if batch_size is None else stage.setBatchSize(batch_size)
