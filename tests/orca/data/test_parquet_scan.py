"""Reading the Parquet files behind a Spark DataFrame gives Spark's rows, order and partitions, or is not offered."""

from __future__ import annotations

import contextlib
import math
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.orca import OrcaContext
from zoo.orca.data.parquet_scan import plain_scan

pytestmark = pytest.mark.engines("spark")

TYPES = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "flag": pa.bool_(),
    "list": pa.list_(pa.float32()),
    "nested": pa.list_(pa.list_(pa.int16())),
}
SPLITTING = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")


@pytest.fixture
def spark(engine):
    return OrcaContext.get_spark_session()


@pytest.fixture
def folder(tmp_path):
    """Two files, a number and a list."""
    for number in range(2):
        rows = np.arange(10) + 10 * number
        table = pa.table({"x": rows.astype("f4"), "y": rows, "v": [[float(row)] * 2 for row in rows]})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    return str(tmp_path)


@contextlib.contextmanager
def settings_of(spark, **values):
    before = {key: spark.conf.get(key) for key in values}
    try:
        for key, value in values.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def spark_rows(df, names):
    """The rows by partition as Spark reads them, in its order."""
    from pyspark.sql.functions import spark_partition_id

    partitions = [[] for _ in range(df.select(*names)._jdf.rdd().getNumPartitions())]
    for number, *values in df.select(spark_partition_id(), *names).collect():
        partitions[number].append([plain(value) for value in values])
    return partitions


def scan_rows(scan, names, rows=7):
    scan = pickle.loads(pickle.dumps(scan))
    found = []
    for number in range(len(scan.partitions)):
        batches = list(scan.batches(number, names, rows))
        assert all(0 < batch.num_rows <= rows and batch.schema.names == names for batch in batches)
        found.append([[plain(row[name]) for name in names] for batch in batches for row in batch.to_pylist()])
    return found


def plain(value):
    """A value that equals itself: nan does not."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def random_table(random, rows, nulls):
    def value(kind):
        if nulls and random.random() < 0.1:
            return None
        if pa.types.is_list(kind):
            return [value(kind.value_type) for _ in range(random.integers(3))]
        if pa.types.is_boolean(kind):
            return bool(random.integers(2))
        if pa.types.is_floating(kind):
            return float(random.choice([0.5, -0.0, math.nan, math.inf, 3.25]))
        return int(random.integers(-100, 100))

    return pa.table({name: pa.array([value(kind) for _ in range(rows)], kind) for name, kind in TYPES.items()})


class TestSameRows:
    @settings(max_examples=5, deadline=None)
    @given(
        files=st.lists(st.tuples(st.integers(0, 60), st.integers(10, 50)), min_size=1, max_size=3),
        names=st.lists(st.sampled_from(list(TYPES)), min_size=1, unique=True),
        most=st.sampled_from([1500, 10_000, 1 << 27]),
        cost=st.sampled_from([0, 500, 4 << 20]),
        written=st.sampled_from([("snappy", True), ("none", False), ("zstd", True)]),
        nulls=st.booleans(),
        seed=st.integers(0, 1000),
    )
    def test_of_any_files(self, engine, files, names, most, cost, written, nulls, seed):
        from pyspark.sql.pandas.types import from_arrow_schema

        spark, random = OrcaContext.get_spark_session(), np.random.default_rng(seed)
        compression, dictionary = written
        with tempfile.TemporaryDirectory() as folder:
            for number, (rows, group) in enumerate(files):
                path = Path(folder, f"ö %20 {number}#?.parquet")
                table = random_table(random, rows, nulls)
                pq.write_table(table, path, row_group_size=group, compression=compression, use_dictionary=dictionary)
            with settings_of(spark, **dict(zip(SPLITTING, map(str, (most, cost)), strict=True))):
                df = spark.read.schema(from_arrow_schema(pa.schema(TYPES))).parquet(folder)
                scan = plain_scan(df, names)
                assert scan is not None
                assert scan_rows(scan, names) == spark_rows(df, names)

    def test_of_files_that_spark_wrote(self, spark, tmp_path):
        path = str(tmp_path / "out")
        spark.range(1000, numPartitions=3).selectExpr("id", "float(id) AS f", "array(id, id) AS v").write.option(
            "parquet.block.size", "2000"
        ).parquet(path)
        with settings_of(spark, **{SPLITTING[0]: "1500"}):
            df = spark.read.parquet(path)
            scan = plain_scan(df, ["v", "f"])
            assert len(scan.partitions) > 3
            assert scan_rows(scan, ["v", "f"]) == spark_rows(df, ["v", "f"])

    def test_of_folders_of_a_partitioned_table(self, spark, tmp_path):
        path = str(tmp_path / "out")
        spark.range(30).selectExpr("id", "id % 3 AS part").write.partitionBy("part").parquet(path)
        df = spark.read.parquet(path)
        assert scan_rows(plain_scan(df, ["id"]), ["id"]) == spark_rows(df, ["id"])
        assert plain_scan(df, ["id", "part"]) is None
        assert plain_scan(df.where("part = 1"), ["id"]) is None

    def test_columns_that_are_chosen_or_left_out_on_the_way(self, spark, folder):
        df = spark.read.parquet(folder)
        for same in (
            df.select("y", "x"),
            df.alias("other").select("other.x"),
            df.withColumn("z", df.x + 1),
            df.drop("v"),
            df.select(df.x.alias("other")).toDF("x"),
        ):
            assert plain_scan(same, ["x"]) == plain_scan(df, ["x"]) != None  # noqa: E711

    def test_it_runs_no_job(self, spark, folder):
        tracker = spark.sparkContext.statusTracker()
        df = spark.read.parquet(folder)
        spark.sparkContext.setJobGroup("scan", "")
        try:
            assert set(plain_scan(df, ["x", "v"]).files) == {f"{folder}/{number}.parquet" for number in (0, 1)}
            assert list(tracker.getJobIdsForGroup("scan")) == []
        finally:
            spark.sparkContext._jsc.sc().clearJobGroup()


READING = """
import sys, pyarrow as pa
from zoo.orca.data.parquet_scan import ParquetScan, Split
scan = ParquetScan(((Split(sys.argv[1], 0, 1 << 40),),))
rows = sum(batch.num_rows for batch in scan.batches(0, list("abcd")))
print(rows, pa.default_memory_pool().max_memory())
"""


@pytest.mark.engines("local")
def test_memory_does_not_grow_with_the_file(engine, tmp_path):
    peaks = []
    for rows in (200_000, 1_600_000):
        path = str(tmp_path / f"{rows}.parquet")
        table = pa.table({name: np.random.default_rng(0).normal(size=rows) for name in "abcd"})
        pq.write_table(table, path, row_group_size=rows)
        printed = subprocess.run([sys.executable, "-c", READING, path], check=True, capture_output=True).stdout
        found, peak = map(int, printed.split())
        assert found == rows
        peaks.append(peak)
    assert peaks[1] < 1.5 * peaks[0]


class TestNotPlain:
    def test_frames_that_do_more_than_read(self, spark, folder):
        df = spark.read.parquet(folder)
        for other in (
            df.where("x > 3"),
            df.withColumn("x", df.x * 2),
            df.withColumn("x", df.x.cast("double")),
            df.selectExpr("y AS x"),
            df.limit(5),
            df.sample(0.5),
            df.union(df),
            df.orderBy("y"),
            df.repartition(2),
            df.coalesce(1),
            df.distinct(),
            df.mapInArrow(lambda batches: batches, df.schema),
            spark.createDataFrame([(1.0,)], "x double"),
            spark.read.schema("x double").parquet(folder),
            spark.read.schema("X float").parquet(folder).toDF("x"),
            spark.read.option("ignoreCorruptFiles", "true").parquet(folder),
            spark.readStream.schema(df.schema).parquet(folder),
        ):
            assert plain_scan(other, ["x"]) is None
        assert plain_scan(df, ["x"]) is not None

    def test_cached_frames(self, spark, folder):
        df = spark.read.parquet(folder)
        df.cache()
        try:
            assert plain_scan(df, ["x"]) is None
            assert plain_scan(df.select("x"), ["x"]) is None
        finally:
            df.unpersist()
        assert plain_scan(df, ["x"]) is not None

    def test_buckets(self, spark, tmp_path):
        spark.range(10).write.bucketBy(2, "id").option("path", str(tmp_path / "t")).saveAsTable("buckets")
        try:
            assert plain_scan(spark.table("buckets"), ["id"]) is None
        finally:
            spark.sql("DROP TABLE buckets")

    def test_columns_it_cannot_answer_for(self, spark, folder):
        df = spark.read.parquet(folder)
        for names in ([], ["none"], ["v.x"], ["x", "_metadata"]):
            assert plain_scan(df, names) is None
        assert plain_scan("x", ["x"]) is None

    @pytest.mark.parametrize(
        ("column", "as_spark"),
        [
            (pa.array(["a"]), "string"),
            (pa.array([1], pa.timestamp("us")), "timestamp_ntz"),
            (pa.array([1], pa.uint8()), "smallint"),
            (pa.array([1], pa.int32()), "bigint"),
            (pa.array([1.0], pa.float16()), "float"),
            (pa.array([{"x": 1}]), "struct<x: bigint>"),
            (pa.array(["1.5"]).cast(pa.decimal128(4, 1)), "decimal(4, 1)"),
            (pa.array([["a"]]), "array<string>"),
            (pa.array([[1.0]], pa.list_(pa.float64(), 1)), "array<double>"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_types_that_may_be_read_differently(self, spark, tmp_path, column, as_spark):
        pq.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
        assert plain_scan(spark.read.schema(f"x {as_spark}").parquet(str(tmp_path)), ["x"]) is None

    @pytest.mark.parametrize(
        "other",
        [{"y": [1]}, {"x": [1.0]}, {"X": [1]}, {"x": [1], "X": [1]}],
        ids=["no such column", "another type", "another case", "twice but for the case"],
    )
    def test_a_file_that_is_not_like_the_others(self, spark, tmp_path, other):
        pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
        df = spark.read.schema("x long").parquet(str(tmp_path))
        assert plain_scan(df, ["x"]) is not None
        pq.write_table(pa.table(other), tmp_path / "b.parquet")
        assert plain_scan(spark.read.schema("x long").parquet(str(tmp_path)), ["x"]) is None

    def test_a_file_that_went_away(self, spark, folder):
        df = spark.read.parquet(folder)
        Path(folder, "1.parquet").unlink()
        assert plain_scan(df, ["x"]) is None

    def test_settings_that_leave_out_files(self, spark, folder):
        df = spark.read.parquet(folder)
        with settings_of(spark, **{"spark.sql.files.ignoreMissingFiles": "true"}):
            assert plain_scan(df, ["x"]) is None
