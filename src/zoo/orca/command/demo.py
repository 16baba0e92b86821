"""`orca demo`: learn to read handwritten digits, data-parallel, on the engine you name.

The data is scikit-learn's digits, prepared with pandas on shards; the net is a small one in PyTorch.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.command import MODE_OF
from zoo.orca.command.engines import PACKAGE_OF
from zoo.orca.command.extras import pip_line, typed
from zoo.orca.data import SharedValue, XShards
from zoo.orca.errors import MissingPackageError
from zoo.orca.learn.metrics import Accuracy
from zoo.orca.optional import DISTRIBUTION, installed

PACKAGES = ("torch", "sklearn", "matplotlib")
WORKERS = 2
EPOCHS = 20
BATCH_SIZE = 64  # over all workers
PIXELS = [f"p{number}" for number in range(64)]


def run_demo(engine: str, output: Path) -> int:
    """Check that all is there, start the engine, run the demo and stop it again."""
    missing = [package for package in packages_for(engine) if not installed(package)]
    if missing:
        raise MissingPackageError(
            f"the demo on the {engine} engine needs {', '.join(missing)}. Type: {install_line(engine)}", name=missing[0]
        )
    init_orca_context(MODE_OF[engine], cores=WORKERS)
    try:
        demo(engine, output)
    finally:
        stop_orca_context()
    return 0


def demo(engine: str, output: Path) -> None:
    title(f"Handwritten digits on the {engine} engine")
    digits = XShards.partition(load_digits(), num_shards=4).cache()
    learn = digits.transform_shard(lambda frame: frame[~frame.held_out]).cache()
    check = digits.transform_shard(lambda frame: frame[frame.held_out]).cache()
    say(f"{len(digits)} images in {digits.num_partitions()} shards: {len(learn)} to learn from, {len(check)} held out")

    title("Pandas on every shard at once")
    say("how much of a digit's ink is in its upper half:")
    show_ink(digits)

    title(f"Training on {WORKERS} workers")
    scale = SharedValue(pixel_scale(learn))
    learn_arrays = learn.transform_shard(to_arrays, scale).cache()
    check_arrays = check.transform_shard(to_arrays, scale).cache()
    estimator = make_estimator()
    epochs = estimator.fit(learn_arrays, epochs=EPOCHS, batch_size=BATCH_SIZE, validation_data=check_arrays)
    for each in epochs[:: EPOCHS // 5]:
        say(f"epoch {each['epoch']:2}   loss {each['train_loss']:.3f}   held out {each['val_Accuracy']:.3f}")
    say(f"{EPOCHS} epochs, loss {epochs[0]['train_loss']:.3f} -> {epochs[-1]['train_loss']:.3f}")

    title("Images it has never seen")
    show_images(check.head(4), estimator.predict(check_arrays, batch_size=BATCH_SIZE))
    figures = estimator.evaluate(check_arrays, batch_size=BATCH_SIZE)
    say(f"accuracy {figures['Accuracy']:.3f} on {figures['num_samples']} held-out images")
    say(f"learning curve in {draw_curve(epochs, engine, output)}")

    title("The very same script on the other engines")
    for other in MODE_OF:
        if other != engine:
            say(command_for(other))


def packages_for(engine: str) -> list[str]:
    """The optional packages that the demo needs on an engine."""
    return [*PACKAGES, *([PACKAGE_OF[engine]] if engine in PACKAGE_OF else [])]


def install_line(engine: str) -> str:
    """What to type so that they are there."""
    extras = ",".join(["demo", *([engine] if engine in PACKAGE_OF else [])])
    return pip_line(f'pip install "{DISTRIBUTION}[{extras}]"')


def command_for(engine: str) -> str:
    """What to type for the demo on an engine, what it lacks included."""
    line = f"{typed('orca', 'zoo.orca')} demo --engine {engine}"
    return line if all(map(installed, packages_for(engine))) else f"{install_line(engine)} && {line}"


def load_digits() -> pd.DataFrame:
    """One row an image: 64 pixels, the digit, and whether it is held out."""
    from sklearn import datasets

    images, labels = datasets.load_digits(return_X_y=True)
    held_out = np.random.default_rng(0).random(len(images)) < 0.25
    return pd.DataFrame(images, columns=PIXELS).assign(digit=labels, held_out=held_out)


def pixel_scale(learn: XShards) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread of every pixel over all shards; a pixel that is always empty keeps a spread of 1."""
    facts = learn.describe()[PIXELS]
    return facts.loc["mean"].to_numpy(), facts.loc["std"].replace(0, 1).to_numpy()


def to_arrays(frame: pd.DataFrame, scale: SharedValue) -> dict[str, np.ndarray]:
    """A shard as the estimator takes it: standardised pixels and labels."""
    mean, spread = scale.value
    return {"x": (frame[PIXELS].to_numpy() - mean) / spread, "y": frame.digit.to_numpy()}


def make_estimator() -> Any:
    """A net with one hidden layer, as anybody would write it for one process, and how to train it on several."""
    import torch

    from zoo.orca.learn.pytorch import Estimator

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
    return Estimator.from_torch(
        model=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=0.005),
        loss=torch.nn.CrossEntropyLoss(),
        metrics=Accuracy(),
        backend="torch_distributed",
        num_workers=WORKERS,
    )


def show_ink(digits: XShards) -> None:
    ink = digits.transform_shard(
        lambda frame: pd.DataFrame(
            {"digit": frame.digit, "upper": frame[PIXELS[:32]].sum(axis=1), "all": frame[PIXELS].sum(axis=1)}
        )
    )
    sums = ink.groupby("digit").agg({"upper": "sum", "all": "sum"}).to_pandas()
    for digit, share in (sums.upper / sums["all"]).sort_values(ascending=False).items():
        say(f"  {digit}  {'█' * round(share * 60)} {share:.0%}")


def show_images(frame: pd.DataFrame, predicted: XShards) -> None:
    """The first held-out images in shades of grey, and what the net makes of them."""
    scores = np.concatenate([shard["prediction"] for shard in predicted.collect()])
    seen = scores[: len(frame)].argmax(axis=1)
    images = frame[PIXELS].to_numpy().reshape(-1, 8, 8) / 16
    for row in range(8):
        say("  " + "   ".join("".join(2 * " ░▒▓█"[round(value * 4)] for value in image[row]) for image in images))
    words = (f"a {digit}, read as {read}" for digit, read in zip(frame.digit, seen, strict=True))
    say("  " + "   ".join(f"{text:^16}" for text in words))


def draw_curve(epochs: list[dict[str, float]], engine: str, output: Path) -> Path:
    """Loss and held-out accuracy after every epoch, as a PNG."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # its first run speaks of its font cache
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    numbers, accuracies = [each["epoch"] for each in epochs], [each["val_Accuracy"] for each in epochs]
    figure, left = plt.subplots(figsize=(8, 4.5), layout="constrained")
    right = left.twinx()
    left.plot(numbers, [each["train_loss"] for each in epochs], color="tab:orange", linewidth=2)
    right.plot(numbers, accuracies, color="tab:blue", linewidth=2)
    left.set(xlabel="epoch", xlim=(1, len(epochs)), ylim=(0, None))
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.set_ylabel("loss on training rows", color="tab:orange")
    right.set(ylim=(0, 1.02))
    right.set_ylabel("accuracy on held-out rows", color="tab:blue")
    left.set_title(f"Digits on {WORKERS} workers of the {engine} engine: {accuracies[-1]:.1%} of held-out images right")
    left.grid(alpha=0.3)
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"learning-curve-{engine}.png"
    figure.savefig(path, dpi=120)
    return path


def title(text: str) -> None:
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}{text}{plain}", flush=True)


def say(text: str) -> None:
    print(f"  {text}", flush=True)
