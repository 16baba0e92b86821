"""bigdl.nn.criterion: every criterion against plain torch, in value and in gradient, and what it says to bad input."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from torch.nn import functional

from bigdl.nn import criterion as bigdl
from bigdl.nn.criterion import *  # noqa: F403 - what existing code does
from bigdl.nn.criterion import (
    AbsCriterion,
    BCECriterion,
    ClassNLLCriterion,
    Criterion,
    CrossEntropyCriterion,
    L1Cost,
    MSECriterion,
    MultiCriterion,
    ParallelCriterion,
    SoftmaxWithCriterion,
    TimeDistributedCriterion,
    TimeDistributedMaskCriterion,
    TransformerCriterion,
)
from bigdl.util import common
from zoo.orca.errors import BatchError, InvalidArgumentError

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(4, 3)).astype(np.float32)
OTHER = RNG.normal(size=(4, 3)).astype(np.float32)
SHARES = (np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)).astype(np.float32)
OTHER_SHARES = (np.exp(OTHER) / np.exp(OTHER).sum(1, keepdims=True)).astype(np.float32)
LOGS = np.log(SHARES)
SIGNS = np.array([[1.0], [-1.0], [-1.0], [1.0]], np.float32)
SIGN_TABLE = np.sign(OTHER)
BITS = (OTHER > 0).astype(np.float32)
CLASSES = np.array([[1.0], [3.0], [2.0], [3.0]], np.float32)  # from 1, a column, as NNFrames gives them
INDEX = torch.tensor([0, 2, 1, 2])
WEIGHTS = np.array([1.0, 2.0, 0.5], np.float32)
SEVERAL = np.array([[2, 1, 0], [3, 0, 0], [1, 2, 3], [0, 0, 0]], np.float32)
STEPS = RNG.normal(size=(2, 5, 3)).astype(np.float32)
STEP_CLASSES = np.array([[1, 2, 3, 0, 0], [3, 3, 1, 2, 0]], np.float32)


def _made(name, *arguments, **options):
    return getattr(bigdl, name)(*arguments, **options)


def _simplex(output, target):
    """Three classes: the corners of an equilateral triangle."""
    half = math.sqrt(3) / 2
    corners = torch.tensor([[1.0, 0.0, 0.0], [-0.5, half, 0.0], [-0.5, -half, 0.0]])
    return functional.mse_loss(output, corners[target.long().flatten() - 1])


def _steps(output, target):
    return sum(functional.nll_loss(output[:, step], target[:, step].long() - 1) for step in range(output.shape[1]))


def _masked(output, target):
    return functional.nll_loss(output.flatten(0, 1), target.flatten().long() - 1, ignore_index=-1)


def _smooth(output, target):
    wanted, inner, outer = target
    return (outer * functional.smooth_l1_loss(inner * output, inner * wanted, beta=0.25, reduction="none")).sum() / 2


# name -> criterion, output, target, the same loss in plain torch.
CASES = {
    "MSECriterion": (_made("MSECriterion"), SCORES, OTHER, functional.mse_loss),
    "AbsCriterion": (_made("AbsCriterion", False), SCORES, OTHER, lambda o, t: (o - t).abs().sum()),
    "SmoothL1Criterion": (_made("SmoothL1Criterion"), SCORES, OTHER, functional.smooth_l1_loss),
    "SmoothL1CriterionWithWeights": (
        _made("SmoothL1CriterionWithWeights", 2.0, 2),
        SCORES,
        [OTHER, BITS, SHARES],
        _smooth,
    ),
    "BCECriterion": (
        _made("BCECriterion", WEIGHTS),
        SHARES,
        BITS,
        lambda o, t: functional.binary_cross_entropy(o, t, torch.tensor(WEIGHTS)),
    ),
    "MarginCriterion": (
        _made("MarginCriterion", 0.5, squared=True),
        SCORES,
        SIGN_TABLE,
        lambda o, t: functional.relu(0.5 - o * t).square().mean(),
    ),
    "SoftMarginCriterion": (_made("SoftMarginCriterion"), SCORES, SIGN_TABLE, functional.soft_margin_loss),
    "HingeEmbeddingCriterion": (
        _made("HingeEmbeddingCriterion", 2.0),
        SCORES,
        SIGN_TABLE,
        lambda o, t: functional.hinge_embedding_loss(o, t, margin=2.0),
    ),
    "DistKLDivCriterion": (
        _made("DistKLDivCriterion"),
        LOGS,
        OTHER_SHARES,
        lambda o, t: functional.kl_div(o, t, reduction="none").mean(),
    ),
    "KullbackLeiblerDivergenceCriterion": (
        _made("KullbackLeiblerDivergenceCriterion"),
        SHARES,
        OTHER_SHARES,
        lambda o, t: functional.kl_div(o.log(), t, reduction="batchmean"),
    ),
    "PoissonCriterion": (
        _made("PoissonCriterion"),
        SHARES,
        BITS,
        lambda o, t: functional.poisson_nll_loss(o, t, log_input=False, eps=1e-7),
    ),
    "MeanAbsolutePercentageCriterion": (
        _made("MeanAbsolutePercentageCriterion"),
        SCORES,
        OTHER,
        lambda o, t: 100 * ((t - o) / t).abs().mean(),
    ),
    "MeanSquaredLogarithmicCriterion": (
        _made("MeanSquaredLogarithmicCriterion"),
        SHARES,
        OTHER_SHARES,
        lambda o, t: functional.mse_loss(o.log1p(), t.log1p()),
    ),
    "L1Cost": (_made("L1Cost"), SCORES, OTHER, lambda o, t: o.abs().sum()),
    "CosineDistanceCriterion": (
        _made("CosineDistanceCriterion"),
        SCORES,
        OTHER,
        lambda o, t: (1 - functional.cosine_similarity(o, t)).mean(),
    ),
    "CosineProximityCriterion": (
        _made("CosineProximityCriterion"),
        SCORES,
        OTHER,
        lambda o, t: -functional.cosine_similarity(o, t).sum() / o.numel(),
    ),
    "DiceCoefficientCriterion": (
        _made("DiceCoefficientCriterion"),
        SHARES,
        BITS,
        lambda o, t: (1 - (2 * (o * t).sum(1) + 1) / (o.sum(1) + t.sum(1) + 1)).mean(),
    ),
    "DotProductCriterion": (_made("DotProductCriterion"), SCORES, OTHER, lambda o, t: (o * t).sum()),
    "PGCriterion": (_made("PGCriterion", sizeAverage=True), SHARES, BITS, lambda o, t: -(o.log() * t).sum(1).mean()),
    "CategoricalCrossEntropy": (
        _made("CategoricalCrossEntropy"),
        SHARES,
        np.eye(3, dtype=np.float32)[INDEX.numpy()],
        # The shares are brought to a sum of 1 first.
        lambda o, t: functional.nll_loss((o / o.sum(1, keepdim=True)).log(), t.argmax(1)),
    ),
    "MultiLabelSoftMarginCriterion": (
        _made("MultiLabelSoftMarginCriterion", WEIGHTS),
        SCORES,
        BITS,
        lambda o, t: functional.multilabel_soft_margin_loss(o, t, torch.tensor(WEIGHTS)),
    ),
    "CosineEmbeddingCriterion": (
        _made("CosineEmbeddingCriterion", 0.1),
        [SCORES, OTHER],
        SIGNS,
        lambda o, t: functional.cosine_embedding_loss(o[0], o[1], t.flatten(), margin=0.1),
    ),
    "MarginRankingCriterion": (
        _made("MarginRankingCriterion"),
        [SCORES[:, :1], OTHER[:, :1]],
        SIGNS,
        lambda o, t: functional.margin_ranking_loss(o[0], o[1], t, margin=1.0),
    ),
    "L1HingeEmbeddingCriterion": (
        _made("L1HingeEmbeddingCriterion", 3.0),
        [SCORES, OTHER],
        SIGNS,
        lambda o, t: functional.hinge_embedding_loss((o[0] - o[1]).abs().sum(1), t.flatten(), margin=3.0),
    ),
    "GaussianCriterion": (
        _made("GaussianCriterion"),
        [SCORES, SHARES],
        OTHER,
        lambda o, t: -torch.distributions.Normal(o[0], (o[1] / 2).exp()).log_prob(t).sum(),
    ),
    "KLDCriterion": (
        _made("KLDCriterion"),
        [SCORES, SHARES],
        OTHER,
        lambda o, t: (
            torch.distributions.kl_divergence(
                torch.distributions.Normal(o[0], (o[1] / 2).exp()), torch.distributions.Normal(0.0, 1.0)
            )
            .sum(1)
            .mean()
        ),
    ),
    "ClassNLLCriterion": (
        _made("ClassNLLCriterion", WEIGHTS),
        LOGS,
        CLASSES,
        lambda o, t: functional.nll_loss(o, INDEX, torch.tensor(WEIGHTS)),
    ),
    "CrossEntropyCriterion": (
        _made("CrossEntropyCriterion", size_average=False),
        SCORES,
        CLASSES.flatten(),
        lambda o, t: functional.cross_entropy(o, INDEX, reduction="sum"),
    ),
    "MultiMarginCriterion": (
        _made("MultiMarginCriterion", 2, WEIGHTS, 0.5),
        SCORES,
        CLASSES,
        lambda o, t: functional.multi_margin_loss(o, INDEX, 2, 0.5, torch.tensor(WEIGHTS)),
    ),
    "MultiLabelMarginCriterion": (
        _made("MultiLabelMarginCriterion"),
        SCORES,
        SEVERAL,
        lambda o, t: functional.multilabel_margin_loss(o, t.long() - 1),
    ),
    "SoftmaxWithCriterion": (
        _made("SoftmaxWithCriterion", ignore_label=0),
        STEPS.transpose(0, 2, 1),
        STEP_CLASSES,
        lambda o, t: functional.cross_entropy(o, t.long() - 1, ignore_index=-1),
    ),
    "ClassSimplexCriterion": (_made("ClassSimplexCriterion", 3), SCORES, CLASSES, _simplex),
    "MultiCriterion": (
        MultiCriterion().add(MSECriterion(), 0.5).add(AbsCriterion()),
        SCORES,
        OTHER,
        lambda o, t: 0.5 * functional.mse_loss(o, t) + functional.l1_loss(o, t),
    ),
    "ParallelCriterion": (
        ParallelCriterion().add(ClassNLLCriterion()).add(MSECriterion(), 2.0),
        [LOGS, SCORES],
        [CLASSES, OTHER],
        lambda o, t: functional.nll_loss(o[0], INDEX) + 2 * functional.mse_loss(o[1], t[1]),
    ),
    "TimeDistributedCriterion": (
        TimeDistributedCriterion(ClassNLLCriterion()),
        STEPS[:, :3],
        STEP_CLASSES[:, :3],
        _steps,
    ),
    "TimeDistributedMaskCriterion": (
        TimeDistributedMaskCriterion(ClassNLLCriterion(), padding_value=0),
        STEPS,
        STEP_CLASSES,
        _masked,
    ),
    "TransformerCriterion": (
        TransformerCriterion(MSECriterion(), torch.nn.Tanh(), torch.nn.Sigmoid()),
        SCORES,
        OTHER,
        lambda o, t: functional.mse_loss(o.tanh(), t.sigmoid()),
    ),
}


def _tensors(values, needs_gradient=False):
    if isinstance(values, list):
        return [_tensors(each, needs_gradient) for each in values]
    return torch.tensor(values, requires_grad=needs_gradient)


def test_every_criterion_has_a_case_and_there_are_thirty_and_more():
    ours = {name for name in bigdl.__all__ if name not in common.__all__} - {"Criterion"}
    assert ours == CASES.keys()
    assert len(ours) > 30
    assert all(issubclass(getattr(bigdl, name), Criterion) for name in ours)


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_are_torchs(name):
    criterion, output, target, plain = CASES[name]
    leaves = _tensors(output, needs_gradient=True)
    loss = plain(leaves, _tensors(target))
    loss.backward()
    assert criterion.forward(output, target) == pytest.approx(loss.item(), rel=1e-5)
    gradients = criterion.backward(output, target)
    for found, leaf in zip(
        gradients if isinstance(output, list) else [gradients],
        leaves if isinstance(output, list) else [leaves],
        strict=True,
    ):
        wanted = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_batches_add_up_by_their_denominators(name):
    """What ranks do: a mean over all rows from the means over some, a sum from sums."""
    criterion, output, target, _ = CASES[name]
    module = pickle.loads(pickle.dumps(criterion)).module

    def of(rows):
        return [_tensors([each[rows] for each in side] if isinstance(side, list) else side[rows]) for side in
                (output, target)]  # fmt: skip

    def rows_in(side):
        return len(side[0] if isinstance(side, list) else side)

    total = divisor = 0.0
    for rows in (slice(0, 1), slice(1, None)):
        part = of(rows)
        if module.reduction == "sum":
            total, divisor = total + float(module(*part)), 1.0
        else:
            counted = module.denominator(*part)
            by = rows_in(part[0]) if counted is None else counted
            total, divisor = total + float(module(*part)) * by, divisor + by
    assert total / divisor == pytest.approx(float(module(*of(slice(None)))), rel=1e-4)


def test_labels_come_in_any_of_their_forms():
    one = ClassNLLCriterion().forward(LOGS, CLASSES)
    assert ClassNLLCriterion().forward(LOGS, CLASSES.flatten()) == one
    assert ClassNLLCriterion().forward(LOGS, CLASSES.astype(np.int64)) == one
    assert ClassNLLCriterion(logProbAsInput=False).forward(SHARES, CLASSES) == pytest.approx(one, rel=1e-5)
    assert ClassNLLCriterion().forward(LOGS[1], 3.0) == pytest.approx(-LOGS[1, 2])
    # A row whose label is -1 does not count, and neither does its gradient.
    padded = np.where(CLASSES == 2, -1, CLASSES)
    kept = [0, 1, 3]
    assert ClassNLLCriterion().forward(LOGS, padded) == pytest.approx(
        ClassNLLCriterion().forward(LOGS[kept], CLASSES[kept])
    )
    assert ClassNLLCriterion().backward(LOGS, padded)[2].tolist() == [0, 0, 0]
    assert ClassNLLCriterion().forward(LOGS[:1], np.array([-1.0])) == 0


def test_one_label_a_row_is_spread_over_the_outputs():
    output, label = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0], [2.0]])
    assert MSECriterion().forward(output, label) == pytest.approx((0 + 1 + 1 + 4) / 4)
    assert MSECriterion().forward(output, label.flatten()) == MSECriterion().forward(output, label)
    assert MSECriterion().forward(output, np.ones(4)) == pytest.approx((0 + 1 + 4 + 9) / 4)
    with pytest.raises(BatchError, match=r"output \(shape \(2, 2\)\) and the labels \(shape \(3,\)\)"):
        MSECriterion().forward(output, np.ones(3))


@pytest.mark.parametrize("labels", [[0.0, 1.0], [1.0, 4.0], [1.5, 2.0]])
@pytest.mark.parametrize("criterion", [ClassNLLCriterion(), CrossEntropyCriterion(), _made("MultiMarginCriterion")])
def test_a_label_outside_the_classes_is_named(criterion, labels):
    wrong = f"{labels[1] if labels[0] == 1 else labels[0]:g}"
    with pytest.raises(BatchError, match=f"from 1 to 3, but there are .*{wrong}"):
        criterion.forward(LOGS[:2], np.array(labels))


def test_a_misspelt_argument_is_answered_with_the_right_spelling():
    with pytest.raises(TypeError, match=r"no argument 'sizeAverage'. Did you mean size_average=False\?"):
        AbsCriterion(sizeAverage=False)
    with pytest.raises(InvalidArgumentError, match=r"missing a required argument: 'n_classes'.*\(n_classes\)"):
        _made("ClassSimplexCriterion")
    with pytest.raises(TypeError, match="TimeDistributedCriterion has no argument 'dimensions'"):
        TimeDistributedCriterion(MSECriterion(), dimensions=2)
    assert BCECriterion(None, True, bigdl_type="float").arguments == {"weights": None, "size_average": True}


def test_what_does_not_fit_is_refused_in_words():
    for wrong, message in [
        (lambda: _made("CosineEmbeddingCriterion").forward(SCORES, SIGNS), "a list of two tensors"),
        (lambda: ParallelCriterion().add(MSECriterion()).forward([SCORES, SCORES], [OTHER]), "a list of 1 outputs"),
        (lambda: MultiCriterion().forward(SCORES, OTHER), "no criterion yet"),
        (lambda: MultiCriterion().add("mse"), "Expected a criterion"),
        (lambda: ClassNLLCriterion(WEIGHTS[:2]).forward(LOGS, CLASSES), "3 weights, one for each class, got 2"),
        (lambda: SoftmaxWithCriterion(normalize_mode="valid"), "one of VALID, FULL"),
        (lambda: TimeDistributedCriterion(MSECriterion()).forward(STEPS, STEPS[:, :2]), "as many time steps"),
        (lambda: ClassNLLCriterion().forward(LOGS, OTHER), "one class label for each of 4 outputs"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message):
            wrong()


def test_softmax_divides_by_what_its_mode_says():
    output, target = STEPS.transpose(0, 2, 1), STEP_CLASSES
    total = SoftmaxWithCriterion(0, "NONE").forward(output, target)
    assert SoftmaxWithCriterion(0, "VALID").forward(output, target) == pytest.approx(total / 7)
    assert SoftmaxWithCriterion(0, "FULL").forward(output, target) == pytest.approx(total / 10)
    assert SoftmaxWithCriterion(0, "BATCH_SIZE").forward(output, target) == pytest.approx(total / 2)


def test_a_class_may_be_the_one_that_is_left_out():
    output, target = torch.from_numpy(STEPS.transpose(0, 2, 1)), torch.from_numpy(STEP_CLASSES).clamp(min=1).long()
    wanted = functional.cross_entropy(output, target - 1, ignore_index=1)
    found = SoftmaxWithCriterion(ignore_label=2).forward(output.numpy(), target.numpy())
    assert found == pytest.approx(float(wanted), rel=1e-5)


def test_the_star_import_brings_what_code_counts_on():
    names = ["MSECriterion", "ClassNLLCriterion", "np", "Sample", "JTensor", "create_tmp_path", "SQLContext"]
    assert [name for name in names if name not in globals()] == []
    assert globals()["L1Cost"] is L1Cost
    assert "size_average=True" in repr(AbsCriterion())
