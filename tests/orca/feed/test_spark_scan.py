"""A fit over a DataFrame that only reads Parquet: tasks read the files themselves, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from zoo.orca import OrcaContext
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed import spark_frame
from zoo.orca.feed.laid import Table
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.pytorch import Estimator

pytestmark = pytest.mark.engines("spark")

FILES = (30, 0, 50)


@pytest.fixture
def folder(tmp_path):
    """Files of several row groups, one of them empty."""
    random = np.random.default_rng(0)
    for number, rows in enumerate(FILES):
        columns = {
            "a": random.normal(size=rows).astype("f4"),
            "b": random.integers(9, size=rows).astype("i2"),
            "v": pa.array(list(random.normal(size=(rows, 3))), pa.list_(pa.float64())),
            "y": random.normal(size=rows).astype("f4"),
            "w": random.random(rows),
        }
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet", row_group_size=20)
    return str(tmp_path)


@pytest.fixture
def spark(engine):
    return OrcaContext.get_spark_session()


@pytest.fixture
def read(spark, folder):
    """The files as a DataFrame, in partitions of about a row group."""
    key = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(key)
    spark.conf.set(key, "1500")
    yield lambda: spark.read.parquet(folder)
    spark.conf.set(key, before)


@pytest.fixture(params=["files", "spark"])
def way(request, monkeypatch):
    """With and without the bypass."""
    monkeypatch.setattr(spark_frame, "READS_FILES", request.param == "files")
    return request.param


def feed_of(df, columns):
    return spark_frame.feed_of_spark_frame(df, columns, "data")


def content(feed):
    """Rows, layout and the arrays of every partition."""
    return [
        (part.rows, part.layout, [group.tobytes() for group in Table(part).groups] if part.rows else [])
        for part in feed.parts
    ]


def through_spark(monkeypatch, make):
    monkeypatch.setattr(spark_frame, "READS_FILES", False)
    return make()


def no_rows_through_spark(monkeypatch):
    def refuse(*args):
        raise AssertionError("rows went through Spark")

    monkeypatch.setattr(spark_frame, "_through_spark", refuse)


def test_partitions_are_laid_down_as_spark_would(read, monkeypatch):
    for columns in (Columns(("a", "b"), ("y",), "w"), Columns(("v", "a", "v"), ("b", "y"))):
        with monkeypatch.context() as patch:
            no_rows_through_spark(patch)
            mine = content(feed_of(read(), columns))
        theirs = content(through_spark(monkeypatch, lambda chosen=columns: feed_of(read(), chosen)))
        monkeypatch.undo()
        assert mine == theirs
        assert len(mine) > len(FILES)
        assert sum(rows for rows, _, _ in mine) == sum(FILES)


def test_weights_are_the_same_to_the_bit(read, monkeypatch):
    def fit():
        estimator = Estimator.from_torch(
            model=create_model, optimizer=create_optimizer, loss=torch.nn.MSELoss(), backend="bigdl", num_workers=2
        )
        try:
            estimator.fit(read(), epochs=2, batch_size=16, feature_cols=["v"], label_cols=["y"])
            return {name: value.numpy() for name, value in estimator.get_model().state_dict().items()}
        finally:
            estimator.shutdown()

    with monkeypatch.context() as patch:
        no_rows_through_spark(patch)
        mine = fit()
    theirs = through_spark(monkeypatch, fit)
    assert all(np.array_equal(mine[name], theirs[name]) for name in mine)


def test_what_the_files_do_not_hold_comes_through_spark(read):
    df = read()
    doubled = content(feed_of(df.withColumn("a", (df.a * 2).cast("float")), Columns(("a",))))
    plain = content(feed_of(df, Columns(("a",))))
    assert [rows for rows, _, _ in doubled] == [rows for rows, _, _ in plain]
    both = zip(doubled, plain, strict=True)
    assert all(np.array_equal(floats(twice), 2 * floats(once)) for twice, once in both)
    few = feed_of(df.where("b < 4"), Columns(("b",)))
    assert 0 < few.rows < sum(FILES)


def floats(part):
    return np.frombuffer(b"".join(part[2]), np.float32)


@pytest.mark.parametrize(
    ("column", "words"),
    [([1.0, None], "1 missing values"), ([[1.0], [1.0, 2.0]], "the lengths 1, 2"), ([[1.0], [None]], "inside the arr")],
    ids=["nulls", "lists of several lengths", "nulls in lists"],
)
def test_values_that_a_model_cannot_take(spark, tmp_path, way, column, words):
    pq.write_table(pa.table({"x": column}), tmp_path / "x.parquet")
    with pytest.raises(InvalidArgumentError, match=words) as raised:
        feed_of(spark.read.parquet(str(tmp_path)), Columns(("x",)))
    assert "raised while reading partition 0" in raised.value.__notes__[0]


def create_model(config):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0))


def create_optimizer(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.1)
