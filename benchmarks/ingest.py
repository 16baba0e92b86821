"""Training on Parquet files, with us and with peers. Every function takes a `Job` as JSON carries it.

Seconds are from a running engine (or from nothing, for torchrun) to trained weights in the caller's hands.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from torch import nn

from benchmarks.learn_data import FEATURES, LABEL, files_of, matrix_of
from benchmarks.learn_job import Job, config_of, create_model, create_optimizer, read_marks, shuffled
from benchmarks.ranks import WORKERS, rank_and_size
from benchmarks.row import Report

MEMORY = "4g"
# Ray needs processors for reading beside those that its trainer's workers hold, or reading never starts.
RAY_CORES = 2 * WORKERS
Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


def ours_on_spark(job: dict[str, Any], backend: str = "bigdl") -> Report:
    """`Estimator.fit` on a Spark DataFrame."""
    from zoo.orca import OrcaContext, init_orca_context

    init_orca_context("local", cores=WORKERS, memory=MEMORY)
    session = OrcaContext.get_spark_session()
    return _ours(Job(**job), session.read.parquet, backend)


def ours_on_spark_torch_distributed(job: dict[str, Any]) -> Report:
    return ours_on_spark(job, "torch_distributed")


def ours_on_ray(job: dict[str, Any]) -> Report:
    """`Estimator.fit` on a Ray Dataset."""
    from zoo.orca import init_orca_context

    init_orca_context("ray", cores=RAY_CORES)
    import ray

    return _ours(Job(**job), ray.data.read_parquet, "bigdl")


def _ours(job: Job, read: Any, backend: str) -> Report:
    from zoo.orca import stop_orca_context
    from zoo.orca.learn.pytorch import Estimator

    with tempfile.TemporaryDirectory() as marks:
        start = time.perf_counter()
        estimator = Estimator.from_torch(
            model=create_model,
            optimizer=create_optimizer,
            loss=job.loss(marks),
            config=config_of(job),
            num_workers=WORKERS,
            backend=backend,
        )
        data = read(job.folder)
        estimator.fit(data, epochs=job.epochs, batch_size=job.batch_size, feature_cols=FEATURES, label_cols=[LABEL])
        state = estimator.get_model().state_dict()
        report = _report(job, marks, state, time.perf_counter() - start)
    estimator.shutdown()
    stop_orca_context()
    return report


def torch_distributor(job: dict[str, Any]) -> Report:
    """Each rank trains on a partition that Spark wrote for it as an Arrow file, by the loader that Spark brings."""
    from zoo.orca import OrcaContext, init_orca_context, stop_orca_context

    init_orca_context("local", cores=WORKERS, memory=MEMORY)
    session = OrcaContext.get_spark_session()
    from pyspark.ml.torch.distributor import TorchDistributor

    with tempfile.TemporaryDirectory() as marks:
        start = time.perf_counter()
        frame = session.read.parquet(job["folder"]).repartition(WORKERS)  # a partition a rank; even, as the files are
        distributor = TorchDistributor(num_processes=WORKERS, local_mode=False, use_gpu=False)
        distributor._train_on_dataframe(_distributor_rank, frame, job, marks)
        state = torch.load(Path(marks, "state"))
        report = _report(Job(**job), marks, state, time.perf_counter() - start)
    stop_orca_context()
    return report


def _distributor_rank(job: dict[str, Any], marks: str) -> None:
    from pyspark.ml.torch.distributor import _get_spark_partition_data_loader

    work = Job(**job)
    torch.distributed.init_process_group("gloo")
    loader = _get_spark_partition_data_loader(work.rows // WORKERS, work.batch_size // WORKERS)

    def batches(epoch: int) -> Batches:
        for columns in loader:
            yield _stack(columns[:-1]), columns[-1].float()

    _train_rank(work, marks, batches)
    torch.distributed.destroy_process_group()


def ray_data(job: dict[str, Any]) -> Report:
    """Ray Train's workers stream their shards of a Ray Dataset."""
    from zoo.orca import init_orca_context, stop_orca_context

    init_orca_context("ray", cores=RAY_CORES)
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    with tempfile.TemporaryDirectory() as marks:
        start = time.perf_counter()
        TorchTrainer(
            _ray_rank,
            train_loop_config={"job": job, "marks": marks},
            scaling_config=ScalingConfig(num_workers=WORKERS),
            run_config=RunConfig(storage_path=marks),
            datasets={"train": ray.data.read_parquet(job["folder"])},
        ).fit()
        state = torch.load(Path(marks, "state"))
        report = _report(Job(**job), marks, state, time.perf_counter() - start)
    stop_orca_context()
    return report


def _ray_rank(config: dict[str, Any]) -> None:
    import ray.train

    job = Job(**config["job"])
    shard = ray.train.get_dataset_shard("train")

    def batches(epoch: int) -> Batches:
        for columns in shard.iter_torch_batches(batch_size=job.batch_size // WORKERS):
            yield _stack([columns[name] for name in FEATURES]), columns[LABEL]

    _train_rank(job, config["marks"], batches)


def to_pandas(job: dict[str, Any]) -> Report:
    """All rows come to the driver, which trains alone."""
    from zoo.orca import OrcaContext, init_orca_context, stop_orca_context

    work = Job(**job)
    init_orca_context("local", cores=WORKERS, memory=MEMORY)
    session = OrcaContext.get_spark_session()
    with tempfile.TemporaryDirectory() as marks:
        start = time.perf_counter()
        frame = session.read.parquet(work.folder).toPandas()
        x, y = torch.from_numpy(frame[FEATURES].to_numpy()), torch.from_numpy(frame[LABEL].to_numpy())
        model = work.model()
        _train(work, marks, model, lambda epoch: shuffled(x, y, work.batch_size, epoch))
        report = _report(work, marks, model.state_dict(), time.perf_counter() - start, ranks=1)
    stop_orca_context()
    return report


def pyarrow_rank(job: dict[str, Any], marks: str) -> dict[str, Any]:
    """A rank of torchrun that reads half of the files into memory."""
    work = Job(**job)
    torch.distributed.init_process_group("gloo")
    tables = [pq.read_table(file, use_threads=False) for file in files_of(work.folder, *rank_and_size())]
    x = torch.cat([torch.from_numpy(matrix_of(table)) for table in tables])
    y = torch.cat([torch.tensor(table[LABEL].to_numpy()) for table in tables])
    model = _train_rank(work, marks, lambda epoch: shuffled(x, y, work.batch_size // WORKERS, epoch))
    torch.distributed.barrier()  # until both have left their marks
    torch.distributed.destroy_process_group()
    return {"checksum": _checksum(work, marks, model.state_dict())}


def _train_rank(job: Job, marks: str, batches: Callable[[int], Batches]) -> nn.Module:
    """One rank of several that have joined gloo; the first leaves the weights in a file."""
    torch.set_num_threads(1)
    model = nn.parallel.DistributedDataParallel(job.model())
    _train(job, marks, model, batches)
    if torch.distributed.get_rank() == 0:
        torch.save(model.module.state_dict(), Path(marks, "state"))
    return model.module


def _train(job: Job, marks: str, model: nn.Module, batches: Callable[[int], Batches]) -> None:
    optimizer, loss = job.optimizer(model), job.loss(marks)
    for epoch in range(job.epochs):
        for features, targets in batches(epoch):
            optimizer.zero_grad()
            loss(model(features), targets).backward()
            optimizer.step()


def _stack(columns: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(columns), dim=1).float()


def _report(job: Job, marks: str, state: dict[str, Any], seconds: float, ranks: int = WORKERS) -> Report:
    return Report(seconds, _checksum(job, marks, state, ranks))


def _checksum(job: Job, marks: str, state: dict[str, Any], ranks: int = WORKERS) -> list[Any]:
    _, rows = read_marks(job, marks, ranks)
    table = next(pq.ParquetFile(files_of(job.folder)[0]).iter_batches(2000))
    return [rows, job.has_learnt(state, matrix_of(table), table.column(LABEL).to_numpy())]
