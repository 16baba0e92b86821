"""A look before the fit, then bfloat16, gradients added up over batches, and clipping: four arguments.

python examples/mixed_precision.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.learn.metrics import Accuracy
from zoo.orca.learn.pytorch import Estimator

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


def estimator(**numerics) -> Estimator:
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    return Estimator.from_torch(
        model=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=0.01),
        loss=torch.nn.CrossEntropyLoss(),
        metrics=Accuracy(),
        num_workers=2,
        **numerics,
    )


def example() -> None:
    x, y = load_digits(return_X_y=True)
    train, test = (x[:1500] / 16, y[:1500]), (x[1500:] / 16, y[1500:])

    report = estimator().check((x[:1500, :63], y[:1500]), batch_size=50)  # a column is missing
    print("would that fit start?", report.ok)
    print(next(finding for finding in report.findings if finding.level == "error").name, "is not right")
    print("would this one?", estimator().check(train, batch_size=50).ok)

    for name, numerics in {
        "float32": {},
        "bfloat16": {"precision": "bf16"},
        "two batches a step, clipped": {"precision": "bf16", "accumulate": 2, "clip_norm": 1.0, "stop_on_nan": True},
    }.items():
        est = estimator(**numerics)
        est.fit(train, epochs=10, batch_size=50)
        dtype = next(est.get_model().parameters()).dtype
        print(f"{name}: {est.evaluate(test)['Top1Accuracy']:.2f} right, weights are {dtype}")


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
