"""Two models and two optimizers in one TrainingOperator: a small GAN that learns to draw numbers like those it sees.

python examples/custom_operator.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from torch import nn

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.learn.pytorch import Estimator, TrainingOperator

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}
NOISE = 4
MEAN, SPREAD = 4.0, 1.5


class Gan(TrainingOperator):
    """One step is two: the critic learns to tell real from drawn, then the artist learns to deceive it."""

    def train_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
        artist, critic = self.models
        artist_optimizer, critic_optimizer = self.optimizers
        real = batch[0]
        drawn = artist(torch.randn(len(real), NOISE))
        yes, no = torch.ones(len(real), 1), torch.zeros(len(real), 1)

        critic_optimizer.zero_grad()
        critic_loss = self.criterion(critic(real), yes) + self.criterion(critic(drawn.detach()), no)
        critic_loss.backward()
        critic_optimizer.step()  # on the gradients of all workers, like every step

        artist_optimizer.zero_grad()
        artist_loss = self.criterion(critic(drawn), yes)
        artist_loss.backward()
        artist_optimizer.step()
        return {"critic_loss": critic_loss.item(), "artist_loss": artist_loss.item(), "num_samples": len(real)}

    def validate_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
        """How far the critic trusts real rows; the mean is over all workers' rows."""
        critic = self.models[1]
        return {"trust": torch.sigmoid(critic(batch[0])).mean().item(), "num_samples": len(batch[0])}


def models(config: dict[str, Any]) -> list[nn.Module]:
    artist = nn.Sequential(nn.Linear(NOISE, 16), nn.ReLU(), nn.Linear(16, 1))
    critic = nn.Sequential(nn.Linear(1, 16), nn.LeakyReLU(0.2), nn.Linear(16, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    return [artist, critic]


def optimizers(models: list[nn.Module], config: dict[str, Any]) -> list[torch.optim.Optimizer]:
    return [torch.optim.Adam(model.parameters(), lr=config["lr"], betas=(0.5, 0.9)) for model in models]


def example() -> None:
    real = np.random.default_rng(0).normal(MEAN, SPREAD, (4000, 1))
    est = Estimator.from_torch(
        model=models,
        optimizer=optimizers,
        loss=nn.BCEWithLogitsLoss(),
        training_operator_cls=Gan,
        config={"lr": 0.003},
        backend="torch_distributed",
        num_workers=2,
    )
    noise = np.random.default_rng(1).normal(size=(2000, NOISE))
    print(f"real:           mean {real.mean():.2f}, spread {real.std():.2f}")
    for _ in range(2):
        figures = est.fit(real, epochs=10, batch_size=100)[-1]
        drawn = est.predict(noise, batch_size=500)  # the first model is the one that predicts
        print(
            f"after epoch {figures['epoch']:2}: mean {drawn.mean():.2f}, spread {drawn.std():.2f}, "
            f"losses {figures['artist_loss']:.2f} and {figures['critic_loss']:.2f}"
        )
    trust = est.evaluate(real, batch_size=500)["trust"]
    print(f"the critic trusts real numbers to {trust:.2f}; 0.5 is a guess")


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
