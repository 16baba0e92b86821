"""A worker is killed in the middle of a fit, and then the script itself stops: both go on, to the same bit.

python examples/recover_and_resume.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.learn.callbacks import Callback
from zoo.orca.learn.pytorch import Estimator

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


class Accident(Callback):
    """Ends the process of rank 1 once, in the third step of epoch 2, as a machine that is lost would."""

    def __init__(self, marker: Path):
        self.marker = marker

    def on_step_end(self, run) -> None:
        if run.rank == 1 and (run.epoch, run.batch) == (2, 3) and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class PowerCut(Callback):
    """Ends the whole fit in epoch 3."""

    def on_step_end(self, run) -> None:
        if (run.epoch, run.batch) == (3, 5):
            raise KeyboardInterrupt("the power is gone")


def estimator(model_dir: Path | None = None) -> Estimator:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    return Estimator.from_torch(
        model=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=0.01),
        loss=torch.nn.CrossEntropyLoss(),
        num_workers=2,
        model_dir=None if model_dir is None else str(model_dir),
    )


def same(est: Estimator, other: Estimator) -> bool:
    mine, theirs = est.get_model().state_dict(), other.get_model().state_dict()
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


def example(folder: Path) -> None:
    logging.basicConfig(
        stream=sys.stdout, format="%(levelname)s: %(message)s"
    )  # what was lost, and what is done about it
    x, y = load_digits(return_X_y=True)
    data = (x / 16, y)
    undisturbed = estimator()
    undisturbed.fit(data, epochs=4, batch_size=100)

    est = estimator(folder / "one")
    est.fit(data, epochs=4, batch_size=100, checkpoint_trigger="5ba", callbacks=[Accident(folder / "happened")])
    print("workers were started again:", est.result_.restarts, "time")
    print("the same weights as undisturbed, to the bit:", same(est, undisturbed))

    est = estimator(folder / "two")
    try:
        est.fit(data, epochs=4, batch_size=100, checkpoint_trigger="5ba", callbacks=[PowerCut()])
    except KeyboardInterrupt as error:
        print("the fit ended:", error)
    est = estimator(folder / "two")  # in a new script it would be the same line
    est.fit(data, epochs=4, batch_size=100, checkpoint_trigger="5ba", resume="auto")
    print("resumed, and again the same weights:", same(est, undisturbed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=CONTEXTS, default="local", help="where to run (default: local)")
    init_orca_context(CONTEXTS[parser.parse_args().engine], cores=2)
    try:
        with tempfile.TemporaryDirectory() as folder:
            example(Path(folder))
    finally:
        stop_orca_context()


if __name__ == "__main__":
    main()
