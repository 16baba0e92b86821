"""Functions behind the layers that change values one by one, add noise, or change the gradient alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as fn

from zoo.orca.errors import BatchError


def record_axis(x: Tensor) -> int:
    """The dimension of classes or channels: the first of one record, the second of a batch."""
    return 0 if x.dim() in (1, 3) else 1


def softmax(x: Tensor) -> Tensor:
    return fn.softmax(x, record_axis(x))


def log_softmax(x: Tensor) -> Tensor:
    if x.dim() == 3:  # a batch of sequences, most likely, whose records must not be mixed
        raise BatchError(
            f"LogSoftMax takes (classes,) or (batch, classes), got {tuple(x.shape)}. For sequences, type: "
            "TimeDistributed(LogSoftMax())"
        )
    return fn.log_softmax(x, record_axis(x))


def softmin(x: Tensor) -> Tensor:
    return fn.softmin(x, record_axis(x))


def normalize(x: Tensor, p: float, eps: float) -> Tensor:
    at = 0 if x.dim() == 1 else 1
    if p == float("inf"):
        return x / (x.abs().amax(at, keepdim=True) + eps)
    return x / (x.abs().pow(p).sum(at, keepdim=True) + eps).pow(1 / p)


def dropout(x: Tensor, init_p: float, scale: bool, training: bool) -> Tensor:
    dropped = fn.dropout(x, init_p, training)
    return dropped * (1 - init_p) if training and not scale else dropped


def dropout_channels(x: Tensor, p: float, channel: int, record_dims: int, training: bool) -> Tensor:
    """Drop whole channels; `channel` counts among the dimensions of a record, from 0."""
    if not training or p == 0:
        return x
    first = x.dim() - record_dims
    shape = [side if each < first or each == first + channel else 1 for each, side in enumerate(x.shape)]
    return x * fn.dropout(x.new_ones(shape), p)


def dropout_1d(x: Tensor, init_p: float, training: bool) -> Tensor:
    return dropout_channels(x, init_p, 1, 2, training)


def dropout_2d(x: Tensor, init_p: float, data_format: str, training: bool) -> Tensor:
    return dropout_channels(x, init_p, 0 if data_format.upper() == "NCHW" else 2, 3, training)


def dropout_3d(x: Tensor, init_p: float, data_format: str, training: bool) -> Tensor:
    return dropout_channels(x, init_p, 0 if data_format.upper() in ("NCHW", "NCDHW") else 3, 4, training)


def gaussian_dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    return x * (1 + (rate / (1 - rate)) ** 0.5 * torch.randn_like(x)) if training else x


def gaussian_noise(x: Tensor, stddev: float, training: bool) -> Tensor:
    return x + stddev * torch.randn_like(x) if training else x


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        ctx.rate = rate
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return -ctx.rate * gradient, None


def reverse_gradient(x: Tensor, the_lambda: float) -> Tensor:
    return _Reverse.apply(x, the_lambda)


class _Charge(torch.autograd.Function):
    """The input as it is; its gradient grows by that of a penalty on the input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kind: str, rates: tuple[float, float], keeps: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.kind, ctx.rates, ctx.keeps = kind, rates, keeps
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        first, second = ctx.rates
        added = first * (x.log() + 1) if ctx.kind == "entropy" else first * x.sign() + second * x
        return (gradient + added if ctx.keeps else added), None, None, None


def l1_penalty(x: Tensor, l1weight: float, size_average: bool, provide_output: bool) -> Tensor:
    rate = l1weight / x.numel() if size_average else l1weight
    return _Charge.apply(x, "values", (rate, 0.0), provide_output)


def activity(x: Tensor, l1: float, l2: float, training: bool) -> Tensor:
    return _Charge.apply(x, "values", (l1, 2 * l2), True) if training else x


def negative_entropy(x: Tensor, beta: float, training: bool) -> Tensor:
    return _Charge.apply(x, "entropy", (beta, 0.0), True) if training else x
