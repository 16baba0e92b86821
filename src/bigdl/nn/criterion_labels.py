"""Losses of class labels, which count from 1 and come as (n,) or (n, 1) numbers, decimal ones too."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bigdl.nn.criterion_losses import TINY, like
from zoo.orca.errors import BatchError, InvalidArgumentError
from zoo.orca.learn.pytorch.loss import words

#: A label that says "leave this row out".
PADDING = -1
NORMALIZE_MODES = ("VALID", "FULL", "BATCH_SIZE", "NONE")


def classes_of(
    target: Any, shape: torch.Size, classes: int, ignored: int | None = None
) -> tuple[Tensor, Tensor | None]:
    """Labels as classes from 0 in a shape, and which of them count; None where all do.

    >>> classes_of(torch.tensor([[1.0], [3.0]]), torch.Size([2]), 3)[0].tolist()
    [0, 2]
    """
    if not isinstance(target, Tensor) or target.numel() != math.prod(shape):
        raise BatchError(
            f"Expected one class label for each of {math.prod(shape)} outputs (shape {tuple(shape)}), got "
            f"{words(target)}. Give each row one label, a number from 1 to {classes}."
        )
    labels = target.reshape(shape)
    whole = labels.long()
    if _all_are_classes(whole, labels, classes, ignored):
        return whole - 1, None
    counts = torch.ones_like(labels, dtype=torch.bool) if ignored is None else labels != ignored
    wrong = counts & ~((labels >= 1) & (labels <= classes) & (labels == labels.round()))
    if wrong.any():
        raise BatchError(_complaint(labels[counts], classes))
    return (whole - 1).where(counts, 0), counts


def _all_are_classes(whole: Tensor, labels: Tensor, classes: int, ignored: int | None) -> bool:
    """Whether there is nothing to leave out and nothing wrong, as almost ever; quick, for each step asks."""
    if not whole.numel() or (ignored is not None and 1 <= ignored <= classes):
        return False
    low, high = (each.item() for each in torch.aminmax(whole))
    return low >= 1 and high <= classes and bool((whole == labels).all())


def negative_log_likelihood(output: Tensor, target: Any, weights: Tensor | None, logProbAsInput: bool = True) -> Any:
    """Of log probabilities, or of probabilities."""
    scores = output if output.ndim > 1 else output.reshape(1, -1)
    logs = scores if logProbAsInput else scores.clamp(min=TINY).log()
    return _picked(logs, target, weights, PADDING)


def cross_entropy(output: Tensor, target: Any, weights: Tensor | None) -> Any:
    """Of scores."""
    scores = output if output.ndim > 1 else output.reshape(1, -1)
    return _picked(functional.log_softmax(scores, dim=1), target, weights, PADDING)


def softmax_with_loss(output: Tensor, target: Any, ignore_label: int | None, normalize_mode: str) -> Any:
    """Of scores at many places, (n, classes, ...); the mode says what the sum is divided by."""
    found = _picked(functional.log_softmax(output, dim=1), target, None, ignore_label)
    losses = found[0] if isinstance(found, tuple) else found
    if normalize_mode == "BATCH_SIZE":
        return losses.flatten(1).sum(1) if losses.ndim > 1 else losses
    return losses if normalize_mode in ("FULL", "NONE") else found


def multi_margin(output: Tensor, target: Any, p: int, weights: Tensor | None, margin: float) -> Tensor:
    scores = output if output.ndim > 1 else output.reshape(1, -1)
    labels, _ = classes_of(target, scores.shape[:1], scores.shape[1])
    return functional.multi_margin_loss(scores, labels, p=p, margin=margin, weight=weights, reduction="none")


def multi_label_margin(output: Tensor, target: Any) -> Tensor:
    """A row's labels stand in front; a 0 ends them."""
    scores = output if output.ndim > 1 else output.reshape(1, -1)
    wanted = like(scores, target)
    classes = scores.shape[1]
    if ((wanted < 0) | (wanted > classes) | (wanted != wanted.round())).any():
        raise BatchError(_complaint(wanted[wanted != 0], classes))
    return functional.multilabel_margin_loss(scores, wanted.long() - 1, reduction="none")


def class_simplex(output: Tensor, target: Any, n_classes: int, corners: Tensor) -> Tensor:
    """The squared distance to the corner of a regular simplex that stands for the class."""
    found = output if output.ndim > 1 else output.reshape(1, -1)
    if found.shape[1] != n_classes:
        raise BatchError(f"Expected an output of {n_classes} columns, one for each class, got {words(output)}.")
    labels, _ = classes_of(target, found.shape[:1], n_classes)
    return (found - corners.to(found)[labels]) ** 2


def simplex(n_classes: int) -> Tensor:
    """The corners of a regular simplex around 0, each of length 1: (classes, classes), the last column 0."""
    dimensions = n_classes - 1
    corners = torch.zeros(n_classes, n_classes, dtype=torch.float64)
    for each in range(dimensions):
        corners[each, each] = (1 - corners[each, :each].square().sum()).sqrt()
        # So that the cosine to every later corner is -1 / dimensions.
        done = (corners[each, :each] * corners[each + 1, :each]).sum()
        corners[each + 1 :, each] = (-1 / dimensions - done) / corners[each, each]
    return corners.float()


def counts_of(
    output: Tensor, target: Any, weights: Tensor | None = None, ignore_label: int | None = PADDING, **other: Any
) -> Tensor | None:
    """How much each label counts: its class's weight, and nothing where it is to be left out; None where all do."""
    scores = output if output.ndim > 1 else output.reshape(1, -1)
    shape = torch.Size([scores.shape[0], *scores.shape[2:]])
    return _weighed(*classes_of(target, shape, scores.shape[1], ignore_label), scores, weights)


def _picked(logs: Tensor, target: Any, weights: Tensor | None, ignored: int | None) -> Any:
    """The loss of each label, and how much each counts, unless all count alike."""
    shape = torch.Size([logs.shape[0], *logs.shape[2:]])
    labels, counts = classes_of(target, shape, logs.shape[1], ignored)
    weighed = _weighed(labels, counts, logs, weights)
    losses = functional.nll_loss(logs, labels, reduction="none")
    if weighed is None:
        return losses
    if counts is not None:
        losses = torch.where(counts, losses, 0)  # for 0 * inf is not 0
    return losses * weighed, weighed


def _weighed(labels: Tensor, counts: Tensor | None, scores: Tensor, weights: Tensor | None) -> Tensor | None:
    if weights is None:
        return None if counts is None else counts.to(scores.dtype)
    if weights.numel() != scores.shape[1]:
        raise InvalidArgumentError(f"Expected {scores.shape[1]} weights, one for each class, got {weights.numel()}.")
    weighed = weights.to(scores)[labels]
    return weighed if counts is None else counts * weighed


def _complaint(labels: Tensor, classes: int) -> str:
    found = sorted(set(labels.flatten().tolist()))
    shown = ", ".join(f"{each:g}" for each in found[:8]) + (", ..." if len(found) > 8 else "")
    return (
        f"labels are out of range: the model has {classes} outputs, so labels must be whole numbers from 1 to "
        f"{classes}, but there are {shown}. Give the model more outputs, or number the classes from 1."
    )
