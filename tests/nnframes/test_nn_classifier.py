"""NNClassifier in Spark ML: classes, pipelines, cross-validation, files; and any other estimator as a stage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator, RegressionEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder, TrainValidationSplit
from pyspark.sql import SparkSession

from bigdl.nn.criterion import ClassNLLCriterion, MSECriterion
from bigdl.nn.layer import Linear, LogSoftMax, Sequential
from bigdl.optim.optimizer import Adam
from learning import weights_of
from zoo.orca.errors import CheckpointError, InvalidArgumentError
from zoo.orca.learn.pytorch import Estimator
from zoo.orca.learn.stage_files import pickles_allowed
from zoo.pipeline.api.torch import TorchLoss, TorchModel
from zoo.pipeline.nnframes import NNClassifier, NNClassifierModel, NNEstimator, NNModel

pytestmark = pytest.mark.engines("spark")


@pytest.fixture(scope="module")
def spark(engine):
    return SparkSession.builder.getOrCreate()


@pytest.fixture
def points(spark):
    """Two clouds of points, of the classes 1 and 2."""
    random = np.random.default_rng(0)
    rows = []
    for number in range(24):
        label = number % 2 + 1
        center = 2.0 * (-1) ** label
        rows.append((*random.normal(center, 0.7, size=2).tolist(), float(label)))
    return spark.createDataFrame(rows, "x double, y double, label double").coalesce(1)


def net(outputs: int = 2) -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Linear(2, outputs)


def test_one_output_is_a_class_by_its_threshold_and_several_by_the_largest(spark):
    frame = spark.createDataFrame([([0.2],), ([0.5],), ([0.7],)], "features array<double>").coalesce(1)
    same = torch.nn.Identity()

    def classes(frame, model):
        predicted = model.transform(frame)
        assert dict(predicted.dtypes)["prediction"] == "double"
        return [row["prediction"] for row in predicted.collect()]

    assert NNClassifierModel(same).getThreshold() == 0.5
    assert classes(frame, NNClassifierModel(same)) == [0, 0, 1]
    assert classes(frame, NNClassifierModel(same).setThreshold(0.8)) == [0, 0, 0]

    several = spark.createDataFrame([([0.2, 0.5, 0.3],), ([0.7, 0.1, 0.2],)], "features array<double>").coalesce(1)
    assert classes(several, NNClassifierModel(TorchModel.from_pytorch(same))) == [2, 1]
    assert classes(several, NNClassifierModel(same).setZeroBasedLabel(True)) == [1, 0]


def test_labels_count_from_one_for_bigdl_and_from_zero_for_torchs_own_losses(spark, points):
    frame = VectorAssembler(inputCols=["x", "y"], outputCol="features").transform(points)
    bigdl = NNClassifier(Sequential().add(Linear(2, 2)).add(LogSoftMax()), ClassNLLCriterion(), [2])
    fitted = bigdl.setBatchSize(10).setMaxEpoch(5).setOptimMethod(Adam(0.1)).fit(frame)
    assert isinstance(fitted, NNClassifierModel)
    assert [row["label"] for row in fitted.transform(frame).collect() if row["label"] != row["prediction"]] == []

    zero_based = frame.withColumn("label", frame.label - 1)
    torchs = NNClassifier(net(), torch.nn.CrossEntropyLoss()).setBatchSize(10).setMaxEpoch(5).setOptimMethod(Adam(0.1))
    rows = torchs.fit(zero_based).transform(zero_based).collect()
    assert [row["label"] for row in rows if row["label"] != row["prediction"]] == []

    for stage, data, classes in ((torchs, frame, "0 to 1"), (bigdl, zero_based, "1 to 2|1, 2|from 1")):
        with pytest.raises(InvalidArgumentError, match=classes):
            stage.copy({stage.maxEpoch: 9}).fit(data)


def test_mse_of_two_outputs_takes_a_scalar_label(spark, points):
    frame = VectorAssembler(inputCols=["x", "y"], outputCol="features").transform(points)
    classifier = NNClassifier(Sequential().add(Linear(2, 2)), MSECriterion(), [2]).setBatchSize(20).setMaxEpoch(1)
    before = classifier.model.get_weights()[0].copy()
    classifier.fit(frame)
    assert (classifier.model.get_weights()[0] != before).any()


def pipeline():
    classifier = NNClassifier(net(), TorchLoss.from_pytorch(one_based)).setBatchSize(12).setMaxEpoch(2)
    classifier.setFeaturesCol("both").setLearningRate(0.1)
    return Pipeline(stages=[VectorAssembler(inputCols=["x", "y"], outputCol="both"), classifier]), classifier


def one_based(output, label):
    return torch.nn.functional.cross_entropy(output, label.flatten().long() - 1)


def test_cross_validation_of_a_pipeline_and_its_files(points, tmp_path):
    stages, classifier = pipeline()
    before = weights_of(classifier.model).copy()
    grid = ParamGridBuilder().addGrid(classifier.learningRate, [1e-6, 0.5]).build()
    judge = Right()
    validator = CrossValidator(estimator=stages, estimatorParamMaps=grid, evaluator=judge, numFolds=2, seed=1)
    found = validator.fit(points)
    assert found.avgMetrics[1] > 0.9 > found.avgMetrics[0]
    assert (weights_of(classifier.model) == before).all(), "folds train copies"

    best = found.bestModel
    path = str(tmp_path / "pipeline")
    best.save(path)
    loaded = PipelineModel.load(path)
    assert isinstance(loaded.stages[-1], NNClassifierModel)
    assert isinstance(loaded.stages[-1].model, torch.nn.Module)
    assert loaded.stages[-1].getFeaturesCol() == "both"
    expected = [tuple(row) for row in best.transform(points).select("prediction").collect()]
    assert [tuple(row) for row in loaded.transform(points).select("prediction").collect()] == expected
    with pytest.raises(CheckpointError, match=r"holds a .*NNClassifierModel"):
        NNEstimator.load(path + "/stages/1_" + best.stages[-1].uid)


class Right(MulticlassClassificationEvaluator):
    """The part of predictions that are right, in one small job."""

    def _evaluate(self, dataset):
        rows = dataset.select("label", "prediction").collect()
        return float(np.mean([row["label"] == row["prediction"] for row in rows]))


def test_stages_come_back_from_their_files(spark, tmp_path):
    frame = spark.createDataFrame(
        [([1.0, 2.0], 1.0), ([2.0, 1.0], 2.0)], "features array<double>, label double"
    ).coalesce(1)
    for number, model in enumerate((TorchModel.from_pytorch(net()), Sequential().add(Linear(2, 2)))):
        stage = NNModel(model, [2]).setPredictionCol("scores")
        stage.save(str(tmp_path / "stage")) if number == 0 else stage.write().overwrite().save(str(tmp_path / "stage"))
        loaded = NNModel.load(str(tmp_path / "stage"))
        assert (loaded.uid, loaded.getPredictionCol(), loaded.feature_preprocessing) == (stage.uid, "scores", [2])
        assert type(loaded.model) is type(model)
        for mine, theirs in zip(loaded.model.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(mine, theirs)

    module = net(1)
    estimator = NNEstimator(module, torch.nn.MSELoss(), [2], [1]).setMaxEpoch(2).setBatchSize(2)
    estimator.setOptimMethod(torch.optim.SGD(module.parameters(), lr=0.1)).setGradientClippingByL2Norm(1.0)
    estimator.save(str(tmp_path / "estimator"))
    loaded = NNEstimator.load(str(tmp_path / "estimator"))
    assert (loaded.getMaxEpoch(), loaded.label_preprocessing) == (2, [1])
    loaded.fit(frame)
    estimator.fit(frame)
    np.testing.assert_array_equal(weights_of(loaded.model), weights_of(module))


def test_train_validation_split_takes_an_estimator_of_ours_as_a_stage(points, tmp_path):
    module = net(1)
    first = weights_of(module).copy()
    est = Estimator.from_torch(
        model=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.02),
        loss=torch.nn.MSELoss(),
        workers_per_node=1,
    )
    stage = est.as_stage(["assembled"], "target", prediction_col="guess", batch_size=8, epochs=1)
    data = VectorAssembler(inputCols=["x", "y"], outputCol="assembled").transform(points)
    data = data.selectExpr("assembled", "array(label) AS target", "label AS prediction")
    grid = ParamGridBuilder().addGrid(stage.epochs, [1, 8]).build()
    judge = GuessError()
    split = TrainValidationSplit(estimator=stage, estimatorParamMaps=grid, evaluator=judge, trainRatio=0.7, seed=1)
    found = split.fit(data)
    assert found.validationMetrics[1] < found.validationMetrics[0]
    assert (weights_of(est.get_model()) == first).all(), "ParamMaps train copies"
    model = stage.setEpochs(2).fit(data)
    assert model.estimator is est
    assert (weights_of(est.get_model()) != first).any()
    shown = model.transform(data)
    assert shown.columns == ["assembled", "target", "prediction", "guess"]

    path = str(tmp_path / "stage")
    model.save(path)
    with pytest.raises(CheckpointError, match="allow_pickle=True"):
        type(model).load(path)
    expected = shown.select("guess").collect()
    assert type(model).load(path, allow_pickle=True).transform(data).select("guess").collect() == expected
    PipelineModel(stages=[model]).save(path + "s")
    with pickles_allowed():
        assert PipelineModel.load(path + "s").transform(data).select("guess").collect() == expected


class GuessError(RegressionEvaluator):
    """The squared error of the column `guess`, which holds vectors of one number."""

    def _evaluate(self, dataset):
        rows = dataset.select("guess", "target").collect()
        return float(np.mean([(row["guess"][0] - row["target"][0]) ** 2 for row in rows]))

    def isLargerBetter(self):
        return False


def test_a_stream_of_rows_is_predicted(spark, tmp_path):
    frame = spark.createDataFrame([(Vectors.dense([1.0, 2.0]), 1.0)] * 4, ["features", "label"]).coalesce(1)
    model = NNModel(net(1))
    frame.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "rows"))
    query = model.transform(stream).writeStream.format("memory").queryName("seen").outputMode("append").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    expected = model.transform(frame).first()["prediction"]
    assert [row["prediction"] for row in spark.table("seen").collect()] == [expected] * 4
    spark.catalog.dropTempView("seen")


def test_the_star_import_brings_the_names_that_code_counts_on():
    names: dict[str, object] = {}
    exec("from zoo.pipeline.nnframes import *", names)
    assert {"NNEstimator", "NNModel", "NNClassifier", "NNClassifierModel", "NNImageReader"} <= names.keys()
    assert {"np", "os", "tempfile", "SQLContext", "SparkContext", "Sample", "create_tmp_path"} <= names.keys()
    assert not [name for name in names if name.startswith("XGB")]
