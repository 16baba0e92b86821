"""bigdl.optim.optimizer.Optimizer: Samples in, a trained model out, with BigDL's counters, on every engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bigdl.nn.criterion import ClassNLLCriterion, MSECriterion
from bigdl.nn.layer import Linear, Model, Sequential, Tanh
from bigdl.optim.optimizer import (
    MAE,
    SGD,
    Adam,
    DistriOptimizer,
    EveryEpoch,
    LocalOptimizer,
    Loss,
    MaxEpoch,
    MaxIteration,
    Optimizer,
    OptimMethod,
    Step,
    Top1Accuracy,
    TrainSummary,
    ValidationSummary,
)
from bigdl.util.common import Sample
from zoo.orca.errors import BatchError, CheckpointError, InvalidArgumentError
from zoo.orca.learn.bigdl.records import evaluate_samples, predict_samples
from zoo.orca.learn.records import Records, as_records

RNG = np.random.default_rng(1)
FEATURES = RNG.normal(size=(11, 3)).astype(np.float32)
TARGETS = FEATURES.sum(1, keepdims=True)
CLASSES = (1 + FEATURES.argmax(1)).astype(np.float32)  # from 1
WEIGHTS = np.array([1.0, 3.0, 0.5], np.float32)


def samples(labels):
    return [Sample.from_ndarray(*each) for each in zip(FEATURES, labels, strict=True)]


def ragged(engine, labels):
    """The rows in partitions of very different sizes, one of them empty: an RDD on Spark, Records elsewhere."""
    rows = samples(labels)
    return as_records(engine.place([rows[:1], [], rows[1:8], rows[8:]]))


def linear(*sizes):
    torch.manual_seed(0)
    return torch.nn.Linear(*sizes)


def by_hand(model, loss_of, rate, steps):
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model(torch.tensor(FEATURES))).backward()
        optimizer.step()
    return [each.detach().numpy() for each in model.parameters()]


def weights(model):
    return [each.detach().numpy().copy() for each in model.parameters()]


def test_ragged_partitions_give_what_one_process_gives(engine, tmp_path):
    """Classes weighed unevenly over partitions of uneven length, checkpoints, summaries and what is measured."""
    model = torch.nn.Sequential(linear(3, 3), torch.nn.LogSoftmax(1))
    twin = torch.nn.Sequential(linear(3, 3), torch.nn.LogSoftmax(1))
    data = ragged(engine, CLASSES)
    optimizer = Optimizer(model, data, ClassNLLCriterion(WEIGHTS), MaxEpoch(3), 11, SGD(0.5))
    optimizer.set_validation(4, data, EveryEpoch(), [Top1Accuracy(), Loss(ClassNLLCriterion(WEIGHTS))])
    train, validation = TrainSummary(str(tmp_path), "app"), ValidationSummary(str(tmp_path), "app")
    optimizer.set_train_summary(train)
    optimizer.set_val_summary(validation)
    optimizer.set_checkpoint(EveryEpoch(), str(tmp_path / "points"), isOverWrite=False)
    assert optimizer.optimize() is model

    target = torch.tensor(CLASSES).long() - 1
    loss_of = torch.nn.NLLLoss(torch.tensor(WEIGHTS))
    wanted = by_hand(twin, lambda output: loss_of(output, target), 0.5, 3)
    for mine, theirs in zip(weights(model), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    # One iteration an epoch: EveryEpoch's first call only remembers.
    assert [entry[0] for entry in train.read_scalar("Loss")] == [1, 2, 3]
    assert [entry[0] for entry in validation.read_scalar("Loss")] == [2, 3]
    with torch.no_grad():
        output = twin(torch.tensor(FEATURES))
    assert validation.read_scalar("Loss")[-1][1] == pytest.approx(float(loss_of(output, target)), rel=1e-4)
    (folder,) = (tmp_path / "points").iterdir()
    names = sorted(path.name for path in folder.iterdir() if path.name.startswith("model"))
    assert names == ["model.3", "model.4"]

    right, loss = evaluate_samples(model, data, 4, [Top1Accuracy(), Loss(ClassNLLCriterion(WEIGHTS))])
    assert (right.method, right.total_num, loss.method) == ("Top1Accuracy", 11, "Loss")
    assert right.result == pytest.approx(float((output.argmax(1) == target).double().mean()))
    assert loss.result == pytest.approx(float(loss_of(output, target)), rel=1e-4)
    np.testing.assert_allclose(np.stack(predict_samples(model, data, 4).collect()), output, rtol=1e-4, atol=1e-6)


def test_epochs_are_counted_in_the_method(engine, tmp_path):
    data, model, method = ragged(engine, TARGETS), linear(3, 1), Adam(0.1)

    def train(end, **options):
        before = weights(model)
        DistriOptimizer(model, data, MSECriterion(), end, 11, options.get("method", method)).optimize()
        return any((old != new).any() for old, new in zip(before, weights(model), strict=True))

    assert train(MaxEpoch(2))
    assert (method.progress["epoch"], method.progress["neval"]) == (3, 3)
    assert not train(MaxEpoch(2))
    method.save(str(tmp_path / "method"), True)
    loaded = OptimMethod.load(str(tmp_path / "method"))
    assert not train(MaxEpoch(2), method=loaded)
    assert train(MaxEpoch(3), method=loaded)
    assert loaded.progress["epoch"] == 4


@pytest.mark.engines("local")
def test_training_goes_on_from_the_files_of_a_checkpoint(engine, tmp_path):
    """As BigDL's users do it: Model.load(model.<n>), OptimMethod.load(optimMethod-<name>.<n>), and an Optimizer."""

    def train(model, method, end):
        optimizer = Optimizer(model, rows, MSECriterion(), end, 4, method)
        optimizer.set_checkpoint(EveryEpoch(), str(tmp_path), isOverWrite=False)
        return optimizer.optimize()

    rows = samples(TARGETS)
    model = Sequential().add(Linear(3, 4).set_name("first")).add(Tanh()).add(Linear(4, 1)).freeze("first")
    train(model, SGD(0.1, momentum=0.9, leaningrate_schedule=Step(2, 0.5)), MaxEpoch(4))
    (folder,) = tmp_path.iterdir()

    again = Model.load(str(folder / "model.7"), allow_pickle=False)
    method = OptimMethod.load(str(next(folder.glob("optimMethod-*.7"))))
    assert (method.momentum, method.progress["epoch"], method.progress["neval"]) == (0.9, 3, 7)
    assert not train(again, method, MaxEpoch(2)).layers[0].module.weight.requires_grad
    train(again, method, MaxEpoch(4))
    for found, wanted in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, wanted)
    with pytest.raises(CheckpointError, match=r"is a folder.*model\.<n>"):
        Model.load(str(folder))


@pytest.mark.engines("local")
def test_a_checkpoint_of_a_torch_module_says_how_it_is_loaded(engine, tmp_path):
    optimizer = Optimizer(linear(3, 1), samples(TARGETS), MSECriterion(), MaxEpoch(2), 11)
    optimizer.set_checkpoint(EveryEpoch(), str(tmp_path))
    optimizer.optimize()
    (path,) = tmp_path.glob("*/model")
    with pytest.raises(CheckpointError, match="load_orca_checkpoint"):
        Model.load(str(path))


def test_a_users_exception_reaches_the_caller(engine):
    def criterion(output, target):
        raise ZeroDivisionError("of my own")

    with pytest.raises(ZeroDivisionError, match="of my own"):
        Optimizer(linear(3, 1), ragged(engine, TARGETS), criterion, MaxEpoch(1), 4).optimize()


@pytest.mark.engines("local")
def test_four_records_five_epochs_give_five_losses_and_four_figures(engine, tmp_path):
    rows = samples(TARGETS)[:4]
    optimizer = Optimizer.create(linear(3, 1), rows, MSECriterion(), MaxEpoch(5), 4, Adam())
    optimizer.set_validation(4, Records.of(rows), EveryEpoch(), [MAE()])
    train, validation = TrainSummary(str(tmp_path), "app"), ValidationSummary(str(tmp_path), "app")
    train.set_summary_trigger("LearningRate", EveryEpoch())
    optimizer.set_train_summary(train)
    optimizer.set_val_summary(validation)
    optimizer.set_checkpoint(EveryEpoch(), str(tmp_path / "points"))
    optimizer.optimize()
    assert len(train.read_scalar("Loss")) == 5
    assert len(validation.read_scalar("MAE")) == 4
    iteration, value, time = validation.read_scalar("MAE")[0]
    assert (iteration, value > 0, time > 0) == (2, True, True)
    (folder,) = (tmp_path / "points").iterdir()
    files = {path.name.partition("-")[0] for path in folder.iterdir() if "." not in path.name}
    assert files == {"model", "optimMethod"}  # overwritten: without numbers


@pytest.mark.engines("local")
def test_arrays_train_as_samples_do(engine):
    models = [linear(3, 1), linear(3, 1), linear(3, 1)]
    by_samples = Optimizer(models[0], samples(TARGETS), MSECriterion(), MaxIteration(3), 11, SGD(0.1))
    by_arrays = Optimizer.create(models[1], (FEATURES, TARGETS), MSECriterion(), MaxIteration(3), 11, SGD(0.1))
    assert isinstance(by_arrays, LocalOptimizer)
    by_arrays.set_validation(4, FEATURES, TARGETS, EveryEpoch(), [MAE()])
    for each in (by_samples, by_arrays):
        each.prepare_input()
        each.optimize()
    wanted = by_hand(models[2], lambda output: ((output - torch.tensor(TARGETS)) ** 2).mean(), 0.1, 3)
    for model in models[:2]:
        for mine, theirs in zip(weights(model), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.engines("local")
def test_gradients_are_clipped_and_clipping_can_be_taken_back(engine):
    def moved(tell):
        model = linear(3, 1)
        before = weights(model)
        optimizer = LocalOptimizer(FEATURES, 100 * TARGETS, model, MSECriterion(), MaxIteration(1), 11, SGD(1.0))
        tell(optimizer)
        optimizer.optimize()
        return np.concatenate([(new - old).ravel() for old, new in zip(before, weights(model), strict=True)])

    assert np.abs(moved(lambda optimizer: optimizer.set_gradclip_const(-0.1, 0.1))).max() == pytest.approx(0.1)
    assert np.linalg.norm(moved(lambda optimizer: optimizer.set_gradclip_l2norm(0.5))) == pytest.approx(0.5, rel=1e-4)

    def taken_back(optimizer):
        optimizer.set_gradclip_l2norm(0.5)
        optimizer.disable_gradclip()

    assert np.linalg.norm(moved(taken_back)) > 10


@pytest.mark.engines("local")
def test_several_methods_each_train_their_part(engine):
    def model():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))

    mine, twin = model(), model()
    methods = {"0": SGD(0.1, leaningrate_schedule=Step(1, 0.5)), "1": Adam(0.05)}
    optimizer = Optimizer(mine, samples(TARGETS), MSECriterion(), MaxEpoch(1), 11, methods)
    optimizer.optimize()
    optimizer.set_end_when(MaxEpoch(3))
    optimizer.optimize()  # goes on where it stood, rates and moments too
    parts = [torch.optim.SGD(twin[0].parameters(), 0.1), torch.optim.Adam(twin[1].parameters(), 0.05)]
    for step in range(3):
        parts[0].param_groups[0]["lr"] = 0.1 * 0.5**step
        twin.zero_grad()
        ((twin(torch.tensor(FEATURES)) - torch.tensor(TARGETS)) ** 2).mean().backward()
        for each in parts:
            each.step()
    for found, wanted in zip(weights(mine), weights(twin), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    for wrong, message in [
        ({"0": SGD()}, "have none: 1.weight, 1.bias"),
        ({"0": SGD(), "2": SGD()}, "no submodule '2'. The model has: 0, 1"),
        ({"0": SGD(), "1": "adam"}, "for '1', such as SGD"),
        ({"": SGD(), "1": SGD()}, "share some"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message):
            Optimizer(model(), samples(TARGETS), MSECriterion(), MaxEpoch(1), 11, wrong).optimize()


@pytest.mark.engines("local")
def test_what_cannot_work_is_said_in_words(engine, tmp_path):
    rows = samples(CLASSES)
    scores = torch.nn.Sequential(linear(3, 2), torch.nn.LogSoftmax(1))
    with pytest.raises(BatchError, match=r"from 1 to 2, but there are (1, )?(2, )?3"):
        Optimizer(scores, rows, ClassNLLCriterion(), MaxEpoch(1), 11).optimize()

    def train(model=scores, data=rows, batch_size=4, method=None):
        return Optimizer(model, data, ClassNLLCriterion(), MaxEpoch(1), batch_size, method).optimize()

    unlabelled = [Sample.from_ndarray(each, []) for each in FEATURES]
    summed = Optimizer(scores, rows, ClassNLLCriterion(), MaxEpoch(1), 11)
    summed.set_val_summary(ValidationSummary(str(tmp_path), "app"))
    with pytest.raises(InvalidArgumentError, match="set_validation"):
        summed.optimize()
    for wrong, message in [
        (lambda: Optimizer(scores, rows, ClassNLLCriterion(), "three", 11), "end_trigger to be a trigger"),
        (lambda: Optimizer(scores, [1, 2], ClassNLLCriterion(), MaxEpoch(1), 2).optimize(), "records that are Samples"),
        (lambda: Optimizer(scores, 5, ClassNLLCriterion(), MaxEpoch(1), 2).optimize(), "training_rdd to be an RDD"),
        (lambda: evaluate_samples(scores, rows, 4, ["mae"]), "Expected validation methods"),
        (lambda: evaluate_samples(scores, [], 4, [MAE()]), "no samples to measure"),
        (lambda: evaluate_samples(scores, unlabelled, 4, [MAE()]), "no labels to compare"),
        (lambda: train(data=unlabelled), "the loss compares outputs with labels, but data has none"),
        (lambda: train(data=(FEATURES, CLASSES)), r"Optimizer.create\(model, \(x, y\)"),
        (lambda: train(batch_size="four"), "batch_size must be a whole number"),
        (lambda: train(method=Adam), r"is the class Adam. Type Adam\(\)"),
        (lambda: train(model=Sequential().add(Tanh())), "no weights to learn"),
        (lambda: train(model=Linear(3, 3).freeze()), "no weights to learn.*unfreeze"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message):
            wrong()
