"""The losses of elements and rows that criterions are made of: functions of (output, target, **options)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from zoo.orca.errors import BatchError
from zoo.orca.learn.pytorch.loss import words

# What Keras 1 keeps probabilities away from 0 and 1 by, and BigDL's cross entropy.
EPSILON = 1e-7
TINY = 1e-12


def like(output: Tensor, target: Any) -> Tensor:
    """The target in the output's shape: viewed so where it has as many elements, spread over columns where it is one.

    >>> like(torch.zeros(2, 2), torch.tensor([1.0, 2.0])).tolist()
    [[1.0, 1.0], [2.0, 2.0]]
    """
    if not isinstance(target, Tensor):
        raise BatchError(f"Expected a target of one tensor for an output of {words(output)}, got {words(target)}.")
    target = target.to(output.dtype)
    if target.shape == output.shape:
        return target
    if target.numel() == output.numel():
        return target.reshape(output.shape)
    if output.ndim > 1 and target.shape[:1] == output.shape[:1] and target.numel() == len(output):
        return target.reshape(-1, *[1] * (output.ndim - 1)).expand(output.shape)
    if target.numel() == 1:
        return target.reshape([1] * output.ndim).expand(output.shape)
    raise BatchError(
        f"the criterion cannot take the model's output (shape {tuple(output.shape)}) and the labels (shape "
        f"{tuple(target.shape)}): expected as many labels as outputs, or one label a row. Give the model as many "
        "outputs as a row has labels, or reshape the labels."
    )


def pair(values: Any, what: str) -> tuple[Tensor, Tensor]:
    """Two tensors of a table."""
    if not isinstance(values, list | tuple) or len(values) != 2:
        raise BatchError(f"Expected {what}: a list of two tensors, got {words(values)}.")
    return values[0], values[1]


def rows_of(losses: Tensor) -> Tensor:
    """Elements as (rows, elements of a row); one row where there is no dimension of rows."""
    return losses.reshape(1, -1) if losses.ndim < 2 else losses.flatten(1)


def squared(output: Tensor, target: Tensor) -> Tensor:
    return (output - like(output, target)) ** 2


def absolute(output: Tensor, target: Tensor) -> Tensor:
    return (output - like(output, target)).abs()


def smooth_l1(output: Tensor, target: Tensor) -> Tensor:
    return functional.smooth_l1_loss(output, like(output, target), reduction="none")


def smooth_l1_weighted(output: Tensor, target: Any, sigma: float, num: int) -> Tensor:
    """With weights inside and outside of the difference; sigma says where it turns from a square to a line."""
    if not isinstance(target, list | tuple) or len(target) != 3:
        raise BatchError(f"Expected a target of three tensors [target, inner, outer weights], got {words(target)}.")
    wanted, inner, outer = (like(output, each) for each in target)
    loss = outer * functional.smooth_l1_loss(inner * output, inner * wanted, beta=1 / sigma**2, reduction="none")
    return loss / num if num > 0 else loss


def soft_margin(output: Tensor, target: Tensor) -> Tensor:
    return functional.soft_margin_loss(output, like(output, target), reduction="none")


def margin(output: Tensor, target: Tensor, margin: float, squared: bool) -> Tensor:
    loss = (margin - like(output, target) * output).clamp(min=0)
    return loss**2 if squared else loss


def hinge_embedding(output: Tensor, target: Tensor, margin: float) -> Tensor:
    return functional.hinge_embedding_loss(output, like(output, target), margin=margin, reduction="none")


def kl_of_logs(output: Tensor, target: Tensor) -> Tensor:
    """Of log probabilities."""
    return functional.kl_div(output, like(output, target), reduction="none")


def kl_of_probabilities(output: Tensor, target: Tensor) -> Tensor:
    wanted, output = like(output, target).clamp(EPSILON, 1), output.clamp(EPSILON, 1)
    return rows_of(wanted * (wanted / output).log()).sum(1)


def poisson(output: Tensor, target: Tensor) -> Tensor:
    return output - like(output, target) * (output + EPSILON).log()


def percentage(output: Tensor, target: Tensor) -> Tensor:
    wanted = like(output, target)
    return 100 * (wanted - output).abs() / wanted.abs().clamp(min=EPSILON)


def squared_logarithmic(output: Tensor, target: Tensor) -> Tensor:
    wanted = like(output, target)
    return ((output.clamp(min=EPSILON) + 1).log() - (wanted.clamp(min=EPSILON) + 1).log()) ** 2


def binary_cross_entropy(output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    wanted = like(output, target)
    loss = -(wanted * (output + TINY).log() + (1 - wanted) * (1 - output + TINY).log())
    return loss if weights is None else loss * weights


def l1(output: Tensor, target: Any) -> Tensor:
    return output.abs()


def dice(output: Tensor, target: Tensor, epsilon: float) -> Tensor:
    wanted = rows_of(like(output, target))
    found = rows_of(output)
    both = (found * wanted).sum(1)
    return 1 - (2 * both + epsilon) / (found.sum(1) + wanted.sum(1) + epsilon)


def cosine_distance(output: Tensor, target: Tensor) -> Tensor:
    return 1 - functional.cosine_similarity(rows_of(output), rows_of(like(output, target)), eps=TINY)


def cosine_proximity(output: Tensor, target: Tensor) -> Tensor:
    wanted = functional.normalize(like(output, target), dim=-1, eps=math.sqrt(TINY))
    return -functional.normalize(output, dim=-1, eps=math.sqrt(TINY)) * wanted


def dot_product(output: Tensor, target: Tensor) -> Tensor:
    return rows_of(output * like(output, target)).sum(1)


def policy_gradient(output: Tensor, target: Tensor) -> Tensor:
    return -rows_of((output + TINY).log() * like(output, target)).sum(1)


def categorical(output: Tensor, target: Tensor) -> Tensor:
    """Of probabilities, which are brought to a sum of 1, and one-hot targets."""
    wanted = like(output, target)
    share = (output / output.sum(-1, keepdim=True)).clamp(EPSILON, 1 - EPSILON)
    return -(wanted * share.log()).sum(-1)


def multi_label_soft_margin(output: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    output = rows_of(output)
    return functional.multilabel_soft_margin_loss(output, like(output, target), weight=weights, reduction="none")


def cosine_embedding(output: Any, target: Tensor, margin: float) -> Tensor:
    first, second = (rows_of(each) for each in pair(output, "two outputs to compare"))
    signs = _signs(target, len(first))
    likeness = functional.cosine_similarity(first, second, eps=TINY)
    return torch.where(signs > 0, 1 - likeness, (likeness - margin).clamp(min=0))


def margin_ranking(output: Any, target: Tensor, margin: float) -> Tensor:
    first, second = pair(output, "two outputs to rank")
    return (margin - like(first, target) * (first - second)).clamp(min=0)


def l1_hinge_embedding(output: Any, target: Tensor, margin: float) -> Tensor:
    first, second = pair(output, "two outputs to compare")
    distance = rows_of((first - second).abs()).sum(1)
    return torch.where(_signs(target, len(distance)) > 0, distance, (margin - distance).clamp(min=0))


def gaussian(output: Any, target: Tensor) -> Tensor:
    mean, log_variance = pair(output, "a mean and the logarithm of a variance")
    exponent = (like(mean, target) - mean) ** 2 / log_variance.exp()
    return 0.5 * (math.log(2 * math.pi) + log_variance + exponent)


def kl_to_normal(output: Any, target: Any) -> Tensor:
    mean, log_variance = pair(output, "a mean and the logarithm of a variance")
    return 0.5 * rows_of(mean**2 + log_variance.exp() - 1 - log_variance).sum(1)


def _signs(target: Any, rows: int) -> Tensor:
    """Labels 1 and -1, one a row."""
    if isinstance(target, list | tuple) and len(target) == 1:  # Torch7's table of one
        target = target[0]
    if not isinstance(target, Tensor) or target.numel() not in (1, rows):
        raise BatchError(f"Expected a label of 1 or -1 for each of {rows} rows, got {words(target)}.")
    return target.reshape(-1).expand(rows)
