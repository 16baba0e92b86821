"""Handwritten digits in numpy arrays: a net in PyTorch, trained on two workers.

python examples/digits_on_arrays.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.learn.metrics import Accuracy
from zoo.orca.learn.pytorch import Estimator

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


def example() -> None:
    x, y = load_digits(return_X_y=True)
    x = x / 16
    train, test = slice(0, 1500), slice(1500, None)

    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    est = Estimator.from_torch(
        model=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=0.01),
        loss=torch.nn.CrossEntropyLoss(),
        metrics=Accuracy(),
        num_workers=2,
    )
    est.fit((x[train], y[train]), epochs=10, batch_size=50)
    print("held out:", {name: round(value, 3) for name, value in est.evaluate((x[test], y[test])).items()})

    read = est.predict(x[test], batch_size=100).argmax(axis=1)
    print("the first ten are read as", read[:10].tolist())
    print("                 they are", y[test][:10].tolist())
    print("digit most often misread:", int(np.bincount(y[test][read != y[test]], minlength=10).argmax()))


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
