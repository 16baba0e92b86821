"""Python workers of a Spark that we started are forks of a daemon that has imported what they need."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from zoo.orca.engine.gang import run_gang

pytestmark = pytest.mark.engines("spark")


def test_torch_is_imported_once_for_all_workers_and_each_draws_its_own_numbers(engine):
    def work(worker):
        maps = Path(f"/proc/{os.getppid()}/maps").read_text()
        return torch.zeros(1).item(), os.getppid(), "libtorch" in maps, np.random.rand()

    zeros, daemons, have_torch, drawn = zip(*run_gang(engine, work, 4), strict=True)
    assert zeros == (0.0,) * 4
    assert len(set(daemons)) == 1
    assert have_torch == (True,) * 4
    assert len(set(drawn)) == 4


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


def test_what_cannot_be_imported_is_passed_over(engine):
    before = engine.sc.environment.copy()
    try:
        engine.expect(["no_such_module_of_anyone"])
        found = run_gang(engine, lambda worker: "no_such_module_of_anyone" in sys.modules, 2)
    finally:
        engine.sc.environment.clear()
        engine.sc.environment.update(before)
    assert found == [False, False]
