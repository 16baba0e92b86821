"""zoo.pipeline.estimator.Estimator: FeatureSets and Samples, in place, with BigDL's rules for validation."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from bigdl.nn.criterion import ClassNLLCriterion, MSECriterion
from bigdl.optim.optimizer import MAE, SGD, Adam, EveryEpoch, Loss, MaxEpoch, SeveralIteration, Top1Accuracy
from bigdl.util.common import Sample
from zoo.feature.common import FeatureSet
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.records import as_records
from zoo.pipeline.estimator import Estimator

RNG = np.random.default_rng(2)
FEATURES = RNG.normal(size=(10, 3)).astype(np.float32)
TARGETS = FEATURES.sum(1, keepdims=True)
ROWS = [Sample.from_ndarray(*each) for each in zip(FEATURES, TARGETS, strict=True)]


def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 1)


def by_hand(model, steps, rate=0.1):
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for _ in range(steps):
        optimizer.zero_grad()
        ((model(torch.tensor(FEATURES)) - torch.tensor(TARGETS)) ** 2).mean().backward()
        optimizer.step()
    return model


def assert_same(model, twin):
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(mine.detach(), theirs.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.engines("local", "spark")
def test_the_model_is_trained_in_place_and_measured(engine, tmp_path):
    rows = as_records(engine.place([ROWS[:1], [], ROWS[1:7], ROWS[7:]]))
    data, model = FeatureSet.sample_rdd(rows), linear()
    estimator = Estimator(model, SGD(0.1), str(tmp_path))
    done = estimator.train(data, MSECriterion(), MaxEpoch(3), EveryEpoch(), data, [MAE(), Loss(MSECriterion())], 10)
    assert done is estimator
    twin = by_hand(linear(), 3)
    assert_same(model, twin)
    mae, loss = estimator.evaluate(data, [MAE(), Loss(MSECriterion())], 4)
    error = (twin(torch.tensor(FEATURES)) - torch.tensor(TARGETS)).detach()
    assert (mae.method, mae.total_num, loss.method) == ("MAE", 10, "Loss")
    assert mae.result == pytest.approx(float(error.abs().mean()), rel=1e-4)
    assert loss.result == pytest.approx(float((error**2).mean()), rel=1e-4)
    # One iteration an epoch: EveryEpoch's first call only remembers.
    assert [entry[0] for entry in estimator.get_train_summary("Loss")] == [1, 2, 3]
    assert [entry[0] for entry in estimator.get_validation_summary("MAE")] == [2, 3]
    (models,) = tmp_path.glob("*/models/*")
    stamps = models.relative_to(tmp_path).parts
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", stamps[0])
    assert re.fullmatch(r"\d{8}_\d{6}", stamps[2])
    assert {"model.3", "model.4"} <= {path.name for path in models.iterdir()}
    # The same epochs again: nothing is left to do; one more is one more.
    estimator.train(data, MSECriterion(), MaxEpoch(3), batch_size=10)
    assert_same(model, twin)
    estimator.train(data, MSECriterion(), MaxEpoch(4), batch_size=10)
    assert_same(model, by_hand(linear(), 4))


@pytest.mark.engines("local")
def test_without_a_checkpoint_trigger_there_is_no_validation(engine, tmp_path):
    estimator = Estimator(linear(), Adam(), "")
    estimator.set_tensorboard(str(tmp_path), "app")
    estimator.train(ROWS, MSECriterion(), MaxEpoch(3), None, ROWS, [MAE()], 2)
    assert len(estimator.get_train_summary("Loss")) == 15
    assert not estimator.get_validation_summary("MAE")
    # With one, but without a model_dir: validation alone.
    estimator.train(ROWS, MSECriterion(), MaxEpoch(4), SeveralIteration(2), ROWS, [MAE()], 2)
    assert len(estimator.get_validation_summary("MAE")) in (2, 3)
    assert sorted(path.name for path in (tmp_path / "app").iterdir()) == ["train", "validation"]
    assert not list(tmp_path.rglob("model.*"))


@pytest.mark.engines("local")
def test_a_loader_brings_its_own_batches(engine):
    rows = torch.utils.data.TensorDataset(torch.tensor(FEATURES), torch.tensor(TARGETS))
    loader = FeatureSet.pytorch_dataloader(torch.utils.data.DataLoader(rows, batch_size=10))
    model = linear()
    estimator = Estimator(model, SGD(0.1), "")
    estimator.train_minibatch(loader, MSECriterion(), MaxEpoch(2), EveryEpoch(), loader, [MAE()])
    twin = by_hand(linear(), 2)
    assert_same(model, twin)
    (mae,) = estimator.evaluate_minibatch(loader, [MAE()])
    assert mae.result == pytest.approx((twin(torch.tensor(FEATURES)) - torch.tensor(TARGETS)).abs().mean().item())


@pytest.mark.engines("local")
def test_several_methods_criterions_and_clipping(engine):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2), torch.nn.LogSoftmax(1))
    rows = [Sample.from_ndarray(each, np.array([1.0 + (each.sum() > 0)])) for each in FEATURES]
    estimator = Estimator(model, {"0": SGD(0.5), "1": Adam(0.1)}, None)
    estimator.set_constant_gradient_clipping(-1.0, 1.0)
    estimator.set_l2_norm_gradient_clipping(5.0)
    before = estimator.evaluate(rows, [Loss(), Top1Accuracy()])
    estimator.train(rows, ClassNLLCriterion(), MaxEpoch(10), batch_size=5)
    after = estimator.evaluate(rows, [Loss(), Top1Accuracy()])
    assert after[0].result < before[0].result / 2
    assert after[1].result > 0.8
    first, second = model[0].weight.detach().clone(), model[1].weight.detach().clone()
    estimator.clear_gradient_clipping()
    estimator.set_constant_gradient_clipping(-1e-6, 1e-6)
    estimator.train(rows, MSECriterion(), MaxEpoch(11), batch_size=5)  # another criterion, and counting goes on
    assert (model[0].weight - first).abs().max() <= 2e-6  # SGD steps by the gradient, Adam by its direction
    assert (model[1].weight - second).abs().max() > 1e-3
    for wrong, message in [
        (lambda: estimator.train(5, MSECriterion()), "train_set to be an RDD.*FeatureSet"),
        (lambda: estimator.train(rows, "mse"), "criterion must be"),
        (lambda: estimator.evaluate(rows, None), "Expected validation methods"),
        (lambda: Estimator("model"), "model must be a BigDL layer"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message):
            wrong()


def test_importing_loads_no_framework():
    code = "import sys, zoo.pipeline.estimator; print([n for n in ('torch', 'pyspark', 'cv2') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
