"""Who knocks at the ports of a running fit without its token gets nowhere, and the fit does not notice."""

from __future__ import annotations

import contextlib
import functools
import hmac
import json
import os
import pickle
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest
import torch
from nets import REGRESSION, ROWS, by_hand, linear, regression, weights
from torch import nn

from zoo.orca.errors import CheckpointError
from zoo.orca.learn.pytorch import Estimator
from zoo.orca.learn.trigger import SeveralIteration

# Strangers wait for answers by the clock.
pytestmark = pytest.mark.alone
WORKERS = 2
PATIENCE_SECONDS = 30


class Pausing(nn.Module):
    """A line whose first step on a worker waits until the test has looked around."""

    def __init__(self, folder: Path):
        super().__init__()
        self.line, self.folder, self.driver = linear(), folder, os.getpid()

    def forward(self, x):
        if os.getpid() != self.driver and not (self.folder / "go-on").exists():
            (self.folder / f"{os.getpid()}.here").touch()
            wait_until((self.folder / "go-on").exists)
        return self.line(x)


def wait_until(it_is_so):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not it_is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def fit(backend, folder):
    model = Pausing(folder)
    est = Estimator.from_torch(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        loss=nn.MSELoss(),
        backend=backend,
        workers_per_node=WORKERS,
    )
    est.fit(REGRESSION, epochs=1, batch_size=6)
    return weights(est.get_model())


@functools.cache
def undisturbed(folder):
    (folder / "go-on").touch()
    return fit("bigdl", folder)


class Door(NamedTuple):
    """Where a process listens."""

    pid: int
    host: str
    port: int


def doors():
    """Where the processes of this run listen."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid == os.getpid() or process.environ().get("ORCA_TEST_RUN") == os.environ["ORCA_TEST_RUN"]:
                listening = [each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
                found |= {
                    Door(process.pid, each.laddr.ip.removeprefix("::ffff:"), each.laddr.port) for each in listening
                }
    return found


def name_of(pid):
    """What a process is called; nothing if it is gone, as idle processes of Ray may be at any time."""
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return None


class Evil:
    """Who unpickles this makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class Stranger:
    """Somebody on this machine who knows every port and every protocol, and no token."""

    def __init__(self, mark: Path):
        self.evil = pickle.dumps(Evil(mark))

    def knock(self, door, word=b"", patience=2.0):
        """All that is said to whoever says this word; None if nobody opens."""
        try:
            line = socket.create_connection((door.host, door.port), timeout=0.3)
        except TimeoutError:
            return None
        with line:
            line.settimeout(patience)
            heard = b""
            with contextlib.suppress(ConnectionError, TimeoutError):
                line.sendall(word(line) if callable(word) else word)
                while piece := line.recv(1 << 16):
                    heard += piece
                return heard  # whoever listens there has closed the connection
        return heard + b"... and waits for more"

    def try_everything(self, door):
        """A scanner's guesses, for servers of others: whatever they answer, nothing must come of it."""
        for word in (os.urandom(400), self.evil, struct.pack("!Q", len(self.evil)) + self.evil):
            self.knock(door, word, patience=0.2)

    def try_channel(self, door):
        """The driver's own channel: it says a random number, and closes at the first wrong word."""
        framed = struct.pack("!Q", len(self.evil)) + self.evil
        for word in (os.urandom(400), framed.ljust(200, b"\0"), self.evil.ljust(200, b"\0"), self.wrong_token(framed)):
            heard = self.knock(door, word)
            assert heard is not None
            assert len(heard) <= 32, heard

    def wrong_token(self, then):
        def answer(line):
            theirs, mine = line.recv(32), os.urandom(32)
            proof = hmac.digest(b"not the token", b"worker0" + theirs + mine, "sha256")
            return struct.pack("!I32s32s", 0, mine, proof) + then

        return answer

    def try_rendezvous(self, door):
        """Horovod's: not a word to who does not begin the path with the token."""
        for path in ("/global/rank_0", "/", "/global/0", f"/{'0' * 64}/:0/global/rank_0", f"//:0/global/{'0' * 64}"):
            for verb in ("GET", "PUT", "DELETE"):
                request = f"{verb} {path} HTTP/1.1\r\nContent-Length: {len(self.evil)}\r\n\r\n".encode() + self.evil
                assert self.knock(door, request) == b"", (verb, path)


ASK_RAY = """
import grpc, json, sys
said = []
for port in sys.argv[1:]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for token in ((), (("authorization", "Bearer " + "0" * 64),)):
            for method in ("CoreWorkerService/PushTask", "InternalKVGcsService/InternalKVKeys"):
                try:
                    channel.unary_unary("/ray.rpc." + method)(b"", metadata=token, timeout=10)
                    said.append((port, "OK"))
                except grpc.RpcError as error:
                    said.append((port, error.code().name))
print(json.dumps(said))
"""


def ask_ray(ports):
    """What Ray's servers say to who has no token, or a wrong one, by port."""
    command = [sys.executable, "-c", ASK_RAY, *map(str, ports)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    answers = json.loads(done.stdout)
    return {port: {said for asked, said in answers if asked == str(port)} for port in ports}


def look_around(engine, backend, folder, before, stranger):
    """While all workers are in their first step: who listens, and what a stranger gets from them."""
    wait_until(lambda: len(list(folder.glob("*.here"))) == WORKERS)
    workers = {int(path.stem) for path in folder.glob("*.here")}
    now = doors()
    rays = {door for door in now if door.pid in workers and door.host == "::"}
    assert {door.pid for door in rays} == (workers if engine.name == "ray" else set())
    local = now - before - rays
    assert {door.host for door in local} == {"127.0.0.1"}
    (channel,) = (door for door in local if door.pid == os.getpid())
    stranger.try_channel(channel)
    libraries = {door for door in local if door.pid in workers}
    assert len(libraries) == {"bigdl": 0, "torch_distributed": WORKERS, "horovod": 1}[backend]
    for door in libraries:
        if backend == "horovod":
            stranger.try_rendezvous(door)
        else:
            assert stranger.knock(door) is None, "gloo's doors are locked once the ranks have met"
    for door in local - libraries - {channel}:  # Spark's own, which ask for its secret
        stranger.try_everything(door)
    if rays:
        (head,) = (door.port for door in before if name_of(door.pid) == "gcs_server")
        for port, said in ask_ray([head, *(door.port for door in rays)]).items():
            assert said == {"UNAUTHENTICATED", "UNIMPLEMENTED"}, port


@pytest.mark.engines("local")
@pytest.mark.parametrize("backend", ["bigdl", "torch_distributed", "horovod"])
def test_strangers_get_nowhere(engine, backend, tmp_path, tmp_path_factory):
    check_with_strangers(engine, backend, tmp_path, tmp_path_factory)


@pytest.mark.engines("spark", "ray")
def test_nor_on_other_engines(engine, tmp_path, tmp_path_factory):
    backend = {"spark": "torch_distributed", "ray": "horovod"}[engine.name]
    check_with_strangers(engine, backend, tmp_path, tmp_path_factory)


def check_with_strangers(engine, backend, tmp_path, tmp_path_factory):
    expected = undisturbed(tmp_path_factory.getbasetemp())
    before, mark = doors(), tmp_path / "unpickled"
    with ThreadPoolExecutor(1) as other:
        looked = other.submit(look_around, engine, backend, tmp_path, before, Stranger(mark))
        looked.add_done_callback(lambda _: (tmp_path / "go-on").touch())
        trained = fit(backend, tmp_path)
    looked.result()
    assert not mark.exists()
    np.testing.assert_array_equal(trained, expected)


def test_the_mark_of_these_tests_tells(tmp_path):
    """A pickle that is loaded would be noticed."""
    pickle.loads(Stranger(tmp_path / "unpickled").evil)
    assert (tmp_path / "unpickled").exists()


@pytest.mark.engines("local")
@pytest.mark.parametrize("kind", ["model", "optimMethod"])
@pytest.mark.parametrize("write", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value, protocol=2))])
def test_a_pickle_in_a_checkpoint_is_not_run(engine, tmp_path, kind, write):
    def trainer():
        return regression(model_dir=str(tmp_path / "runs"), workers_per_node=1)

    trainer().fit(REGRESSION, epochs=1, batch_size=ROWS, checkpoint_trigger=SeveralIteration(1))
    (model,) = (tmp_path / "runs").rglob("model.2")
    (file,) = model.parent.glob(f"{kind}*.2")
    write({"models": [Evil(tmp_path / "unpickled")]}, file)
    with pytest.raises(CheckpointError, match="holds more than tensors and plain data"):
        trainer().load_orca_checkpoint(str(model.parent), version=2)
    resumed = trainer()
    resumed.fit(REGRESSION, epochs=1, batch_size=ROWS, checkpoint_trigger=SeveralIteration(1), resume="auto")
    np.testing.assert_array_equal(weights(resumed.get_model()), weights(by_hand(1)))
    assert not (tmp_path / "unpickled").exists()
