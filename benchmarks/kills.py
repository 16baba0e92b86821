"""`python -m benchmarks.kills [--engine NAME] [--framework NAME] [--kills N] [--write]`: kill workers, compare bits.

Fits of a small model with BatchNorm, dropout, Adam and a scheduler, over data that draws random numbers, write a
checkpoint every few steps. A thread kills one of the workers (SIGKILL) again and again, at random moments, until N were
killed. The weights and the figures of every epoch must then be those of a fit that nobody disturbed.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks import keras_kills
from benchmarks.machine import describe
from benchmarks.row import ROOT
from benchmarks.table import write
from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.learn.pytorch import Estimator, TrainingOperator

PAGE = ROOT / "docs" / "recovery.md"
MODES = {"local": "embedded", "spark": "local", "ray": "ray"}
#: The backends that take turns.
FRAMEWORKS = {"torch": ("torch_distributed", "bigdl"), "keras": ("tf2",)}
WORKERS = 2
ROWS, BATCH, EPOCHS = 480, 8, 4
EVERY = "10ba"
# A step takes so long, that kills fall into steps, checkpoints, epochs' ends and starts of gangs alike.
STEP_SECONDS = 0.005
KILLS_A_FIT = 20
LONGEST_LIFE = 1.5


class Noisy(Dataset):
    """Rows with noise from torch's own generator."""

    def __init__(self) -> None:
        found = np.random.default_rng(0)
        self.x = found.normal(size=(ROWS, 8)).astype(np.float32)
        self.y = (self.x.sum(axis=1) > 0).astype(np.int64)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(self.x[index]) + 0.1 * torch.randn(8), int(self.y[index])


class Mortal(TrainingOperator):
    """Tells its process, so that it can be killed."""

    def setup(self, config: dict[str, Any]) -> None:
        folder = config.get("folder")
        if folder is not None:
            path = Path(folder, f"rank-{self.world_rank}")
            aside = path.with_suffix(".new")
            aside.write_text(str(os.getpid()))
            aside.replace(path)

    def train_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
        time.sleep(STEP_SECONDS)
        return super().train_batch(batch, batch_info)


@dataclass(frozen=True)
class Ended:
    """What a fit ended with."""

    weights: str
    figures: str
    kills: int
    restarts: int
    seconds: float


class Killer(threading.Thread):
    """Kills a worker at a random moment of its life, as soon as there is a new one, until it has killed enough."""

    def __init__(self, folder: str, most: int, draw: random.Random):
        super().__init__(name="killer", daemon=True)
        self.kills = 0
        self._folder = Path(folder)
        self._most = most
        self._draw = draw
        self._over = threading.Event()

    def run(self) -> None:
        while self.kills < self._most and not self._over.is_set():
            pids = self._gang()
            if len(pids) < WORKERS:
                self._over.wait(0.02)
                continue
            self._over.wait(self._draw.uniform(0, LONGEST_LIFE))
            if not self._over.is_set():
                self._kill(self._draw.choice(pids))

    def stop(self) -> None:
        self._over.set()
        self.join()

    def _gang(self) -> list[int]:
        return [int(path.read_text()) for path in self._folder.glob("rank-?")]

    def _kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # the fit is over
        for path in self._folder.glob("rank-*"):
            path.unlink(missing_ok=True)
        self.kills += 1


def make_model(config: dict[str, Any]) -> torch.nn.Module:
    layers = [torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Dropout(0.2)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(32, 2))


def make_optimizer(model: torch.nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def make_scheduler(optimizer: torch.optim.Optimizer, config: dict[str, Any]) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=50, gamma=0.8)


def make_data(config: dict[str, Any], batch_size: int) -> DataLoader:
    return DataLoader(Noisy(), batch_size=batch_size, shuffle=True)


def fit(kills: int, draw: random.Random, backend: str) -> Ended:
    """One fit, in which so many workers are killed if it lasts long enough."""
    with tempfile.TemporaryDirectory(prefix="orca-kills-") as folder:
        killer = Killer(folder, kills, draw)
        killer.start()
        started = time.monotonic()
        try:
            if backend == "tf2":
                est = keras_kills.fitted(WORKERS, kills, folder, STEP_SECONDS, EPOCHS, BATCH, EVERY)
            else:
                est = fitted(backend, kills, folder)
        finally:
            killer.stop()
        seconds = time.monotonic() - started
        figures = repr(est.result_.history.to_dict())
        weights = keras_kills.digest(est) if backend == "tf2" else _digest(est)
        return Ended(weights, figures, killer.kills, est.result_.restarts, seconds)


def fitted(backend: str, kills: int, folder: str) -> Any:
    """The PyTorch estimator after its fit."""
    est = Estimator.from_torch(
        model=make_model,
        optimizer=make_optimizer,
        loss=torch.nn.CrossEntropyLoss(),
        scheduler_creator=make_scheduler,
        training_operator_cls=Mortal,
        config={"folder": folder if kills else None},
        backend=backend,
        num_workers=WORKERS,
        max_failures=kills,
    )
    est.fit(make_data, EPOCHS, BATCH, checkpoint_trigger=EVERY)
    return est


def _digest(est: Any) -> str:
    found = hashlib.sha256()
    for name, value in est.get_model().state_dict().items():
        found.update(name.encode() + value.numpy().tobytes())
    return found.hexdigest()


def run(engine: str, framework: str, kills: int, seed: int) -> str:
    """Kill so many workers of an engine, and give the line of the table; raises if a single bit differs."""
    draw = random.Random(seed)
    init_orca_context(MODES[engine], cores=WORKERS)
    try:
        calm = {backend: fit(0, draw, backend) for backend in FRAMEWORKS[framework]}
        done = fits = 0
        seconds = 0.0
        while done < kills:
            backend = list(calm)[fits % len(calm)]
            ended = fit(min(KILLS_A_FIT, kills - done), draw, backend)
            if (ended.weights, ended.figures) != (calm[backend].weights, calm[backend].figures):
                raise SystemExit(f"{engine}, {backend}: after {ended.kills} kills the fit ended differently.")
            done, fits, seconds = done + ended.kills, fits + 1, seconds + ended.seconds
            line = f"{engine}, {backend}: {ended.kills} kills, {ended.restarts} restarts, {ended.seconds:.0f} s"
            print(line, file=sys.stderr, flush=True)
        each = (seconds - sum(calm[list(calm)[n % len(calm)]].seconds for n in range(fits))) / max(done, 1)
        return f"| {framework}, {engine} | {done} | {fits} | {fits} of {fits} | {each:.1f} s |"
    finally:
        stop_orca_context()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("--engine", action="append", choices=MODES, help="local, spark or ray; all of them by default")
    parser.add_argument("--framework", action="append", choices=FRAMEWORKS, help="torch or keras; both by default")
    parser.add_argument("--kills", type=int, default=100, help="how many workers are killed on each engine")
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which they are")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    logging.getLogger("zoo.orca").setLevel(logging.ERROR)  # a warning for each kill would be a hundred
    lines = [
        run(engine, framework, options.kills, options.seed)
        for framework in options.framework or FRAMEWORKS
        for engine in options.engine or MODES
    ]
    head = [
        "| framework, engine | workers killed | fits | to the bit as undisturbed | a kill costs |",
        "|---|---|---|---|---|",
    ]
    text = "\n".join([*head, *lines, "", f"{describe()} Seed {options.seed}."])
    print(text)
    if options.write:
        write(PAGE, "kills", text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
