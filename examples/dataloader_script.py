"""A training script of plain torch, moved to many workers by three lines, with the weights that plain torch ends with.

python examples/dataloader_script.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.learn.pytorch import Estimator

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}
EPOCHS = 5


def parts() -> tuple[nn.Module, torch.optim.Optimizer, nn.Module, DataLoader]:
    """Model, optimizer, loss and loader, as both scripts have them."""
    torch.manual_seed(0)
    x = torch.randn(1000, 10)
    y = torch.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3]
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    net = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 1))
    return net, torch.optim.Adam(net.parameters(), lr=0.01), nn.MSELoss(), loader


def plain() -> nn.Module:
    """The script as it was, in one process."""
    net, optimizer, loss, loader = parts()
    for epoch in range(EPOCHS):
        torch.manual_seed(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss(net(x), y).backward()
            optimizer.step()
    return net


def moved() -> nn.Module:
    """The same on two workers: the loop became three lines. The loader's batches stay what they were."""
    net, optimizer, loss, loader = parts()
    est = Estimator.from_torch(model=net, optimizer=optimizer, loss=loss, num_workers=2)
    est.fit(loader, epochs=EPOCHS)
    return est.get_model()


def example() -> None:
    one, two = plain(), moved()
    _, _, loss, loader = parts()
    with torch.no_grad():
        losses = [loss(net(loader.dataset.tensors[0]), loader.dataset.tensors[1]).item() for net in (one, two)]
    print(f"loss of the plain script {losses[0]:.4f}, on two workers {losses[1]:.4f}")
    pairs = zip(one.parameters(), two.parameters(), strict=True)
    same = all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in pairs)
    print("the same weights, to float tolerance:", same)


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
