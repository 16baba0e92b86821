"""Two models of OpenVINO's own operations: an MLP over 784 numbers, and a small convolutional network over images."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.learn_data import CLASSES, PIXELS

Net = Literal["mlp", "cnn"]
SIDE = 64
SHAPES: dict[Net, tuple[int, ...]] = {"mlp": (PIXELS,), "cnn": (3, SIDE, SIDE)}
# 304 MFLOP for an image of 49 kB: the work for a byte is that of a ResNet-18 over 224 x 224 pixels.
CHANNELS = [(3, 64, 2), (64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2)]


def write_model(path: Path, net: Net) -> None:
    """An IR that takes any number of rows; what it gives is positive, so that sums can be compared."""
    if path.exists():
        return
    import openvino
    from openvino import opset13 as ops

    generator = np.random.default_rng(0)
    x = ops.parameter([-1, *SHAPES[net]], np.float32, name="x")
    hidden = _dense(ops, generator, x, PIXELS, 256) if net == "mlp" else _convolutions(ops, generator, x)
    logits = ops.matmul(hidden, _constant(ops, generator, (256, CLASSES)), False, False)
    path.parent.mkdir(parents=True, exist_ok=True)
    model = openvino.Model([ops.result(ops.softmax(logits, 1))], [x], net)
    openvino.save_model(model, str(path), compress_to_fp16=False)


def _dense(ops: Any, generator: np.random.Generator, x: Any, width: int, units: int) -> Any:
    return ops.relu(ops.matmul(x, _constant(ops, generator, (width, units)), False, False))


def _convolutions(ops: Any, generator: np.random.Generator, x: Any) -> Any:
    for into, out, stride in CHANNELS:
        kernel = _constant(ops, generator, (out, into, 3, 3))
        x = ops.relu(ops.convolution(x, kernel, [stride, stride], [1, 1], [1, 1], [1, 1]))
    return ops.reduce_mean(x, ops.constant(np.array([2, 3])), keep_dims=False)


def _constant(ops: Any, generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    scale = 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0])
    return ops.constant((generator.normal(size=shape) * scale).astype(np.float32))
