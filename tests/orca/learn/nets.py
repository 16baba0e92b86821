"""A small regression and a small classification, and estimators of them, for the tests of this folder."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from zoo.orca.learn.pytorch import Estimator

ROWS = 24
X = np.random.default_rng(7).normal(size=(ROWS, 3)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 0.25).astype(np.float32)
LABELS = (Y[:, 0] > 0).astype(np.int64)
REGRESSION = {"x": X, "y": Y}
CLASSES = {"x": X, "y": LABELS}


def linear(outputs: int = 1) -> nn.Linear:
    """The same first weights every time."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return nn.Linear(3, outputs)


def make_model(config):
    return linear(config.get("outputs", 1))


def make_optimizer(model, config):
    return torch.optim.SGD(model.parameters(), lr=config.get("lr", 0.1))


def make_scheduler(optimizer, config):
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=config.get("gamma", 0.5))


def make_loss(config):
    return nn.MSELoss()


def regression(backend: str = "bigdl", **options):
    """An estimator of a line, of instances."""
    model = linear()
    given = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loss": nn.MSELoss()}
    return Estimator.from_torch(**(given | {"backend": backend} | options))


def classifier(backend: str = "bigdl", **options):
    """An estimator of two classes, of instances."""
    model = linear(2)
    given = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loss": nn.CrossEntropyLoss()}
    return Estimator.from_torch(**(given | {"backend": backend} | options))


def by_hand(epochs: int, lr: float = 0.1, gamma: float = 1.0) -> nn.Linear:
    """The line after so many steps over all rows, in plain torch; each step's rate is gamma times the last's."""
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(torch.from_numpy(X)), torch.from_numpy(Y)).backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= gamma
    return model


def weights(model: nn.Module) -> np.ndarray:
    """All parameters in one array."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).numpy()
