"""Training on arrays, with us and with peers. Every function takes a `Job` as JSON carries it and returns a Report.

Seconds are from arrays in files and a running engine to trained weights in the caller's hands. Where no engine runs
beforehand (embedded, torchrun, Lightning), starting the processes counts.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from benchmarks.learn_job import Job, config_of, create_model, create_optimizer, read_marks, shuffled
from benchmarks.ranks import WORKERS
from benchmarks.row import Report

Engine = Literal["local", "spark", "ray"]
MODES = {"local": "embedded", "spark": "local", "ray": "ray"}


def ours(job: dict[str, Any], engine: Engine, backend: str) -> Report:
    """`Estimator.fit` on arrays."""
    from zoo.orca import init_orca_context, stop_orca_context
    from zoo.orca.learn.pytorch import Estimator

    work = Job(**job)
    if engine != "local":
        init_orca_context(MODES[engine], cores=WORKERS)
    with tempfile.TemporaryDirectory() as marks:
        start = time.perf_counter()
        if engine == "local":
            init_orca_context(MODES[engine], cores=WORKERS)
        x, y = work.arrays()
        estimator = Estimator.from_torch(
            model=create_model,
            optimizer=create_optimizer,
            loss=work.loss(marks),
            config=config_of(work),
            num_workers=WORKERS,
            backend=backend,
        )
        estimator.fit({"x": x, "y": y}, epochs=work.epochs, batch_size=work.batch_size)
        state = estimator.get_model().state_dict()
        report = _report(work, marks, state, time.perf_counter() - start)
    estimator.shutdown()
    stop_orca_context()
    return report


def torchrun_rank(job: dict[str, Any], marks: str) -> dict[str, Any]:
    """The loop below on a rank of torchrun, in whose memory the weights may stay."""
    work = Job(**job)
    torch.distributed.init_process_group("gloo")
    model = _loop(work, marks, nn.parallel.DistributedDataParallel)
    torch.distributed.barrier()  # until both have left their marks
    torch.distributed.destroy_process_group()
    return _facts(work, marks, model.state_dict())


def torch_distributor(job: dict[str, Any]) -> Report:
    """The same loop under Spark's TorchDistributor, on a Spark that runs already."""
    from zoo.orca import OrcaContext, init_orca_context, stop_orca_context

    init_orca_context("local", cores=WORKERS)
    OrcaContext.get_spark_session()  # it wants the session, not only the context
    from pyspark.ml.torch.distributor import TorchDistributor

    with tempfile.TemporaryDirectory() as marks:
        start = time.perf_counter()
        distributor = TorchDistributor(num_processes=WORKERS, local_mode=False, use_gpu=False)
        distributor.run(_distributor_rank, job, marks)
        state = torch.load(Path(marks, "state"))
        report = _report(Job(**job), marks, state, time.perf_counter() - start)
    stop_orca_context()
    return report


def _distributor_rank(job: dict[str, Any], marks: str) -> None:
    torch.distributed.init_process_group("gloo")
    _save(_loop(Job(**job), marks, nn.parallel.DistributedDataParallel), marks)
    torch.distributed.destroy_process_group()


def ray_train(job: dict[str, Any]) -> Report:
    """The same loop under Ray Train's TorchTrainer, on a Ray that runs already."""
    from zoo.orca import init_orca_context, stop_orca_context

    init_orca_context("ray", cores=WORKERS)
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    with tempfile.TemporaryDirectory() as marks:
        start = time.perf_counter()
        TorchTrainer(
            _ray_rank,
            train_loop_config={"job": job, "marks": marks},
            scaling_config=ScalingConfig(num_workers=WORKERS),
            run_config=RunConfig(storage_path=marks),
        ).fit()
        state = torch.load(Path(marks, "state"))
        report = _report(Job(**job), marks, state, time.perf_counter() - start)
    stop_orca_context()
    return report


def _ray_rank(config: dict[str, Any]) -> None:
    from ray.train.torch import prepare_model

    _save(_loop(Job(**config["job"]), config["marks"], prepare_model), config["marks"])


def lightning_ddp(job: dict[str, Any]) -> Report:
    """Lightning's Trainer with its `ddp` strategy, which starts this very command again for the second rank."""
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    from benchmarks.lightning_module import Module

    work = Job(**job)
    with tempfile.TemporaryDirectory() as own:
        marks = os.environ.setdefault("BENCH_MARKS", own)  # the second rank is started with this environment
        start = time.perf_counter()
        torch.set_num_threads(1)
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=WORKERS,
            strategy=DDPStrategy(process_group_backend="gloo"),
            max_epochs=work.epochs,
            use_distributed_sampler=False,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        module = Module(work, marks)
        trainer.fit(module)
        seconds = time.perf_counter() - start
        if trainer.global_rank:
            sys.exit()
        return _report(work, marks, module.model.state_dict(), seconds)


def _loop(job: Job, marks: str, wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """What one writes by hand: DDP over gloo, which the caller has joined."""
    torch.set_num_threads(1)
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    x, y = map(torch.as_tensor, job.arrays())
    model = wrap(job.model())
    optimizer, loss = job.optimizer(model), job.loss(marks)
    for epoch in range(job.epochs):
        for features, targets in shuffled(x, y, job.batch_size // size, epoch, rank, size):
            optimizer.zero_grad()
            loss(model(features), targets).backward()
            optimizer.step()
    return model.module


def _save(model: nn.Module, marks: str) -> None:
    """Into a file, the least that it can cost to give weights back."""
    if torch.distributed.get_rank() == 0:
        torch.save(model.state_dict(), Path(marks, "state"))


def _report(job: Job, marks: str, state: dict[str, Any], seconds: float) -> Report:
    return Report(seconds, **_facts(job, marks, state))


def _facts(job: Job, marks: str, state: dict[str, Any]) -> dict[str, Any]:
    rate, rows = read_marks(job, marks)
    return {"checksum": [rows, job.has_learnt(state, *job.arrays())], "rate": rate}
