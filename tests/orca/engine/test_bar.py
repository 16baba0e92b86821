"""What a user sees of a job's progress: on a terminal, in a pipe, and when told otherwise."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
import time

import pytest

from zoo.orca import OrcaContext
from zoo.orca.engine import bar
from zoo.orca.engine.bar import Bar, bars_are_shown, job
from zoo.orca.errors import PreconditionError

# A job that is over at once, one over shards, and the three calls of an estimator, slow enough for bars to appear.
SCRIPT = """
import time
import numpy as np, torch
from zoo.orca.data import XShards
from zoo.orca.learn.metrics import MSE
from zoo.orca.learn.pytorch import Estimator

def slowly(shard):
    time.sleep(0.5)
    return shard

class Slow(torch.nn.Linear):
    def forward(self, x):
        time.sleep(0.02)
        return super().forward(x)

net = Slow(4, 1)
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
est = Estimator.from_torch(model=net, optimizer=sgd, loss=torch.nn.MSELoss(), metrics=[MSE()])
x = np.ones((300, 4), np.float32)
y = x[:, :1]
short = XShards.partition(x, num_shards=6).transform_shard(lambda shard: shard)
print("=long", flush=True)
short.transform_shard(slowly)
print("=fit", flush=True)
est.fit((x, y), epochs=2, batch_size=10, validation_data=(x, y))
print("=evaluate", flush=True)
est.evaluate((x, y), batch_size=3)
print("=predict", flush=True)
est.predict(x, batch_size=3)
print("=end", flush=True)
"""


def on_a_terminal(*command: str) -> str:
    """What a terminal of 100 columns is sent."""
    driver, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (40, 100))
    environment = dict(os.environ, PYTHONIOENCODING="utf-8")
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        sent = b""
        while True:
            try:
                sent += os.read(driver, 1 << 16)
            except OSError:  # nobody has the terminal any more
                break
    os.close(driver)
    assert process.returncode == 0, sent.decode()
    return sent.decode()


@pytest.mark.alone
def test_a_terminal_shows_how_far_each_call_is():
    parts = re.split(r"=(\w+)\r\n", on_a_terminal(sys.executable, "-c", SCRIPT))
    assert parts[0] == "", "what takes no second shows nothing"
    sent = dict(zip(parts[1::2], parts[2::2], strict=True))
    frames = {name: [line.strip() for line in text.split("\r")] for name, text in sent.items()}
    shards, fit, evaluate, predict = (frames[name] for name in ("long", "fit", "evaluate", "predict"))
    assert any(re.fullmatch(r"transform_shard: +\d+%\|.*\| \d/6 partitions \[00:0\d, 00:0\d left\]", e) for e in shards)
    assert any(re.search(r"fit: .*/60 steps \[.* left, loss=\S+, rows/s=[\d.,]+\]", line) for line in fit)
    assert re.match(r"fit: 100%\|.*\| 60/60 steps \[00:\d\d, 00:00 left, loss=", fit[-2]), "it stays as it ended"
    assert any(re.match(r"evaluate: .*\d+/100 steps \[.* left, loss=.*, rows/s=", line) for line in evaluate)
    assert any(re.match(r"predict: .*\d+/300 rows \[.* left, rows/s=", line) for line in predict)
    assert all(end[-1] == "" and end[-2] == "" for end in (shards, evaluate, predict)), "these are wiped away"


def test_a_shard_job_has_a_bar_on_every_engine(engine, monkeypatch, capsys):
    monkeypatch.setattr(bar, "PATIENCE", 0.1)
    monkeypatch.setattr(bar, "TICK_SECONDS", 0.2)
    monkeypatch.setenv("ORCA_PROGRESS", "1")

    def slowly(index, shards):
        time.sleep(0.5)
        return shards

    with job("mine"):
        assert engine.place([[n] for n in range(6)]).map(slowly).fetch() == [[n] for n in range(6)]
    drawn = capsys.readouterr().err
    assert re.search(r"mine: +\d+%\|.*\| \d/6 partitions \[00:", drawn)
    assert drawn.endswith("\r")


def test_who_decides_whether_bars_are_shown(monkeypatch):
    assert not bars_are_shown(), "pytest has no terminal"
    monkeypatch.setenv("ORCA_PROGRESS", "1")
    assert bars_are_shown()
    try:
        OrcaContext.progress_bars = False
        assert (bars_are_shown(), OrcaContext.progress_bars) == (False, False)
    finally:
        OrcaContext.progress_bars = None
    with pytest.raises(PreconditionError, match="must be True, False, or None"):
        OrcaContext.progress_bars = "yes"


def test_a_bar_without_a_terminal_writes_nothing(capsys):
    with Bar("fit", 3) as hidden:
        hidden.to(2, figures={"loss": 1.0})
        hidden.advance()
        hidden.tick()
    assert capsys.readouterr() == ("", "")
