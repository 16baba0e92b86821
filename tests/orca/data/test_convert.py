"""XShards to and from Spark DataFrames and Ray Datasets, and RayXShards: rows, order, types, partitions."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest

from zoo.orca.data import SparkXShards, XShards
from zoo.orca.data.ray_xshards import _assign
from zoo.orca.errors import ContextError, InvalidArgumentError, ShardTypeError


@pytest.fixture
def whole():
    return pd.DataFrame(
        {
            "i": np.arange(6),
            "f": [1.5, np.nan, 2.5, 3.5, 4.5, 5.5],
            "s": ["a", None, "c", "d", "ü", ""],
            "t": pd.to_datetime(["2026-01-01 10:00:00"] * 6),
            "v": [np.arange(3, dtype=np.float32) + row for row in range(6)],
        }
    )


@pytest.fixture
def shards(engine, whole):
    return XShards.from_placement(engine.place([[whole.iloc[:2], whole.iloc[2:3]], [], [whole.iloc[3:]]]))


class TestSpark:
    @pytest.mark.engines("spark")
    def test_there_and_back(self, engine, shards, whole):
        df = shards.to_spark_df()
        assert [(field.name, field.dataType.simpleString()) for field in df.schema] == [
            ("i", "bigint"),
            ("f", "double"),
            ("s", "string"),
            ("t", "timestamp_ntz"),
            ("v", "array<float>"),
        ]
        rows = df.collect()
        assert [row.i for row in rows] == list(range(6))
        assert rows[1].s is None
        assert rows[4].v == [4.0, 5.0, 6.0]
        assert rows[0].t == datetime.datetime(2026, 1, 1, 10)
        back = XShards.from_spark_df(df)
        assert isinstance(back, SparkXShards)
        joined = back.to_pandas()
        pd.testing.assert_frame_equal(joined[["i", "f"]], whole[["i", "f"]])
        assert joined["s"].tolist() == whole["s"].tolist()
        assert joined["v"].map(list).tolist() == whole["v"].map(list).tolist()

    @pytest.mark.engines("spark")
    def test_shards_of_other_dtypes_find_a_common_schema(self, engine):
        frames = [pd.DataFrame({"n": [1]}), pd.DataFrame({"n": [None]}), pd.DataFrame({"n": [2.5]})]
        df = XShards.from_placement(engine.place([[each] for each in frames])).to_spark_df()
        assert [row.n for row in df.collect()] == [1.0, None, 2.5]

    @pytest.mark.engines("spark")
    def test_from_a_dataframe_one_shard_a_partition(self, engine):
        from pyspark.sql import SparkSession

        df = SparkSession.builder.getOrCreate().range(0, 10, 1, 4)
        assert [shard["id"].tolist() for shard in XShards.from_spark_df(df).collect()] == [
            [0, 1],
            [2, 3, 4],
            [5, 6],
            [7, 8, 9],
        ]

    def test_bad_input(self, engine):
        with pytest.raises(InvalidArgumentError, match="takes a Spark DataFrame, but got a list"):
            XShards.from_spark_df([1])

    @pytest.mark.engines("spark")
    def test_shards_without_rows_are_refused(self, engine):
        with pytest.raises(ShardTypeError, match="only shards of pandas DataFrames have rows"):
            XShards.partition(np.arange(4), 2).to_spark_df()


class TestRay:
    @pytest.mark.engines("ray")
    def test_there_and_back(self, engine, shards, whole):
        dataset = shards.to_ray_dataset()
        rows = dataset.take_all()
        assert [row["i"] for row in rows] == list(range(6))
        assert rows[1]["s"] is None
        back = XShards.from_ray_dataset(dataset).to_pandas()
        pd.testing.assert_frame_equal(back[["i", "f", "t"]], whole[["i", "f", "t"]], check_dtype=False)
        assert back["v"].map(list).tolist() == whole["v"].map(list).tolist()

    def test_bad_input(self, engine):
        with pytest.raises(InvalidArgumentError, match="takes a Ray Dataset, but got a list"):
            XShards.from_ray_dataset([1])

    @pytest.mark.engines("local")
    def test_the_other_engine_must_run(self, engine):
        shards = XShards.partition(pd.DataFrame({"a": [1, 2]}), 1)
        with pytest.raises(ContextError, match=r'Type: init_orca_context\("ray"\) first'):
            shards.to_ray_dataset()
        with pytest.raises(ContextError, match="init_orca_context"):
            shards.to_spark_df()


class TestAssignment:
    @pytest.mark.parametrize(
        ("homes", "ips", "expected"),
        [
            ([set()] * 5, ["a", "b"], [[0, 1, 2], [3, 4]]),
            ([{"b"}, {"a"}, {"b"}, {"a"}], ["a", "b"], [[1, 3], [0, 2]]),
            ([{"a"}, {"a"}, {"a"}], ["a", "b"], [[0, 1], [2]]),
            ([set()], ["a"], [[0]]),
        ],
    )
    def test_even_shares_near_their_data(self, homes, ips, expected):
        assert _assign(homes, ips) == expected
