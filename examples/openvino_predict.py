"""Handwritten digits through a model file of OpenVINO: an array, batches of them, and shards, on every core.

python examples/openvino_predict.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import openvino
from openvino import opset13 as ops
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.data import XShards
from zoo.orca.learn.openvino import Estimator

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


def write_model(x: np.ndarray, y: np.ndarray) -> str:
    """What scikit-learn learned, written as OpenVINO's two files."""
    learned = LogisticRegression(max_iter=200).fit(x.reshape(len(x), -1), y)
    images = ops.parameter([-1, 8, 8], np.float32, name="image")
    flat = ops.reshape(images, ops.constant(np.array([-1, 64])), False)
    weights = ops.constant(learned.coef_.T.astype(np.float32))
    scores = ops.add(ops.matmul(flat, weights, False, False), ops.constant(learned.intercept_.astype(np.float32)))
    model = openvino.Model([ops.result(ops.softmax(scores, 1), name="classes")], [images], "digits")
    openvino.save_model(model, "digits.xml", compress_to_fp16=False)
    return "digits.xml"


def example() -> None:
    x, y = load_digits(return_X_y=True)
    x = (x / 16).reshape(-1, 8, 8)
    model_path = write_model(x[:1500], y[:1500])
    print("a model in two files:", ", ".join(sorted(path.name for path in Path().glob("digits.*"))))

    est = Estimator.from_openvino(model_path=model_path)
    test, labels = x[1500:], y[1500:]  # float64, which the model's float32 is made of
    classes = est.predict(test, batch_size=32).argmax(axis=1)
    print(f"an array: {(classes == labels).mean():.2f} of {len(test)} digits right")

    batches = test[:280].reshape(7, 40, 8, 8)  # one dimension more: it counts batches, and stays
    print("batches:", est.predict(batches).shape)

    shards = est.predict(XShards.partition({"x": test, "y": labels}))
    right = sum((shard["prediction"].argmax(axis=1) == shard["y"]).sum() for shard in shards.collect())
    print(f"shards: {right / len(test):.2f} right")

    print("the first ten are read as", classes[:10].tolist())
    print("                 they are", labels[:10].tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=CONTEXTS, default="local", help="where to run (default: local)")
    init_orca_context(CONTEXTS[parser.parse_args().engine], cores=2)
    try:
        example()
    finally:
        stop_orca_context()


if __name__ == "__main__":
    main()
