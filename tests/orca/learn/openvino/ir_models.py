"""Small models made with OpenVINO's own operations, and what numpy says of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino
from openvino import opset13 as ops

KERNELS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)


def save(path: Path, inputs: list, outputs: list, xml: str = "model.xml") -> str:
    named = [ops.result(node, name=f"out{number}") for number, node in enumerate(outputs)]
    target = path / xml
    openvino.save_model(openvino.Model(named, inputs, "model"), str(target), compress_to_fp16=False)
    return str(target)


def image_model(path: Path, batch: int | openvino.Dimension = -1, size: int = 8) -> str:
    """A 1x1 convolution, relu and a mean over pixels: [rows, 3, size, size] to [rows, 5]."""
    x = ops.parameter([batch, 3, size, size], np.float32, name="image")
    convolved = ops.convolution(x, ops.constant(KERNELS[:, :, None, None]), [1, 1], [0, 0], [0, 0], [1, 1])
    mean = ops.reduce_mean(ops.relu(convolved), ops.constant(np.array([2, 3])), keep_dims=False)
    return save(path, [x], [mean], f"image {batch}.xml")


def image_numpy(x: np.ndarray) -> np.ndarray:
    flat = x.astype(np.float32).reshape(*x.shape[:-2], 64)
    return np.maximum(KERNELS @ flat, 0).mean(axis=-1)


def dense_model(path: Path, dtype: type = np.float32) -> str:
    """[rows, 3] of any type to [rows, 2]."""
    x = ops.parameter([-1, 3], dtype, name="x")
    return save(path, [x], [ops.matmul(ops.convert(x, np.float32), ops.constant(WEIGHTS), False, False)], "dense.xml")


def dense_numpy(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) @ WEIGHTS


def table_model(path: Path) -> str:
    """Two inputs, `ids` [rows] whole numbers and `x` [rows, 3], to three outputs: [rows, 2], [rows], [rows, 1]."""
    ids = ops.parameter([-1], np.int64, name="ids")
    x = ops.parameter([-1, 3], np.float32, name="x")
    wide = ops.matmul(x, ops.constant(WEIGHTS), False, False)
    number = ops.convert(ids, np.float32)
    total = ops.add(ops.reduce_sum(x, ops.constant(np.array([1])), keep_dims=False), number)
    return save(path, [ids, x], [wide, total, ops.unsqueeze(number, ops.constant(1))], "table.xml")


def table_numpy(ids: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
    number = ids.astype(np.float32)
    return [dense_numpy(x), x.astype(np.float32).sum(axis=1) + number, number[:, None]]


def any_model(path: Path) -> str:
    """[rows, any, 2] to [rows, any, 2]: every number doubled."""
    x = ops.parameter([-1, -1, 2], np.float32, name="x")
    return save(path, [x], [ops.multiply(x, ops.constant(np.float32(2)))], "any.xml")
