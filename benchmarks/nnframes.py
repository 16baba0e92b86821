"""The same DataFrame through a Spark ML stage and through `zoo.orca.learn.pytorch`: what the older door costs.

Seconds are from a running engine to trained weights in the caller's hands, or to the sum of all predictions.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from benchmarks.learn_data import FEATURES, LABEL, WIDTH
from benchmarks.ranks import WORKERS
from benchmarks.row import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MEMORY = "4g"
RATE = 0.01


def stage_fit(folder: str, batch_size: int, epochs: int) -> Report:
    """`NNEstimator.fit`."""
    from zoo.pipeline.nnframes import NNEstimator

    frame, start, net = _begin(folder)
    optimizer = torch.optim.SGD(net.parameters(), RATE)
    stage = NNEstimator(net, nn.MSELoss()).setBatchSize(batch_size).setMaxEpoch(epochs).setOptimMethod(optimizer)
    stage.fit(frame)
    return _trained(net, start)


def estimator_fit(folder: str, batch_size: int, epochs: int) -> Report:
    """`Estimator.fit`."""
    frame, start, net = _begin(folder)
    est = _estimator(net)
    est.fit(frame, epochs=epochs, batch_size=batch_size, feature_cols=["features"], label_cols=[LABEL])
    return _trained(est.get_model(), start)


def stage_transform(folder: str, batch_size: int) -> Report:
    """`NNModel.transform`."""
    from zoo.pipeline.nnframes import NNModel

    frame, start, net = _begin(folder)
    return _predicted(NNModel(net).setBatchSize(batch_size).transform(frame), start)


def estimator_predict(folder: str, batch_size: int) -> Report:
    """`Estimator.predict`."""
    frame, start, net = _begin(folder)
    return _predicted(_estimator(net).predict(frame, batch_size=batch_size, feature_cols=["features"]), start)


def _begin(folder: str) -> tuple[DataFrame, float, nn.Module]:
    """Rows of one array of features each, the time, and a model that is the same in every process."""
    from zoo.orca import OrcaContext, init_orca_context

    init_orca_context("local", cores=WORKERS, memory=MEMORY)
    session = OrcaContext.get_spark_session()
    from pyspark.sql.functions import array

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))
    frame = session.read.parquet(folder).select(array(*FEATURES).alias("features"), LABEL)
    return frame, time.perf_counter(), net


def _estimator(net: nn.Module) -> Any:
    from zoo.orca.learn.pytorch import Estimator

    return Estimator.from_torch(model=net, optimizer=torch.optim.SGD(net.parameters(), RATE), loss=_loss)


def _loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(output[:, 0], target)


def _trained(net: nn.Module, start: float) -> Report:
    seconds = time.perf_counter() - start
    _stop()
    return Report(seconds, [float(torch.cat([each.detach().reshape(-1).abs() for each in net.parameters()]).sum())])


def _predicted(frame: DataFrame, start: float) -> Report:
    """Every row with all its columns goes through a task that gives its sum."""
    parts = frame.mapInArrow(_sum, "rows long, total double").collect()
    seconds = time.perf_counter() - start
    _stop()
    return Report(seconds, [sum(part.rows for part in parts), sum(part.total for part in parts)])


def _sum(batches: Any) -> Any:
    import pyarrow as pa

    for batch in batches:
        column = batch.column(batch.schema.names.index("prediction"))
        values = column.field("values") if pa.types.is_struct(column.type) else column
        total = float(np.abs(values.flatten().to_numpy(zero_copy_only=False)).sum(dtype=np.float64))
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "total": [total]})


def _stop() -> None:
    from zoo.orca import stop_orca_context

    stop_orca_context()
