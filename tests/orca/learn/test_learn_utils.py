"""`zoo.orca.learn.utils`: DataFrames, XShards and RDDs of predictions into each other."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from zoo.orca import OrcaContext
from zoo.orca.data import XShards
from zoo.orca.errors import InvalidArgumentError, InvalidKeyError, PreconditionError
from zoo.orca.learn.utils import (
    _dataframe_to_xshards,
    arrays2dict,
    bigdl_metric_results_to_dict,
    convert_predict_rdd_to_dataframe,
    convert_predict_rdd_to_xshard,
    convert_predict_xshards_to_dataframe,
    dataframe_to_xshards,
    find_latest_checkpoint,
    maybe_dataframe_to_xshards,
    process_xshards_of_pandas_dataframe,
    update_predict_xshards,
)


def spark():
    return OrcaContext.get_spark_session()


def frame(rows=6, partitions=2):
    ids = spark().range(rows, numPartitions=partitions)
    return ids.selectExpr("id", "array(id, id + 1) AS feature", "double(id) AS label", "string(id) AS text")


@pytest.mark.engines("spark")
def test_rdd_of_predictions_to_dataframe(engine):
    from pyspark.ml.linalg import DenseVector

    cases = {
        "float": (lambda n: np.float32(n), lambda n: float(n)),
        "vector": (lambda n: np.array([n, 2.0 * n]), lambda n: DenseVector([n, 2 * n])),
        "array<array<float>>": (lambda n: np.full((1, 2), n), lambda n: [[n, n]]),
        "array<vector>": (
            lambda n: [np.array([n]), np.array([n, n])],
            lambda n: [DenseVector([n]), DenseVector([n, n])],
        ),
    }
    df = frame()
    for kind, (make, expected) in cases.items():
        out = convert_predict_rdd_to_dataframe(df, df.rdd.map(lambda row, make=make: make(row.id)))
        assert out.columns == [*df.columns, "prediction"]
        assert out.schema["prediction"].dataType.simpleString() == kind
        assert [(row.id, row.prediction) for row in out.collect()] == [(n, expected(n)) for n in range(6)]


@pytest.mark.engines("spark")
def test_rdd_of_predictions_to_xshards(engine):
    shards = XShards.partition({"x": np.arange(7), "y": np.zeros(7)}, 3)
    predictions = shards.rdd.flatMap(lambda shard: [np.array([n, n]) for n in shard["x"]])
    out = convert_predict_rdd_to_xshard(shards, predictions).collect()
    assert [shard["prediction"].shape for shard in out] == [(3, 2), (2, 2), (2, 2)]
    assert np.concatenate([shard["prediction"] for shard in out])[:, 0].tolist() == list(range(7))
    lists = shards.rdd.flatMap(lambda shard: [[np.ones(1) * n, np.ones(3) * n] for n in shard["x"]])
    out = convert_predict_rdd_to_xshard(shards, lists).collect()
    assert [part.shape for part in out[0]["prediction"]] == [(3, 1), (3, 3)]


@pytest.mark.engines("spark")
def test_xshards_of_predictions_to_dataframe(engine):
    df = frame()
    shards = XShards.partition({"prediction": np.arange(12.0).reshape(6, 2)}, 2)
    out = convert_predict_xshards_to_dataframe(df, shards).collect()
    assert [row.prediction.toArray().tolist() for row in out] == [[2.0 * n, 2 * n + 1] for n in range(6)]
    several = XShards.partition({"prediction": [np.arange(6.0), np.zeros((6, 2))]}, 2)
    out = convert_predict_xshards_to_dataframe(df, several).collect()
    assert [[len(part) for part in row.prediction] for row in out] == [[1, 2]] * 6


def test_update_predict_xshards(engine):
    mine = XShards.partition({"x": np.arange(4), "prediction": np.zeros(4)}, 2)
    out = update_predict_xshards(mine, XShards.partition({"prediction": np.ones(4)}, 2)).collect()
    assert [shard["prediction"].tolist() for shard in out] == [[1, 1], [1, 1]]
    assert [shard["x"].tolist() for shard in out] == [[0, 1], [2, 3]]


def test_arrays2dict():
    records = [([np.array([n, n]), np.float32(n)], np.int64(n)) for n in range(5)]
    (whole,) = arrays2dict(iter(records), ["a", "b"], ["y"])
    assert [part.shape for part in whole["x"]] == [(5, 2), (5,)]
    assert isinstance(whole["x"], tuple)
    assert whole["y"].dtype == np.int64
    parts = list(arrays2dict(iter([(x[1], y) for x, y in records]), ["b"], None, shard_size=2))
    assert [shard["x"].tolist() for shard in parts] == [[0, 1], [2, 3], [4]]
    assert [list(shard) for shard in parts] == [["x"]] * 3
    assert list(arrays2dict(iter([]), ["b"], None)) == []


@pytest.mark.engines("spark")
def test_dataframe_to_shards(engine):
    df = frame()
    shards = _dataframe_to_xshards(df, ["feature"], ["label"])
    assert shards.num_partitions() == 2
    found = shards.collect()
    assert [shard["x"].tolist() for shard in found] == [[[0, 1], [1, 2], [2, 3]], [[3, 4], [4, 5], [5, 6]]]
    assert found[0]["x"].dtype == np.float32
    assert found[0]["x"].flags.writeable
    assert found[1]["y"].tolist() == [3.0, 4.0, 5.0]
    several = _dataframe_to_xshards(df, ["feature", "id"], ["label", "id"]).collect()[0]
    assert [part.shape for part in several["x"]] == [(3, 2), (3,)]
    assert several["x"][1].dtype == np.int64
    assert [type(several[key]) for key in "xy"] == [tuple, tuple]
    assert list(_dataframe_to_xshards(df.where("id < 3"), ["id"]).collect()[0]) == ["x"]
    assert len(_dataframe_to_xshards(df.where("id < 3"), ["id"]).collect()) == 1
    with pytest.raises(InvalidArgumentError, match="'text' holds text"):
        _dataframe_to_xshards(df, ["text"])
    assert _dataframe_to_xshards(df, ["text"], accept_str_col=True).collect()[0]["x"].tolist() == ["0", "1", "2"]
    with pytest.raises(InvalidKeyError, match="no column 'lable'"):
        _dataframe_to_xshards(df, ["id"], ["lable"])
    with pytest.raises(InvalidArgumentError, match="missing values"):
        _dataframe_to_xshards(df.selectExpr("nullif(id, 3) AS a"), ["a"])


@pytest.mark.engines("spark")
def test_dataframe_to_shards_of_a_size(engine):
    OrcaContext._shard_size = 2
    try:
        found = _dataframe_to_xshards(frame(), ["id"]).collect()
    finally:
        OrcaContext._shard_size = None
    assert [shard["x"].tolist() for shard in found] == [[0, 1], [2], [3, 4], [5]]


@pytest.mark.engines("spark")
def test_dataframes_to_shards_for_workers(engine):
    train, valid = dataframe_to_xshards(frame(8, 1), frame(6, 3), ["id"], ["label"], "fit", num_workers=2)
    assert train.num_partitions() == valid.num_partitions() == 2
    assert sorted(n for shard in valid.collect() for n in shard["x"]) == list(range(6))
    one, none = dataframe_to_xshards(frame(8, 1), None, ["id"], ["label"], "predict", num_workers=2)
    assert none is None
    assert one.num_partitions() == 1
    assert list(one.collect()[0]) == ["x"]
    assert maybe_dataframe_to_xshards(one, None, None, None)[0] is one
    assert maybe_dataframe_to_xshards(frame(), None, ["id"], ["label"])[0].num_partitions() == 2
    with pytest.raises(InvalidArgumentError, match="mode must be"):
        dataframe_to_xshards(frame(), None, ["id"], ["label"], "train")
    with pytest.raises(PreconditionError, match="label_cols"):
        dataframe_to_xshards(frame(), None, ["id"], None)


def test_pandas_shards_to_dicts(engine):
    data = pd.DataFrame({"a": np.arange(4), "b": np.arange(4) * 0.5, "c": np.arange(4), "d": np.arange(4)})
    shards = XShards.partition(data, 2).cache()
    (first, _) = process_xshards_of_pandas_dataframe(shards, ["a", "b"], ["c", "d"]).collect()
    assert [part.dtype for part in first["x"]] == [np.int64, np.float64]
    assert first["y"].tolist() == [0, 1]
    train, valid = process_xshards_of_pandas_dataframe(shards, ["a"], ["c"], shards, "fit")
    assert isinstance(train.collect()[0]["x"], list)
    assert valid.collect()[1]["y"].tolist() == [2, 3]
    assert process_xshards_of_pandas_dataframe(train, None) is train
    with pytest.raises(PreconditionError, match="feature_cols"):
        process_xshards_of_pandas_dataframe(shards, None)


def test_latest_checkpoint(tmp_path):
    for run, numbers in (("2026-01-01_00-00-00", (3, 99)), ("2026-01-02_00-00-00", (3, 12))):
        folder = tmp_path / run / "models" / "20260101_000000"
        folder.mkdir(parents=True)
        for number in numbers:
            (folder / f"model.{number}").touch()
            (folder / f"optimMethod-TorchModel1.{number}").touch()
    path, prefix, version = find_latest_checkpoint(str(tmp_path), "bigdl")
    assert path == str(tmp_path / "2026-01-02_00-00-00" / "models" / "20260101_000000")
    assert (prefix, version) == ("TorchModel1", 12)
    with pytest.raises(InvalidArgumentError, match="model_type"):
        find_latest_checkpoint(str(tmp_path), "caffe")


def test_metric_results():
    results = [SimpleNamespace(method="Loss", result=0.5), SimpleNamespace(method="Top1Accuracy", result=0.75)]
    assert bigdl_metric_results_to_dict(results) == {"Loss": 0.5, "Top1Accuracy": 0.75}
