from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from zoo.orca.data.file import exists
from zoo.orca.data.image.parquet_dataset import ParquetDataset, read_parquet
from zoo.orca.data.image.utils import DType, FeatureType, SchemaField, chunks
from zoo.orca.errors import (
    ContextError,
    InvalidArgumentError,
    NotOfferedError,
    PathExistsError,
    PathNotFoundError,
    PreconditionError,
)

SCHEMA = {
    "id": SchemaField(FeatureType.SCALAR, DType.INT32, ()),
    "name": SchemaField(FeatureType.SCALAR, DType.STRING, ()),
    "feature": SchemaField(FeatureType.NDARRAY, DType.FLOAT32, (2, 3)),
}


def records(count, first=0):
    for i in range(first, first + count):
        yield {"id": i, "name": f"n{i}", "feature": np.full((2, 3), i, np.float32)}


def ids(path):
    """The ids in an image set in the order that a reader gets them."""
    return [int(batch["id"][0]) for batch in read_parquet("dataloader", path)]


def records_of(path):
    """The records as they are, which torch would turn into tensors."""
    return list(read_parquet("dataloader", path, batch_size=None, collate_fn=lambda record: record))


def broken(count):
    yield from records(count)
    raise OSError("the disk is gone")


@pytest.fixture(params=["plain", "file://", "s3://"])
def target(request, tmp_path):
    if request.param == "s3://":
        return request.getfixturevalue("s3_bucket") + "/set"
    return str(tmp_path / "set") if request.param == "plain" else f"file://{tmp_path}/set"


@given(count=st.integers(0, 40), size=st.integers(1, 15))
@settings(max_examples=30, deadline=None)
def test_chunks_have_every_item_once_in_order(count, size):
    cut = [list(chunk) for chunk in chunks(range(count), size)]
    assert [item for chunk in cut for item in chunk] == list(range(count))
    assert all(len(chunk) == size for chunk in cut[:-1])
    assert all(1 <= len(chunk) <= size for chunk in cut)


def test_chunks_refuse_a_size_below_one():
    with pytest.raises(InvalidArgumentError, match="1 or more, got 0"):
        list(chunks([1], 0))


def test_records_come_back_in_writing_order_with_their_types(target):
    # More than ten chunks: sorted as text, chunk=10 would come before chunk=2.
    ParquetDataset.write(target, records(24), SCHEMA, block_size=2)
    assert ids(target) == list(range(24))
    first = records_of(target)[0]
    assert first["id"] == 0
    assert first["name"] == "n0"
    assert first["feature"].dtype == np.float32
    np.testing.assert_array_equal(first["feature"], np.zeros((2, 3)))


def test_files_lie_where_published(tmp_path):
    ParquetDataset.write(tmp_path / "set", records(5), SCHEMA, block_size=2)
    names = sorted(entry.name for entry in (tmp_path / "set").iterdir())
    assert names == ["_orca_metadata", "chunk=0", "chunk=1", "chunk=2"]
    metadata = json.loads((tmp_path / "set" / "_orca_metadata").read_text())
    assert metadata["feature"] == {"feature_type": "NDARRAY", "dtype": "FLOAT32", "shape": [2, 3]}


def test_images_are_stored_as_the_bytes_of_their_files(tmp_path):
    Image.new("RGB", (4, 2), (255, 0, 0)).save(tmp_path / "a.png")
    schema = {"image": SchemaField(FeatureType.IMAGE, DType.BYTES, ())}
    ParquetDataset.write(tmp_path / "set", [{"image": f"file://{tmp_path}/a.png"}], schema)
    (record,) = records_of(tmp_path / "set")
    assert record == {"image": (tmp_path / "a.png").read_bytes()}


def test_overwriting_replaces_everything(target):
    ParquetDataset.write(target, records(9), SCHEMA, block_size=2)
    ParquetDataset.write(target, records(3, first=100), SCHEMA, block_size=2)
    assert ids(target) == [100, 101, 102]


def test_a_write_that_fails_half_way_leaves_the_old_set(target):
    ParquetDataset.write(target, records(4), SCHEMA, block_size=2)
    with pytest.raises(OSError, match="the disk is gone"):
        ParquetDataset.write(target, broken(7), SCHEMA, block_size=2)
    with pytest.raises(OSError, match="the disk is gone"):
        ParquetDataset.write(target, broken(7), SCHEMA, block_size=2, write_mode="append")
    assert ids(target) == [0, 1, 2, 3]


def test_a_first_write_that_fails_leaves_nothing(target):
    with pytest.raises(OSError, match="the disk is gone"):
        ParquetDataset.write(target, broken(7), SCHEMA, block_size=2)
    assert not exists(target)


def test_a_failure_while_swapping_puts_the_old_set_back(tmp_path, monkeypatch):
    path = tmp_path / "set"
    ParquetDataset.write(path, records(6), SCHEMA, block_size=2)
    from fsspec.implementations.local import LocalFileSystem

    real, moved = LocalFileSystem.mv, []

    def fails_on_the_second_new_part(self, source, goal, **options):
        if "_writing-" in source:
            moved.append(source)
            if len(moved) == 2:
                raise OSError("no space left")
        return real(self, source, goal, **options)

    monkeypatch.setattr(LocalFileSystem, "mv", fails_on_the_second_new_part)
    with pytest.raises(OSError, match="no space left"):
        ParquetDataset.write(path, records(6, first=50), SCHEMA, block_size=2)
    assert ids(path) == [0, 1, 2, 3, 4, 5]
    assert sorted(entry.name for entry in path.iterdir()) == ["_orca_metadata", "chunk=0", "chunk=1", "chunk=2"]


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "chunk=old").mkdir()
    ParquetDataset.write(tmp_path, records(3), SCHEMA)
    ParquetDataset.write(tmp_path, records(2), SCHEMA)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "chunk=old").exists()
    assert ids(tmp_path) == [0, 1]


def test_appending_adds_after_the_last_chunk(target):
    ParquetDataset.write(target, records(3), SCHEMA, block_size=2, write_mode="append")
    ParquetDataset.write(target, records(3, first=3), SCHEMA, block_size=2, write_mode="append")
    assert ids(target) == [0, 1, 2, 3, 4, 5]


def test_appending_another_schema_is_refused(tmp_path):
    ParquetDataset.write(tmp_path, records(1), SCHEMA)
    with pytest.raises(InvalidArgumentError, match="Expected records of the schema"):
        ParquetDataset.write(tmp_path, [{"id": 1}], {"id": SCHEMA["id"]}, write_mode="append")
    assert ids(tmp_path) == [0]


@pytest.mark.parametrize("mode", ["error", "errorifexists"])
def test_an_existing_set_is_an_error_if_asked(tmp_path, mode):
    ParquetDataset.write(tmp_path, records(1), SCHEMA, write_mode=mode)
    with pytest.raises(PathExistsError, match='write_mode="overwrite"'):
        ParquetDataset.write(tmp_path, records(2), SCHEMA, write_mode=mode)
    ParquetDataset.write(tmp_path, records(2), SCHEMA, write_mode="ignore")
    assert ids(tmp_path) == [0]


def test_an_unknown_write_mode_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"one of \('overwrite', 'append'.*got 'replace'"):
        ParquetDataset.write(tmp_path / "set", broken(0), SCHEMA, write_mode="replace")
    assert not (tmp_path / "set").exists()


def with_change(change):
    rows = list(records(5))
    rows[3] = change(rows[3])
    return rows


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda r: {"id": 1, "other": 2}, r"record 3 to have exactly.*missing \['feature', 'name'\].*\['other'\]"),
        (lambda r: [1], "record 3 to be a dict.*got list"),
        (lambda r: {**r, "id": "three"}, "record 3, key 'id' to be a int32.*got 'three'"),
        (lambda r: {**r, "id": 2**40}, "record 3, key 'id' to be a int32"),
        (lambda r: {**r, "name": None}, "record 3, key 'name' to be a scalar, got None"),
        (lambda r: {**r, "feature": np.zeros(6)}, r"record 3, key 'feature' to have the shape \(2, 3\), got \(6,\)"),
        (lambda r: {**r, "feature": np.array([[{}] * 3] * 2)}, "record 3, key 'feature'.*Python objects"),
    ],
)
def test_a_record_that_does_not_fit_is_named(tmp_path, change, text):
    with pytest.raises(InvalidArgumentError, match=text):
        ParquetDataset.write(tmp_path, with_change(change), SCHEMA, block_size=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("schema", [{}, {"id": DType.INT32}, {"id": SchemaField("scalar", DType.INT32, ())}])
def test_a_schema_that_is_none_is_refused(tmp_path, schema):
    with pytest.raises(InvalidArgumentError, match="SchemaField"):
        ParquetDataset.write(tmp_path / "set", [], schema)


def test_a_path_without_a_set_is_named(target):
    with pytest.raises(PathNotFoundError, match=r"No such file or directory: .*/set/_orca_metadata"):
        read_parquet("dataloader", target)


def test_numpy_scalars_are_scalars(tmp_path):
    schema = {"a": SCHEMA["id"], "b": SchemaField(FeatureType.SCALAR, DType.FLOAT32, ())}
    ParquetDataset.write(tmp_path, [{"a": np.int64(3), "b": np.array(0.5)}], schema)
    assert records_of(tmp_path) == [{"a": 3, "b": 0.5}]


# torch


@pytest.mark.parametrize(("num_workers", "block_size"), [(0, 7), (1, 7), (2, 7), (2, 30)])
def test_a_dataloader_gives_every_record_once(tmp_path, num_workers, block_size):
    ParquetDataset.write(tmp_path, records(23), SCHEMA, block_size=block_size)
    loader = read_parquet("dataloader", tmp_path, config={"num_workers": num_workers}, batch_size=4)
    for _ in range(2):
        found = sorted(int(i) for batch in loader for i in batch["id"])
        assert found == list(range(23))


def test_dataloader_workers_read_from_s3(s3_bucket):
    ParquetDataset.write(f"{s3_bucket}/set", records(5), SCHEMA, block_size=2)
    loader = read_parquet("dataloader", f"{s3_bucket}/set", config={"num_workers": 2})
    assert sorted(int(batch["id"][0]) for batch in loader) == [0, 1, 2, 3, 4]


def to_pair(record):
    return record["feature"] + 1, record["id"]


@pytest.fixture(scope="session")
def resource_tracker():
    """Python's own process beside spawned ones, which it keeps for good."""
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()


@pytest.mark.usefixtures("resource_tracker")
def test_a_dataloader_transforms_each_record_also_in_spawned_workers(tmp_path):
    ParquetDataset.write(tmp_path, records(4), SCHEMA, block_size=2)
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    (batch,) = read_parquet("dataloader", tmp_path, to_pair, None, 4, **options)
    assert batch[0].shape == (4, 2, 3)
    assert batch[0][:, 0, 0].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert batch[1].tolist() == [0, 1, 2, 3]


def test_shards_take_every_num_shards_th_chunk(tmp_path):
    ParquetDataset.write(tmp_path, records(10), SCHEMA, block_size=2)
    shares = [
        [int(batch["id"][0]) for batch in read_parquet("dataloader", tmp_path, config=config)]
        for config in ({"num_shards": 2, "rank": 0}, {"num_shards": 2, "rank": 1})
    ]
    assert shares == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7]]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"num_shards": 4, "rank": 0}, "from 1 to the number of chunks, 3, got 4"),
        ({"num_shards": 0, "rank": 0}, "from 1 to the number of chunks, 3, got 0"),
        ({"num_shards": 2, "rank": 2}, "from 0 to 1, got 2"),
        ({"num_shards": 2}, "from 0 to 1, got None"),
    ],
)
def test_a_share_that_cannot_be_is_refused(tmp_path, config, text):
    ParquetDataset.write(tmp_path, records(3), SCHEMA, block_size=1)
    with pytest.raises(PreconditionError, match=text) as caught:
        read_parquet("dataloader", tmp_path, config=config)
    assert isinstance(caught.value, AssertionError)


def test_a_rank_without_num_shards_is_refused(tmp_path):
    ParquetDataset.write(tmp_path, records(3), SCHEMA)
    with pytest.raises(InvalidArgumentError, match="num_shards beside rank, got only rank=1"):
        read_parquet("dataloader", tmp_path, config={"rank": 1})


def test_an_unknown_format_to_read_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"\['dataloader', 'tf_dataset'\], got 'mxnet'"):
        read_parquet("mxnet", tmp_path)


# TensorFlow


def test_a_tf_dataset_has_dicts_in_writing_order(tmp_path, tf):
    ParquetDataset.write(tmp_path, records(5), SCHEMA, block_size=2)
    types = {"id": tf.int32, "name": tf.string, "feature": tf.float32}
    shapes = {"id": (), "name": (), "feature": (2, 3)}
    dataset = read_parquet("tf_dataset", tmp_path, output_types=types, output_shapes=shapes)
    found = list(dataset.as_numpy_iterator())
    assert [record["id"] for record in found] == [0, 1, 2, 3, 4]
    assert found[4]["name"] == b"n4"
    assert dataset.element_spec["feature"] == tf.TensorSpec((2, 3), tf.float32)


def test_a_tf_dataset_transforms_shares_and_batches(tmp_path, tf):
    ParquetDataset.write(tmp_path, records(6), SCHEMA, block_size=1)
    types = {"id": tf.int32, "name": tf.string, "feature": tf.float32}
    dataset = read_parquet(
        "tf_dataset",
        tmp_path,
        transforms=lambda record: record["id"] * 10,
        config={"num_shards": 2, "rank": 1},
        batch_size=2,
        output_types=types,
    )
    assert [batch.tolist() for batch in dataset.as_numpy_iterator()] == [[10, 30], [50]]


def test_a_tf_dataset_needs_output_types(tmp_path):
    ParquetDataset.write(tmp_path, records(1), SCHEMA)
    with pytest.raises(PreconditionError, match=r"output_types=.*\['id', 'name', 'feature'\]"):
        read_parquet("tf_dataset", tmp_path)


# XShards and RDD


def test_xshards_have_one_dict_of_stacked_columns_a_chunk(engine, target):
    ParquetDataset.write(target, records(23), SCHEMA, block_size=2)
    shards = ParquetDataset._read_as_xshards(target).collect()
    assert len(shards) == 12
    np.testing.assert_array_equal(np.concatenate([shard["id"] for shard in shards]), np.arange(23))
    assert shards[0]["id"].dtype == np.int32
    assert shards[0]["feature"].shape == (2, 2, 3)
    assert shards[11]["name"].tolist() == ["n22"]


def test_xshards_keep_bytes_and_ragged_arrays_in_lists(engine, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"a\x00")
    schema = {
        "image": SchemaField(FeatureType.IMAGE, DType.BYTES, ()),
        "boxes": SchemaField(FeatureType.NDARRAY, DType.FLOAT32, (None, 5)),
        "raw": SchemaField(FeatureType.SCALAR, DType.BYTES, ()),
    }
    rows = [{"image": str(tmp_path / "a.bin"), "boxes": np.ones((n, 5), np.float32), "raw": b"r\x00"} for n in (1, 3)]
    ParquetDataset.write(tmp_path / "set", rows, schema)
    (shard,) = ParquetDataset._read_as_xshards(tmp_path / "set").collect()
    assert shard["image"] == [b"a\x00", b"a\x00"]
    assert shard["raw"] == [b"r\x00", b"r\x00"]
    assert [boxes.shape for boxes in shard["boxes"]] == [(1, 5), (3, 5)]


def test_an_empty_set_gives_no_shards(engine, tmp_path):
    ParquetDataset.write(tmp_path, [], SCHEMA)
    assert ParquetDataset._read_as_xshards(tmp_path).collect() == []


def test_read_as_tf_gives_a_zoo_dataset(engine, tmp_path, tf):
    ParquetDataset.write(tmp_path, records(3), SCHEMA, block_size=2)
    dataset = ParquetDataset.read_as_tf(tmp_path).map(lambda record: record["id"] + 1)
    assert dataset.num_partitions() == 2
    found = [dataset.of_shard(shard).as_numpy_iterator() for shard in dataset.xshards.collect()]
    assert [[int(i) for i in ids] for ids in found] == [[1, 2], [3]]


def test_an_rdd_has_the_records_in_writing_order_and_needs_spark(engine, tmp_path):
    # Chunks of very different sizes: Spark itself would read the largest first.
    (tmp_path / "small").write_bytes(b"s")
    (tmp_path / "large").write_bytes(np.random.default_rng(0).bytes(100_000))
    schema = {"image": SchemaField(FeatureType.IMAGE, DType.BYTES, ()), "id": SCHEMA["id"]}
    sizes = ["small", "large"] * 6
    rows = [{"image": str(tmp_path / size), "id": i} for i, size in enumerate(sizes)]
    ParquetDataset.write(f"file://{tmp_path}/set", rows, schema, block_size=1)
    if engine.name != "spark":
        with pytest.raises(ContextError, match="init_orca_context"):
            ParquetDataset._read_as_dict_rdd(f"file://{tmp_path}/set")
        return
    rdd, found = ParquetDataset._read_as_dict_rdd(f"file://{tmp_path}/set")
    assert found == schema
    assert rdd.first() == {"image": b"s", "id": 0}
    assert rdd.map(lambda record: (record["id"], len(record["image"]))).collect() == [
        (i, 1 if size == "small" else 100_000) for i, size in enumerate(sizes)
    ]


def test_read_as_torch_names_what_to_use(tmp_path):
    with pytest.raises(NotOfferedError, match=r'read_parquet\("dataloader"') as caught:
        ParquetDataset.read_as_torch("here")
    assert isinstance(caught.value, NotImplementedError)


def test_importing_loads_no_framework():
    script = (
        "import sys, zoo.orca.data.image, zoo.orca.data.tf.data;"
        "print({'pyspark', 'ray', 'torch', 'tensorflow', 'PIL'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
