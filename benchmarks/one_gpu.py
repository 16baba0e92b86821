"""`python -m benchmarks.one_gpu [words]`: one GPU, by the estimator, a plain loop and Lightning, in one run.

Transformers learn the next token of random text: one of 168 million parameters in every precision, and one so small
that a step takes about 2 ms. What is compared: sequences a second of the last epoch, in turn with a loop in plain torch
(fused AdamW, the next batch on its way from pinned memory, no waiting for a loss) and with Lightning where it is
installed; and what was learnt, in fp32 to float tolerance, with `deterministic=True` to the bit after a kill.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zoo.orca.feed.plan import Plan
from zoo.orca.learn.callbacks import Throughput
from zoo.orca.learn.pytorch import Estimator, TrainingOperator

VOCABULARY, HEADS = 8192, 16
EPOCHS, ROUNDS = 3, 3


@dataclass(frozen=True)
class Job:
    """A model, its data and its settings."""

    name: str
    width: int
    layers: int
    length: int
    batch: int
    steps: int
    precision: str
    compiled: bool = False

    def text(self, seed: int = 0) -> np.ndarray:
        return np.random.default_rng(seed).integers(VOCABULARY, size=(self.batch * self.steps, self.length + 1))

    @property
    def config(self) -> dict[str, Any]:
        return {"model": {"width": self.width, "layers": self.layers}}

    @property
    def label(self) -> str:
        return f"{self.name}, {self.precision}{', compile' if self.compiled else ''}"


def large(precision: str, compiled: bool = False) -> Job:
    return Job("168M", 1024, 12, 512, 32, 60, precision, compiled)


SMALL = Job("small", 256, 2, 64, 32, 800, "bf16", compiled=True)
JOBS = [large("bf16", compiled=True), SMALL, large("bf16"), large("fp32"), large("fp16")]


class Transformer(torch.nn.Module):
    def __init__(self, width: int, layers: int, dropout: float = 0.0):
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


def make_model(config: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(1)
    return Transformer(**config["model"])


def make_optimizer(model: torch.nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def ours(job: Job, data: np.ndarray) -> tuple[float, list[float]]:
    """Sequences a second of the last epoch, and the loss of every epoch."""
    est = Estimator.from_torch(
        model=make_model,
        optimizer=make_optimizer,
        loss=loss_of,
        config=job.config,
        backend="torch_distributed",
        precision=job.precision,
        compile=job.compiled,
    )
    figures = est.fit((data[:, :-1], data[:, 1:]), epochs=EPOCHS, batch_size=job.batch, callbacks=[Throughput()])
    return figures[-1]["rows_per_second"], [each["train_loss"] for each in figures]


Batch = tuple[torch.Tensor, ...]


def host_batches(job: Job, data: np.ndarray, epoch: int) -> Iterator[Batch]:
    """The batches that the estimator gives this epoch, features and targets, in pinned memory."""
    arrays, plan = [torch.from_numpy(each) for each in (data[:, :-1], data[:, 1:])], Plan((len(data),), job.batch)
    order = plan.order(epoch, 0)
    for (piece,) in plan.batches(epoch):
        rows = np.sort(order[piece.start : piece.stop])
        yield tuple(each[rows].pin_memory() for each in arrays)


def device_batches(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same on the GPU, with the next one on its way."""
    stream, ready = torch.cuda.Stream(), None
    for batch in batches:
        with torch.cuda.stream(stream):
            coming = tuple(each.cuda(non_blocking=True) for each in batch)
        if ready is not None:
            yield ready
        torch.cuda.current_stream().wait_stream(stream)
        for each in coming:
            each.record_stream(torch.cuda.current_stream())
        ready = coming
    if ready is not None:
        yield ready


def plain(job: Job, data: np.ndarray) -> tuple[float, list[float]]:
    """The same batches in a loop of plain torch."""
    model = make_model(job.config).cuda()
    if job.compiled:
        model.compile()
    optimizer = make_optimizer(model, {})
    scaler = torch.amp.GradScaler("cuda", enabled=job.precision == "fp16")
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[job.precision]
    speed, losses = 0.0, []
    for epoch in range(EPOCHS):
        torch.cuda.synchronize()
        started, total = time.perf_counter(), torch.zeros((), device="cuda")
        for features, targets in device_batches(host_batches(job, data, epoch)):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=kind, enabled=job.precision != "fp32"):
                loss = loss_of(model(features), targets)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.detach()
        losses.append(total.item() / job.steps)
        torch.cuda.synchronize()
        speed = len(data) / (time.perf_counter() - started)
    return speed, losses


def lightning(job: Job, data: np.ndarray) -> tuple[float, list[float]]:
    """The same batches and settings by Lightning's Trainer."""
    from benchmarks.lightning_gpu import train

    return train(job, data)


def compare(job: Job, rounds: int) -> str:
    """A line of the table."""
    data = job.text()
    contenders = {"ours": ours, "plain": plain}
    if job.compiled and importlib.util.find_spec("lightning"):
        contenders["lightning"] = lightning
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    losses = {}
    for _ in range(rounds):
        for name, run in contenders.items():
            speed, losses[name] = run(job, data)
            speeds[name].append(speed)
            torch.cuda.empty_cache()
    median = {name: statistics.median(each) for name, each in speeds.items()}
    apart = max(abs(a - b) / b for a, b in zip(losses["ours"], losses["plain"], strict=True))
    beside = f"{median['ours'] / median['lightning']:.2f}" if "lightning" in median else "-"
    spread = ", ".join(f"{name} {min(each):.0f} to {max(each):.0f}" for name, each in speeds.items())
    return (
        f"| {job.label} | {job.batch / median['plain'] * 1000:.2f} | {median['ours']:.0f} | {median['plain']:.0f} "
        f"| {median['ours'] / median['plain']:.3f} | {beside} | {losses['ours'][-1]:.4f} | {apart:.1e} | {spread} |"
    )


def recovers(job: Job) -> str:
    """Whether a fit that lost its worker ends to the bit as one that did not, dropout on the GPU included."""
    digests, data = [], job.text()
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
            est.fit((data[:, :-1], data[:, 1:]), epochs=2, batch_size=job.batch, checkpoint_trigger="1ba")
            state = est.get_model().state_dict()
            digests.append([value.numpy().tobytes() for value in state.values()])
            restarts = est.result_.restarts
    found = est.predict(data[:8, :-1])
    return (
        f"{restarts} worker killed, weights equal to the bit: {digests[0] == digests[1]}; predict on the GPU gives "
        f"{found.dtype} of shape {found.shape}"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_gpu")
    parser.add_argument("words", nargs="*", help="only jobs whose labels hold one of them, and no kill")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    if not options.words:
        print(recovers(dataclasses.replace(SMALL, steps=4)), flush=True)
    heads = ["", "plain step, ms", "ours, sequences/s", "plain loop", "ratio", "to Lightning", "last loss"]
    heads += ["losses apart by", "least to most"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    for job in JOBS:
        if not options.words or any(word in job.label for word in options.words):
            print(compare(job, options.rounds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
