"""The Params that NNFrames' stages share, and their setters and getters."""

from __future__ import annotations

from typing import TypeVar

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasFeaturesCol, HasLabelCol, HasPredictionCol

Stage = TypeVar("Stage", bound=Params)


class BatchParams(HasFeaturesCol, HasPredictionCol):
    """What training and prediction have: the columns of features and predictions, and rows of a batch."""

    batchSize: Param[int] = Param(Params._dummy(), "batchSize", "rows of a batch", TypeConverters.toInt)

    def setFeaturesCol(self: Stage, value: str) -> Stage:
        return self._set(featuresCol=value)

    def setPredictionCol(self: Stage, value: str) -> Stage:
        return self._set(predictionCol=value)

    def setBatchSize(self: Stage, value: int) -> Stage:
        return self._set(batchSize=value)

    def getBatchSize(self) -> int:
        return self.getOrDefault(self.batchSize)


class TrainingParams(BatchParams, HasLabelCol):
    """What training has besides: the labels, how long it goes on, and how fast."""

    maxEpoch: Param[int] = Param(Params._dummy(), "maxEpoch", "epochs in all", TypeConverters.toInt)
    learningRate: Param[float] = Param(
        Params._dummy(), "learningRate", "instead of the optim method's, when it is set", TypeConverters.toFloat
    )
    learningRateDecay: Param[float] = Param(
        Params._dummy(), "learningRateDecay", "instead of the optim method's, when it is set", TypeConverters.toFloat
    )
    cachingSample: Param[bool] = Param(
        Params._dummy(),
        "cachingSample",
        "accepted as published: rows are kept while a fit lasts",
        TypeConverters.toBoolean,
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(batchSize=1, maxEpoch=50, learningRate=1e-3, learningRateDecay=0.0, cachingSample=True)

    def setLabelCol(self: Stage, value: str) -> Stage:
        return self._set(labelCol=value)

    def setMaxEpoch(self: Stage, value: int) -> Stage:
        return self._set(maxEpoch=value)

    def getMaxEpoch(self) -> int:
        return self.getOrDefault(self.maxEpoch)

    def setLearningRate(self: Stage, value: float) -> Stage:
        return self._set(learningRate=value)

    def getLearningRate(self) -> float:
        return self.getOrDefault(self.learningRate)

    def setLearningRateDecay(self: Stage, value: float) -> Stage:
        return self._set(learningRateDecay=value)

    def getLearningRateDecay(self) -> float:
        return self.getOrDefault(self.learningRateDecay)

    def setCachingSample(self: Stage, value: bool) -> Stage:
        return self._set(cachingSample=value)

    def isCachingSample(self) -> bool:
        return self.getOrDefault(self.cachingSample)


class ClassParams(Params):
    """What classifiers have besides: where classes count from."""

    zeroBasedLabel: Param[bool] = Param(
        Params._dummy(), "zeroBasedLabel", "whether classes count from 0, not from 1", TypeConverters.toBoolean
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(zeroBasedLabel=False)

    def setZeroBasedLabel(self: Stage, value: bool) -> Stage:
        return self._set(zeroBasedLabel=value)

    def getZeroBasedLabel(self) -> bool:
        return self.getOrDefault(self.zeroBasedLabel)
