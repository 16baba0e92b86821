"""bigdl.optim.optimizer: BigDL's names and spellings over the optimizers, triggers, metrics and summaries of orca."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from bigdl.nn.criterion import ClassNLLCriterion
from bigdl.optim import optimizer as bigdl
from bigdl.optim.optimizer import *  # noqa: F403 - what existing code does
from zoo.orca.errors import CheckpointError, InvalidArgumentError, NotOfferedError, PathExistsError
from zoo.orca.learn import metrics, optimizers
from zoo.orca.learn.optimizers import schedule
from zoo.orca.learn.trigger import TrainState, Trigger

METHODS = ["Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "LBFGS", "ParallelAdam", "RMSprop", "SGD"]
SCHEDULES = ["Default", "Exponential", "MultiStep", "Plateau", "Poly", "SequentialSchedule", "Step", "Warmup"]
TRIGGERS = ["EveryEpoch", "MaxEpoch", "MaxIteration", "MaxScore", "MinLoss", "SeveralIteration", "TriggerAnd",
            "TriggerOr"]  # fmt: skip


def test_the_star_import_brings_what_code_counts_on():
    names = [
        *METHODS,
        *SCHEDULES,
        *TRIGGERS,
        "TrainSummary",
        "ValidationSummary",
        "Top1Accuracy",
        "Top5Accuracy",
        "MAE",
    ]
    names += ["Optimizer", "DistriOptimizer", "LocalOptimizer", "L1Regularizer", "L2Regularizer", "L1L2Regularizer"]
    names += ["TreeNNAccuracy", "HitRatio", "NDCG", "MeanAveragePrecision", "Loss"]
    names += ["DistributedImageFrame", "Pipeline", "Resize", "BytesToMat"]  # of bigdl.transform.vision.image
    names += ["np", "os", "tempfile", "Sample", "JTensor", "RNG", "SQLContext", "create_tmp_path", "get_spark_context"]
    assert [name for name in names if name not in globals()] == []
    assert globals()["np"] is np


def test_importing_loads_no_framework():
    code = (
        "import sys, bigdl.optim.optimizer; print([n for n in ('torch', 'pyspark', 'tensorflow') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_what_estimators_take(name):
    method = getattr(bigdl, name)()
    assert isinstance(method, bigdl.OptimMethod)
    assert isinstance(method, getattr(optimizers, name))
    assert isinstance(method.torch_optimizer([torch.nn.Parameter(torch.zeros(2))]), torch.optim.Optimizer)


def test_sgd_takes_its_schedule_by_bigdls_spelling():
    method = bigdl.SGD(0.5, momentum=0.9, leaningrate_schedule=bigdl.Step(10, 0.1))
    assert (method.learningrate, method.momentum, method.dampening) == (0.5, 0.9, 0.9)
    assert isinstance(method.learningrate_schedule, schedule.Step)
    assert isinstance(bigdl.SGD().learningrate_schedule, schedule.Default)
    with pytest.raises(TypeError, match="learningrate_schedule"):
        bigdl.SGD(learningrate_schedule=bigdl.Step(10, 0.1))


def test_triggers_are_orcas_and_say_their_names():
    for name, trigger in [("EveryEpoch", bigdl.EveryEpoch()), ("MaxEpoch", bigdl.MaxEpoch(max_epoch=3))]:
        assert Trigger.convert_trigger(trigger) is trigger
        assert name in str(trigger)
    assert bigdl.MaxIteration(5)(TrainState(neval=6))


def test_top1_accuracy_counts_labels_from_1():
    outputs, labels = np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]), np.array([1.0, 2.0, 1.0])
    measure = bigdl.Top1Accuracy().get_metric()
    measure(outputs, labels)
    assert (measure.name, measure.value()) == ("Top1Accuracy", pytest.approx(2 / 3))
    assert isinstance(bigdl.Top1Accuracy(), metrics.Metric)


def test_loss_measures_a_criterion():
    measure = bigdl.Loss(lambda output, target: ((output - target) ** 2).mean()).get_metric()
    measure(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    measure(torch.tensor([0.0]), torch.tensor([0.0]))
    assert (measure.name, measure.value()) == ("Loss", pytest.approx(4 / 3))
    # A criterion sees labels of either form, and what it divides by counts.
    logs = torch.log(torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]))
    for labels in (torch.tensor([[1.0], [2.0], [-1.0]]), torch.tensor([1.0, 2.0, -1.0])):
        for loss in (bigdl.Loss(), bigdl.Loss(ClassNLLCriterion())):
            measure = loss.get_metric()
            measure(logs[:1], labels[:1])
            measure(logs[1:], labels[1:])
            assert measure.value() == pytest.approx(-float(logs[0, 0] + logs[1, 1]) / 2)
    measure = bigdl.Loss(torch.nn.CrossEntropyLoss()).get_metric()
    measure(logs, torch.tensor([[0.0], [1.0], [0.0]]))
    assert measure.value() == pytest.approx(-float(logs[0, 0] + logs[1, 1] + logs[2, 0]) / 3)


def test_summaries_are_written_where_bigdl_writes_them(tmp_path):
    train = bigdl.TrainSummary(str(tmp_path), "app")
    train.set_summary_trigger("LearningRate", bigdl.SeveralIteration(2))
    assert train.due(TrainState(neval=3)) == ["Loss", "Throughput"]
    assert "LearningRate" in train.due(TrainState(neval=4))
    train.add_scalar("Loss", 0.5, 1)
    train.close()
    ((iteration, value, _),) = train.read_scalar("Loss")
    assert (iteration, value) == (1, 0.5)
    validation = bigdl.ValidationSummary(str(tmp_path), "app")
    assert validation.read_scalar("Top1Accuracy") == []
    assert sorted(path.name for path in (tmp_path / "app").iterdir()) == ["train", "validation"]


def _measured(method, output, target, rows=None):
    """What a method measures in one call, and in two that are added up by state."""
    whole, parts = method.get_metric(), [method.get_metric(), method.get_metric()]
    whole(output, target)
    rows = rows or len(output) // 2
    parts[0](output[:rows], target[:rows])
    parts[1](output[rows:], target[rows:])
    together = method.get_metric()
    together.load_sum(parts[0].state() + parts[1].state())
    assert together.value() == pytest.approx(whole.value())
    return whole.name, whole.value()


def test_hits_and_gains_are_counted_in_groups():
    # Two groups of one right item and three wrong ones: the right one is at place 1, and at place 3.
    output = torch.tensor([0.9, 0.1, 0.2, 0.3, 0.5, 0.8, 0.7, 0.1]).unsqueeze(1)
    target = torch.tensor([1.0, 0, 0, 0, 1, 0, 0, 0]).unsqueeze(1)
    assert _measured(bigdl.HitRatio(2, 3), output, target) == ("HitRate@2", 0.5)
    assert _measured(bigdl.HitRatio(k=3, neg_num=3), output, target) == ("HitRate@3", 1.0)
    assert _measured(bigdl.NDCG(3, 3), output, target) == ("NDCG@3", pytest.approx((1 + 0.5) / 2))
    with pytest.raises(ValueError, match="groups of 4 rows"):
        bigdl.HitRatio(2, 3).get_metric()(output[:5], target[:5])
    with pytest.raises(ValueError, match="one right item"):
        bigdl.HitRatio(2, 3).get_metric()(output, torch.ones(8, 1))
    with pytest.raises(InvalidArgumentError, match="k to be a whole number from 1 on"):
        bigdl.HitRatio(0)


def test_precision_is_averaged_over_ranks_and_classes():
    output = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [-0.3, 1.3]])
    target = torch.tensor([[1.0], [2.0], [1.0], [2.0]])
    first = (1 / 1 + 2 / 3) / 2  # rows in order of column 1: right, wrong, right, wrong
    second = (1 / 1 + 2 / 3) / 2  # of column 2: right, wrong, right, wrong
    name, value = _measured(bigdl.MeanAveragePrecision(-1, 2), output, target)
    assert (name, value) == ("MeanAveragePrecision", pytest.approx((first + second) / 2))
    assert _measured(bigdl.MeanAveragePrecision(1, 2), output, target)[1] == pytest.approx(1.0)
    with pytest.raises(NotOfferedError, match="torchmetrics"):
        bigdl.MeanAveragePrecisionObjectDetection(10)


def test_trees_and_the_five_best_count_labels_from_1():
    nodes = torch.zeros(2, 3, 4)
    nodes[0, 0, 2] = nodes[1, 0, 1] = 1
    target = torch.tensor([[3.0, 1, 1], [1.0, 1, 1]])
    assert _measured(bigdl.TreeNNAccuracy(), nodes, target) == ("TreeNNAccuracy", 0.5)
    scores = torch.arange(8.0).repeat(2, 1)
    assert _measured(bigdl.Top5Accuracy(), scores, torch.tensor([[8.0], [3.0]])) == ("Top5Accuracy", 0.5)
    assert _measured(metrics.Top5Accuracy(), scores, torch.tensor([[7.0], [3.0]])) == ("Top5Accuracy", 1.0)


def test_regularizers_say_what_weights_cost():
    assert (bigdl.L1Regularizer(0.1).l1, bigdl.L1Regularizer(0.1).l2) == (0.1, 0.0)
    assert (bigdl.L2Regularizer(0.2).l1, bigdl.L2Regularizer(0.2).l2) == (0.0, 0.2)
    assert (bigdl.L1L2Regularizer(0.1, 0.2).l1, bigdl.L1L2Regularizer(0.1, 0.2).l2) == (0.1, 0.2)
    with pytest.raises(InvalidArgumentError, match="l1 to be a number from 0 on"):
        bigdl.L1Regularizer(-1)


def test_a_method_is_saved_with_its_schedule_and_its_counters(tmp_path):
    path = str(tmp_path / "method")
    rule = bigdl.SequentialSchedule(5).add(bigdl.Warmup(0.1), 3).add(bigdl.Plateau("Loss"), 10)
    method = bigdl.SGD(0.5, momentum=0.9, leaningrate_schedule=rule)
    method.progress = {"epoch": 3, "neval": 7, "optimizers": [{"state": {0: {"momentum_buffer": torch.ones(2)}}}]}
    method.save(path, overWrite=False)
    with pytest.raises(PathExistsError, match="overWrite=True"):
        method.save(path, False)
    method.save(path, True)
    again = bigdl.OptimMethod.load(path)
    assert (type(again), repr(again)) == (bigdl.SGD, repr(method))
    assert (again.progress["epoch"], again.progress["neval"]) == (3, 7)
    assert again.progress["optimizers"][0]["state"][0]["momentum_buffer"].tolist() == [1, 1]
    torch.save({"a": 1}, tmp_path / "other")
    with pytest.raises(CheckpointError, match="no optimization method"):
        bigdl.OptimMethod.load(str(tmp_path / "other"))
    for name in METHODS:  # each can be written and read
        getattr(bigdl, name)().save(path, True)
        assert repr(bigdl.OptimMethod.load(path)) == repr(getattr(bigdl, name)())
