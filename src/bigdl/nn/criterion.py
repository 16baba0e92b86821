"""BigDL's criterions over torch: losses of (output, target), with labels that count from 1.

>>> import numpy as np
>>> ClassNLLCriterion().forward(np.log([[0.5, 0.5], [0.25, 0.75]]), np.array([1.0, 2.0]))  # doctest: +ELLIPSIS
0.49...
"""

# ruff: noqa: E402 - what is missing is said first
from __future__ import annotations

from zoo.orca.optional import require

require("torch", "bigdl.nn.criterion")

from bigdl.nn import criterion_labels as labels
from bigdl.nn import criterion_losses as losses
from bigdl.nn.criterion_base import REQUIRED, Criterion, Losses, declare
from bigdl.nn.criterion_combined import (
    MultiCriterion,
    ParallelCriterion,
    TimeDistributedCriterion,
    TimeDistributedMaskCriterion,
    TransformerCriterion,
)
from bigdl.util import common
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.names import public_names

# The catalogue: name, what it is, the function of (output, target) and, as keywords, what the constructor takes.
# fmt: off

# Of each element.
MSECriterion = declare("MSECriterion", "The mean squared difference.", losses.squared)
AbsCriterion = declare("AbsCriterion", "The mean absolute difference.", losses.absolute, size_average=True)
SmoothL1Criterion = declare(
    "SmoothL1Criterion", "A square for differences below 1, a line beyond.", losses.smooth_l1, size_average=True)
SmoothL1CriterionWithWeights = declare(
    "SmoothL1CriterionWithWeights", "SmoothL1Criterion of a target table [target, inner weights, outer weights].",
    losses.smooth_l1_weighted, reduction="sum", sigma=REQUIRED, num=0)
BCECriterion = declare(
    "BCECriterion", "The cross entropy of probabilities and labels 0 and 1.", losses.binary_cross_entropy,
    weights=None, size_average=True)
MarginCriterion = declare(
    "MarginCriterion", "How much label * output lies below the margin, labels being 1 and -1.", losses.margin,
    margin=1.0, size_average=True, squared=False)
SoftMarginCriterion = declare(
    "SoftMarginCriterion", "log(1 + exp(-label * output)), labels being 1 and -1.", losses.soft_margin,
    size_average=True)
HingeEmbeddingCriterion = declare(
    "HingeEmbeddingCriterion", "The output where the label is 1, what it lies below the margin where it is -1.",
    losses.hinge_embedding, margin=1.0, size_average=True)
DistKLDivCriterion = declare(
    "DistKLDivCriterion", "The Kullback-Leibler divergence of log probabilities.", losses.kl_of_logs,
    size_average=True)
KullbackLeiblerDivergenceCriterion = declare(
    "KullbackLeiblerDivergenceCriterion", "The Kullback-Leibler divergence of probabilities.",
    losses.kl_of_probabilities)
PoissonCriterion = declare("PoissonCriterion", "output - target * log(output).", losses.poisson)
MeanAbsolutePercentageCriterion = declare(
    "MeanAbsolutePercentageCriterion", "The mean absolute difference in percent of the target.", losses.percentage)
MeanSquaredLogarithmicCriterion = declare(
    "MeanSquaredLogarithmicCriterion", "The mean squared difference of log(1 + value).", losses.squared_logarithmic)
L1Cost = declare("L1Cost", "The sum of the outputs' absolute values; the target is ignored.", losses.l1,
                 reduction="sum", needs_labels=False)

# Of each row.
CosineDistanceCriterion = declare(
    "CosineDistanceCriterion", "1 - the cosine between output and target.", losses.cosine_distance,
    size_average=True)
CosineProximityCriterion = declare(
    "CosineProximityCriterion", "The negative mean product of output and target, each of length 1.",
    losses.cosine_proximity)
DiceCoefficientCriterion = declare(
    "DiceCoefficientCriterion", "1 - the Dice coefficient of output and target.", losses.dice,
    size_average=True, epsilon=1.0)
DotProductCriterion = declare(
    "DotProductCriterion", "The product of output and target.", losses.dot_product, size_average=False)
PGCriterion = declare(
    "PGCriterion", "The negative policy gradient: probabilities, and rewards at the actions taken.",
    losses.policy_gradient, sizeAverage=False)
CategoricalCrossEntropy = declare(
    "CategoricalCrossEntropy", "The cross entropy of probabilities and one-hot targets.", losses.categorical)
MultiLabelSoftMarginCriterion = declare(
    "MultiLabelSoftMarginCriterion", "The cross entropy of scores and labels 0 and 1, several a row.",
    losses.multi_label_soft_margin, weights=None, size_average=True)

# Of a table of outputs.
CosineEmbeddingCriterion = declare(
    "CosineEmbeddingCriterion", "Two outputs are to be alike where the label is 1, and unlike where it is -1.",
    losses.cosine_embedding, margin=0.0, size_average=True)
MarginRankingCriterion = declare(
    "MarginRankingCriterion", "The first of two outputs is to be larger where the label is 1, smaller where it is -1.",
    losses.margin_ranking, margin=1.0, size_average=True)
L1HingeEmbeddingCriterion = declare(
    "L1HingeEmbeddingCriterion", "The L1 distance of two outputs, or what it lies below the margin.",
    losses.l1_hinge_embedding, margin=1.0)
GaussianCriterion = declare(
    "GaussianCriterion", "How unlikely the target is, given [mean, log of the variance].", losses.gaussian,
    reduction="sum")
KLDCriterion = declare(
    "KLDCriterion", "The divergence of [mean, log of the variance] from a standard normal; no target.",
    losses.kl_to_normal, needs_labels=False, size_average=True)

# Of class labels, which count from 1.
ClassNLLCriterion = declare(
    "ClassNLLCriterion", "The negative log probability of the label's class; a label of -1 is left out.",
    labels.negative_log_likelihood, counts=labels.counts_of, weights=None, size_average=True, logProbAsInput=True)
CrossEntropyCriterion = declare(
    "CrossEntropyCriterion", "ClassNLLCriterion of scores: LogSoftMax and it in one.", labels.cross_entropy,
    counts=labels.counts_of, weights=None, size_average=True)
MultiMarginCriterion = declare(
    "MultiMarginCriterion", "How much other classes come within the margin of the label's.", labels.multi_margin,
    p=1, weights=None, margin=1.0, size_average=True)
MultiLabelMarginCriterion = declare(
    "MultiLabelMarginCriterion", "MultiMarginCriterion of several labels a row, which a 0 ends.",
    labels.multi_label_margin, size_average=True)
# fmt: on


class SoftmaxWithCriterion(Criterion):
    """The cross entropy of scores (rows, classes, places ...) and a class label for each place.

    Args:
        ignore_label: a label whose places are left out.
        normalize_mode: what the sum is divided by: "VALID" places, all of them ("FULL"), "BATCH_SIZE", or "NONE".
    """

    def __init__(self, ignore_label: int | None = None, normalize_mode: str = "VALID") -> None:
        if normalize_mode not in labels.NORMALIZE_MODES:
            raise InvalidArgumentError(
                f"Expected normalize_mode to be one of {', '.join(labels.NORMALIZE_MODES)}, got {normalize_mode!r}"
            )
        self.arguments = {"ignore_label": ignore_label, "normalize_mode": normalize_mode}
        reduction = "sum" if normalize_mode == "NONE" else "mean"
        counts = labels.counts_of if normalize_mode == "VALID" else None
        self.module = Losses(labels.softmax_with_loss, reduction, dict(self.arguments), counts)


class ClassSimplexCriterion(Criterion):
    """The mean squared difference to the corner of a regular simplex that stands for the label's class."""

    def __init__(self, n_classes: int) -> None:
        if n_classes < 2:
            raise InvalidArgumentError(f"Expected n_classes to be 2 or more, got {n_classes}")
        self.arguments = {"n_classes": n_classes}
        options = {"n_classes": n_classes, "corners": labels.simplex(n_classes)}
        self.module = Losses(labels.class_simplex, "mean", options)


__all__ = [
    "Criterion",
    "AbsCriterion",
    "BCECriterion",
    "CategoricalCrossEntropy",
    "ClassNLLCriterion",
    "ClassSimplexCriterion",
    "CosineDistanceCriterion",
    "CosineEmbeddingCriterion",
    "CosineProximityCriterion",
    "CrossEntropyCriterion",
    "DiceCoefficientCriterion",
    "DistKLDivCriterion",
    "DotProductCriterion",
    "GaussianCriterion",
    "HingeEmbeddingCriterion",
    "KLDCriterion",
    "KullbackLeiblerDivergenceCriterion",
    "L1Cost",
    "L1HingeEmbeddingCriterion",
    "MSECriterion",
    "MarginCriterion",
    "MarginRankingCriterion",
    "MeanAbsolutePercentageCriterion",
    "MeanSquaredLogarithmicCriterion",
    "MultiCriterion",
    "MultiLabelMarginCriterion",
    "MultiLabelSoftMarginCriterion",
    "MultiMarginCriterion",
    "PGCriterion",
    "ParallelCriterion",
    "PoissonCriterion",
    "SmoothL1Criterion",
    "SmoothL1CriterionWithWeights",
    "SoftMarginCriterion",
    "SoftmaxWithCriterion",
    "TimeDistributedCriterion",
    "TimeDistributedMaskCriterion",
    "TransformerCriterion",
    *common.__all__,
]


# Existing code counts on the star import for these.
__getattr__ = common.brought_along(__name__)

__dir__ = public_names(globals(), common.__all__)
