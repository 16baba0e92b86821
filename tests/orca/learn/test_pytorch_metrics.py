"""The metrics on tensors, each against numpy, accumulated over calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.pytorch import pytorch_metrics
from zoo.orca.learn.pytorch.pytorch_metrics import (
    MAE,
    MSE,
    Accuracy,
    BinaryAccuracy,
    BinaryCrossEntropy,
    CategoricalAccuracy,
    CategoricalCrossEntropy,
    KLDivergence,
    Poisson,
    SparseCategoricalAccuracy,
    SparseCategoricalCrossEntropy,
    Top5Accuracy,
)

RANDOM = np.random.default_rng(1)
PROBABILITIES = RANDOM.dirichlet(np.ones(9), size=12)
LABELS = RANDOM.integers(0, 9, 12)
ONE_HOT = np.eye(9)[LABELS]
BINARY, BINARY_LABELS = RANDOM.random((12, 1)), RANDOM.integers(0, 2, (12, 1))
BINARY[0], BINARY_LABELS[0] = 0.0, 1  # a probability that must be clipped


def accumulated(metric, preds, targets, dtype=torch.float32):
    """The figure after several calls with parts of unequal size."""
    for part in (slice(0, 5), slice(5, 6), slice(6, None)):
        metric(torch.as_tensor(preds[part]).to(dtype), torch.as_tensor(targets[part]))
    return metric.compute()


def clipped(values):
    return np.clip(values, 1e-7, 1 - 1e-7)


@pytest.mark.parametrize(
    ("metric", "preds", "targets", "expected"),
    [
        (Accuracy(), PROBABILITIES, LABELS, (PROBABILITIES.argmax(1) == LABELS).mean()),
        (Accuracy(), BINARY, BINARY_LABELS, ((BINARY >= 0.5) == BINARY_LABELS).mean()),
        (Accuracy(), BINARY, BINARY_LABELS[:, 0], ((BINARY >= 0.5) == BINARY_LABELS).mean()),
        (BinaryAccuracy(), BINARY, BINARY_LABELS, ((BINARY > 0.5) == BINARY_LABELS).mean()),
        (BinaryAccuracy(), BINARY, BINARY_LABELS[:, 0], ((BINARY > 0.5) == BINARY_LABELS).mean()),
        (CategoricalAccuracy(), PROBABILITIES, ONE_HOT, (PROBABILITIES.argmax(1) == LABELS).mean()),
        (SparseCategoricalAccuracy(), PROBABILITIES, LABELS, (PROBABILITIES.argmax(1) == LABELS).mean()),
        (SparseCategoricalAccuracy(), PROBABILITIES, LABELS[:, None], (PROBABILITIES.argmax(1) == LABELS).mean()),
        (
            Top5Accuracy(),
            PROBABILITIES,
            LABELS[:, None],
            np.mean([label in row.argsort()[-5:] for row, label in zip(PROBABILITIES, LABELS, strict=True)]),
        ),
        (MSE(), PROBABILITIES, ONE_HOT, ((PROBABILITIES - ONE_HOT) ** 2).mean()),
        (MAE(), PROBABILITIES, ONE_HOT, np.abs(PROBABILITIES - ONE_HOT).mean()),
        (
            BinaryCrossEntropy(),
            BINARY,
            BINARY_LABELS,
            -np.log(np.where(BINARY_LABELS == 1, clipped(BINARY), 1 - clipped(BINARY))).mean(),
        ),
        (
            CategoricalCrossEntropy(),
            PROBABILITIES,
            ONE_HOT,
            -np.log(clipped(PROBABILITIES)[np.arange(12), LABELS]).mean(),
        ),
        (
            SparseCategoricalCrossEntropy(),
            PROBABILITIES,
            LABELS[:, None],
            -np.log(clipped(PROBABILITIES)[np.arange(12), LABELS]).mean(),
        ),
        (
            KLDivergence(),
            PROBABILITIES,
            PROBABILITIES[::-1].copy(),
            (PROBABILITIES[::-1] * np.log(PROBABILITIES[::-1] / PROBABILITIES + 1e-7)).sum(axis=1).mean(),
        ),
        (
            Poisson(),
            PROBABILITIES,
            RANDOM.poisson(2.0, (12, 9)),
            None,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, pytorch_metrics.TorchMetric) else "",
)
def test_figures(metric, preds, targets, expected):
    if expected is None:
        expected = (preds - targets * np.log(preds + 1e-7)).mean()
    figure = accumulated(metric, preds, targets)
    assert figure.ndim == 0
    assert figure.item() == pytest.approx(expected, rel=1e-5)


def test_accuracy_compares_by_rank():
    accuracy = Accuracy()
    # Torch has the classes of maps in the second dimension.
    accuracy(torch.tensor([[[0.1, 0.9], [0.9, 0.1]]]), torch.tensor([[1, 1]]))
    assert accuracy.compute() == 0.5
    accuracy(torch.tensor([[0.5, 0.4], [0.7, 0.6]]), torch.tensor([[1, 0], [0, 1]]))
    assert accuracy.value() == pytest.approx(4 / 6)
    classes = Accuracy()
    classes(torch.tensor([3, 2, 1]), torch.tensor([3, 2, 0]))
    assert classes.value() == pytest.approx(2 / 3)


def test_binary_accuracy_at_another_threshold():
    accuracy = BinaryAccuracy()
    accuracy(torch.tensor([0.3, 0.35, 0.2]), torch.tensor([1, 1, 1]), threshold=0.3)
    assert accuracy.value() == pytest.approx(1 / 3)


@pytest.mark.parametrize("metric", [MSE, MAE])
def test_errors_want_equal_shapes_and_take_integers(metric):
    with pytest.raises(RuntimeError, match=r"one shape, got \(3, 1\) and \(3,\)"):
        metric()(torch.ones(3, 1), torch.ones(3))
    whole = metric()
    whole(torch.tensor([1, 2]), torch.tensor([2, 4]))
    assert whole.value() == {MSE: 2.5, MAE: 1.5}[metric]


@pytest.mark.parametrize("metric", [Accuracy, BinaryAccuracy, SparseCategoricalAccuracy, CategoricalAccuracy])
def test_labels_that_do_not_fit(metric):
    with pytest.raises(InvalidArgumentError, match="Expected"):
        metric()(torch.rand(4, 3), torch.tensor([1, 0]))


def test_labels_out_of_range():
    with pytest.raises(InvalidArgumentError, match=r"labels from 0 to 2.* got labels from 1 to 3"):
        SparseCategoricalCrossEntropy()(torch.rand(3, 3), torch.tensor([1, 2, 3]))


def test_several_outputs_need_an_operator():
    with pytest.raises(InvalidArgumentError, match="TrainingOperator"):
        MSE()([torch.ones(2), torch.ones(2)], torch.ones(2))
    one = MSE()
    one([torch.ones(2)], [torch.zeros(2)])
    assert one.value() == 1.0


def test_gradients_are_not_kept():
    metric = MSE()
    preds = torch.ones(2, requires_grad=True)
    metric(preds, torch.zeros(2))
    assert not metric.compute().requires_grad
    assert not metric._sums.requires_grad
