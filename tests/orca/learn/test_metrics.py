"""Orca's metrics: which forms they have, what those are called, and BigDL's way of measuring."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.learn import metrics as orca
from zoo.orca.learn.metrics import Metric
from zoo.orca.learn.pytorch.bigdl_metrics import Loss

BIGDL_NAMES = {
    "Accuracy": "Top1Accuracy",
    "SparseCategoricalAccuracy": "Top1Accuracy",
    "CategoricalAccuracy": "Top1Accuracy",
    "BinaryAccuracy": "Top1Accuracy",
    "Top5Accuracy": "Top5Accuracy",
    "AUC": "AucScore",
    "MAE": "MAE",
    "MSE": "MSE",
}
ONLY_PYTORCH = [
    "BinaryCrossEntropy",
    "CategoricalCrossEntropy",
    "SparseCategoricalCrossEntropy",
    "KLDivergence",
    "Poisson",
]


@pytest.mark.parametrize(("name", "result"), BIGDL_NAMES.items())
def test_names_in_the_bigdl_engine(name, result):
    metric = getattr(orca, name)()
    assert metric.get_name() == name
    assert metric.get_metric().name == result
    assert list(Metric.convert_metrics_dict([metric], "bigdl")) == [result]


@pytest.mark.parametrize("name", [*BIGDL_NAMES, *ONLY_PYTORCH])
def test_names_in_pytorch(name):
    metric = getattr(orca, name)()
    if name == "AUC":
        with pytest.raises(NotImplementedError, match="AUC has no form for the pytorch backend"):
            metric.get_metric("pytorch")
    else:
        assert list(Metric.convert_metrics_dict(metric, "pytorch")) == [name]
        assert type(metric.get_metric("pytorch")).__name__ == name


@pytest.mark.parametrize("name", ONLY_PYTORCH)
def test_some_have_no_bigdl_form(name):
    with pytest.raises(NotOfferedError, match=f"{name} has no form for the bigdl backend"):
        getattr(orca, name)().get_metric()


def test_labels_from_one_are_for_bigdl():
    with pytest.raises(NotImplementedError, match="zero_based_label=False"):
        orca.Accuracy(zero_based_label=False).get_metric("pytorch")


def test_one_metric_or_a_list():
    assert Metric.convert_metrics_list(None) is None
    assert Metric.convert_metrics_dict(None, "pytorch") == {}
    assert [each.name for each in Metric.convert_metrics_list(orca.MAE())] == ["MAE"]
    assert [each.name for each in Metric.convert_metrics_list([orca.MAE(), orca.AUC()])] == ["MAE", "AucScore"]
    assert list(Metric.convert_metrics_dict((orca.MAE(), orca.MSE()), "pytorch")) == ["MAE", "MSE"]


def test_something_else_is_refused():
    for convert in (Metric.convert_metrics_list, Metric.convert_metrics_dict):
        with pytest.raises(ValueError, match="Only orca metrics are supported, but get str"):
            convert(["accuracy"], "bigdl")
    with pytest.raises(ValueError, match="Only orca metrics are supported, but get int"):
        Metric.convert_metrics_list(3, "pytorch")


def test_two_results_of_one_name_are_refused():
    with pytest.raises(InvalidArgumentError, match="both reported as 'Top1Accuracy'"):
        Metric.convert_metrics_dict([orca.Accuracy(), orca.BinaryAccuracy()], "bigdl")
    assert len(Metric.convert_metrics_dict([orca.Accuracy(), orca.BinaryAccuracy()], "pytorch")) == 2


def test_backends():
    for backend in ("tf", "mxnet"):
        with pytest.raises(NotImplementedError, match=backend):
            orca.MAE().get_metric(backend)
    with pytest.raises(ValueError, match="one of bigdl, pytorch, got 'spark'"):
        orca.MAE().get_metric("spark")


def test_importing_loads_no_framework():
    code = (
        "import sys, zoo.orca.learn.metrics, zoo.orca.learn.trigger, zoo.orca.learn.summary, "
        "zoo.orca.learn.optimizers.schedule, zoo.orca.learn.base_estimator\n"
        "print({'torch', 'tensorflow', 'pyspark', 'ray', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("set()", "")


def measured(metric: Metric, preds, targets) -> float:
    form = metric.get_metric("bigdl")
    form(torch.as_tensor(preds), torch.as_tensor(targets))
    return form.value()


@pytest.mark.parametrize("labels", [[1, 0, 2], [[1], [0], [2]], [1.0, 0.0, 2.0], [[1.0], [0.0], [2.0]]])
def test_bigdl_accuracy_takes_labels_as_they_come(labels):
    preds = [[0.1, 0.8, 0.1], [0.9, 0.05, 0.05], [0.1, 0.8, 0.1]]
    assert measured(orca.Accuracy(), preds, labels) == pytest.approx(2 / 3)
    assert measured(orca.SparseCategoricalAccuracy(), preds, labels) == pytest.approx(2 / 3)
    from_one = torch.tensor(labels) + 1
    assert measured(orca.Accuracy(zero_based_label=False), preds, from_one) == pytest.approx(2 / 3)


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize("metric", [orca.Accuracy(), orca.Accuracy(False), orca.BinaryAccuracy()])
def test_bigdl_accuracy_of_one_column(metric, shape):
    preds = torch.tensor([0.2, 0.5, 0.9, 0.4]).reshape(shape)
    for labels in (torch.tensor([0, 1, 1, 1]), torch.tensor([[0.0], [1.0], [1.0], [1.0]])):
        assert measured(metric, preds, labels) == 0.75


def test_bigdl_categorical_accuracy_and_top5():
    preds = torch.eye(8)[[0, 1, 2, 3]] + torch.arange(8) * 0.01
    assert measured(orca.CategoricalAccuracy(), preds, torch.eye(8)[[0, 1, 5, 3]]) == 0.75
    # The largest five of row 2 are 2, 7, 6, 5, 4.
    assert measured(orca.Top5Accuracy(), preds, [[0], [7], [4], [2]]) == 0.75
    assert measured(orca.Top5Accuracy(), preds[:, :3], [0.0, 1.0, 2.0, 0.0]) == 1.0


def test_bigdl_errors_of_columns():
    preds = torch.tensor([[1.0], [2.0], [4.0]])
    for labels in (torch.tensor([1, 1, 1]), torch.tensor([[1.0], [1.0], [1.0]])):
        assert measured(orca.MAE(), preds, labels) == pytest.approx(4 / 3)
        assert measured(orca.MSE(), preds, labels) == pytest.approx(10 / 3)
    with pytest.raises(InvalidArgumentError, match="labels of shape"):
        measured(orca.MAE(), preds, [1.0, 2.0])


def test_loss_is_the_mean_over_rows():
    loss = Loss(torch.nn.MSELoss())
    loss(torch.tensor([[1.0], [3.0]]), torch.tensor([[0.0], [0.0]]))
    loss(torch.tensor([[2.0]]), torch.tensor([[0.0]]))
    assert (loss.name, loss.value()) == ("Loss", pytest.approx(14 / 3))
    with pytest.raises(InvalidArgumentError, match="reduction"):
        Loss(torch.nn.MSELoss(reduction="none"))(torch.ones(2, 1), torch.ones(2, 1))


def test_auc_refuses_what_has_no_curve():
    with pytest.raises(InvalidArgumentError, match="one prediction a row"):
        measured(orca.AUC(), torch.rand(4, 2), torch.ones(4))
    with pytest.raises(InvalidArgumentError, match="nan"):
        measured(orca.AUC(), torch.tensor([float("nan"), 0.5]), torch.tensor([0, 1]))
    assert np.isnan(measured(orca.AUC(), torch.rand(4), torch.ones(4)))
    for wrong in (1, "200", 2.5):
        with pytest.raises(ValueError, match="threshold_num"):
            orca.AUC(wrong)


@given(
    scores=st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=2, max_size=60),
    thresholds=st.sampled_from([41, 100, 200]),
)
def test_auc_is_exact_where_thresholds_tell_all_scores_apart(scores, thresholds):
    preds = np.array([score / 20 for score, _ in scores], dtype=np.float32)
    labels = np.array([label for _, label in scores], dtype=int)
    if 0 < labels.sum() < len(labels):
        expected = roc_auc_score(labels, preds)
        assert measured(orca.AUC(thresholds), preds, labels) == pytest.approx(expected, abs=1e-12)


def test_auc_of_fine_scores_is_near():
    random = np.random.default_rng(3)
    labels = random.integers(0, 2, 20_000)
    preds = np.clip(random.normal(0.4 + 0.2 * labels, 0.2), -0.1, 1.1).astype(np.float32)
    assert measured(orca.AUC(), preds, labels) == pytest.approx(roc_auc_score(labels, preds.clip(0, 1)), abs=1e-3)


def rows_for(metric: Metric, random: np.random.Generator, rows: int):
    """Predictions and labels that a metric can compare."""
    if isinstance(metric, orca.AUC | orca.BinaryAccuracy | orca.BinaryCrossEntropy):
        return random.random((rows, 1)), random.integers(0, 2, (rows, 1))
    preds = random.random((rows, 7)) + 0.01
    preds /= preds.sum(axis=1, keepdims=True)
    if isinstance(metric, orca.MAE | orca.MSE | orca.Poisson | orca.KLDivergence):
        return preds, random.random((rows, 7))
    labels = random.integers(0, 7, rows)
    if isinstance(metric, orca.CategoricalAccuracy | orca.CategoricalCrossEntropy):
        return preds, np.eye(7)[labels]
    return preds, labels


ALL = [("bigdl", name) for name in BIGDL_NAMES] + [
    ("pytorch", name) for name in [*BIGDL_NAMES, *ONLY_PYTORCH] if name != "AUC"
]


@pytest.mark.parametrize(("backend", "name"), ALL)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 60), ranks=st.integers(1, 4))
def test_states_of_ranks_add_up(backend, name, seed, rows, ranks):
    random = np.random.default_rng(seed)
    metric = getattr(orca, name)()
    preds, targets = rows_for(metric, random, rows)
    whole = metric.get_metric(backend)
    whole(torch.as_tensor(preds), torch.as_tensor(targets))

    forms = [pickle.loads(pickle.dumps(metric.get_metric(backend))) for _ in range(ranks)]
    cuts = np.sort(random.integers(0, rows + 1, random.integers(0, 8)))
    for batch in np.split(np.arange(rows), cuts):
        if len(batch):
            forms[random.integers(ranks)](torch.as_tensor(preds[batch]), torch.as_tensor(targets[batch]))
    total = sum(form.state() for form in forms)
    result = metric.get_metric(backend)
    result.load_sum(total)

    assert total.dtype == np.float64
    assert total.ndim == 1
    np.testing.assert_allclose(result.value(), whole.value(), rtol=1e-12)
    np.testing.assert_allclose(float(result.compute()), whole.value(), rtol=1e-6)


def test_states_must_fit():
    form = orca.MAE().get_metric()
    assert np.isnan(form.value())
    with pytest.raises(InvalidArgumentError, match=r"shape \(2,\), got \(3,\)"):
        form.load_sum(np.zeros(3))
    form(torch.ones(2), torch.zeros(2))
    assert form.state().tolist() == [2.0, 2.0]
    form.reset()
    assert form.state().tolist() == [0.0, 0.0]
