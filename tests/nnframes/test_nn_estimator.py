"""NNEstimator and NNModel: what training does to the model that was given, and what a DataFrame gets for it."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import torch
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType, StructField, StructType

from bigdl.optim.optimizer import (
    MAE,
    SGD,
    Adam,
    EveryEpoch,
    MaxEpoch,
    SeveralIteration,
    TrainSummary,
    ValidationSummary,
)
from learning import RAGGED, train_by_hand, weights_of
from zoo.feature.common import (
    FeatureLabelPreprocessing,
    FeatureToTupleAdapter,
    Preprocessing,
    ScalarToTensor,
    SeqToTensor,
)
from zoo.orca.errors import BatchError, InvalidArgumentError, InvalidKeyError, PreconditionError
from zoo.pipeline.api.torch import TorchLoss, TorchModel, TorchOptim
from zoo.pipeline.nnframes.nn_classifier import NNEstimator, NNModel

pytestmark = pytest.mark.engines("spark")

ROWS = sum(RAGGED)
X = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
Y = X @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 0.1


def linear(inputs: int = 3, outputs: int = 1) -> torch.nn.Linear:
    torch.manual_seed(3)
    return torch.nn.Linear(inputs, outputs)


@pytest.fixture(scope="module")
def spark(engine):
    return SparkSession.builder.getOrCreate()


@pytest.fixture(scope="module")
def ragged(spark):
    """Partitions of all kinds, empty ones too."""
    ends = np.cumsum(RAGGED)
    parts = [
        [(Vectors.dense(X[row]), float(Y[row, 0])) for row in range(end - size, end)]
        for size, end in zip(RAGGED, ends, strict=True)
    ]
    rdd = spark.sparkContext.parallelize(parts, len(parts)).flatMap(lambda part: part)
    schema = StructType([StructField("features", VectorUDT()), StructField("label", DoubleType())])
    return spark.createDataFrame(rdd, schema)


def by_hand(model, optimizer, epochs=1):
    """What one process does with whole batches: every row counts once in a step."""
    rows = np.arange(ROWS)
    doubles = model.double()
    optimizer = optimizer(doubles.parameters())
    return train_by_hand(doubles, optimizer, torch.nn.MSELoss(), X, Y.astype(np.float64), [rows] * epochs)


def test_fit_trains_the_model_that_was_given_until_its_epochs_are_done(engine, ragged):
    net = linear()
    estimator = NNEstimator(net, torch.nn.MSELoss()).setBatchSize(ROWS).setMaxEpoch(3).setOptimMethod(SGD(0.1))
    model = estimator.fit(ragged)
    assert model.model is net
    assert model.getBatchSize() == 4 * engine.cores == NNModel(net).getBatchSize()
    expected = by_hand(linear(), lambda weights: torch.optim.SGD(weights, lr=0.1), epochs=3)
    np.testing.assert_allclose(weights_of(net), weights_of(expected), rtol=1e-5)

    before = weights_of(net).copy()
    estimator.fit(ragged)
    assert (weights_of(net) == before).all()
    # A rate that is set counts in a second fit, too; the optim method keeps its own.
    estimator.setMaxEpoch(4).setLearningRate(0.02).fit(ragged)
    more = by_hand(expected, lambda weights: torch.optim.SGD(weights, lr=0.02))
    np.testing.assert_allclose(weights_of(net), weights_of(more), rtol=1e-5)
    assert estimator.getOptimMethod().learningrate == 0.1


def test_transform_adds_a_column_and_keeps_all_else(ragged):
    net = linear(outputs=2)
    model = NNModel(net).setPredictionCol("scores").setBatchSize(4)
    twice = model.copy({model.predictionCol: "again"}).transform(model.transform(ragged.coalesce(1)))
    assert twice.columns == ["features", "label", "scores", "again"]
    assert dict(twice.dtypes)["scores"] == "array<float>"
    rows = twice.collect()
    np.testing.assert_array_equal([row["features"].toArray() for row in rows], X)
    with torch.no_grad():
        expected = net(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose([row["scores"] for row in rows], expected, rtol=1e-6)
    assert [row["scores"] for row in rows] == [row["again"] for row in rows]


def test_features_are_numbers_arrays_and_vectors_and_no_rows_are_no_trouble(spark):
    kinds = ["float", "double", "int", "array<float>", "array<double>", "array<int>", "dense", "sparse"]
    rows = [
        (float(at), [float(at)], Vectors.dense([at]), Vectors.sparse(1, [0], [at]), -1.0) for at in map(float, range(4))
    ]
    frame = spark.createDataFrame(rows, ["number", "array", "dense", "sparse", "prediction"]).coalesce(1)
    net = linear(1)
    with torch.no_grad():
        expected = net(torch.arange(4.0).reshape(4, 1)).numpy()
    # One after the other: stages that follow each other in one pass need a Python process each.
    for kind in kinds:
        source = kind if kind in frame.columns else "array" if "array" in kind else "number"
        column = frame[source] if source == kind else frame[source].cast(kind)
        data = frame.select(column.alias("features"), "prediction")
        rows = NNModel(net).setPredictionCol("scores").transform(data).collect()
        np.testing.assert_allclose([row["scores"] for row in rows], expected, rtol=1e-6, err_msg=kind)
        assert [row["prediction"] for row in rows] == [-1.0] * 4, "another column of that name stays"
    nothing = NNModel(net).setPredictionCol("scores").setFeaturesCol("array").transform(frame.limit(0))
    assert dict(nothing.dtypes)["scores"] == "array<float>"
    assert nothing.count() == 0


class Squeezed(torch.nn.Linear):
    """Loses the dimension of a batch of one row, and that of single values."""

    def forward(self, x):
        return super().forward(x).squeeze()


def test_a_model_that_squeezes_is_given_its_rows_back(ragged):
    net = Squeezed(3, 1)
    net.load_state_dict(linear().state_dict())
    # Of the 17 rows the last batch of prediction has one.
    fitted = NNEstimator(net, torch.nn.MSELoss()).setBatchSize(ROWS).setMaxEpoch(1).setLearningRate(0.1).fit(ragged)
    expected = by_hand(linear(), lambda weights: torch.optim.SGD(weights, lr=0.1))
    np.testing.assert_allclose(weights_of(net), weights_of(expected), rtol=1e-5)
    rows = fitted.setBatchSize(4).transform(ragged.coalesce(1)).collect()
    with torch.no_grad():
        np.testing.assert_allclose([row["prediction"] for row in rows], linear_of(expected), rtol=1e-5)


def linear_of(net):
    return net.float()(torch.from_numpy(X)).numpy()


def test_sizes_cut_features_into_the_inputs_of_a_model(spark, ragged):
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, first, second):
            assert first.shape[1:] == (1, 1)
            return first[:, :, 0] * self.weight + second.sum(dim=1, keepdim=True)

    net, sizes = Two(), [[1, 1], [2]]
    fitted = NNEstimator(net, torch.nn.MSELoss(), sizes, [1]).setBatchSize(ROWS).setMaxEpoch(1).fit(ragged)
    predicted = fitted.transform(ragged.coalesce(1)).collect()
    weight = float(net.weight.detach())
    assert weight != 1.0
    expected = X[:, 0] * weight + X[:, 1:].sum(axis=1)
    np.testing.assert_allclose([row["prediction"][0] for row in predicted], expected, rtol=1e-5)
    assert NNModel(TorchModel.from_pytorch(net), sizes).transform(ragged.coalesce(1)).collect() == predicted


def test_preprocessings_of_features_and_labels(ragged):
    class Doubled(Preprocessing):
        """More than a size, so it is computed row by row."""

        def transform(self, value):
            return 2 * np.asarray(value, np.float32)

    net = linear()
    estimator = NNEstimator(net, torch.nn.MSELoss(), Doubled(), ScalarToTensor()).setBatchSize(ROWS).setMaxEpoch(1)
    shown = estimator.fit(ragged.coalesce(2)).transform(ragged.coalesce(2))
    assert shown.columns == ["features", "label", "prediction"]
    predicted = [row["prediction"] for row in shown.collect()]
    with torch.no_grad():
        np.testing.assert_allclose(predicted, net(torch.from_numpy(2 * X)).numpy(), rtol=1e-5)
    both = FeatureLabelPreprocessing(SeqToTensor([1, 3]), ScalarToTensor())
    assert estimator.setSamplePreprocessing(both).feature_preprocessing.sizes == [1, 3]
    assert estimator.getSamplePreprocessing() is both
    plain = NNModel(net, FeatureToTupleAdapter(FeatureLabelPreprocessing(SeqToTensor([3]), ScalarToTensor())))
    assert len(plain.transform(ragged.coalesce(1)).first()["prediction"]) == 1


def test_several_params_give_models_of_their_own(ragged):
    net = linear()
    estimator = NNEstimator(net, torch.nn.MSELoss()).setBatchSize(ROWS).setMaxEpoch(2)
    given = torch.optim.SGD(net.parameters(), lr=1e-3)
    estimator.setOptimMethod(given)
    first = weights_of(net).copy()
    models = estimator.fit(ragged, [{estimator.learningRate: 0.1}, {}])
    trained = [weights_of(model.model) for model in models]
    assert (weights_of(net) == first).all()
    assert estimator.getOptimMethod() is given
    assert given.param_groups[0]["lr"] == 1e-3
    # A rate that is set wins, and one that is not leaves the optim method's.
    for rate, weights in zip((0.1, 1e-3), trained, strict=True):
        expected = by_hand(linear(), lambda each, rate=rate: torch.optim.SGD(each, lr=rate), epochs=2)
        np.testing.assert_allclose(weights, weights_of(expected), rtol=1e-5)


def test_validation_and_summaries_count_as_published(ragged, tmp_path):
    """One iteration an epoch: EveryEpoch's first call only remembers, so that 5 epochs are measured 4 times."""
    train, validation = TrainSummary(str(tmp_path), "app"), ValidationSummary(str(tmp_path), "app")
    train.set_summary_trigger("LearningRate", EveryEpoch())
    estimator = NNEstimator(TorchModel.from_pytorch(linear()), TorchLoss.from_pytorch(torch.nn.MSELoss()))
    estimator.setBatchSize(ROWS).setMaxEpoch(5).setOptimMethod(Adam(0.05))
    assert (estimator.getValidation(), estimator.getTrainSummary()) == (None, None)
    estimator.setValidation(EveryEpoch(), ragged, [MAE()], 4).setTrainSummary(train).setValidationSummary(validation)
    estimator.setCheckpoint(str(tmp_path / "checkpoints"), EveryEpoch())
    assert estimator.getValidation()[1:] == [ragged, estimator.getValidation()[2], 4]
    assert "EveryEpoch" in str(estimator.getCheckpoint())
    assert estimator.getCheckpoint()[2] is True
    estimator.setConstantGradientClipping(-0.5, 0.5).setGradientClippingByL2Norm(1.0).clearGradientClipping()
    estimator.fit(ragged)
    assert len(train.read_scalar("Loss")) == 5
    assert len(train.read_scalar("LearningRate")) == 4
    assert len(validation.read_scalar("MAE")) == 4
    (folder,) = os.listdir(tmp_path / "checkpoints")
    assert "model" in os.listdir(tmp_path / "checkpoints" / folder)


def test_clipping_bounds_the_step(ragged):
    net = linear()
    before = weights_of(net).copy()
    estimator = NNEstimator(net, torch.nn.MSELoss()).setBatchSize(ROWS).setMaxEpoch(1).setOptimMethod(SGD(1.0))
    estimator.setConstantGradientClipping(-0.01, 0.01).setGradientClippingByL2Norm(0.015).fit(ragged)
    step = np.abs(weights_of(net) - before)
    assert 0 < step.max() <= 0.01 + 1e-6
    assert np.linalg.norm(step) <= 0.015 + 1e-6


def test_a_plateau_of_the_score_lowers_the_rate(ragged, tmp_path):
    net = linear()
    # The error gets smaller with every epoch, which is no good where it should get larger.
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        torch.optim.SGD(net.parameters(), lr=0.1), mode="max", factor=0.5, patience=0
    )
    optim = TorchOptim.from_pytorch(plateau, "EpochDecayByScore")
    estimator = NNEstimator(net, torch.nn.MSELoss()).setBatchSize(9).setMaxEpoch(4).setOptimMethod(optim)
    with pytest.raises(PreconditionError, match="score of validation data"):
        estimator.fit(ragged)
    summary = TrainSummary(str(tmp_path), "app")
    summary.set_summary_trigger("LearningRate", SeveralIteration(1))
    estimator.setValidation(EveryEpoch(), ragged, [MAE()], 8).setTrainSummary(summary).fit(ragged)
    rates = [value for _, value, _ in summary.read_scalar("LearningRate")]
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.025, 0.025])
    assert plateau.optimizer.param_groups[0]["lr"] == 0.1


def test_bad_input_is_answered_before_anything_starts(ragged, tmp_path):
    def estimator(**changes):
        arguments = {"model": linear(), "criterion": torch.nn.MSELoss()} | changes
        return NNEstimator(**arguments).setBatchSize(4)

    with pytest.raises(PreconditionError, match=r"maxEpoch \(3\) and endWhen \(MaxEpoch\(2\)\) are both set"):
        estimator().setMaxEpoch(3).setEndWhen(MaxEpoch(2)).fit(ragged)
    with pytest.raises(PreconditionError, match="nothing will be validated"):
        estimator().setValidationSummary(ValidationSummary(str(tmp_path), "app")).fit(ragged)
    with pytest.raises(InvalidKeyError, match=r"no column 'feature'\. Did you mean 'features'"):
        estimator().setFeaturesCol("feature").fit(ragged)
    with pytest.raises(BatchError, match=r"3 values a row .* tensors of \[2, 2\].* 4 values"):
        estimator(feature_preprocessing=[2, 2]).fit(ragged)
    with pytest.raises(BatchError, match=r"float32 of shape \(\d, 3\)"):
        estimator(model=linear(7)).fit(ragged)
    with pytest.raises(InvalidArgumentError, match="model must be a BigDL layer, a TorchModel or a torch"):
        estimator(model="net")
    with pytest.raises(InvalidArgumentError, match="setOptimMethod takes an optim method"):
        estimator().setOptimMethod("adam")
    other = torch.optim.SGD(linear(5).parameters(), lr=0.1)
    with pytest.raises(InvalidArgumentError, match="made for other parameters"):
        estimator().setOptimMethod(other).setMaxEpoch(1).fit(ragged)
    with pytest.raises(InvalidArgumentError, match="but got the class SGD"):
        estimator().setOptimMethod(SGD)
    with pytest.raises(InvalidArgumentError, match="model must be a BigDL layer"):
        NNModel("net")
    with pytest.raises(InvalidArgumentError, match="setCheckpoint takes a folder"):
        estimator().setCheckpoint("", EveryEpoch())
    with pytest.raises(InvalidArgumentError, match="fit takes a Spark DataFrame, but got a list"):
        estimator().fit([1, 2])
    with pytest.raises(InvalidArgumentError, match="setValidation takes a Spark DataFrame"):
        estimator().setValidation(EveryEpoch(), None, [MAE()], 4).fit(ragged)
    with pytest.raises(InvalidArgumentError, match="already"):
        NNModel(linear()).setPredictionCol("label").transform(ragged)


class Refused(Exception):
    """What a user's own loss raises."""


def refuses(output, label):
    if output.requires_grad:
        raise Refused("no such loss")
    return (output - label).square().mean()


def test_an_exception_of_the_loss_reaches_the_caller_as_itself(ragged):
    with pytest.raises(Refused, match="no such loss"):
        NNEstimator(linear(), refuses).setBatchSize(4).setMaxEpoch(1).fit(ragged)


class Mortal(torch.nn.Linear):
    """Its worker dies in the seventh step, once."""

    def __init__(self, folder: str):
        super().__init__(3, 1)
        self.folder, self.steps = folder, 0

    def forward(self, x):
        if self.training and torch.is_grad_enabled():
            self.steps += 1
            mark = f"{self.folder}/died"
            if self.steps == 7 and not os.path.exists(mark):
                open(mark, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def test_a_killed_worker_changes_nothing(ragged, tmp_path):
    def trained(folder):
        torch.manual_seed(3)
        net = Mortal(str(folder))
        estimator = NNEstimator(net, torch.nn.MSELoss()).setBatchSize(4).setMaxEpoch(3).setOptimMethod(Adam(0.05))
        estimator.setCheckpoint(str(folder / "checkpoints"), EveryEpoch()).fit(ragged)
        return weights_of(net)

    (tmp_path / "calm").mkdir()
    (tmp_path / "calm" / "died").touch()
    (tmp_path / "killed").mkdir()
    killed = trained(tmp_path / "killed")
    assert (tmp_path / "killed" / "died").exists()
    assert (killed == trained(tmp_path / "calm")).all()
