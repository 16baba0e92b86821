"""Real clusters as processes on loopback: a lost executor and a lost Ray node restart a gang, and change no weight."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from learning import Net, Rows, digest_of, weights_of
from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.context import current_engine
from zoo.orca.engine.gang import GangOptions, run_gang
from zoo.orca.errors import DynamicAllocationError, NotEnoughSlotsError
from zoo.orca.learn.pytorch import Estimator, TrainingOperator


@pytest.fixture
def stopped():
    yield
    stop_orca_context()


def wait_for_nodes(engine, count):
    deadline = time.monotonic() + 60
    while engine.nodes < count and time.monotonic() < deadline:
        time.sleep(0.2)


def kill_above(name):
    """Kill the process above this one whose command has that name."""
    process = psutil.Process()
    while name not in " ".join(process.cmdline()):
        process = process.parent()
    process.send_signal(signal.SIGKILL)


class Doomed(TrainingOperator):
    """A rank takes the process above it along, once, in its sixth step."""

    def train_batch(self, batch, batch_info):
        mark = self.config.get("mark")
        if mark is not None and self.global_step == 5 and self._is_doomed():
            with contextlib.suppress(FileExistsError):
                open(mark, "x").close()
                kill_above(self.config["above"])
                os.kill(os.getpid(), signal.SIGKILL)
        return super().train_batch(batch, batch_info)

    def _is_doomed(self):
        head = self.config["head"]
        return self.world_rank == 1 if head is None else whereabouts() != head


def whereabouts(worker=None):
    import ray

    return ray.get_runtime_context().get_node_id()


def fitted(num_workers, mark=None, above=None, head=None):
    """An estimator after a fit; with a mark it loses what is above rank 1, or above ranks not on the head of a Ray."""
    rows = Rows(30)
    est = Estimator.from_torch(
        model=lambda config: Net(),
        optimizer=lambda net, config: torch.optim.Adam(net.parameters(), lr=0.05),
        loss=torch.nn.CrossEntropyLoss(),
        training_operator_cls=Doomed,
        config={"mark": mark and str(mark), "above": above, "head": head},
        num_workers=num_workers,
        max_failures=5,
    )
    return est.fit((rows.x, rows.classes), epochs=3, batch_size=8, checkpoint_trigger="2ba")


@pytest.mark.long
def test_a_standalone_cluster_loses_an_executor_and_then_a_node(stopped, in_folder, monkeypatch):
    init_orca_context("standalone", cores=1, memory="512m", num_nodes=2)
    engine = current_engine()
    assert engine.name == "spark"
    wait_for_nodes(engine, 2)
    assert (engine.nodes, engine.cores) == (2, 2)

    def lose_an_executor(worker):
        worker.barrier()
        if worker.rank == 1 and worker.attempt == 0:
            kill_above("CoarseGrainedExecutorBackend")
        if worker.attempt == 0:
            time.sleep(60)
        worker.barrier()
        return worker.attempt, worker.peers[worker.rank], list(worker.shards)

    placed = engine.place([["a"], ["b"], ["c"]])
    results = run_gang(engine, lose_an_executor, 2, data=placed, options=GangOptions(max_failures=2))
    assert [attempt > 0 for attempt, _, _ in results] == [True, True]
    assert [shards for _, _, shards in results] == [[(0, "a"), (1, "b")], [(2, "c")]]
    with pytest.raises(NotEnoughSlotsError, match="3 workers must run at once"):
        run_gang(engine, lambda worker: worker.rank, 3)

    calm = fitted(2)
    lost = fitted(2, in_folder / "executor", "CoarseGrainedExecutorBackend")
    assert lost.result_.restarts >= 1
    assert digest_of(lost.get_model()) == digest_of(calm.get_model())

    def lose_a_node(worker, lost=None):
        worker.barrier()
        if worker.rank == 1:
            kill_above("deploy.worker.Worker")  # who would start another executor
            kill_above("CoarseGrainedExecutorBackend")
        if worker.attempt == 0:
            time.sleep(60)
        return worker.world_size, lost, list(worker.shards)

    monkeypatch.setattr("zoo.orca.engine.base.ROOM_SECONDS", 2)
    options = GangOptions(max_failures=3, again=lambda lost: (len(lost.ranks),))
    results = run_gang(engine, lose_a_node, (1, 2), data=placed, options=options)
    assert results == [(1, 1, [(0, "a"), (1, "b"), (2, "c")])]
    with pytest.raises(NotEnoughSlotsError, match="2 workers must run at once"):
        run_gang(engine, lose_a_node, 2)
    fewer = fitted((1, 2))
    assert fewer.result_.world_size == 1
    np.testing.assert_allclose(weights_of(fewer.get_model()), weights_of(calm.get_model()), rtol=1e-9)


def test_dynamic_allocation_is_refused_at_once(stopped, in_folder):
    init_orca_context(
        "standalone", cores=1, memory="512m", num_nodes=1, conf={"spark.dynamicAllocation.enabled": "true"}
    )
    started = time.monotonic()
    with pytest.raises(DynamicAllocationError, match=r"spark.dynamicAllocation.enabled=false, but it is true"):
        run_gang(current_engine(), lambda worker: worker.rank, 1)
    assert time.monotonic() - started < 60


def free_port():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return reserved.getsockname()[1]


class RayNode:
    """A `ray start` of the test's own, as a process on loopback."""

    def __init__(self, *arguments: str):
        command = [Path(sys.executable).with_name("ray"), "start", *arguments, "--num-cpus=2", "--block"]
        patient = {"RAY_raylet_start_wait_time_s": "60", "RAY_USAGE_STATS_ENABLED": "0"}
        self.process = subprocess.Popen(
            command, env=os.environ | patient, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        while "Ray runtime started" not in self.process.stdout.readline():
            assert self.process.poll() is None, "ray start failed"

    def kill(self) -> None:
        tree = [self.process, *psutil.Process(self.process.pid).children(recursive=True)]
        for process in tree:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait()
        self.process.stdout.close()
        psutil.wait_procs(tree[1:], timeout=10)


@pytest.fixture
def ray_cluster(monkeypatch):
    """A head and two nodes with two CPUs each; gives the address."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    folder = Path(os.environ["TMPDIR"]) / "rc"
    folder.mkdir()
    port = free_port()
    head = RayNode(
        "--head",
        "--include-dashboard=false",
        "--node-ip-address=127.0.0.1",
        f"--port={port}",
        f"--temp-dir={folder / 'head'}",
        "--disable-usage-stats",
    )
    nodes = []
    try:
        nodes = [RayNode(f"--address=127.0.0.1:{port}", "--disable-usage-stats") for _ in range(2)]
        yield f"127.0.0.1:{port}"
    finally:
        for node in [*nodes, head]:
            if node.process.poll() is None:
                node.kill()
        shutil.rmtree(folder)


@pytest.mark.long
def test_a_ray_cluster_loses_node_after_node(ray_cluster, stopped, in_folder, monkeypatch):
    address = ray_cluster
    init_orca_context("ray", address=address)
    engine = current_engine()
    wait_for_nodes(engine, 3)
    assert (engine.nodes, engine.cores) == (3, 6)

    assert len(set(run_gang(engine, whereabouts, 6))) == 3

    def lose_a_node(worker, head):
        homes = worker.all_gather(whereabouts(worker))
        doomed = next((rank for rank, home in enumerate(homes) if home != head), None)
        if worker.rank == doomed and worker.attempt == 0:
            os.kill(os.getppid(), signal.SIGKILL)  # the raylet of this node
            os.kill(os.getpid(), signal.SIGKILL)
        worker.barrier()
        return worker.attempt, worker.world_size, list(worker.shards)

    head = whereabouts()
    calm, lost = fitted(4), fitted(4, in_folder / "node", "raylet/raylet", head)
    assert lost.result_.restarts >= 1
    assert digest_of(lost.get_model()) == digest_of(calm.get_model())
    deadline = time.monotonic() + 60
    while engine.nodes > 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert engine.nodes == 2

    monkeypatch.setattr("zoo.orca.engine.base.ROOM_SECONDS", 2)
    placed = engine.place([["a"], ["b"]])
    results = run_gang(engine, lose_a_node, (2, 4), head, data=placed, options=GangOptions(max_failures=3))
    assert [(size, shards) for _, size, shards in results] == [(2, [(0, "a")]), (2, [(1, "b")])]
