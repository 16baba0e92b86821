"""The real TensorBoard, started on loopback, finds what a fit wrote: its runs, its tags and its numbers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import pytest

from zoo.orca.learn.callbacks import TensorBoard
from zoo.orca.learn.metrics import MSE
from zoo.orca.learn.pytorch import Estimator

START_SECONDS = 120


@contextlib.contextmanager
def tensorboard(folder):
    """A TensorBoard over a folder, as a function of a path of its HTTP interface and of what it is asked."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--host", "127.0.0.1", "--port", "0"]
    environment = dict(os.environ, TMPDIR=str(folder))  # where it writes down that it runs
    options = {"env": environment, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--load_fast=false"], **options) as process:
        try:
            said = iter(process.stderr.readline, "")
            address = next(found[0] for line in said if (found := re.findall(r"http://127\.0\.0\.1:\d+/", line)))

            def ask(path: str, **question: str):
                with urlopen(f"{address}data/{path}?{urlencode(question)}", timeout=START_SECONDS) as answer:
                    return json.load(answer)

            yield ask
        finally:
            process.kill()


@pytest.mark.engines("local")
def test_tensorboard_shows_what_a_fit_wrote(engine, tmp_path):
    import torch

    net = torch.nn.Linear(2, 1)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    est = Estimator.from_torch(model=net, optimizer=sgd, loss=torch.nn.MSELoss(), metrics=[MSE()])
    est.set_tensorboard(str(tmp_path), "app")
    x = np.ones((32, 2), np.float32)
    board = TensorBoard(tmp_path / "board")
    est.fit((x, x[:, :1]), epochs=2, batch_size=8, validation_data=(x, x[:, :1]), callbacks=[board])

    with tensorboard(tmp_path) as ask:
        deadline = time.monotonic() + START_SECONDS
        while len(tags := ask("plugin/scalars/tags")) < 4 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert sorted(tags) == ["app/train", "app/validation", "board/train", "board/validation"]
        assert {"loss", "lr", "rows_per_second", "epoch/train_loss"} <= tags["board/train"].keys()
        assert {"Loss", "Throughput"} <= tags["app/train"].keys()
        shown = ask("plugin/scalars/scalars", run="board/train", tag="loss")
        assert [step for _, step, _ in shown] == list(range(1, 9))
        losses = [value for *_, value in ask("plugin/scalars/scalars", run="app/train", tag="Loss")]
        assert losses == [pytest.approx(value) for _, value, _ in est.get_train_summary("Loss")]
