"""`python -m benchmarks.one_gpu`: one GPU, by the estimator and by a plain loop, in every precision, in one run.

A transformer learns the next token of random text. What is compared: sequences a second beside a loop in plain torch,
and what was learnt, in fp32 to float tolerance, with `deterministic=True` to the bit after a worker was killed.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zoo.orca.feed.plan import Plan
from zoo.orca.learn.callbacks import Throughput
from zoo.orca.learn.pytorch import Estimator, TrainingOperator

VOCABULARY, LENGTH, WIDTH, LAYERS, HEADS = 8192, 512, 1024, 8, 16
BATCH, STEPS, EPOCHS = 32, 12, 3
SETTINGS: list[tuple[str, bool]] = [("fp32", False), ("bf16", False), ("fp16", False), ("bf16", True)]
ROUNDS = 2


class Transformer(torch.nn.Module):
    def __init__(self, width: int = WIDTH, layers: int = LAYERS, dropout: float = 0.0):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, width)
        layer = torch.nn.TransformerEncoderLayer(
            width, HEADS, 4 * width, dropout=dropout, batch_first=True, norm_first=True
        )
        self.body = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        found = self.body(self.tokens(tokens), mask=mask, is_causal=True)
        return self.head(found)


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Flat, for CUDA has no deterministic loss over sequences."""
    return torch.nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


class Mortal(TrainingOperator):
    """Dies once, in its fifth step, if it has a folder to leave a mark in."""

    def train_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
        folder = self.config.get("folder")
        if folder and self.global_step == 4 and not Path(folder, "died").exists():
            Path(folder, "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train_batch(batch, batch_info)


def text(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(VOCABULARY, size=(rows, LENGTH + 1))


def make_model(config: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(1)
    return Transformer(**config.get("model", {}))


def make_optimizer(model: torch.nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def ours(data: np.ndarray, precision: str, compiled: bool) -> tuple[float, list[float], Any]:
    """Sequences a second of the last epoch, the loss of every epoch, and the estimator."""
    est = Estimator.from_torch(
        model=make_model,
        optimizer=make_optimizer,
        loss=loss_of,
        backend="torch_distributed",
        precision=precision,
        compile=compiled,
    )
    figures = est.fit((data[:, :-1], data[:, 1:]), epochs=EPOCHS, batch_size=BATCH, callbacks=[Throughput()])
    return figures[-1]["rows_per_second"], [each["train_loss"] for each in figures], est


def plain(data: np.ndarray, precision: str, compiled: bool) -> tuple[float, list[float], torch.nn.Module]:
    """The same batches in a loop of plain torch."""
    model = make_model({}).cuda()
    if compiled:
        model.compile()
    optimizer = make_optimizer(model, {})
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    rows, speed, losses = torch.from_numpy(data), 0.0, []
    plan = Plan((len(data),), BATCH)
    for epoch in range(EPOCHS):
        torch.cuda.synchronize()
        started, sums = time.perf_counter(), []
        order = plan.order(epoch, 0)
        for (piece,) in plan.batches(epoch):
            batch = rows[np.sort(order[piece.start : piece.stop])].cuda()
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=kind, enabled=precision != "fp32"):
                loss = loss_of(model(batch[:, :-1]), batch[:, 1:])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            sums.append(loss.item())
        torch.cuda.synchronize()
        speed = len(data) / (time.perf_counter() - started)
        losses.append(statistics.fmean(sums))
    return speed, losses, model


def compare(data: np.ndarray, precision: str, compiled: bool) -> str:
    """A line of the table."""
    rounds = []
    for _ in range(ROUNDS):
        theirs, mine = plain(data, precision, compiled), ours(data, precision, compiled)
        rounds.append((mine[0], theirs[0]))
        torch.cuda.empty_cache()
    mine_speed, plain_speed = (statistics.median(each) for each in zip(*rounds, strict=True))
    apart = max(abs(a - b) / b for a, b in zip(mine[1], theirs[1], strict=True))
    name = f"{precision}{', compile' if compiled else ''}"
    return (
        f"| {name} | {mine_speed:.0f} | {plain_speed:.0f} | {mine_speed / plain_speed:.2f} "
        f"| {mine[1][-1]:.4f} | {apart:.1e} |"
    )


def recovers(data: np.ndarray) -> str:
    """Whether a fit that lost its worker ends to the bit as one that did not, dropout on the GPU included."""
    digests = []
    with tempfile.TemporaryDirectory() as folder:
        for dies in (False, True):
            est = Estimator.from_torch(
                model=make_model,
                optimizer=make_optimizer,
                loss=loss_of,
                backend="torch_distributed",
                precision="bf16",
                accumulate=2,
                deterministic=True,
                clip_norm=1.0,
                training_operator_cls=Mortal,
                config={"folder": folder if dies else None, "model": {"width": 256, "layers": 2, "dropout": 0.1}},
            )
            est.fit((data[:, :-1], data[:, 1:]), epochs=2, batch_size=BATCH, checkpoint_trigger="1ba")
            state = est.get_model().state_dict()
            digests.append([value.numpy().tobytes() for value in state.values()])
            restarts = est.result_.restarts
    found = est.predict(data[:8, :-1])
    return (
        f"{restarts} worker killed, weights equal to the bit: {digests[0] == digests[1]}; predict on the GPU gives "
        f"{found.dtype} of shape {found.shape}"
    )


def main() -> int:
    data = text(BATCH * STEPS)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    print(recovers(text(BATCH * 4)), flush=True)
    print("| | ours, sequences/s | plain loop | ratio | last loss | losses apart by |", flush=True)
    print("|---|---|---|---|---|---|", flush=True)
    for precision, compiled in SETTINGS:
        print(compare(data, precision, compiled), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
