"""Shards in files: whole, private, and no more in memory than is looked at."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.orca.engine.store import read_pieces, read_shards, write_pieces, write_shards

SHARDS = st.lists(
    st.one_of(
        st.integers(),
        st.text(max_size=5),
        st.none(),
        st.builds(lambda n: np.arange(n), st.integers(0, 300)),
        st.builds(lambda n: pd.DataFrame({"a": range(n), "s": ["x"] * n}), st.integers(0, 5)),
        st.dictionaries(st.text(max_size=3), st.builds(lambda n: np.ones((n, 3)), st.integers(0, 40)), max_size=3),
    ),
    max_size=6,
)


def same(left, right):
    if isinstance(left, pd.DataFrame):
        return left.equals(right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return np.array_equal(left, right) if isinstance(left, np.ndarray) else left == right


@given(SHARDS)
@settings(deadline=None)
def test_shards_come_back_as_they_were(tmp_path_factory, shards):
    path = tmp_path_factory.mktemp("store") / "shards"
    assert write_shards(path, shards) == len(shards)
    back = list(read_shards(path))
    assert len(back) == len(shards)
    assert all(same(left, right) for left, right in zip(shards, back, strict=True))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers()), max_size=20))
@settings(deadline=None)
def test_pieces_are_found_by_target_in_order(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("store") / "pieces"
    write_pieces(path, pairs)
    for target in range(5):
        assert list(read_pieces(path, target)) == [piece for mine, piece in pairs if mine == target]


def test_what_is_changed_in_place_stays_private(tmp_path):
    write_shards(tmp_path / "x", [np.zeros(1000)])
    (first,) = read_shards(tmp_path / "x")
    first += 1
    (second,) = read_shards(tmp_path / "x")
    assert second.sum() == 0


def test_a_failed_write_leaves_no_file(tmp_path):
    def shards():
        yield 1
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        write_shards(tmp_path / "x", shards())
    assert list(tmp_path.iterdir()) == []


def test_reading_a_file_takes_memory_only_for_what_is_touched(tmp_path):
    path = tmp_path / "big"
    write_shards(path, (np.full(4_000_000, number, dtype=np.float64) for number in range(20)))  # 640 MB
    script = (
        "import resource; from zoo.orca.engine.store import read_shards\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        f"total = sum(float(shard[:100].sum()) for shard in read_shards({str(path)!r}))\n"
        "print(total, peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    total, kilobytes = done.stdout.split()
    assert float(total) == sum(100 * number for number in range(20))
    assert int(kilobytes) < 100_000
