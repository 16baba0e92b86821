"""bigdl.optim.optimizer: BigDL's names and spellings over the optimizers, triggers, metrics and summaries of orca."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from bigdl.optim import optimizer as bigdl
from bigdl.optim.optimizer import *  # noqa: F403 - what existing code does
from zoo.orca.errors import InvalidArgumentError
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
    with pytest.raises(InvalidArgumentError, match="a loss to measure"):
        bigdl.Loss().get_metric()


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
