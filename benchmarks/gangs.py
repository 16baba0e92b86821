"""Starting two processes that wait for each other and tell their ranks: with us, with peers, and with nothing at all.

Every function takes `again`: whether the clock is on the first gang of the process or on the second.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.row import Report

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker

SIZE = 2
# An idle process that tells its rank whenever it is asked; whoever asks both and waits for both is the barrier.
IDLE = "import sys\nfor line in sys.stdin:\n    sys.stdout.write(line)\n    sys.stdout.flush()"


def embedded(torch: bool = False, again: bool = False) -> Report:
    """Ours, no engine to start: `LocalEngine` and `run_gang`."""
    from zoo.orca.engine.gang import run_gang
    from zoo.orca.engine.local import LocalEngine

    start = time.perf_counter()
    with LocalEngine(cores=SIZE) as engine:
        if again:
            run_gang(engine, _member(torch), SIZE)
            start = time.perf_counter()
        ranks = run_gang(engine, _member(torch), SIZE)
        seconds = time.perf_counter() - start
    return Report(seconds, ranks)


def on_ray(torch: bool = False, again: bool = False) -> Report:
    """Ours, on a Ray that runs already."""
    return _on_engine("ray", torch, again)


def on_spark(torch: bool = False, again: bool = False) -> Report:
    """Ours, on a Spark that runs already."""
    return _on_engine("local", torch, again)


def _on_engine(mode: str, torch: bool, again: bool) -> Report:
    from zoo.orca import init_orca_context, stop_orca_context
    from zoo.orca.context import current_engine
    from zoo.orca.engine.gang import run_gang

    init_orca_context(mode, cores=SIZE)
    engine = current_engine()
    report = _timed(lambda: run_gang(engine, _member(torch), SIZE), again)
    stop_orca_context()
    return report


def _member(torch: bool) -> Callable[[Worker], int]:
    return _join_gloo_at_rendezvous if torch else _meet


def _meet(worker: Worker) -> int:
    worker.barrier()
    return worker.rank


def _join_gloo_at_rendezvous(worker: Worker) -> int:
    host, port = worker.rendezvous
    return join_gloo(init_method=f"tcp://{host}:{port}", rank=worker.rank, world_size=worker.world_size)


def join_gloo(**group: Any) -> int:
    """Import torch, join the group (by torchrun's variables unless told otherwise), wait for the others, leave."""
    import torch.distributed as dist

    dist.init_process_group("gloo", **group)
    dist.barrier()
    rank = dist.get_rank()
    dist.destroy_process_group()
    return rank


def ray_train(again: bool = False) -> Report:
    """Ray Train's TorchTrainer, on a Ray that runs already; it joins gloo by itself."""
    from zoo.orca import init_orca_context, stop_orca_context

    init_orca_context("ray", cores=SIZE)
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    with tempfile.TemporaryDirectory() as folder:

        def fit() -> list[int]:
            TorchTrainer(
                _write_ranks,
                train_loop_config={"folder": folder},
                scaling_config=ScalingConfig(num_workers=SIZE),
                run_config=RunConfig(storage_path=folder),
            ).fit()
            return json.loads(Path(folder, "ranks").read_text())

        report = _timed(fit, again)
    stop_orca_context()
    return report


def _write_ranks(config: dict[str, str]) -> None:
    """Into a file, since Ray Train gives back no figures that come without a checkpoint."""
    import torch.distributed as dist

    ranks = _gather_ranks()
    if dist.get_rank() == 0:
        Path(config["folder"], "ranks").write_text(json.dumps(ranks))


def torch_distributor(again: bool = False) -> Report:
    """Spark's TorchDistributor, on a Spark that runs already; its processes join gloo as ours do."""
    from zoo.orca import OrcaContext, init_orca_context, stop_orca_context

    init_orca_context("local", cores=SIZE)
    OrcaContext.get_spark_session()  # it wants the session, not only the context
    from pyspark.ml.torch.distributor import TorchDistributor

    distributor = TorchDistributor(num_processes=SIZE, local_mode=False, use_gpu=False)
    report = _timed(lambda: distributor.run(_join_and_gather), again)
    stop_orca_context()
    return report


def _join_and_gather() -> list[int]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    ranks = _gather_ranks()
    dist.destroy_process_group()
    return ranks


def _gather_ranks() -> list[int]:
    import torch.distributed as dist

    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, dist.get_rank())
    return ranks


def bare_processes(again: bool = False) -> Report:
    """The least there is: two interpreters that import nothing, on pipes."""
    start = time.perf_counter()
    processes = [
        subprocess.Popen([sys.executable, "-c", IDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(SIZE)
    ]
    if again:
        _ask(processes)
        start = time.perf_counter()
    ranks = _ask(processes)
    seconds = time.perf_counter() - start
    for process in processes:
        process.communicate()
    return Report(seconds, ranks)


def _ask(processes: list[subprocess.Popen[str]]) -> list[int]:
    for rank, process in enumerate(processes):
        process.stdin.write(f"{rank}\n")
        process.stdin.flush()
    return [int(process.stdout.readline()) for process in processes]


def _timed(gang: Callable[[], list[int]], again: bool) -> Report:
    if again:
        gang()
    start = time.perf_counter()
    ranks = gang()
    return Report(time.perf_counter() - start, ranks)
