"""Learn to read handwritten digits, data-parallel, on the engine you name.

    python examples/demo.py --engine local      # or spark, or ray

The data is scikit-learn's digits. The net is plain numpy, so that everything that happens can be read here.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.context import current_engine
from zoo.orca.data import SharedValue, XShards
from zoo.orca.engine.gang import GangOptions, run_gang

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}
WORKERS = 2
EPOCHS = 30
STEPS = 12  # in an epoch
HIDDEN = 32
LEARNING_RATE = 0.2
PIXELS = [f"p{number}" for number in range(64)]


def main() -> None:
    options = parse_arguments()
    init_orca_context(CONTEXTS[options.engine], cores=WORKERS)
    try:
        demo(options.engine, options.output)
    finally:
        stop_orca_context()


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
    rounds = train(learn.transform_shard(to_arrays, scale))
    losses = [loss for loss, _ in rounds]
    say(f"{EPOCHS} epochs, loss {losses[0]:.3f} -> {losses[-1]:.3f}")

    title("Images it has never seen")
    accuracies = evaluate(check.transform_shard(to_arrays, scale), [weights for _, weights in rounds])
    show_images(check.head(4), rounds[-1][1], scale)
    say(f"accuracy {accuracies[-1]:.3f} on {len(check)} held-out images")
    say(f"learning curve in {draw_curve(losses, accuracies, engine, output)}")

    title("The very same script on the other engines")
    for other in CONTEXTS:
        if other != engine:
            say(f"make demo ENGINE={other}")


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
    """A shard as the net takes it: standardised pixels and labels."""
    mean, spread = scale.value
    return {"x": (frame[PIXELS].to_numpy() - mean) / spread, "y": frame.digit.to_numpy()}


def train(shards: XShards) -> list[tuple[float, list[np.ndarray]]]:
    """Run `learn_together` on all workers at once; every rank ends with the same weights, so the first will do."""
    bar = GangOptions(description="  training")
    return run_gang(current_engine(), learn_together, WORKERS, data=shards.placement, options=bar)[0]


def learn_together(worker) -> list[tuple[float, list[np.ndarray]]]:
    """What each worker runs: its own rows, the gradients of all. Gives (loss, weights) after every epoch."""
    shards = [shard for _, shard in worker.shards]
    x, y = (np.concatenate([shard[key] for shard in shards]) for key in "xy")
    weights = first_weights()
    rounds = []
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(len(x))
        epoch_loss = epoch_rows = 0.0
        for mine in np.array_split(order, STEPS):  # as many steps on each rank, however many rows it has
            parts = worker.all_gather((len(mine), *loss_and_gradients(weights, x[mine], y[mine])))
            rows, losses, gradients = zip(*parts, strict=True)
            # Sums over rows, divided by the true number of rows: the step one process would make on them all.
            for weight, *shares in zip(weights, *gradients, strict=True):
                weight -= LEARNING_RATE * sum(shares) / sum(rows)
            epoch_loss, epoch_rows = epoch_loss + sum(losses), epoch_rows + sum(rows)
        rounds.append((epoch_loss / epoch_rows, [weight.copy() for weight in weights]))
        worker.report(step=epoch + 1, total=EPOCHS, loss=round(epoch_loss / epoch_rows, 3))
    return rounds


def first_weights() -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.normal(0, 0.1, (64, HIDDEN)), np.zeros(HIDDEN), random.normal(0, 0.1, (HIDDEN, 10)), np.zeros(10)]


def forward(weights: list[np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One hidden layer: (hidden values, a probability for each digit)."""
    into_hidden, hidden_bias, into_digits, digit_bias = weights
    hidden = np.tanh(x @ into_hidden + hidden_bias)
    scores = hidden @ into_digits + digit_bias
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def loss_and_gradients(weights: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> tuple[float, list[np.ndarray]]:
    """Cross entropy and its gradients, summed over rows."""
    hidden, chances = forward(weights, x)
    loss = -np.log(chances[np.arange(len(y)), y]).sum()
    at_digits = chances - np.eye(10)[y]
    at_hidden = at_digits @ weights[2].T * (1 - hidden**2)
    return loss, [x.T @ at_hidden, at_hidden.sum(axis=0), hidden.T @ at_digits, at_digits.sum(axis=0)]


def evaluate(shards: XShards, models: list[list[np.ndarray]]) -> list[float]:
    """The accuracy of each model: shards count their hits, the driver adds them up."""

    def count(shard: dict[str, np.ndarray], shared: SharedValue) -> np.ndarray:
        hits = [(forward(model, shard["x"])[1].argmax(axis=1) == shard["y"]).sum() for model in shared.value]
        return np.array([*hits, len(shard["y"])])

    *hits, rows = sum(shards.transform_shard(count, SharedValue(models)).collect())
    return [hit / rows for hit in hits]


def show_ink(digits: XShards) -> None:
    ink = digits.transform_shard(
        lambda frame: pd.DataFrame(
            {"digit": frame.digit, "upper": frame[PIXELS[:32]].sum(axis=1), "all": frame[PIXELS].sum(axis=1)}
        )
    )
    sums = ink.groupby("digit").agg({"upper": "sum", "all": "sum"}).to_pandas()
    for digit, share in (sums.upper / sums["all"]).sort_values(ascending=False).items():
        say(f"  {digit}  {'█' * round(share * 60)} {share:.0%}")


def show_images(frame: pd.DataFrame, weights: list[np.ndarray], scale: SharedValue) -> None:
    """The first held-out images in shades of grey, and what the net makes of them."""
    seen = forward(weights, to_arrays(frame, scale)["x"])[1].argmax(axis=1)
    images = frame[PIXELS].to_numpy().reshape(-1, 8, 8) / 16
    for row in range(8):
        say("  " + "   ".join("".join(2 * " ░▒▓█"[round(value * 4)] for value in image[row]) for image in images))
    words = (f"a {digit}, read as {read}" for digit, read in zip(frame.digit, seen, strict=True))
    say("  " + "   ".join(f"{text:^16}" for text in words))


def draw_curve(losses: list[float], accuracies: list[float], engine: str, output: Path) -> Path:
    """Loss and held-out accuracy after every epoch, as a PNG."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # its first run speaks of its font cache
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    epochs = range(1, len(losses) + 1)
    figure, left = plt.subplots(figsize=(8, 4.5), layout="constrained")
    right = left.twinx()
    left.plot(epochs, losses, color="tab:orange", linewidth=2)
    right.plot(epochs, accuracies, color="tab:blue", linewidth=2)
    left.set(xlabel="epoch", xlim=(1, len(losses)), ylim=(0, None))
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


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=CONTEXTS, default="local", help="where to run (default: local)")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the learning curve")
    return parser.parse_args()


if __name__ == "__main__":
    main()
