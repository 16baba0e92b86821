"""Model files on every kind of data and every engine: rows, order and columns as they came."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest
from ir_models import (
    any_model,
    dense_model,
    dense_numpy,
    image_model,
    image_numpy,
    table_model,
    table_numpy,
)

from zoo.orca import OrcaContext
from zoo.orca.data import XShards
from zoo.orca.errors import InvalidArgumentError, InvalidKeyError, PreconditionError
from zoo.orca.learn.openvino import Estimator

RNG = np.random.default_rng(9)


def test_the_example_of_the_document(engine, tmp_path):
    """Section 6 of the seed, with smaller images."""
    model_path = image_model(tmp_path)
    est = Estimator.from_openvino(model_path=model_path)

    # ndarray
    input_data = np.random.random([20, 4, 3, 8, 8])
    result = est.predict(input_data)

    # xshards
    shards = XShards.partition({"x": input_data}, num_shards=2)
    result_shards = est.predict(shards)

    expected = image_numpy(input_data)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    collected = result_shards.collect()
    np.testing.assert_allclose(np.concatenate([each["prediction"] for each in collected]), expected, rtol=1e-5)
    np.testing.assert_array_equal(np.concatenate([each["x"] for each in collected]), input_data)


def test_shards_of_several_inputs_and_of_frames(engine, tmp_path):
    est = Estimator.from_openvino(model_path=table_model(tmp_path))
    ids, x = np.arange(101), RNG.normal(size=(101, 3))
    expected = table_numpy(ids, x)
    for features in ([ids, x], {"ids": ids, "x": x}):
        collected = est.predict(XShards.partition({"x": features}, num_shards=2), batch_size=7).collect()
        for number, theirs in enumerate(expected):
            mine = np.concatenate([each["prediction"][number] for each in collected])
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    frames = XShards.partition(np.arange(12.0), num_shards=2).transform_shard(
        lambda part: pd.DataFrame({"n": part.astype(int), "v": [[value, 1, 2] for value in part]}).query("n < 6")
    )
    first, second = (each["prediction"] for each in est.predict(frames, feature_cols=["n", "v"]).collect())
    np.testing.assert_allclose(first[1], np.arange(6) * 2 + 3)
    assert [each.shape for each in second] == [(0, 2), (0,), (0, 1)]  # a shard of which no row is left


@pytest.mark.engines("local")
def test_a_process_compiles_once_for_its_part_of_the_cores(engine, tmp_path):
    est = Estimator.from_openvino(model_path=dense_model(tmp_path))
    shards = XShards.partition({"x": np.ones((64, 3))}, num_shards=16)

    def look(shard):
        from zoo.orca.learn.predict.model import _models

        runner = next(reversed(_models.values()))
        threads = runner._compiled.model.get_property("INFERENCE_NUM_THREADS")
        return os.getpid(), id(runner), threads, runner._compiled.model.get_property("ENABLE_CPU_PINNING")

    seen = est.predict(shards).transform_shard(look).collect() + est.predict(shards).transform_shard(look).collect()
    assert len({runner for _, runner, *_ in seen if seen}) <= len({pid for pid, *_ in seen})
    cores = len(os.sched_getaffinity(0))
    share = max(1, cores // min(engine.cores, 16))
    assert {threads for _, _, threads, _ in seen} == {share}
    assert {pinned for *_, pinned in seen} == {share == cores}


@pytest.mark.engines("local", "ray")
def test_large_arrays_stay_here_and_use_all_cores(engine, tmp_path):
    est = Estimator.from_openvino(model_path=dense_model(tmp_path))
    x = RNG.normal(size=(1_500_000, 3)).astype(np.float32)
    np.testing.assert_allclose(est.predict(x, batch_size=100_000), dense_numpy(x), rtol=1e-4, atol=1e-5)


def test_a_pandas_frame(engine, tmp_path):
    est = Estimator.from_openvino(model_path=table_model(tmp_path))
    frame = pd.DataFrame({"n": [3, 4], "v": [np.array([1, 2, 3]), np.array([4, 5, 6])]})
    found = est.predict(frame, feature_cols=["n", "v"])
    np.testing.assert_allclose(found[1], [9, 19])
    assert [each.shape for each in est.predict(frame[:0], feature_cols=["n", "v"])] == [(0, 2), (0,), (0, 1)]
    with pytest.raises(PreconditionError, match="feature_cols must be given"):
        est.predict(frame)


@pytest.mark.engines("spark")
def test_a_spark_frame_keeps_rows_and_columns(engine, tmp_path):
    from pyspark.ml.linalg import Vectors

    x = RNG.normal(size=(31, 3)).astype(np.float32)
    x[::2, 0] = 0
    # Vectors with a zero in them are sparse ones.
    vectors = [Vectors.dense(row) if row[0] else Vectors.sparse(3, {1: row[1], 2: row[2]}) for row in x]
    rows = [(number, row.tolist(), vector) for number, (row, vector) in enumerate(zip(x, vectors, strict=True))]
    frame = OrcaContext.get_spark_session().createDataFrame(rows, ["n", "v", "a.vector"]).coalesce(1)
    dense = Estimator.from_openvino(model_path=dense_model(tmp_path))
    predicted = dense.predict(frame, feature_cols="a.vector", batch_size=8)
    assert predicted.columns == ["n", "v", "a.vector", "prediction"]
    rows = predicted.collect()
    assert [row.n for row in rows] == list(range(31))
    np.testing.assert_allclose([row.prediction.toArray() for row in rows], dense_numpy(x), rtol=1e-4, atol=1e-5)
    # Nobody asks for the other batches, which are under way by then.
    first = dense.predict(frame, feature_cols=["v"], batch_size=2).limit(2).collect()
    np.testing.assert_allclose([row.prediction.toArray() for row in first], dense_numpy(x[:2]), rtol=1e-4, atol=1e-5)


@pytest.mark.engines("spark")
def test_flat_and_nested_columns_become_what_the_model_takes(engine, tmp_path, monkeypatch):
    spark = OrcaContext.get_spark_session()
    images = RNG.random((5, 3, 8, 8)).astype(np.float32)
    frame = spark.createDataFrame(
        [(row.reshape(-1).tolist(), [[1.0, 2.0], [3.0, 4.0]]) for row in images],
        "flat array<float>, pairs array<array<float>>",
    ).coalesce(1)
    est = Estimator.from_openvino(model_path=image_model(tmp_path, batch=4))
    found = [row.prediction.toArray() for row in est.predict(frame, feature_cols=["flat"]).collect()]
    np.testing.assert_allclose(found, image_numpy(images), rtol=1e-5)
    same = Estimator.from_openvino(model_path=any_model(tmp_path))
    rows = same.predict(frame, feature_cols=["pairs"]).collect()
    assert [row.prediction for row in rows] == [[[2.0, 4.0], [6.0, 8.0]]] * 5
    # A task gives the model the batches that it takes, instead of parts that would be filled up.
    monkeypatch.setattr("zoo.orca.learn.openvino.estimator.predict_spark", lambda *arguments: arguments[2])
    assert [est.predict(frame, feature_cols=["flat"], batch_size=size) for size in (1, 4, 100)] == [4, 4, 4]


@pytest.mark.engines("spark")
def test_bad_columns_are_told_before_a_job(engine, tmp_path):
    spark = OrcaContext.get_spark_session()
    frame = spark.createDataFrame([(1, "a", [1.0, 2.0])], "n int, t string, short array<float>").coalesce(1)
    est = Estimator.from_openvino(model_path=dense_model(tmp_path))
    with pytest.raises(PreconditionError, match="feature_cols must be given"):
        est.predict(frame)
    with pytest.raises(InvalidKeyError, match="no column 'm'"):
        est.predict(frame, feature_cols=["m"])
    with pytest.raises(InvalidArgumentError, match="text"):
        est.predict(frame, feature_cols=["t"])
    with pytest.raises(InvalidArgumentError, match="takes 1 input"):
        est.predict(frame, feature_cols=["short", "n"])
    with pytest.raises(InvalidArgumentError, match=r"takes 'x', \[rows, 3\] float32, but got int32 \[2\]"):
        est.predict(frame, feature_cols=["n"])
    with pytest.raises(Exception, match=r"takes 'x', \[rows, 3\] float32, but got float32 \[1, 2\]"):
        est.predict(frame, feature_cols=["short"]).collect()


@pytest.mark.engines("spark")
def test_a_streaming_frame_of_several_inputs_and_outputs(engine, tmp_path):
    spark = OrcaContext.get_spark_session()
    (tmp_path / "source").mkdir()
    source = pd.DataFrame({"n": range(40), "v": [[float(number), 1.0, 2.0] for number in range(40)]})
    source.to_parquet(tmp_path / "source" / "part.parquet")
    stream = spark.readStream.schema("n bigint, v array<double>").parquet(str(tmp_path / "source"))
    est = Estimator.from_openvino(model_path=table_model(tmp_path))
    query = (
        est.predict(stream, feature_cols=["n", "v"])
        .writeStream.format("memory")
        .queryName("openvino_stream")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoints"))
        .start()
    )
    query.awaitTermination(120)
    rows = sorted(spark.table("openvino_stream").collect(), key=lambda row: row.n)
    x = np.array([[number, 1, 2] for number in range(40)])
    for number, theirs in enumerate(table_numpy(np.arange(40), x)):
        mine = [row.prediction[number].toArray() for row in rows]
        np.testing.assert_allclose(mine, theirs.reshape(40, -1), rtol=1e-4, atol=1e-5)


@pytest.mark.engines("ray")
def test_a_ray_dataset(engine, tmp_path):
    import ray

    images = RNG.random((40, 3, 8, 8)).astype(np.float32)
    data = ray.data.from_numpy(images)
    est = Estimator.from_openvino(model_path=image_model(tmp_path))
    found = np.stack([row["prediction"] for row in est.predict(data, feature_cols=["data"], batch_size=7).take_all()])
    np.testing.assert_allclose(found, image_numpy(images), rtol=1e-5)
    with pytest.raises(PreconditionError, match="feature_cols"):
        est.predict(data)
    with pytest.raises(InvalidArgumentError, match=r"takes 1 input.*but got 2"):
        est.predict(data, feature_cols=["data", "data"])
