"""Functions that make a tf.data.Dataset on each worker: dealt as the dataset's options say."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf

from ranks import all_of, batches
from zoo.orca.engine.gang import run_gang
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed import as_feed

BATCH = 4
POLICIES = tf.data.experimental.AutoShardPolicy


def with_policy(dataset, policy):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def records(config):
    return tf.data.Dataset.range(10).map(lambda i: (tf.cast(i, tf.float32), i))


def in_batches(config, batch_size):
    return records(config).shuffle(10).batch(batch_size)


def split_at_random(config):
    """What a creator draws must be the same everywhere, or rows would be lost."""
    order = tf.random.shuffle(tf.range(10.0)) + tf.cast(np.random.randint(1000), tf.float32)
    return tf.data.Dataset.from_tensor_slices((order, order)).shuffle(10)


def calling_python(config):
    return records(config).map(lambda x, y: (tf.numpy_function(lambda value: value, [x], tf.float32), y))


def from_memory(config):
    """A constant that leaves the graph."""
    large = np.arange(10, dtype=np.float32)[:, None].repeat(30_000, axis=1)
    return tf.data.Dataset.from_tensor_slices((large, large[:, 0])).map(lambda x, y: (x[0], y))


def own_share(config):
    mine = np.arange(10.0)[config["rank"] :: config["size"]]
    dataset = tf.data.Dataset.from_tensor_slices((mine, mine)).batch(config["batch_size"] // config["size"])
    return with_policy(dataset, POLICIES.OFF)


def own_records(config):
    mine = np.arange(10.0)[: 7 - 5 * config["rank"]]
    return with_policy(tf.data.Dataset.from_tensor_slices((mine, mine)), POLICIES.OFF)


def endless(config, batch_size):
    return records(config).batch(batch_size).repeat()


def lines_of(files):
    def creator(config, batch_size):
        return tf.data.TextLineDataset(files).map(lambda line: (tf.strings.to_number(line), line)).batch(batch_size)

    return creator


def shards_by_itself(config):
    return records(config).shard(config["size"], config["rank"])


def for_files_alone(config):
    return with_policy(records(config), POLICIES.FILE)


def hinted(config):
    return with_policy(records(config), POLICIES.HINT)


BAD = {
    shards_by_itself: "every worker must make the same tf.data.Dataset",
    for_files_alone: "does not read from a list of files alone",
    hinted: "must be AUTO, FILE, DATA or OFF",
}


def on_worker(worker, feeds, limit):
    """The shares that this rank is given by each feed, or what was raised."""
    found = []
    for feed in feeds:
        try:
            source = feed.open(worker, BATCH, seed=3)
            shares = [share for _, share in zip(range(limit), source.epoch(1), strict=False)]
            found.append((shares, source.steps, source.infinite))
            source.close()
        except InvalidArgumentError as error:
            found.append(str(error))
    return found


@pytest.mark.engines("local")
def test_creators_in_a_gang(engine, tmp_path):
    files = [str(tmp_path / name) for name in ("zeros", "ones")]
    for value, file in enumerate(files):
        with open(file, "w") as lines:
            lines.write(f"{value}\n" * (8 - 2 * value))
    good = {
        "records": records,
        "batches": in_batches,
        "drawn": split_at_random,
        "python": calling_python,
        "memory": from_memory,
        "own batches": own_share,
        "own records": own_records,
        "endless": endless,
        "files": lines_of(files),
        "one file": lines_of(files[:1]),
    }
    feeds = [as_feed(creator) for creator in (*good.values(), *BAD)]
    assert all(feed.batched is None and feed.infinite is None for feed in feeds)
    ranks = run_gang(engine, on_worker, 2, feeds, 7)
    steps = {name: list(zip(*(rank[number][0] for rank in ranks), strict=True)) for number, name in enumerate(good)}
    facts = {name: ranks[0][number][1:] for number, name in enumerate(good)}

    ten = list(range(10))
    for name in ("records", "batches", "python", "memory", "own batches"):
        assert all_of(steps[name]) == ten, name
        assert [len(batch) for batch in batches(steps[name])] == [4, 4, 2], name
    assert batches(steps["records"]) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches(steps["batches"]) != batches(steps["records"])
    assert np.diff(all_of(steps["drawn"])).tolist() == [1] * 9
    assert all_of(steps["own records"]) == sorted([0, 1, 2, 3, 4, 5, 6, 0, 1])
    assert [[share.rows for share in shares] for shares in steps["own records"]] == [[2, 2], [2, 0], [2, 0], [1, 0]]
    assert facts["endless"] == (None, True)
    assert len(steps["endless"]) == 7

    # One file of zeros, one of ones: each worker's part of a batch is from one of them.
    assert [[share.batch[0].tolist() for share in shares] for shares in steps["files"]][:3] == [[[0, 0], [1, 1]]] * 3
    assert all_of(steps["files"]) == [0] * 8 + [1] * 6
    assert all_of(steps["one file"]) == [0] * 8

    for number, message in enumerate(BAD.values(), start=len(good)):
        assert all(message in rank[number] for rank in ranks)


@pytest.mark.engines("local")
def test_creators_that_cannot_be_called_are_refused_at_once(engine):
    with pytest.raises(InvalidArgumentError, match="takes no arguments"):
        as_feed(os.getcwd)
