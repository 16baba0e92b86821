"""Watch a fit and end it in time: early stopping, the best checkpoint, TensorBoard, a callback of your own, a picture.

python examples/callbacks_and_tensorboard.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.learn.callbacks import Callback, EarlyStopping, LRMonitor, ModelCheckpoint, TensorBoard
from zoo.orca.learn.metrics import Accuracy
from zoo.orca.learn.pytorch import Estimator
from zoo.orca.learn.summary import read_scalar

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


class LargestWeight(Callback):
    """Adds a figure to each epoch; it runs on worker 0, beside the model."""

    rank_zero_only = True

    def on_epoch_end(self, run) -> None:
        run.figures["largest_weight"] = max(each.abs().max().item() for each in run.model.parameters())


def example(folder: Path) -> None:
    x, y = load_digits(return_X_y=True)
    train, test = (x[:1500] / 16, y[:1500]), (x[1500:] / 16, y[1500:])
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    est = Estimator.from_torch(
        model=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=0.02),
        loss=torch.nn.CrossEntropyLoss(),
        metrics=[Accuracy()],
        backend="torch_distributed",
        num_workers=2,
        model_dir=str(folder / "models"),
    )
    callbacks = [
        EarlyStopping(monitor="val_Accuracy", patience=4),
        ModelCheckpoint(every="1ep", keep_last=1, monitor="val_Accuracy"),
        TensorBoard(folder / "board"),
        LRMonitor(),
        LargestWeight(),
    ]
    print("callbacks:", *callbacks, sep="\n  ")
    est.fit(train, epochs=40, batch_size=50, validation_data=test, callbacks=callbacks)

    result = est.result_
    print("ended before epoch 40:", len(result.history) < 40)
    print("because", result.stopped)
    print("figures of an epoch:", ", ".join(result.history.columns))
    best = int(result.history["val_Accuracy"].idxmax())
    est.load(result.best_checkpoint)
    print(f"the best checkpoint is that of epoch {best}, with {est.evaluate(test)['Accuracy']:.3f} right")

    losses = read_scalar(folder / "board" / "train", "loss")
    print("steps in TensorBoard:", len(losses) == 30 * len(result.history))  # tensorboard --logdir .../board shows them
    result.plot(folder / "curves.png")
    print("a picture of", (folder / "curves.png").stat().st_size > 10_000 and "the curves")


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
