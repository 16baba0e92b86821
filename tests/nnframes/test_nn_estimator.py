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
    MaxIteration,
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


@pytest.fixture
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


def test_fit_trains_the_model_that_was_given_and_does_no_more_once_its_epochs_are_done(ragged):
    net = linear()
    estimator = NNEstimator(net, torch.nn.MSELoss()).setBatchSize(ROWS).setMaxEpoch(3).setOptimMethod(SGD(0.1))
    model = estimator.fit(ragged)
    assert model.model is net
    expected = by_hand(linear(), lambda weights: torch.optim.SGD(weights, lr=0.1), epochs=3)
    np.testing.assert_allclose(weights_of(net), weights_of(expected), rtol=1e-5)

    before = weights_of(net).copy()
    estimator.fit(ragged)
    assert (weights_of(net) == before).all()
    estimator.setMaxEpoch(4).fit(ragged)
    more = by_hand(linear(), lambda weights: torch.optim.SGD(weights, lr=0.1), epochs=4)
    np.testing.assert_allclose(weights_of(net), weights_of(more), rtol=1e-5)


def test_transform_adds_a_column_and_keeps_all_else(ragged):
    net = linear(outputs=2)
    model = NNModel(net).setPredictionCol("scores").setBatchSize(4)
    twice = model.copy({model.predictionCol: "again"}).transform(model.transform(ragged.coalesce(2)))
    assert twice.columns == ["features", "label", "scores", "again"]
    assert dict(twice.dtypes)["scores"] == "array<float>"
    rows = twice.collect()
    np.testing.assert_array_equal([row["features"].toArray() for row in rows], X)
    with torch.no_grad():
        expected = net(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose([row["scores"] for row in rows], expected, rtol=1e-6)
    assert [row["scores"] for row in rows] == [row["again"] for row in rows]


def test_batches_for_prediction_are_four_rows_for_each_core(engine, ragged):
    assert NNModel(linear()).getBatchSize() == 4 * engine.cores
    fitted = NNEstimator(linear(), torch.nn.MSELoss()).setBatchSize(7).setEndWhen(MaxIteration(1)).fit(ragged)
    assert fitted.getBatchSize() == 4 * engine.cores


def test_features_are_numbers_and_arrays(spark):
    kinds = ["float", "double", "int", "array<float>", "array<double>", "array<int>"]
    rows = [(float(number), [float(number)]) for number in range(4)]
    frame = spark.createDataFrame(rows, "number double, array array<double>").coalesce(1)
    net = linear(1)
    with torch.no_grad():
        expected = net(torch.arange(4.0).reshape(4, 1)).numpy()
    for kind in kinds:
        cast = frame.array.cast(kind) if "array" in kind else frame.number.cast(kind)
        predicted = NNModel(net).transform(frame.select(cast.alias("features"))).collect()
        np.testing.assert_allclose([row["prediction"] for row in predicted], expected, rtol=1e-6, err_msg=kind)


def test_sizes_cut_features_into_the_inputs_of_a_model(spark, ragged):
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, first, second):
            assert first.shape[1:] == (1, 1)
            return first[:, :, 0] * self.weight + second.sum(dim=1, keepdim=True)

    for model in (Two(), TorchModel.from_pytorch(Two())):
        estimator = NNEstimator(model, torch.nn.MSELoss(), [[1, 1], [2]], [1]).setBatchSize(ROWS).setMaxEpoch(1)
        predicted = estimator.fit(ragged).transform(ragged).collect()
        weight = float((model.get_weights()[0] if isinstance(model, TorchModel) else weights_of(model))[0])
        assert weight != 1.0
        expected = X[:, 0] * weight + X[:, 1:].sum(axis=1)
        np.testing.assert_allclose([row["prediction"][0] for row in predicted], expected, rtol=1e-5)


def test_preprocessings_of_features_and_labels(ragged):
    class Doubled(Preprocessing):
        """More than a size, so it is computed row by row."""

        def transform(self, value):
            return 2 * np.asarray(value, np.float32)

    net = linear()
    estimator = NNEstimator(net, torch.nn.MSELoss(), Doubled(), ScalarToTensor()).setBatchSize(ROWS).setMaxEpoch(1)
    fitted = estimator.fit(ragged.coalesce(2))
    assert fitted.transform(ragged.coalesce(2)).columns == ["features", "label", "prediction"]
    predicted = [row["prediction"] for row in fitted.transform(ragged.coalesce(2)).collect()]
    with torch.no_grad():
        np.testing.assert_allclose(predicted, net(torch.from_numpy(2 * X)).numpy(), rtol=1e-5)
    both = FeatureLabelPreprocessing(SeqToTensor([1, 3]), ScalarToTensor())
    assert estimator.setSamplePreprocessing(both).feature_preprocessing.sizes == [1, 3]
    assert estimator.getSamplePreprocessing() is both
    plain = NNModel(net, FeatureToTupleAdapter(FeatureLabelPreprocessing(SeqToTensor([3]), ScalarToTensor())))
    assert len(plain.transform(ragged.coalesce(1)).first()["prediction"]) == 1


def test_a_rate_that_is_set_wins_and_one_that_is_not_leaves_the_optim_method_alone(ragged):
    def moved(method, **rates):
        net = linear()
        before = weights_of(net).copy()
        estimator = NNEstimator(net, torch.nn.MSELoss()).setBatchSize(ROWS).setMaxEpoch(1)
        estimator.setOptimMethod(method(net))
        if rates:
            estimator.setLearningRate(rates["rate"])
        estimator.fit(ragged)
        return np.abs(weights_of(net) - before).max(), estimator.getOptimMethod()

    plain, method = moved(lambda net: SGD(0.25))
    assert method.learningrate == 0.25
    larger, method = moved(lambda net: SGD(0.25), rate=0.5)
    assert (larger / plain, method.learningrate) == (pytest.approx(2.0), 0.25)
    torchs, given = moved(lambda net: torch.optim.SGD(net.parameters(), lr=0.1), rate=0.5)
    assert torchs == pytest.approx(larger)
    assert type(given) is torch.optim.SGD
    assert given.param_groups[0]["lr"] == 0.1


def test_several_params_give_models_of_their_own(ragged):
    net = linear()
    estimator = NNEstimator(net, torch.nn.MSELoss()).setBatchSize(ROWS).setMaxEpoch(2)
    estimator.setOptimMethod(torch.optim.SGD(net.parameters(), lr=1e-3))
    first = weights_of(net).copy()
    models = estimator.fit(ragged, [{estimator.learningRate: 0.1}, {estimator.learningRate: 0.01}, {}])
    trained = [weights_of(model.model) for model in models]
    assert (weights_of(net) == first).all()
    for rate, weights in zip((0.1, 0.01, 1e-3), trained, strict=True):
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
