"""Predict on every kind of data: rows, order and columns as they came, full batches, a model loaded once a process."""

from __future__ import annotations

import datetime
import itertools
import os
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.orca import OrcaContext
from zoo.orca.data import XShards
from zoo.orca.errors import InvalidArgumentError, InvalidKeyError, PreconditionError
from zoo.orca.learn.predict import (
    OutputType,
    predict,
    predict_arrays,
    predict_ray_dataset,
    predict_spark,
    predict_xshards,
    spark_sample,
)
from zoo.orca.learn.predict import arrays as arrays_module
from zoo.orca.learn.predict import spark as spark_module
from zoo.orca.learn.predict.model import Model


class Ours:
    """A model in numpy: `shape` says what it makes of the sum of a row's features; it can write down what it does."""

    def __init__(self, shape="number", log=None):
        self.key = uuid.uuid4().hex
        self.shape = shape
        self.log = log

    def load(self):
        self.write("load")
        return self.forward

    def write(self, line):
        if self.log:
            with open(self.log, "a") as file:
                file.write(f"{line} {os.getpid()}\n")

    def forward(self, features):
        rows = [part.reshape(len(part), -1).sum(axis=1) for part in leaves(features)]
        total = np.sum(rows, axis=0, dtype=np.float32)
        self.write(f"batch {len(total)}")
        return {
            "number": lambda: total,
            "column": lambda: total[:, None],
            "vector": lambda: np.stack([total, total * 2], axis=1),
            "matrix": lambda: np.stack([total] * 6, axis=1).reshape(-1, 2, 3) * np.arange(6).reshape(2, 3),
            "several": lambda: [total[:, None], np.stack([total, -total, total * 0], axis=1), total],
            "integers": lambda: total.astype(np.int64),
            "too few": lambda: total[1:],
            "text": lambda: np.array(["x"] * len(total)),
            "fails": lambda: 1 / 0,
            "by batch": lambda: np.stack([total] * (1 + len(total) % 3), axis=1),
        }[self.shape]()


class Torch:
    """A small network, which takes one argument."""

    def __init__(self):
        import torch

        torch.manual_seed(0)
        self.key = uuid.uuid4().hex
        self.network = torch.nn.Linear(3, 2)

    def load(self):
        import torch

        def run(features):
            with torch.inference_mode():
                return self.network(torch.tensor(features[0])).numpy()

        return run


def leaves(features):
    from zoo.orca.feed.structure import flatten

    return flatten(features)[0]


def spark():
    return OrcaContext.get_spark_session()


def numbers(count, partitions):
    """Columns a and b of `count` rows in partitions, in the order of a."""
    return (
        spark().range(count, numPartitions=partitions).selectExpr("float(id) AS a", "id * 10 AS b", "string(id) AS c")
    )


def predicted(df, model, batch_size=4, names=("a", "b")):
    return predict(df, model, batch_size, list(names))


# One pass of a partition, without Spark


class Loaded:
    def __init__(self, model):
        self._model = model

    def model(self):
        return Model(self._model.load())


def run_pass(chunks, model, batch_size, output=None):
    output = output or OutputType.probe(Ours(model.shape).load(), (np.zeros((2, 2)),))
    return list(
        spark_module._predicting(Loaded(model), ["x", "n"], ["x", "n", "prediction"], ["x"], batch_size, output)(
            iter(chunks)
        )
    )


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 20), st.integers(1, 200))
def test_batches_are_full_whatever_the_chunks(tmp_path_factory, sizes, batch_size, part_bytes):
    log = tmp_path_factory.mktemp("log") / "log"
    ends = np.cumsum([0, *sizes])
    values = np.arange(ends[-1] * 2, dtype=np.float32).reshape(-1, 2)
    chunks = [
        pa.RecordBatch.from_pydict({"x": list(values[start:stop]), "n": np.arange(start, stop)})
        if stop > start
        else pa.RecordBatch.from_pydict({"x": pa.array([], pa.list_(pa.float32())), "n": np.arange(0)})
        for start, stop in itertools.pairwise(ends)
    ]
    before, spark_module.PART_BYTES = spark_module.PART_BYTES, part_bytes
    try:
        out = run_pass(chunks, Ours("vector", log), batch_size)
    finally:
        spark_module.PART_BYTES = before
    rows = [row for batch in out for row in batch.to_pylist()]
    assert [row["n"] for row in rows] == list(range(len(values)))
    assert [row["prediction"]["values"] for row in rows] == [[sum(v), sum(v) * 2] for v in values.tolist()]
    if log.exists():
        batches = [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("batch")]
        assert all(size == batch_size for size in batches[:-1])
        assert sum(batches) == len(values)
        assert batches[-1] <= batch_size
    else:
        assert not len(values)


def test_a_width_that_changes_between_batches_is_kept():
    chunk = pa.RecordBatch.from_pydict({"x": np.arange(7.0), "n": np.arange(7)})
    out = run_pass([chunk], Ours("by batch"), 2)
    assert [len(row["prediction"]["values"]) for batch in out for row in batch.to_pylist()] == [3] * 6 + [2]


# Spark DataFrames


@pytest.mark.engines("spark")
@pytest.mark.parametrize(
    ("rows", "partitions", "batch_size", "chunk"),
    [(0, 1, 4, 3), (1, 3, 4, 3), (23, 1, 1, 7), (23, 1, 64, 5), (50, 4, 4, 3), (50, 4, 64, 10000)],
)
def test_spark_order_and_values(engine, rows, partitions, batch_size, chunk):
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark().conf.get(name)
    spark().conf.set(name, chunk)
    try:
        df = numbers(rows, partitions)
        out = predicted(df, Ours(), batch_size)
        assert out.rdd.getNumPartitions() == df.rdd.getNumPartitions()
        found = [tuple(row) for row in out.collect()]
    finally:
        spark().conf.set(name, before)
    assert out.columns == ["a", "b", "c", "prediction"]
    assert found == [(float(n), n * 10, str(n), n * 11.0) for n in range(rows)]


@pytest.mark.engines("spark")
def test_spark_prediction_types(engine):
    from pyspark.ml.linalg import DenseVector, VectorUDT
    from pyspark.sql.types import ArrayType, FloatType

    def of(shape, squeeze=False):
        out = predict(numbers(3, 2), Ours(shape), 4, ["a", "b"], squeeze=squeeze)
        return out.schema["prediction"].dataType, [row.prediction for row in out.collect()]

    assert of("number") == (FloatType(), [0.0, 11.0, 22.0])
    assert of("integers") == (FloatType(), [0.0, 11.0, 22.0])
    assert of("column") == (VectorUDT(), [DenseVector([0]), DenseVector([11]), DenseVector([22])])
    assert of("column", squeeze=True) == (FloatType(), [0.0, 11.0, 22.0])
    assert of("vector") == (VectorUDT(), [DenseVector([0, 0]), DenseVector([11, 22]), DenseVector([22, 44])])
    kind, values = of("matrix")
    assert kind == ArrayType(ArrayType(FloatType()))
    assert values[1] == [[0, 11, 22], [33, 44, 55]]
    kind, values = of("several")
    assert kind == ArrayType(VectorUDT())
    assert values[2] == [DenseVector([22]), DenseVector([22, -22, 0]), DenseVector([22])]


@pytest.mark.engines("spark")
def test_spark_columns_come_out_as_they_went_in(engine):
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql import types as t

    when = datetime.datetime(2021, 3, 28, 2, 30, 15, 123456)
    inner = t.StructType([t.StructField("n", t.IntegerType()), t.StructField("at", t.ArrayType(t.TimestampType()))])
    schema = t.StructType(
        [
            t.StructField("dense", VectorUDT(), False, {"ml_attr": {"name": "kept"}}),
            t.StructField("sparse", VectorUDT()),
            t.StructField("time", t.TimestampType()),
            t.StructField("naive", t.TimestampNTZType()),
            t.StructField("day", t.DateType()),
            t.StructField("money", t.DecimalType(20, 4)),
            t.StructField("inner", inner),
            t.StructField("map", t.MapType(t.StringType(), t.LongType())),
            t.StructField("bytes", t.BinaryType()),
            t.StructField("a.b", t.ByteType()),
            t.StructField("vectors", t.ArrayType(VectorUDT())),
        ]
    )
    full = (Vectors.dense(1, 2), Vectors.sparse(2, [1], [5.0]), when, when, when.date(), Decimal("12345.6789"))
    full += ((1, [when, None]), {"k": 1, "none": None}, bytearray(b"\0x"), 7, [Vectors.dense(1), None])
    empty = (Vectors.sparse(2, [0], [3.0]), Vectors.dense(4, 4), *[None] * 7, 1, None)
    df = spark().createDataFrame([full, empty], schema)
    out = predict(df, Ours(), 4, ["dense", "sparse", "a.b"])
    assert out.schema.fields[:-1] == schema.fields
    assert [tuple(row)[:-1] for row in out.collect()] == [tuple(row) for row in df.collect()]
    assert [row.prediction for row in out.collect()] == [1 + 2 + 5 + 7, 3 + 8 + 1]


@pytest.mark.engines("spark")
def test_spark_rows_of_parquet_files_are_those_that_spark_reads(engine, tmp_path):
    folder = str(tmp_path / "a folder")
    table = pa.table({"a": np.arange(50, dtype=np.float32), "B c": [[n, n / 2] for n in range(50)], "n": range(50)})
    for number in range(3):
        os.makedirs(folder, exist_ok=True)
        pa.parquet.write_table(table.slice(20 * number, 20), f"{folder}/{number} ä.parquet", row_group_size=7)
    df = spark().read.parquet(folder).drop("n")
    read, others = (predict(each, Ours("vector"), 4, ["B c", "a"]) for each in (df, df.where("a >= 0")))
    assert "Range" in read._jdf.queryExecution().toString()
    assert "Range" not in others._jdf.queryExecution().toString()
    assert read.schema == others.schema
    assert read.rdd.glom().collect() == others.rdd.glom().collect()
    assert read.count() == 50
    assert read.union(read).where("a > 40").count() == 18
    pa.parquet.write_table(pa.table({"a": pa.array([1.0, None], pa.float32())}), tmp_path / "none.parquet")
    with pytest.raises(Exception, match=r"'a'.*null|null.*'a'"):
        predict(spark().read.parquet(str(tmp_path / "none.parquet")), Ours(), 4, ["a"]).collect()


@pytest.mark.engines("spark")
def test_spark_columns_of_one_name_are_kept(engine):
    df = numbers(3, 1)
    out = predicted(df.select("b", "a", df.c.alias("b")), Ours(), names=["a", "a"])
    assert [tuple(row) for row in out.collect()] == [(n * 10, n, str(n), n * 2) for n in range(3)]


@pytest.mark.engines("spark")
def test_spark_schema_is_known_without_a_job(engine):
    from pyspark.sql import functions

    boom = functions.raise_error(functions.lit("a job was run"))
    df = numbers(3, 2).withColumn("a", boom.cast("float")).withColumn("list", functions.array(functions.col("a")))
    assert predicted(df, Ours(), names=["a", "b"]).schema["prediction"].dataType.simpleString() == "float"
    known = predict(df, Ours("vector"), 4, ["a", "list"], known_shapes={"list": (1,)})
    assert known.schema["prediction"].dataType.simpleString() == "vector"
    sample = pd.DataFrame({"list": [[1.0]], "a": [2]})
    assert [part.dtype for part in spark_sample(df, ["a", "list"], sample=sample)] == [np.float32, np.float32]
    assert [part.shape for part in spark_sample(df, ["a", "list"], sample=(np.ones(1), np.ones((1, 5))))] == [
        (2,),
        (2, 5),
    ]


@pytest.mark.engines("spark")
def test_spark_looks_at_the_first_row_if_it_must(engine):
    df = numbers(3, 2).selectExpr("a", "array(a, b) AS pair", "array(array(b)) AS deep")
    assert [part.shape for part in spark_sample(df, ["deep", "a", "pair"])] == [(2, 1, 1), (2,), (2, 2)]
    out = predict(df, Ours(), 2, ["deep", "a", "pair"])
    assert [row.prediction for row in out.collect()] == [n * 22.0 for n in range(3)]
    with pytest.raises(InvalidArgumentError, match=r"no rows, so the length of the arrays in 'pair'.*sample="):
        predict(df.limit(0), Ours(), 2, ["pair"])


@pytest.mark.engines("spark")
def test_the_first_row_of_parquet_files_needs_no_job(engine, tmp_path):
    df = numbers(6, 3).selectExpr("a", "array(a, b) AS pair", "array(array(b)) AS deep")
    context, names = df.sparkSession.sparkContext, ["deep", "a", "pair", "deep"]
    for name, rows in {"some": df.where("a >= 2"), "none": df.limit(0)}.items():
        rows.write.parquet(str(tmp_path / name))
    some, none = (df.sparkSession.read.parquet(str(tmp_path / name)) for name in ("some", "none"))
    context.setJobGroup("first row", "")
    try:
        found = spark_sample(some, names)
        with pytest.raises(
            InvalidArgumentError, match=r"no rows, so the length of the arrays in 'deep', 'pair'.*sample="
        ):
            spark_sample(none, ["deep", "pair"])
        assert list(context.statusTracker().getJobIdsForGroup("first row")) == []
    finally:
        context._jsc.sc().clearJobGroup()
    asked = spark_sample(some.where("a >= 2"), names)  # no plain scan, so a job is run
    for mine, theirs in zip(found, asked, strict=True):
        assert (mine.dtype, mine.tolist()) == (theirs.dtype, theirs.tolist())


@pytest.mark.engines("spark")
def test_spark_stream_from_files(engine, tmp_path):
    numbers(20, 2).selectExpr("a", "array(a, b) AS pair").write.parquet(str(tmp_path / "in"))
    stream = spark().readStream.schema("a float, pair array<double>").parquet(str(tmp_path / "in"))
    with pytest.raises(InvalidArgumentError, match=r"streaming DataFrame has no first row.*sample="):
        predict(stream, Ours(), 4, ["pair"])
    out = predict(stream, Ours("vector"), 4, ["pair", "a"], sample=(np.ones((1, 2)), np.ones(1)))
    assert out.isStreaming
    query = (
        out.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    rows = sorted(spark().read.parquet(str(tmp_path / "out")).collect())
    assert [row.prediction.toArray().tolist() for row in rows] == [[n * 12.0, n * 24.0] for n in range(20)]


@pytest.mark.engines("spark")
def test_spark_loads_the_model_once_a_process(engine, tmp_path):
    log = tmp_path / "log"
    model = Ours(log=log)
    output = OutputType.probe(Ours().load(), (np.zeros(2),))
    out = predict_spark(numbers(200, 20), model, 3, ["a"], output)
    assert out.count() == out.count() == 200
    lines = [line.split() for line in log.read_text().splitlines()]
    loads = [line[-1] for line in lines if line[0] == "load"]
    assert len(loads) == len(set(loads)) <= 2 * engine.cores
    assert sum(int(line[1]) for line in lines if line[0] == "batch") == 400


@pytest.mark.engines("spark")
def test_spark_errors(engine):
    df = numbers(3, 1)
    with pytest.raises(InvalidKeyError, match="no column 'd'"):
        predicted(df, Ours(), names=["d"])
    with pytest.raises(InvalidArgumentError, match="'c' holds text"):
        predicted(df, Ours(), names=["c"])
    with pytest.raises(PreconditionError, match="feature_cols"):
        predict(df, Ours(), 4)
    with pytest.raises(InvalidArgumentError, match="has a column 'Prediction' already"):
        predicted(df.withColumn("Prediction", df.a), Ours())
    with pytest.raises(InvalidArgumentError, match="several columns called 'a'"):
        predicted(df.select("a", "b", df.a), Ours())
    with pytest.raises(InvalidArgumentError, match=r"a type that Arrow cannot carry.*YearMonthInterval"):
        predicted(df.selectExpr("a", "b", "interval 1 year AS span"), Ours())
    with pytest.raises(InvalidArgumentError, match="a row for each of the 2 rows of a batch"):
        predicted(df, Ours("too few"))
    with pytest.raises(InvalidArgumentError, match="an array of numbers"):
        predicted(df, Ours("text"))
    with pytest.raises(ZeroDivisionError) as failure:
        predicted(df, Ours("fails"))
    assert failure.value.__notes__ == ["The model raised this for a batch of float32 (2,), int64 (2,)."]


@pytest.mark.engines("spark")
def test_spark_errors_in_a_task_say_what_happened(engine):
    with pytest.raises(Exception, match=r"'b' has 3 missing values \(null\) in 3 rows.*na\.fill"):
        predicted(numbers(3, 1).selectExpr("a", "bigint(null) AS b"), Ours()).collect()
    output = OutputType.probe(Ours().load(), (np.zeros(2),))
    with pytest.raises(Exception, match=r"(?s)division by zero.*for a batch of float32 \(3,\)"):
        predict_spark(numbers(3, 1), Ours("fails"), 4, ["a"], output).collect()
    with pytest.raises(Exception, match="dimensions a row here, but had"):
        predict_spark(numbers(3, 1), Ours("matrix"), 4, ["a"], output).collect()


@pytest.mark.engines("spark")
def test_spark_torch(engine):
    df = numbers(11, 3).selectExpr("array(a, a, b) AS x")
    model = Torch()
    expected = model.load()((np.array([[n, n, n * 10] for n in range(11)], np.float32),))
    rows = predict(df, model, 4, ["x"]).collect()
    assert np.allclose([row.prediction.toArray() for row in rows], expected, rtol=1e-5)


# XShards

SIZES = (5, 0, 1, 9)


def ragged(make):
    ends = np.cumsum([0, *SIZES])
    shards = [make(np.arange(start, stop)) for start, stop in itertools.pairwise(ends)]
    from zoo.orca.context import current_engine

    return XShards.from_placement(current_engine().place([[shards[0], shards[1]], [], shards[2:]]))


def test_xshards_of_dicts(engine):
    shards = ragged(lambda n: {"x": n.astype(np.float32), "y": n * 2, "name": "kept"})
    out = predict(shards, Ours("vector"), 4)
    assert out.num_partitions() == 3
    found = out.collect()
    assert [len(shard["x"]) for shard in found] == list(SIZES)
    for shard in found:
        assert shard["prediction"].shape == (len(shard["x"]), 2)
        assert shard["prediction"][:, 1].tolist() == (shard["x"] * 2).tolist()
        assert shard["y"].tolist() == (shard["x"] * 2).tolist()
        assert shard["name"] == "kept"
    assert [sorted(shard) for shard in shards.collect()] == [["name", "x", "y"]] * 4


@pytest.fixture
def scratching():
    """An estimator whose model uses its input as scratch paper."""
    import torch

    from zoo.orca.learn.pytorch import Estimator

    class Scratching(torch.nn.Module):
        def forward(self, x):
            total = x.sum(dim=1)
            x.fill_(-1)
            return total

    return Estimator.from_torch(model=Scratching(), loss=torch.nn.MSELoss())


def test_a_model_may_write_into_its_input(engine, scratching):
    x = np.ones((20_000, 4), np.float32)
    assert scratching.predict(x, batch_size=4096).min() == 4
    assert x.min() == 1
    # Through a function, so that a process of the embedded engine has them in its memory.
    shards = XShards.partition({"x": x}, 2).transform_shard(lambda shard: {"x": shard["x"] * 1}).cache()
    out = scratching.predict(shards, batch_size=4096)
    for _ in range(2):
        found = out.collect()
        assert [(shard["x"].shape, shard["x"].min(), shard["prediction"].min()) for shard in found] == [
            ((10_000, 4), 1, 4)
        ] * 2
    changed = out.transform_shard(lambda shard: shard["x"].__isub__(1).max() + shard["prediction"].__imul__(2).max())
    assert changed.collect() == [8, 8]
    assert [shard["x"].min() for shard in shards.collect()] == [1, 1]


def test_a_model_may_write_into_rows_of_a_table(engine, scratching, tmp_path):
    rows = pa.array([[1.0] * 4] * 1000, pa.list_(pa.float32()))
    pa.parquet.write_table(pa.table({"x": rows}), tmp_path / "rows.parquet")
    found = []
    if engine.name == "spark":
        read = OrcaContext.get_spark_session().read.parquet(str(tmp_path))
        for df in (read, read.limit(1000)):  # read by the workers themselves, and sent by the JVM
            found.append(scratching.predict(df, batch_size=100, feature_cols=["x"]).toPandas())
    elif engine.name == "ray":
        import ray

        ds = ray.data.read_parquet(str(tmp_path)).materialize()
        found += [scratching.predict(ds, batch_size=100, feature_cols=["x"]).to_pandas(), ds.to_pandas()]
    else:
        frame = pd.read_parquet(tmp_path)
        assert scratching.predict(frame, batch_size=100, feature_cols=["x"]).tolist() == [4] * 1000
        found.append(frame)
    for frame in found:
        assert np.stack(frame["x"].to_list()).tolist() == [[1] * 4] * 1000
        assert "prediction" not in frame or frame["prediction"].to_list() == [4] * 1000


def test_rows_that_lie_backwards(engine, scratching):
    x = np.arange(40, dtype=np.float32).reshape(10, 4)
    expected = x.sum(axis=1).tolist()
    assert scratching.predict(x[::-1], batch_size=4).tolist() == expected[::-1]
    assert scratching.predict(x[:, ::-1], batch_size=4).tolist() == expected
    assert scratching.predict({"x": x[::-2]}, batch_size=3).tolist() == expected[::-2]


def test_xshards_of_several_arrays(engine):
    for x in (lambda n: (n, n * 2), lambda n: [n, [n, n]], lambda n: {"b": n, "a": n * 2}):
        out = predict(ragged(lambda n, x=x: {"x": x(n)}), Ours("several"), 4).collect()
        for shard, size in zip(out, SIZES, strict=True):
            assert [part.shape for part in shard["prediction"]] == [(size, 1), (size, 3), (size,)]
        assert np.concatenate([shard["prediction"][2] for shard in out]).tolist() == [n * 3 for n in range(15)]


def test_xshards_of_pandas(engine):
    shards = ragged(lambda n: pd.DataFrame({"a": n, "b": n * 0.5, "c": [[1, 2]] * len(n)}))
    out = predict_xshards(shards, Ours("column"), 3, ["a", "c"], squeeze=True).collect()
    assert [list(shard) for shard in out] == [["x", "prediction"]] * 4
    assert [part.shape for part in out[0]["x"]] == [(5,), (5, 2)]
    assert out[3]["prediction"].tolist() == [n + 3 for n in range(6, 15)]


def test_xshards_errors_keep_their_type(engine):
    with pytest.raises(ZeroDivisionError) as failure:
        predict(ragged(lambda n: {"x": n}), Ours("fails"), 4)
    assert "The model raised this for a batch of int64 (" in str(failure.value.__notes__)
    with pytest.raises(InvalidKeyError, match="no column 'z'"):
        predict(ragged(lambda n: pd.DataFrame({"a": n})), Ours(), 4, ["z"])
    with pytest.raises(PreconditionError, match="each shard should be an dict"):
        predict(ragged(lambda n: n), Ours(), 4)
    with pytest.raises(InvalidArgumentError, match="as many rows, but they have 4, 5"):
        predict(
            XShards.partition({"x": np.zeros(4)}, 1).transform_shard(lambda s: {"x": [s["x"], np.zeros(5)]}), Ours(), 4
        )


# Arrays and frames of the driver


@pytest.mark.engines("local")
def test_arrays(engine):
    x = np.arange(20.0).reshape(10, 2)
    assert predict(x, Ours(), 4).tolist() == x.sum(axis=1).tolist()
    assert predict([x, x], Ours(), 4).tolist() == (2 * x.sum(axis=1)).tolist()
    assert predict({"x": x, "y": x}, Ours(), 4).tolist() == x.sum(axis=1).tolist()
    assert predict({"a": x, "b": x}, Ours(), 4).tolist() == (2 * x.sum(axis=1)).tolist()
    assert [part.shape for part in predict(x, Ours("several"), 3)] == [(10, 1), (10, 3), (10,)]
    assert predict(x[:0], Ours("matrix"), 3).shape == (0, 2, 3)
    frame = pd.DataFrame({"a": [1, 2], "b": [[1.0], [2.0]]})
    assert predict(frame, Ours(), 4, ["a", "b"]).tolist() == [2, 4]
    with pytest.raises(PreconditionError, match="feature_cols"):
        predict(frame, Ours(), 4)
    with pytest.raises(InvalidArgumentError, match="as many rows"):
        predict([x, x[1:]], Ours(), 4)
    with pytest.raises(InvalidArgumentError, match="predict takes"):
        predict(lambda config: None, Ours(), 4)


def test_large_arrays_go_to_the_engine_in_order(engine, monkeypatch, tmp_path):
    monkeypatch.setattr(arrays_module, "ENGINE_BYTES", 100)
    x = np.arange(101.0)
    log = tmp_path / "log"
    assert predict_arrays(x, Ours(log=log), 7, engine, 3).tolist() == x.tolist()
    lines = [line.split() for line in log.read_text().splitlines()]
    assert str(os.getpid()) not in {line[-1] for line in lines}
    assert sorted(int(line[1]) for line in lines if line[0] == "batch") == [3] + [7] * 14
    assert [part.shape for part in predict_arrays([x, x], Ours("several"), 50, engine)] == [(101, 1), (101, 3), (101,)]
    with pytest.raises(ZeroDivisionError):
        predict_arrays(x, Ours("fails"), 7, engine)


# Ray Datasets


@pytest.mark.engines("ray")
def test_ray_dataset(engine, tmp_path):
    import ray

    before = ray.data.DataContext.get_current().execution_options.preserve_order
    tensors = np.arange(120.0).reshape(40, 3)
    ds = ray.data.from_numpy([tensors[:30], tensors[30:]]).repartition(7)
    log = tmp_path / "log"
    out = predict(ds, Ours("vector", log), 4, ["data"]).materialize()
    rows = out.take_all()
    assert np.array_equal([row["data"] for row in rows], tensors)
    assert np.array_equal([row["prediction"] for row in rows], np.stack([tensors.sum(1), tensors.sum(1) * 2], 1))
    loads = [line for line in log.read_text().splitlines() if line.startswith("load")]
    assert len(loads) == len(set(loads)) <= engine.cores + 1
    assert ds.context.execution_options.preserve_order == before
    assert ray.data.DataContext.get_current().execution_options.preserve_order == before


@pytest.mark.engines("ray")
def test_ray_dataset_columns(engine):
    import ray

    items = [{"a": n, "b": [n, n], "c": str(n)} for n in range(9)]
    out = predict_ray_dataset(ray.data.from_items(items), Ours("several"), 4, ["a", "b"]).take_all()
    assert [{name: row[name] for name in "ac"} for row in out] == [{name: row[name] for name in "ac"} for row in items]
    assert [[list(part) for part in row["prediction"]] for row in out] == [
        [[3 * n], [3 * n, -3 * n, 0], [3 * n]] for n in range(9)
    ]
    numbers = predict_ray_dataset(ray.data.range(5), Ours("column"), 2, ["id"], squeeze=True).take_all()
    assert [row["prediction"] for row in numbers] == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.engines("ray")
def test_ray_dataset_errors(engine):
    import ray

    with pytest.raises(InvalidKeyError, match="no column 'x'"):
        predict(ray.data.from_items([{"a": 1}]), Ours(), 4, ["x"]).materialize()
    with pytest.raises(PreconditionError, match="feature_cols"):
        predict(ray.data.range(3), Ours(), 4)
    with pytest.raises(Exception, match="division by zero"):
        predict(ray.data.range(3), Ours("fails"), 4, ["id"]).materialize()
