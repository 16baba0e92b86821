"""read_parquet on every engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pandas.testing import assert_frame_equal

from zoo.orca.data.pandas import parquet_files, read_parquet
from zoo.orca.errors import InvalidArgumentError, PathNotFoundError


@pytest.fixture
def table() -> pa.Table:
    return pa.table(
        {"a": pa.array(range(100), pa.int32()), "b": [f"n{i}" for i in range(100)], "c": np.arange(100) / 4}
    )


def joined(shards) -> pd.DataFrame:
    return pd.concat(shards.collect(), ignore_index=True)


def test_integers_come_back_as_int64(engine, table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "a.parquet")
    frame = joined(read_parquet(str(tmp_path / "a.parquet")))
    assert_frame_equal(frame, table.to_pandas().astype({"a": "int64"}))


@pytest.mark.engines("local", "ray")  # Spark cuts files by its own settings
def test_row_groups_are_read_as_shards(
    engine, table: pa.Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(parquet_files, "SHARD_BYTES", 1)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=30)
    shards = read_parquet(str(tmp_path / "a.parquet"))
    assert [len(shard) for shard in shards.collect()] == [30, 30, 30, 10]
    assert joined(shards)["a"].tolist() == list(range(100))


def test_columns_and_a_list_of_files(engine, table: pa.Table, tmp_path: Path) -> None:
    for name in ("1.parquet", "2.parquet"):
        pq.write_table(table, tmp_path / name)
    shards = read_parquet([str(tmp_path / "1.parquet"), str(tmp_path / "2.parquet")], columns=["c", "a"])
    assert len(shards.collect()) == 2
    assert list(joined(shards).columns) == ["c", "a"]
    assert len(shards) == 200
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        read_parquet(str(tmp_path), columns=["nowhere"])


def test_folders_of_keys_become_columns(engine, table: pa.Table, tmp_path: Path) -> None:
    for year in (2020, 2021):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(table, tmp_path / f"year={year}" / "a.parquet")
    frame = joined(read_parquet(str(tmp_path)))
    assert frame["year"].dtype == np.int64
    assert frame["year"].value_counts().to_dict() == {2020: 100, 2021: 100}


def test_gaps_in_one_file_widen_integers_everywhere(engine, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int32())}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": pa.array([None, 3], pa.int32())}), tmp_path / "2.parquet")
    shards = read_parquet(str(tmp_path))
    assert {shard["a"].dtype for shard in shards.collect()} == {np.dtype(float)}
    assert sorted(joined(shards)["a"].dropna()) == [1.0, 2.0, 3.0]


def test_a_schema_chooses_and_adds_columns(engine, table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "a.parquet")
    frame = joined(read_parquet(str(tmp_path), schema="a int, b string, z double"))
    assert list(frame.columns) == ["a", "b", "z"]
    assert (frame["a"].dtype, frame["z"].isna().all()) == (np.int64, True)
    with pytest.raises(InvalidArgumentError, match="is not known here"):
        read_parquet(str(tmp_path), schema="a whole")


def test_a_struct_type_is_a_schema_too(engine, table: pa.Table, tmp_path: Path) -> None:
    from pyspark.sql import types

    pq.write_table(table, tmp_path / "a.parquet")
    schema = types.StructType([types.StructField("b", types.StringType()), types.StructField("a", types.IntegerType())])
    assert list(joined(read_parquet(str(tmp_path), schema=schema)).columns) == ["b", "a"]


def test_a_missing_path_is_named(engine, tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="Path does not exist"):
        read_parquet(str(tmp_path / "none"))
