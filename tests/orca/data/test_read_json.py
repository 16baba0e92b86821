"""read_json on every engine, with both read backends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from zoo.orca import OrcaContext
from zoo.orca.data.pandas import blocks, read_json
from zoo.orca.errors import InvalidArgumentError, PathNotFoundError

LINES = '{"value": 1.5, "id": 1, "name": "a"}\n{"id": 2, "name": "b", "value": 2.5}\n'


@pytest.fixture(params=["pandas", "spark"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    OrcaContext.pandas_read_backend = request.param
    yield request.param
    OrcaContext.pandas_read_backend = "spark"


pandas_backend = pytest.mark.parametrize("backend", ["pandas"], indirect=True)


@pandas_backend
def test_pandas_orients_are_read_one_file_a_shard(engine, backend: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    for name in ("1.json", "2.json"):
        frame.to_json(tmp_path / name, orient="columns")
    shards = read_json(str(tmp_path), orient="columns")
    assert shards.num_partitions() == 2
    for shard in shards.collect():
        assert_frame_equal(shard, frame)


@pandas_backend
def test_a_large_file_of_lines_is_cut(engine, backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 3000)
    codes = ["007"] * 150 + ["x"] * 150
    frame = pd.DataFrame({"a": range(300), "b": ["new\nline"] * 300, "code": codes, "part": [None] * 200 + [1.0] * 100})
    frame.to_json(tmp_path / "a.json", orient="records", lines=True)
    shards = read_json(str(tmp_path / "a.json"), orient="records", lines=True)
    assert len(shards.collect()) > 2
    assert_frame_equal(pd.concat(shards.collect(), ignore_index=True), frame)


@pandas_backend
def test_an_unparsable_file_raises_pandas_error(engine, backend: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match=r"Expected object or value|Unexpected|Trailing|decoding"):
        read_json(str(tmp_path / "a.json"))


def test_a_missing_path_is_named(engine, backend: str, tmp_path: Path) -> None:
    words = {"spark": "Path does not exist", "pandas": "No such file or directory"}
    with pytest.raises(PathNotFoundError, match=words[backend]):
        read_json(str(tmp_path / "none.json"))


def test_lines_are_read_with_columns_in_the_order_of_names(engine, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(LINES)
    (shard,) = read_json(str(tmp_path / "a.json")).collect()
    assert_frame_equal(shard, pd.DataFrame({"id": [1, 2], "name": ["a", "b"], "value": [1.5, 2.5]}))


def test_names_usecols_and_dtype(engine, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(LINES)
    path = str(tmp_path / "a.json")
    (shard,) = read_json(path, names=["x", "y", "z"], usecols=["x", "z"], dtype={"x": "float32"}).collect()
    assert_frame_equal(shard, pd.DataFrame({"x": np.array([1, 2], "float32"), "z": [1.5, 2.5]}))
    with pytest.raises(InvalidArgumentError, match="Did you mean 'usecols'"):
        read_json(path, use_cols=["x"])


def test_fields_that_some_files_lack_are_missing_values(engine, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text('{"a": 1, "b": 5}\n')
    (tmp_path / "2.json").write_text('{"a": 2}\n')
    frames = sorted(read_json(str(tmp_path)).collect(), key=lambda frame: frame["a"][0])
    assert [frame["b"].dtype for frame in frames] == [np.dtype(float)] * 2
    assert frames[0]["b"].tolist() == [5.0]
    assert frames[1]["b"].isna().all()
