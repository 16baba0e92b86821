"""The blocks of the docs that are about Spark or Ray run there: each by itself, those of an engine in one process."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pytest

import pages


@functools.cache
def ran_on(engine: str) -> dict[pages.Block, pages.Script]:
    blocks = [block for block in pages.ALL if block.where == engine]
    with tempfile.TemporaryDirectory() as folder:
        return dict(zip(blocks, pages.run([[block] for block in blocks], Path(folder)), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("block", [block for block in pages.ALL if block.where in ("spark", "ray")], ids=str)
def test_block_runs_on_spark_or_ray(block, pytestconfig):
    if block.where not in pytestconfig.getoption("--engines").split(","):
        pytest.skip(f"--engines leaves out {block.where}")
    ran_on(block.where)[block].check()
