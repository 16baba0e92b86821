"""A case for every layer: how it is made, an input, and what plain torch gives for it."""

# ruff: noqa: F405, E501 - the names are those that a star import brings, and the table reads as a list

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812 - as torch's own documents write it

from bigdl.nn.layer import *  # noqa: F403


def r(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@dataclass
class Case:
    """A layer, its input, and plain torch's answer for (tensor or list of tensors, *weights).

    Attributes:
        record: whether the layer takes one record without a batch, too.
    """

    make: Callable[[], Any]
    x: Any
    torch: Callable[..., Any]
    record: bool = False
    train: bool = True


def nhwc(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *w: function(x.permute(0, 3, 1, 2), *w).permute(0, 2, 3, 1)


def bn(x, *w):
    shape = [1, -1] + [1] * (x.dim() - 2)
    at = [each for each in range(x.dim()) if each != 1]
    mean, variance = x.mean(at, keepdim=True), x.var(at, unbiased=False, keepdim=True)
    y = (x - mean) / (variance + 1e-5).sqrt()
    return y * w[0].reshape(shape) + w[1].reshape(shape) if w else y


def lstm(x, w, b, u):
    net = torch.nn.LSTM(w.shape[1], u.shape[1], batch_first=True)
    values = {"weight_ih_l0": w, "weight_hh_l0": u, "bias_ih_l0": b, "bias_hh_l0": torch.zeros_like(b)}
    return torch.func.functional_call(net, values, (x,))[0]


def rnn(x, w, b, u, c):
    net = torch.nn.RNN(w.shape[1], u.shape[1], batch_first=True)
    values = {"weight_ih_l0": w, "weight_hh_l0": u, "bias_ih_l0": b, "bias_hh_l0": c}
    return torch.func.functional_call(net, values, (x,))[0]


def gru(x, w, b, u):
    h, size, outputs = torch.zeros(len(x), u.shape[1]), u.shape[1], []
    for t in range(x.shape[1]):
        a = x[:, t] @ w.T + b
        reset = torch.sigmoid(a[:, :size] + h @ u[:size].T)
        update = torch.sigmoid(a[:, size : 2 * size] + h @ u[size : 2 * size].T)
        new = torch.tanh(a[:, 2 * size :] + (reset * h) @ u[2 * size :].T)
        h = update * h + (1 - update) * new
        outputs.append(h)
    return torch.stack(outputs, 1)


def peephole(linear_x, linear_h, p, h):
    """An LSTM that sees its cell, with any linear maps; p: three weights, or zeros."""

    def run(x):
        hidden, cell, outputs = h, torch.zeros_like(h), []
        for t in range(x.shape[1]):
            i, f, g, o = (linear_x(x[:, t]) + linear_h(hidden)).chunk(4, 1)
            i, f = torch.sigmoid(i + p[0] * cell), torch.sigmoid(f + p[1] * cell)
            cell = f * cell + i * torch.tanh(g)
            hidden = torch.sigmoid(o + p[2] * cell) * torch.tanh(cell)
            outputs.append(hidden)
        return torch.stack(outputs, 1)

    return run


def decode(x, w, b, u):
    outputs, h, c = [], torch.zeros_like(x), torch.zeros_like(x)
    for _ in range(3):
        i, f, g, o = (x @ w.T + b + h @ u.T).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        x = h = o.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs, 1)


def local_1d(x, w, b):
    return torch.stack([x[:, 2 * f : 2 * f + 3].flatten(1) @ w[f].T + b[f] for f in range(len(w))], 1)


def local_2d(x, w, b):
    x, rows = F.pad(x, (1, 1, 0, 0)), []
    for i in range(3):
        row = [x[:, :, i : i + 3, 2 * j : 2 * j + 2].flatten(1) @ w[i * 3 + j].T for j in range(3)]
        rows.append(torch.stack(row, -1))
    return torch.stack(rows, -2) + b


def conv_map(x, w, b):
    full = torch.zeros(2, 3, 2, 3)
    for (source, target), kernel in zip([(1, 1), (2, 1), (3, 2)], w, strict=True):
        full[target - 1, source - 1] = kernel
    return F.conv2d(x, full, b)


def subtractive(x):
    inside = F.conv2d(torch.ones(1, 1, *x.shape[-2:]), torch.ones(1, 1, 3, 3), padding=1)
    mean = F.conv2d(x.mean(1, keepdim=True), torch.ones(1, 1, 3, 3), padding=1) / inside
    return x - mean


def divisive(x):
    kernel = torch.ones(1, 1, 3, 3)
    share = F.conv2d(torch.ones(1, 1, *x.shape[-2:]), kernel, padding=1) / 9
    deviation = (F.conv2d(x.square().mean(1, keepdim=True), kernel, padding=1) / 9).sqrt() / share
    return x / torch.where(deviation > 1e-4, deviation, torch.tensor(1e-4))


def resized(x):
    """From 4 x 6 to 6 x 3, each place where TensorFlow takes it from."""
    rows = []
    for i in range(6):
        y, columns = i * 4 / 6, []
        for j in range(3):
            z = j * 6 / 3
            a, b, u, v = int(y), int(z), y % 1, z % 1
            c, d = min(a + 1, 3), min(b + 1, 5)
            above = x[..., a, b] * (1 - v) + x[..., a, d] * v
            below = x[..., c, b] * (1 - v) + x[..., c, d] * v
            columns.append(above * (1 - u) + below * u)
        rows.append(torch.stack(columns, -1))
    return torch.stack(rows, -2)


def charged(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """The input, with the gradient of a penalty besides its own."""

    def run(x):
        own = x.detach().clone().requires_grad_()
        (added,) = torch.autograd.grad(function(own), own)
        x.register_hook(lambda gradient: gradient + added)
        return x * 1.0

    return run


def highway(x, w, b, wg, bg):
    t = torch.sigmoid(x @ wg.T + bg)
    return t * torch.relu(x @ w.T + b) + (1 - t) * x


def attention(x, q, k, v, o):
    weights = {
        "in_proj_weight": torch.cat([q, k, v]),
        "in_proj_bias": torch.zeros(12),
        "out_proj.weight": o,
        "out_proj.bias": torch.zeros(4),
    }
    net = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    return torch.func.functional_call(net, weights, (x[0], x[1], x[1]), {"attn_mask": x[2][0, 0]})[0]


def srelu(x, tl, al, tr, ar):
    y = torch.where(x >= tr, tr + ar * (x - tr), x)
    return torch.where((x < tr) & (x <= tl), tl + al * (x - tl), y)


def dropped(shape):
    return lambda x: x * F.dropout(torch.ones(shape), 0.5)


def residual() -> Any:
    """A graph in which one layer is used twice."""
    source, shared = Input(), Linear(3, 3)
    return Model(source, CAddTable()([shared(shared(source)), source]))


ids = np.array([[1, 3, 2], [4, 4, 1]], np.float32)
pair = [r(4, 3), r(4, 3) + 2]
image, volume = r(2, 4, 5, 6), r(2, 2, 4, 5, 6)

# fmt: off
CASES: dict[str, list[Case]] = {name: case if isinstance(case, list) else [case] for name, case in {
    "Linear": [Case(lambda: Linear(3, 2), r(4, 3), F.linear, record=True),
               Case(lambda: Linear(3, 2, with_bias=False), r(4, 3), F.linear)],
    "SparseLinear": Case(lambda: SparseLinear(3, 2, backwardStart=2, backwardLength=1), r(4, 3),
                         lambda x, w, b: F.linear(x * torch.tensor([0., 1, 0]) + (x * torch.tensor([1., 0, 1])).detach(), w, b)),
    "Bilinear": Case(lambda: Bilinear(3, 3, 2), pair, lambda x, w, b: F.bilinear(x[0], x[1], w, b)),
    "LookupTable": [Case(lambda: LookupTable(4, 5), ids, lambda x, w: F.embedding(x.long() - 1, w), record=True),
                    Case(lambda: LookupTable(4, 5, padding_value=4), ids, lambda x, w: F.embedding(x.long() - 1, w, 3)),
                    Case(lambda: LookupTable(4, 5, max_norm=0.5), ids,
                         lambda x, w: F.embedding(x.long() - 1, w.detach().renorm(2, 0, 0.5).requires_grad_() - w.detach() + w))],
    "Cosine": Case(lambda: Cosine(3, 2), r(4, 3), lambda x, w: F.cosine_similarity(x[:, None], w[None], dim=-1), record=True),
    "Euclidean": Case(lambda: Euclidean(3, 2), r(4, 3), lambda x, w: torch.cdist(x, w.T), record=True),
    "Add": Case(lambda: Add(3), r(4, 3), lambda x, b: x + b, record=True),
    "CAdd": Case(lambda: CAdd([1, 3]), r(4, 3), lambda x, b: x + b),
    "Mul": Case(lambda: Mul(), r(4, 3), lambda x, w: x * w, record=True),
    "CMul": Case(lambda: CMul([3]), r(4, 3), lambda x, w: x * w, record=True),
    "Scale": Case(lambda: Scale([1, 4, 1, 1]), image, lambda x, w, b: x * w + b),
    "AddConstant": Case(lambda: AddConstant(2.5), r(4, 3), lambda x: x + 2.5, record=True),
    "MulConstant": Case(lambda: MulConstant(2.5), r(4, 3), lambda x: x * 2.5, record=True),
    "Maxout": Case(lambda: Maxout(3, 2, 5), r(4, 3), lambda x, w, b: F.linear(x, w, b).reshape(4, 5, 2).max(1)[0], record=True),
    "Highway": Case(lambda: Highway(3, activation=ReLU()), r(4, 3), highway, record=True),

    "FeedForwardNetwork": Case(lambda: FeedForwardNetwork(3, 5, 0.2), r(4, 6, 3), lambda x, w, b, w2, b2: F.linear(
        F.dropout(F.relu(F.linear(x, w, b)), 0.2), w2, b2)),
    "Attention": Case(lambda: Attention(4, 2, 0.0), [r(3, 5, 4), r(3, 6, 4), r(1, 1, 5, 6)], attention),

    "TemporalConvolution": Case(lambda: TemporalConvolution(3, 2, 2, 2), r(4, 7, 3), record=True,
        torch=lambda x, w, b: F.conv1d(x.mT, w.reshape(2, 2, 3).permute(0, 2, 1), b, 2).mT),
    "SpatialConvolution": [
        Case(lambda: SpatialConvolution(4, 2, 3, 2, 2, 1, 1, 0), image, record=True,
             torch=lambda x, w, b: F.conv2d(x, w[0], b, (1, 2), (0, 1))),
        Case(lambda: SpatialConvolution(4, 6, 3, 2, n_group=2, with_bias=False), image,
             lambda x, w: F.conv2d(x, w.flatten(0, 1), groups=2)),
        Case(lambda: SpatialConvolution(4, 2, 3, 2, 2, 2, -1, -1), image,
             lambda x, w, b: F.conv2d(F.pad(x, (0, 1, 0, 1)), w[0], b, 2)),
        Case(lambda: SpatialConvolution(6, 2, 3, 2, 2, 1, data_format="NHWC"), image, nhwc(lambda x, w, b: F.conv2d(x, w[0], b, (1, 2))))],
    "SpatialShareConvolution": Case(lambda: SpatialShareConvolution(4, 2, 3, 2), image, lambda x, w, b: F.conv2d(x, w[0], b)),
    "SpatialDilatedConvolution": Case(lambda: SpatialDilatedConvolution(4, 2, 3, 2, 1, 2, 2, 1, 2, 3), image, record=True,
        torch=lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 2), (3, 2))),
    "SpatialFullConvolution": [
        Case(lambda: SpatialFullConvolution(4, 6, 3, 2, 2, 3, 1, 0, 1, 2, n_group=2), image, record=True,
             torch=lambda x, w, b: F.conv_transpose2d(x, w.flatten(0, 1), b, (3, 2), (0, 1), (2, 1), 2)),
        Case(lambda: SpatialFullConvolution(4, 6, 3, 2, no_bias=True), image, lambda x, w: F.conv_transpose2d(x, w[0]))],
    "SpatialSeparableConvolution": [
        Case(lambda: SpatialSeparableConvolution(4, 3, 2, 3, 2, 2, 1, 1, 0), image, record=True,
             torch=lambda x, w, p, b: F.conv2d(F.conv2d(x, w, None, (1, 2), (0, 1), groups=4), p, b)),
        Case(lambda: SpatialSeparableConvolution(6, 3, 1, 2, 2, data_format="NHWC"), image,
             nhwc(lambda x, w, p, b: F.conv2d(F.conv2d(x, w, groups=6), p, b)))],
    "SpatialConvolutionMap": Case(lambda: SpatialConvolutionMap(np.array([[1, 1], [2, 1], [3, 2]]), 3, 2), r(2, 3, 5, 6), conv_map),
    "VolumetricConvolution": Case(lambda: VolumetricConvolution(2, 3, 2, 3, 1, 1, 2, 3, 1, 0, 2), volume, record=True,
        torch=lambda x, w, b: F.conv3d(x, w, b, (1, 3, 2), (1, 2, 0))),
    "VolumetricFullConvolution": Case(lambda: VolumetricFullConvolution(2, 4, 2, 3, 1, 1, 2, 2, 1, 0, 0, 0, 1, 1, 2), volume,
        lambda x, w, b: F.conv_transpose3d(x, w.flatten(0, 1), b, (1, 2, 2), (1, 0, 0), (0, 1, 1), 2), record=True),
    "LocallyConnected1D": Case(lambda: LocallyConnected1D(7, 2, 4, 3, 2), r(3, 7, 2), local_1d, record=True),
    "LocallyConnected2D": Case(lambda: LocallyConnected2D(4, 5, 5, 3, 2, 3, 2, 1, 1, 0), r(2, 4, 5, 5), local_2d, record=True),

    "TemporalMaxPooling": [
        Case(lambda: TemporalMaxPooling(2, 3), r(4, 8, 3), lambda x: F.max_pool1d(x.mT, 2, 3).mT, record=True),
        Case(lambda: TemporalMaxPooling(-1), r(4, 8, 3), lambda x: x.max(1, keepdim=True)[0])],
    "SpatialMaxPooling": [
        Case(lambda: SpatialMaxPooling(3, 2, 2, 1, 1, 0), image, lambda x: F.max_pool2d(x, (2, 3), (1, 2), (0, 1)), record=True),
        Case(lambda: SpatialMaxPooling(2, 2, 3, 3, to_ceil=True), image, lambda x: F.max_pool2d(x, 2, 3, ceil_mode=True)),
        Case(lambda: SpatialMaxPooling(2, 2, 2, 2, -1, -1), -1 - abs(image),
             lambda x: F.max_pool2d(F.pad(x, (0, 0, 0, 1), value=-99.), 2)),
        Case(lambda: SpatialMaxPooling(2, 2, 2, 2, format="NHWC"), image, nhwc(lambda x: F.max_pool2d(x, 2)))],
    "SpatialAveragePooling": [
        Case(lambda: SpatialAveragePooling(3, 2, 2, 1, 1, 1), image, lambda x: F.avg_pool2d(x, (2, 3), (1, 2), 1), record=True),
        Case(lambda: SpatialAveragePooling(3, 2, 2, 1, 1, 1, count_include_pad=False), image,
             lambda x: F.avg_pool2d(x, (2, 3), (1, 2), 1, count_include_pad=False)),
        Case(lambda: SpatialAveragePooling(2, 2, 2, 2, ceil_mode=True), image, lambda x: F.avg_pool2d(x, 2, ceil_mode=True)),
        Case(lambda: SpatialAveragePooling(2, 2, 2, 2, divide=False), image, lambda x: 4 * F.avg_pool2d(x, 2)),
        Case(lambda: SpatialAveragePooling(1, 1, global_pooling=True), image, lambda x: x.mean((2, 3), keepdim=True)),
        Case(lambda: SpatialAveragePooling(2, 2, 2, 2, -1, -1, count_include_pad=False), image,
             lambda x: F.avg_pool2d(F.pad(x, (0, 0, 0, 1), mode="replicate"), 2)),
        Case(lambda: SpatialAveragePooling(2, 2, 2, 2, -1, -1), image, lambda x: F.avg_pool2d(F.pad(x, (0, 0, 0, 1)), 2)),
        Case(lambda: SpatialAveragePooling(2, 2, 2, 2, format="NHWC"), image, nhwc(lambda x: F.avg_pool2d(x, 2)))],
    "VolumetricMaxPooling": Case(lambda: VolumetricMaxPooling(2, 3, 1, 1, 2, 3, 1, 0, 0), volume, record=True,
        torch=lambda x: F.max_pool3d(x, (2, 1, 3), (1, 3, 2), (1, 0, 0))),
    "VolumetricAveragePooling": Case(lambda: VolumetricAveragePooling(2, 3, 1, 1, 2, 3, 1, 0, 0, False, True), volume, record=True,
        torch=lambda x: F.avg_pool3d(x, (2, 1, 3), (1, 3, 2), (1, 0, 0), True, False)),

    "BatchNormalization": [Case(lambda: BatchNormalization(3), r(5, 3), bn),
                           Case(lambda: BatchNormalization(3, affine=False), r(5, 3), bn),
                           Case(lambda: BatchNormalization(3, eps=0.1).training(False), r(5, 3), train=False, record=True,
                                torch=lambda x, w, b: x / math.sqrt(1.1) * w + b)],
    "SpatialBatchNormalization": [Case(lambda: SpatialBatchNormalization(4), image, bn),
                                  Case(lambda: SpatialBatchNormalization(6, data_format="NHWC"), image, nhwc(bn))],
    "VolumetricBatchNormalization": Case(lambda: VolumetricBatchNormalization(2), volume, bn),
    "LayerNormalization": Case(lambda: LayerNormalization(3), r(4, 3), lambda x, w, b: F.layer_norm(x, (3,), w, b, 1e-6), record=True),
    "SpatialCrossMapLRN": [
        Case(lambda: SpatialCrossMapLRN(3, 0.5, 0.7, 2.0), image, lambda x: F.local_response_norm(x, 3, 0.5, 0.7, 2.0), record=True),
        Case(lambda: SpatialCrossMapLRN(data_format="NHWC"), image, nhwc(lambda x: F.local_response_norm(x, 5, 1.0, 0.75, 1.0)))],
    "SpatialWithinChannelLRN": Case(lambda: SpatialWithinChannelLRN(3, 0.5, 0.7), image, record=True,
        torch=lambda x: x / (1 + 0.5 * F.avg_pool2d(x * x, 3, 1, 1)) ** 0.7),
    "Normalize": [Case(lambda: Normalize(2), r(4, 3), lambda x: F.normalize(x), record=True),
                  Case(lambda: Normalize(float("inf")), r(4, 3), lambda x: x / x.abs().max(1, keepdim=True)[0])],
    "NormalizeScale": Case(lambda: NormalizeScale(2, 20.0, [1, 4, 1, 1]), image, lambda x, w: F.normalize(x) * w),
    "SpatialSubtractiveNormalization": [
        Case(lambda: SpatialSubtractiveNormalization(4, np.ones((3, 3))), image, subtractive, record=True),
        Case(lambda: SpatialSubtractiveNormalization(4, np.ones(3)), image, subtractive)],
    "SpatialDivisiveNormalization": Case(lambda: SpatialDivisiveNormalization(4, np.ones((3, 3))), image, divisive, record=True),
    "SpatialContrastiveNormalization": Case(lambda: SpatialContrastiveNormalization(4, np.ones((3, 3))), image, record=True,
        torch=lambda x: divisive(subtractive(x))),

    "ReLU": Case(lambda: ReLU(), r(4, 3), F.relu, record=True),
    "ReLU6": Case(lambda: ReLU6(), 9 * r(4, 3), F.relu6, record=True),
    "PReLU": [Case(lambda: PReLU(), r(4, 3), F.prelu, record=True), Case(lambda: PReLU(4), image, F.prelu, record=True)],
    "RReLU": [Case(lambda: RReLU(0.1, 0.3), r(4, 3), lambda x: F.rrelu(x, 0.1, 0.3, True)),
              Case(lambda: RReLU(0.1, 0.3).evaluate(), r(4, 3), lambda x: F.leaky_relu(x, 0.2), train=False)],
    "LeakyReLU": Case(lambda: LeakyReLU(0.1), r(4, 3), lambda x: F.leaky_relu(x, 0.1), record=True),
    "SReLU": [Case(lambda: SReLU([3]), r(4, 3), srelu, record=True), Case(lambda: SReLU([4, 5, 6], [2, 3]), image, srelu)],
    "ELU": Case(lambda: ELU(0.5), r(4, 3), lambda x: F.elu(x, 0.5), record=True),
    "Tanh": Case(lambda: Tanh(), r(4, 3), torch.tanh, record=True),
    "TanhShrink": Case(lambda: TanhShrink(), r(4, 3), F.tanhshrink, record=True),
    "Sigmoid": Case(lambda: Sigmoid(), r(4, 3), torch.sigmoid, record=True),
    "LogSigmoid": Case(lambda: LogSigmoid(), r(4, 3), F.logsigmoid, record=True),
    "HardSigmoid": Case(lambda: HardSigmoid(), 3 * r(4, 3), lambda x: F.hardtanh(x / 5 + 0.5, 0.0, 1.0), record=True),
    "HardTanh": Case(lambda: HardTanh(-0.5, 0.7), r(4, 3), lambda x: F.hardtanh(x, -0.5, 0.7), record=True),
    "Clamp": Case(lambda: Clamp(-0.5, 0.7), r(4, 3), lambda x: x.clamp(-0.5, 0.7), record=True),
    "HardShrink": Case(lambda: HardShrink(0.4), r(4, 3), lambda x: F.hardshrink(x, 0.4), record=True),
    "SoftShrink": Case(lambda: SoftShrink(0.4), r(4, 3), lambda x: F.softshrink(x, 0.4), record=True),
    "SoftPlus": Case(lambda: SoftPlus(2.0), r(4, 3), lambda x: F.softplus(x, 2.0), record=True),
    "SoftSign": Case(lambda: SoftSign(), r(4, 3), F.softsign, record=True),
    "SoftMax": [Case(lambda: SoftMax(), r(4, 3), lambda x: F.softmax(x, 1), record=True),
                Case(lambda: SoftMax(), image, lambda x: F.softmax(x, 1), record=True)],
    "SoftMin": Case(lambda: SoftMin(), r(4, 3), lambda x: F.softmin(x, 1), record=True),
    "LogSoftMax": Case(lambda: LogSoftMax(), r(4, 3), lambda x: F.log_softmax(x, 1), record=True),
    "Threshold": Case(lambda: Threshold(0.2, 0.5), r(4, 3), lambda x: F.threshold(x, 0.2, 0.5), record=True),
    "BinaryThreshold": Case(lambda: BinaryThreshold(0.2), r(4, 3), lambda x: (x > 0.2).float(), record=True),
    "Abs": Case(lambda: Abs(), r(4, 3), torch.abs, record=True),
    "Square": Case(lambda: Square(), r(4, 3), lambda x: x * x, record=True),
    "Sqrt": Case(lambda: Sqrt(), abs(r(4, 3)), torch.sqrt, record=True),
    "Power": Case(lambda: Power(3, 2.0, 1.0), r(4, 3), lambda x: (1 + 2 * x) ** 3, record=True),
    "Exp": Case(lambda: Exp(), r(4, 3), torch.exp, record=True),
    "Log": Case(lambda: Log(), abs(r(4, 3)), torch.log, record=True),
    "Negative": Case(lambda: Negative(), r(4, 3), torch.neg, record=True),

    "Dropout": [Case(lambda: Dropout(0.3), r(4, 3), lambda x: F.dropout(x, 0.3)),
                Case(lambda: Dropout(0.3, scale=False), r(4, 3), lambda x: F.dropout(x, 0.3) * 0.7),
                Case(lambda: Dropout(0.3).evaluate(), r(4, 3), lambda x: x, record=True, train=False)],
    "GaussianDropout": Case(lambda: GaussianDropout(0.2), r(4, 3), lambda x: x * (1 + 0.5 * torch.randn(4, 3))),
    "GaussianNoise": Case(lambda: GaussianNoise(0.2), r(4, 3), lambda x: x + 0.2 * torch.randn(4, 3)),
    "SpatialDropout1D": Case(lambda: SpatialDropout1D(), r(4, 5, 3), dropped((4, 1, 3))),
    "SpatialDropout2D": [Case(lambda: SpatialDropout2D(), image, dropped((2, 4, 1, 1))),
                         Case(lambda: SpatialDropout2D(data_format="NHWC"), image, dropped((2, 1, 1, 6)))],
    "SpatialDropout3D": Case(lambda: SpatialDropout3D(), volume, dropped((2, 2, 1, 1, 1))),
    "GaussianSampler": Case(lambda: GaussianSampler(), pair, lambda x: x[0] + (x[1] / 2).exp() * torch.randn(4, 3)),

    "GradientReversal": Case(lambda: GradientReversal(0.5), r(4, 3), lambda x: 1.5 * x.detach() - 0.5 * x, record=True),
    "L1Penalty": [Case(lambda: L1Penalty(0.1), r(4, 3), charged(lambda x: 0.1 * x.abs().sum()), record=True),
                  Case(lambda: L1Penalty(0.1, True), r(4, 3), charged(lambda x: 0.1 * x.abs().mean()))],
    "ActivityRegularization": Case(lambda: ActivityRegularization(0.1, 0.2), r(4, 3),
        charged(lambda x: 0.1 * x.abs().sum() + 0.2 * x.square().sum()), record=True),
    "NegativeEntropyPenalty": Case(lambda: NegativeEntropyPenalty(0.1), abs(r(4, 3)), charged(lambda x: 0.1 * (x * x.log()).sum())),

    "RnnCell": Case(lambda: Recurrent().add(RnnCell(3, 2, Tanh())), r(4, 5, 3), rnn),
    "LSTM": [Case(lambda: Recurrent().add(LSTM(3, 2)), r(4, 5, 3), lstm),
             Case(lambda: Recurrent().add(LSTM(3, 2, activation=Tanh(), inner_activation=Sigmoid())), r(4, 5, 3), lstm)],
    "LSTMPeephole": Case(lambda: Recurrent().add(LSTMPeephole(3, 2)), r(4, 5, 3), lambda x, w, b, u, p: peephole(
        lambda y: y @ w.T + b, lambda h: h @ u.T, p, torch.zeros(4, 2))(x)),
    "GRU": Case(lambda: Recurrent().add(GRU(3, 2)), r(4, 5, 3), gru),
    "ConvLSTMPeephole": [
        Case(lambda: Recurrent().add(ConvLSTMPeephole(2, 3, 3, 3)), r(2, 3, 2, 4, 5), lambda x, w, b, u, p: peephole(
            lambda y: F.conv2d(y, w, b, padding=1), lambda h: F.conv2d(h, u, padding=1), p, torch.zeros(2, 3, 4, 5))(x)),
        Case(lambda: Recurrent().add(ConvLSTMPeephole(2, 3, 3, 3, with_peephole=False)), r(2, 3, 2, 4, 5), lambda x, w, b, u: peephole(
            lambda y: F.conv2d(y, w, b, padding=1), lambda h: F.conv2d(h, u, padding=1), [0, 0, 0], torch.zeros(2, 3, 4, 5))(x))],
    "ConvLSTMPeephole3D": Case(lambda: Recurrent().add(ConvLSTMPeephole3D(1, 2, 3, 3)), r(2, 3, 1, 2, 3, 4),
        lambda x, w, b, u, p: peephole(lambda y: F.conv3d(y, w, b, padding=1), lambda h: F.conv3d(h, u, padding=1), p,
                                       torch.zeros(2, 2, 2, 3, 4))(x)),
    "MultiRNNCell": Case(lambda: Recurrent().add(MultiRNNCell([LSTM(3, 2), GRU(2, 4)])), r(4, 5, 3),
        lambda x, w, b, u, w2, b2, u2: gru(lstm(x, w, b, u), w2, b2, u2)),
    "Recurrent": Case(lambda: Recurrent().add(LSTM(3, 2)), r(4, 1, 3), lstm),
    "BiRecurrent": [
        Case(lambda: BiRecurrent().add(GRU(3, 2)), r(4, 5, 3),
             lambda x, w, b, u, w2, b2, u2: gru(x, w, b, u) + gru(x.flip(1), w2, b2, u2).flip(1)),
        Case(lambda: BiRecurrent(SelectTable(2)).add(LSTM(3, 2)), r(4, 5, 3),
             lambda x, w, b, u, w2, b2, u2: lstm(x.flip(1), w2, b2, u2).flip(1) + 0 * (w.sum() + b.sum() + u.sum())),
        Case(lambda: BiRecurrent(JoinTable(2, 2)).add(GRU(3, 2)), r(4, 5, 3),
             lambda x, w, b, u, w2, b2, u2: torch.cat([gru(x, w, b, u), gru(x.flip(1), w2, b2, u2).flip(1)], 2))],
    "RecurrentDecoder": Case(lambda: RecurrentDecoder(3).add(LSTM(2, 2)), r(4, 2), decode),
    "TimeDistributed": Case(lambda: TimeDistributed(Linear(3, 2)), r(4, 5, 3), F.linear),

    "CAddTable": Case(lambda: CAddTable(), pair, lambda x: x[0] + x[1], record=True),
    "CSubTable": Case(lambda: CSubTable(), pair, lambda x: x[0] - x[1], record=True),
    "CMulTable": Case(lambda: CMulTable(), pair, lambda x: x[0] * x[1], record=True),
    "CDivTable": Case(lambda: CDivTable(), pair, lambda x: x[0] / x[1], record=True),
    "CMaxTable": Case(lambda: CMaxTable(), pair, lambda x: torch.maximum(*x), record=True),
    "CMinTable": Case(lambda: CMinTable(), pair, lambda x: torch.minimum(*x), record=True),
    "CAveTable": Case(lambda: CAveTable(), [*pair, r(4, 3)], lambda x: sum(x) / 3, record=True),
    "JoinTable": [Case(lambda: JoinTable(1, 1), pair, lambda x: torch.cat(x, 1), record=True),
                  Case(lambda: JoinTable(2, -1), pair, lambda x: torch.cat(x, 1))],
    "SplitTable": [Case(lambda: SplitTable(1, 1), r(4, 3), lambda x: list(x.unbind(1))),
                   Case(lambda: SplitTable(-1), r(4, 3), lambda x: list(x.unbind(1)))],
    "BifurcateSplitTable": Case(lambda: BifurcateSplitTable(2), r(4, 6), lambda x: list(x.chunk(2, 1))),
    "NarrowTable": [Case(lambda: NarrowTable(2, 2), [*pair, r(4, 3)], lambda x: x[1:]),
                    Case(lambda: NarrowTable(2, -1), [*pair, r(4, 3)], lambda x: x[1:])],
    "FlattenTable": Case(lambda: FlattenTable(), [r(4, 3), [r(4, 2), r(4, 1)]], lambda x: [x[0], *x[1]]),
    "SelectTable": [Case(lambda: SelectTable(2), pair, lambda x: x[1]), Case(lambda: SelectTable(-2), pair, lambda x: x[0])],
    "MixtureTable": [
        Case(lambda: MixtureTable(), [r(4, 2), pair], lambda x: x[0][:, :1] * x[1][0] + x[0][:, 1:] * x[1][1]),
        Case(lambda: MixtureTable(), [r(4, 2), r(4, 2, 3)], lambda x: x[0][:, :1] * x[1][:, 0] + x[0][:, 1:] * x[1][:, 1])],
    "DotProduct": Case(lambda: DotProduct(), pair, lambda x: (x[0] * x[1]).sum(1)),
    "CosineDistance": Case(lambda: CosineDistance(), pair, lambda x: F.cosine_similarity(*x)),
    "PairwiseDistance": Case(lambda: PairwiseDistance(), pair, lambda x: F.pairwise_distance(x[0], x[1], eps=0)),
    "MM": Case(lambda: MM(trans_a=True), [r(2, 3, 4), r(2, 3, 5)], lambda x: torch.bmm(x[0].mT, x[1]), record=True),
    "MV": Case(lambda: MV(trans=True), [r(2, 3, 4), r(2, 3)], lambda x: torch.einsum("bij,bi->bj", *x), record=True),
    "CrossProduct": Case(lambda: CrossProduct(3, 3), [*pair, r(4, 3)], lambda x: torch.stack(
        [(x[0] * x[1]).sum(1), (x[0] * x[2]).sum(1), (x[1] * x[2]).sum(1)], 1)),
    "Pack": Case(lambda: Pack(2), pair, lambda x: torch.stack(x, 1)),
    "MaskedSelect": Case(lambda: MaskedSelect(), [r(4, 3), (r(4, 3) > 0).astype(np.float32)], lambda x: x[0][x[1] > 0]),
    "Index": Case(lambda: Index(2), [r(4, 3), np.array([3, 1, 3], np.float32)], lambda x: x[0][:, [2, 0, 2]]),
    "TableOperation": Case(lambda: TableOperation(CMulTable()), [r(4, 3), r(4, 1)], lambda x: x[0] * x[1]),

    "Reshape": [Case(lambda: Reshape([2, 6]), r(3, 12), lambda x: x.reshape(3, 2, 6), record=True),
                Case(lambda: Reshape([2, 6]), r(1, 12), lambda x: x.reshape(1, 2, 6)),
                Case(lambda: Reshape([3, 12], batch_mode=False), r(3, 2, 6), lambda x: x.reshape(3, 12))],
    "InferReshape": [Case(lambda: InferReshape([0, 2, -1]), r(3, 12), lambda x: x.reshape(3, 2, 6)),
                     Case(lambda: InferReshape([-1, 0], True), r(3, 2, 6), lambda x: x.reshape(3, 2, 6))],
    "View": [Case(lambda: View([12]), r(3, 2, 6), lambda x: x.reshape(3, 12), record=True),
             Case(lambda: View(12), r(1, 2, 6), lambda x: x.reshape(1, 12)),
             Case(lambda: View([-1], num_input_dims=2), r(3, 2, 6), lambda x: x.reshape(3, 12), record=True),
             Case(lambda: View([-1, 4]), r(3, 2, 6), lambda x: x.reshape(9, 4))],
    "Transpose": Case(lambda: Transpose([(1, 2), (2, 3)]), r(2, 3, 4), lambda x: x.permute(1, 2, 0)),
    "Squeeze": [Case(lambda: Squeeze(2), r(4, 1, 1, 3), lambda x: x[:, 0]),
                Case(lambda: Squeeze(2, num_input_dims=3), r(4, 2, 1, 3), lambda x: x[:, :, 0], record=True),
                Case(lambda: Squeeze(), r(4, 1, 1, 3), lambda x: x[:, 0, 0])],
    "Unsqueeze": [Case(lambda: Unsqueeze(2), r(4, 3), lambda x: x[:, None]),
                  Case(lambda: Unsqueeze(2, 1), r(4, 3), lambda x: x[:, :, None], record=True)],
    "Select": [Case(lambda: Select(2, 3), r(4, 3), lambda x: x[:, 2]), Case(lambda: Select(-1, -1), r(4, 3), lambda x: x[:, 2])],
    "Narrow": [Case(lambda: Narrow(2, 2, 2), r(4, 5), lambda x: x[:, 1:3]),
               Case(lambda: Narrow(2, 2, -1), r(4, 5), lambda x: x[:, 1:]),
               Case(lambda: Narrow(2, -3, 2), r(4, 5), lambda x: x[:, 2:4])],
    "Padding": [Case(lambda: Padding(1, 2, 1, 9.0), r(4, 3), lambda x: F.pad(x, (0, 2), value=9.0), record=True),
                Case(lambda: Padding(1, -2, 1), r(4, 3), lambda x: F.pad(x, (2, 0))),
                Case(lambda: Padding(1, -1, 1, 9.0, 2), r(4, 3),
                     lambda x: torch.cat([x[:, :1], torch.full((4, 1), 9.0), x[:, 1:]], 1))],
    "SpatialZeroPadding": Case(lambda: SpatialZeroPadding(1, 2, -1, 1), image, lambda x: F.pad(x, (1, 2, -1, 1)), record=True),
    "Replicate": [Case(lambda: Replicate(3), r(4, 2), lambda x: x.expand(3, 4, 2)),
                  Case(lambda: Replicate(3, 1, 1), r(4, 2), lambda x: x[:, None].expand(4, 3, 2), record=True)],
    "ExpandSize": Case(lambda: ExpandSize([-1, 3]), r(4, 1), lambda x: x.expand(4, 3)),
    "Tile": Case(lambda: Tile(2, 3), r(4, 2), lambda x: x.repeat(1, 3)),
    "Reverse": Case(lambda: Reverse(2), r(4, 3), lambda x: x.flip(1)),
    "Contiguous": Case(lambda: Contiguous(), r(4, 3), lambda x: x, record=True),
    "Identity": Case(lambda: Identity(), r(4, 3), lambda x: x, record=True),
    "Echo": Case(lambda: Echo(), r(4, 3), lambda x: x, record=True),
    "Masking": Case(lambda: Masking(0.0), r(2, 3, 2) * np.array([[[1], [0], [1]]], np.float32),
                    lambda x: x * torch.tensor([[[1.0], [0], [1]]])),
    "Mean": [Case(lambda: Mean(2), r(4, 3), lambda x: x.mean(1)),
             Case(lambda: Mean(1, 1, False), r(4, 3), lambda x: x.mean(1, keepdim=True), record=True)],
    "Sum": [Case(lambda: Sum(2), r(4, 3), lambda x: x.sum(1)), Case(lambda: Sum(-1, size_average=True), r(4, 3), lambda x: x.mean(1))],
    "Max": Case(lambda: Max(1, 1), r(4, 3), lambda x: x.max(1)[0]),
    "Min": Case(lambda: Min(2), r(4, 3), lambda x: x.min(1)[0]),
    "ResizeBilinear": [
        Case(lambda: ResizeBilinear(6, 3), r(2, 3, 4, 6), resized, record=True),
        Case(lambda: ResizeBilinear(7, 9, True), image, lambda x: F.interpolate(x, (7, 9), mode="bilinear", align_corners=True)),
        Case(lambda: ResizeBilinear(7, 9, True, "NHWC"), image,
             nhwc(lambda x: F.interpolate(x, (7, 9), mode="bilinear", align_corners=True)))],
    "UpSampling1D": Case(lambda: UpSampling1D(2), r(4, 3, 2), lambda x: F.interpolate(x.mT, scale_factor=2).mT),
    "UpSampling2D": [Case(lambda: UpSampling2D([2, 3]), image, lambda x: F.interpolate(x, scale_factor=(2, 3)), record=True),
                     Case(lambda: UpSampling2D([2, 3], "nhwc"), image, nhwc(lambda x: F.interpolate(x, scale_factor=(2, 3))))],
    "UpSampling3D": Case(lambda: UpSampling3D([2, 3, 1]), volume, lambda x: F.interpolate(x, scale_factor=(2, 3, 1)), record=True),
    "Cropping2D": [Case(lambda: Cropping2D([1, 2], [0, 3]), image, lambda x: x[:, :, 1:3, :3], record=True),
                   Case(lambda: Cropping2D([1, 2], [0, 3], "NHWC"), image, lambda x: x[:, 1:2, :2])],
    "Cropping3D": Case(lambda: Cropping3D([1, 1], [0, 2], [3, 0]), volume, lambda x: x[:, :, 1:3, :3, 3:], record=True),

    "Sequential": Case(lambda: Sequential().add(Linear(3, 2)).add(Tanh()), r(4, 3), lambda x, w, b: torch.tanh(F.linear(x, w, b))),
    "Concat": Case(lambda: Concat(2).add(Linear(3, 2)).add(Identity()), r(4, 3),
                   lambda x, w, b: torch.cat([F.linear(x, w, b), x], 1)),
    "ConcatTable": Case(lambda: ConcatTable().add(Linear(3, 2)).add(Tanh()), r(4, 3),
                        lambda x, w, b: [F.linear(x, w, b), torch.tanh(x)]),
    "ParallelTable": Case(lambda: ParallelTable().add(Linear(3, 2)).add(Tanh()), pair,
                          lambda x, w, b: [F.linear(x[0], w, b), torch.tanh(x[1])]),
    "MapTable": [Case(lambda: MapTable(Linear(3, 2)), pair, lambda x, w, b: [F.linear(each, w, b) for each in x]),
                 Case(lambda: MapTable().add(Tanh()), pair, lambda x: [torch.tanh(each) for each in x])],
    "Bottle": Case(lambda: Bottle(Linear(3, 2)), r(4, 5, 6, 3), F.linear),
    "Model": Case(residual, r(4, 3), lambda x, w, b: F.linear(F.linear(x, w, b), w, b) + x),
}.items()}
# fmt: on
