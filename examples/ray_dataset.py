"""A Ray Dataset in, a Ray Dataset out: prepared by Ray, trained on where its blocks lie, predicted block by block.

python examples/ray_dataset.py --engine ray
"""

from __future__ import annotations

import argparse
import logging

import numpy as np
import torch
from sklearn.datasets import load_digits

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.learn.metrics import Accuracy
from zoo.orca.learn.pytorch import Estimator

CONTEXTS = {"ray": "ray"}


def example() -> None:
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)  # it tells of every plan it runs
    ray.data.DataContext.get_current().enable_progress_bars = False
    ray.data.DataContext.get_current().execution_options.preserve_order = True  # rows stay where they were
    x, y = load_digits(return_X_y=True)
    digits = ray.data.from_items([{"pixels": row, "digit": int(label)} for row, label in zip(x, y, strict=True)])
    digits = digits.map_batches(lambda batch: batch | {"pixels": (batch["pixels"] / 16).astype(np.float32)})
    train, test = digits.split_at_indices([1500])

    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    est = Estimator.from_torch(
        model=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=0.01),
        loss=torch.nn.CrossEntropyLoss(),
        metrics=Accuracy(),
        num_workers=2,
    )
    est.fit(train, epochs=8, batch_size=50, feature_cols=["pixels"], label_cols=["digit"])
    accuracy = est.evaluate(test, feature_cols=["pixels"], label_cols=["digit"])["Top1Accuracy"]
    print("more than nine of ten held-out digits right:", accuracy > 0.9)

    predicted = est.predict(test, feature_cols=["pixels"])  # computed when it is used
    print("columns:", ", ".join(predicted.columns()))
    first = predicted.take(10)
    print("the first ten are read as", [int(np.argmax(row["prediction"])) for row in first])
    print("                 they are", [row["digit"] for row in first])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=CONTEXTS, default="ray", help="where to run (default: ray)")
    init_orca_context(CONTEXTS[parser.parse_args().engine], cores=2)
    try:
        example()
    finally:
        stop_orca_context()


if __name__ == "__main__":
    main()
