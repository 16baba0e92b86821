"""Python workers of a Spark that we started are forks of a daemon that has imported what they need."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest
import torch
from pyspark.sql import SparkSession

from zoo.orca.engine.gang import run_gang
from zoo.orca.engine.spark_settings import IMPORTS

pytestmark = pytest.mark.engines("spark")


@pytest.fixture
def expecting(engine):
    """Has the engine expect a module, so that what runs next has workers of its own."""
    before = engine.sc.environment.copy()
    yield lambda module: engine.expect([module])
    engine.sc.environment.clear()
    engine.sc.environment.update(before)


def test_torch_is_imported_once_for_all_workers_and_each_draws_its_own_numbers(engine, expecting):
    expecting("colorsys")

    def work(worker):
        maps = Path(f"/proc/{os.getppid()}/maps").read_text()
        return torch.zeros(1).item(), os.getppid(), "libtorch" in maps, np.random.rand()

    zeros, daemons, have_torch, drawn = zip(*run_gang(engine, work, 4), strict=True)
    assert zeros == (0.0,) * 4
    assert len(set(daemons)) == 1
    assert have_torch == (True,) * 4
    assert len(set(drawn)) == 4


def test_gangs_shards_and_queries_share_a_daemon(engine):
    def parents(batches):
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"parent": [os.getppid()]})

    session = SparkSession(engine.sc)
    of_queries = {row.parent for row in session.range(1).mapInArrow(parents, "parent long").collect()}
    of_shards = set(engine.sc.parallelize([0], 1).map(lambda _: os.getppid()).collect())
    of_gangs = set(run_gang(engine, lambda worker: os.getppid(), 2))
    assert len(of_queries) == 1
    assert of_queries == of_shards == of_gangs


def test_workers_are_reached_through_files_of_ours_and_no_port(engine):
    def look(worker):
        daemon = psutil.Process(os.getppid())
        ports = [each for each in daemon.net_connections("inet") if each.status == psutil.CONN_LISTEN]
        return [each.laddr for each in daemon.net_connections("unix") if each.laddr], ports

    for files, ports in run_gang(engine, look, 2):
        assert ports == []
        assert files
        for file in files:
            folder = Path(file).parent.stat()
            assert (folder.st_uid, folder.st_mode & 0o777) == (os.getuid(), 0o700)


def test_what_cannot_be_imported_is_passed_over(engine, expecting):
    expecting("no_such_module_of_anyone")
    found = run_gang(engine, lambda worker: os.environ[IMPORTS].split(","), 2)
    assert all("no_such_module_of_anyone" in names for names in found)
