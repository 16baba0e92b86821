"""The `csv` row: read many CSV files, change a column, take the distinct values of another and a sum.

Imports and what must run already (a Spark session) come before each contender's clock; worker processes that a library
starts for the work, ours included, count.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import csv_data
from benchmarks.row import Bar, Contender, Report, Row, Settings

if TYPE_CHECKING:
    import pandas as pd

FILES = 40
WORKERS = 2
FACTOR = 1.19


def row(settings: Settings) -> Row:
    files = FILES // 20 if settings.quick else FILES
    folder = settings.data / f"csv-{files}"
    contend = partial(Contender, arguments={"folder": str(folder)})
    return Row(
        name="csv",
        title=f"Read, transform and unique over {files} CSV files of 12 MB, {WORKERS} workers",
        contenders=(
            contend("embedded engine", "us", embedded),
            contend("embedded engine, pandas backend", "us", embedded_pandas_backend),
            contend("pandas, one process", "peer", pandas_loop),
            contend("Dask, 2 processes", "peer", dask_processes, needs=("dask",)),
            contend("Modin on Ray, 2 CPUs", "peer", modin_on_ray, needs=("modin", "ray")),
            contend("pandas-on-Spark, local[2]", "peer", pandas_on_spark, needs=("pyspark",)),
            contend(
                "polars, 2 threads",
                "limit",
                polars_lazy,
                needs=("polars",),
                environment={"POLARS_MAX_THREADS": str(WORKERS)},
            ),
        ),
        bars=(
            Bar("at least 1.6 times as fast as pandas", "pandas, one process", at_least=1.6),
            Bar("ahead of Dask", "Dask, 2 processes", at_least=1),
            Bar("ahead of Modin", "Modin on Ray, 2 CPUs", at_least=1),
            Bar("ahead of pandas-on-Spark", "pandas-on-Spark, local[2]", at_least=1),
        ),
        prepare=partial(csv_data.make, folder, files),
    )


def embedded(folder: str) -> Report:
    return _with_us(folder, "spark")


def embedded_pandas_backend(folder: str) -> Report:
    return _with_us(folder, "pandas")


def _with_us(folder: str, backend: str) -> Report:
    from zoo.orca import OrcaContext, init_orca_context, stop_orca_context
    from zoo.orca.data.pandas import read_csv

    OrcaContext.pandas_read_backend = backend
    start = time.perf_counter()
    init_orca_context("embedded", cores=WORKERS)
    shards = read_csv(folder).transform_shard(_raise_price)
    cities = shards["city"].unique()
    sums = shards.transform_shard(_count_and_sum).collect()
    seconds = time.perf_counter() - start
    stop_orca_context()
    return Report(seconds, _checksum(sum(rows for rows, _ in sums), sum(total for _, total in sums), cities))


def _raise_price(frame: pd.DataFrame) -> pd.DataFrame:
    frame["price"] = frame["price"] * FACTOR
    return frame


def _count_and_sum(frame: pd.DataFrame) -> tuple[int, float]:
    return len(frame), float(frame["price"].sum())


def pandas_loop(folder: str) -> Report:
    """File by file: the same work with no need to hold all rows at once."""
    import pandas as pd

    start = time.perf_counter()
    rows, total, cities = 0, 0.0, set()
    for file in sorted(Path(folder).iterdir()):
        frame = _raise_price(pd.read_csv(file))
        more, part = _count_and_sum(frame)
        rows, total = rows + more, total + part
        cities.update(frame["city"].unique())
    return Report(time.perf_counter() - start, _checksum(rows, total, cities))


def dask_processes(folder: str) -> Report:
    """One pass over the files for all three answers."""
    import dask
    import dask.dataframe as dd

    start = time.perf_counter()
    frame = dd.read_csv(f"{folder}/*.csv")
    frame["price"] = frame["price"] * FACTOR
    answers = frame["id"].count(), frame["price"].sum(), frame["city"].unique()
    rows, total, cities = dask.compute(*answers, scheduler="processes", num_workers=WORKERS)
    return Report(time.perf_counter() - start, _checksum(rows, total, cities))


def modin_on_ray(folder: str) -> Report:
    """On a Ray that runs already; `read_csv_glob` is Modin's own way to read many files."""
    from zoo.orca import init_orca_context, stop_orca_context

    init_orca_context("ray", cores=WORKERS)
    import modin.config
    import modin.experimental.pandas as mpd

    modin.config.CpuCount.put(WORKERS)
    start = time.perf_counter()
    frame = mpd.read_csv_glob(f"{folder}/*.csv")
    frame["price"] = frame["price"] * FACTOR
    rows, total, cities = len(frame), frame["price"].sum(), frame["city"].unique()
    seconds = time.perf_counter() - start
    stop_orca_context()
    return Report(seconds, _checksum(rows, total, cities))


def pandas_on_spark(folder: str) -> Report:
    """In a session that runs already; the time of the whole process includes starting it."""
    from zoo.orca import init_orca_context, stop_orca_context

    init_orca_context("local", cores=WORKERS, memory="4g")
    import pyspark.pandas as ps

    start = time.perf_counter()
    frame = ps.read_csv(folder)
    frame["price"] = frame["price"] * FACTOR
    with frame[["price", "city"]].spark.cache() as kept:
        cities = kept["city"].unique().to_numpy()
        total, rows = kept["price"].sum(), len(kept)
    seconds = time.perf_counter() - start
    stop_orca_context()
    return Report(seconds, _checksum(rows, total, cities))


def polars_lazy(folder: str) -> Report:
    """One plan, which reads only the columns that are asked for."""
    import polars as pl

    start = time.perf_counter()
    frame = pl.scan_csv(f"{folder}/*.csv").with_columns(pl.col("price") * FACTOR)
    sums, cities = pl.collect_all(
        [frame.select(pl.len().alias("rows"), pl.col("price").sum()), frame.select(pl.col("city").unique())]
    )
    return Report(time.perf_counter() - start, _checksum(sums["rows"][0], sums["price"][0], cities["city"]))


def _checksum(rows: int, total: float, cities: Iterable[str]) -> list[int | float | str]:
    names = sorted(map(str, cities))
    return [int(rows), float(total), len(names), hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]]
