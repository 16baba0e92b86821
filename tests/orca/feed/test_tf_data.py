"""A tf.data.Dataset, put together again from what the ranks got, is what TensorFlow gives by itself."""

from __future__ import annotations

import gc
import glob
import logging
import os
import shutil
import tempfile
from types import SimpleNamespace

import cloudpickle
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ranks import all_of, batches, read, run_ranks
from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.feed import as_feed, check_same_kind, kind_of, tf_source
from zoo.orca.feed.shards import Columns
from zoo.orca.feed.taste import taste
from zoo.orca.feed.tf_cuts import with_maps_last
from zoo.orca.feed.tf_data import FILES, DatasetFeed, open_dataset, ship
from zoo.orca.feed.tf_pipeline import OWN

HERE = SimpleNamespace(name="local", one_machine=True)
ROWS = 11
NUMBERS = np.arange(ROWS)


def feed_of(dataset, **options):
    return as_feed(dataset, engine=HERE, **options)


def numbers(rows=ROWS):
    """Records (i, i)."""
    return tf.data.Dataset.from_tensor_slices((np.arange(rows, dtype=np.float32), np.arange(rows)))


def unordered(dataset):
    options = tf.data.Options()
    options.deterministic = False
    return dataset.map(lambda x, y: (x, y), num_parallel_calls=4, deterministic=False).with_options(options)


def up(x, y):
    return x + 1, y


def down(x, y):
    return x - 1, y


# What a chain may be made of. Each leaves records (i, i), some of them more than once or not at all.
STEPS = {
    "map": lambda dataset: dataset.map(up).map(down, num_parallel_calls=2),
    "shuffle": lambda dataset: dataset.shuffle(5),
    "seeded": lambda dataset: dataset.shuffle(50, seed=4),
    "fixed": lambda dataset: dataset.shuffle(50, reshuffle_each_iteration=False),
    "cache": lambda dataset: dataset.cache(),
    "filter": lambda dataset: dataset.filter(lambda x, y: y % 5 != 2),
    "repeat": lambda dataset: dataset.repeat(2),
    "take": lambda dataset: dataset.skip(1).take(9),
    "prefetch": lambda dataset: dataset.prefetch(2),
    "unordered": unordered,
    "interleave": lambda dataset: dataset.interleave(
        lambda x, y: tf.data.Dataset.from_tensors((x, y)), cycle_length=3, num_parallel_calls=2
    ),
    "zip": lambda dataset: tf.data.Dataset.zip((dataset, tf.data.Dataset.range(99))).map(lambda pair, _: pair),
    "concatenate": lambda dataset: dataset.concatenate(dataset.take(2)),
    "unbatch": lambda dataset: dataset.batch(3).unbatch(),
}
ENDS = {
    "records": lambda dataset, size: dataset,
    "batch": lambda dataset, size: dataset.batch(size).prefetch(1),
    "padded": lambda dataset, size: dataset.padded_batch(size),
    "batch-map": lambda dataset, size: dataset.batch(size).map(lambda x, y: (x, y)),
}


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.integers(1, 23),
    chain=st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
    end=st.sampled_from(sorted(ENDS)),
    batch_size=st.integers(2, 9),
    workers=st.integers(2, 4),
    start=st.integers(0, 2),
)
def test_every_record_once_in_batches_that_no_worker_count_changes(rows, chain, end, batch_size, workers, start):
    dataset = numbers(rows)
    for step in chain:
        dataset = STEPS[step](dataset)
    expected = sorted(x for x, _ in dataset.as_numpy_iterator())
    if not expected:
        return
    feed = feed_of(ENDS[end](dataset, batch_size))
    assert feed.batched == (end != "records")
    alone = batches(read(feed, 1, batch_size, epoch=1))
    got = sorted(value for batch in alone for value in batch)
    assert len(got) == len(expected)
    if not {"take", "concatenate"} & set(chain):  # which take the first ones of an order
        assert got == expected
    assert {len(batch) for batch in alone[:-1]} <= {batch_size}
    together = read(feed, workers, batch_size, epoch=1)
    assert batches(together) == alone
    assert batches(read(feed, workers, batch_size, epoch=1, start=start)) == alone[start:]
    for shares in together:
        assert {share.total for share in shares} == {sum(share.rows for share in shares)}
        for share in shares:
            assert len(share.batch[0]) == (share.rows or len(share.batch[0])) > 0
            np.testing.assert_array_equal(share.batch[0], share.batch[1])


def test_the_first_epoch_of_a_seeded_shuffle_is_tensorflows_own():
    dataset = numbers().shuffle(20, seed=4).repeat(2)
    plain = [x for x, _ in dataset.as_numpy_iterator()]
    got = [value for (share,) in read(feed_of(dataset)) for value in share.batch[0]]
    assert got == plain


def drawn(dataset, epoch, **options):
    return [value for (share,) in read(feed_of(dataset), epoch=epoch, **options) for value in share.batch[0].tolist()]


def test_epochs_shuffle_differently_and_each_the_same_whenever_it_is_run():
    for shuffle in (lambda: numbers().shuffle(20), lambda: numbers().shuffle(20, seed=4)):
        assert drawn(shuffle(), 0) != drawn(shuffle(), 1)
        assert drawn(shuffle(), 1) == drawn(shuffle(), 1)
    assert drawn(numbers().shuffle(20), 1, seed=3) != drawn(numbers().shuffle(20), 1, seed=4)
    fixed = numbers().shuffle(20, reshuffle_each_iteration=False)
    assert drawn(fixed, 0) == drawn(fixed, 5) != sorted(drawn(fixed, 0))


def unseeded(x, y):
    return x, tf.random.uniform([])


def seeded(x, y):
    return x, tf.random.uniform([], seed=2)


def from_generator():
    generator = tf.random.Generator.from_seed(5)

    def draw(x, y):
        return x, generator.uniform([])

    return draw


def from_layer():
    brighter = keras.layers.RandomBrightness(0.4, value_range=(0, 1), seed=3)

    def draw(x, y):
        return x, brighter(tf.fill([1, 1, 3], 0.5), training=True)[0, 0, 0]

    return draw


def test_what_maps_draw_is_the_same_when_an_epoch_is_taken_up_in_its_middle():
    for draw in (unseeded, seeded, from_generator(), from_layer()):
        feed = feed_of(numbers().map(draw, num_parallel_calls=4).shuffle(4))
        whole = read(feed, 2, epoch=1)
        for again, share in zip(read(feed, 2, epoch=1, start=1), whole[1:], strict=True):
            for mine, before in zip(again, share, strict=True):
                np.testing.assert_array_equal(mine.batch[1], before.batch[1])
        noise = [value for shares in whole + read(feed, 2, epoch=2) for share in shares for value in share.batch[1]]
        assert len(set(noise)) > len(noise) * 0.9, "ranks and epochs must draw something else"


def counting(folder):
    """A map that leaves a file for each time that it is run."""
    place = tf.constant(f"{folder}/")

    def count(x, y):
        name = tf.strings.join([place, tf.strings.as_string(y), "-", tf.strings.as_string(tf.timestamp(), 9)])
        with tf.control_dependencies([tf.io.write_file(name, "")]):
            return tf.identity(x), y

    return count


def test_maps_run_once_a_row_over_all_ranks(tmp_path):
    """Also those before a shuffle, which may as well run after it."""
    feed = feed_of(numbers().map(counting(tmp_path)).shuffle(5).map(lambda x, y: (x, y)).batch(6))
    read(feed, 3, batch_size=6)
    assert sorted(int(name.split("-")[0]) for name in os.listdir(tmp_path)) == NUMBERS.tolist()


def test_what_is_cached_is_computed_once(tmp_path):
    feed = feed_of(numbers().map(counting(tmp_path)).cache().shuffle(20).batch(4))

    def on_rank(worker):
        source = feed.open(worker, 4, 3)
        found = [[share.batch[0].tolist() for share in source.epoch(epoch)] for epoch in range(3)]
        source.close()
        return found

    ((first, second, _),) = run_ranks(1, on_rank)
    assert len(os.listdir(tmp_path)) == ROWS
    assert first != second


@pytest.mark.parametrize("ahead", [0, tf_source.AHEAD])
def test_files_of_caches_are_each_ranks_own(ahead, tmp_path, monkeypatch):
    monkeypatch.setattr(tf_source, "AHEAD", ahead)  # a cache must be complete even if nothing was made ready ahead
    feed = feed_of(numbers().cache(f"{tmp_path}/kept"))
    for _ in range(2):
        assert batches(read(feed, 2)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert {name.split(".")[0] for name in os.listdir(tmp_path)} == {"kept-part-0-of-2", "kept-part-1-of-2"}


@pytest.mark.parametrize("first", ["all rows", "a part", "rows of files"])
def test_files_of_caches_with_other_rows_in_them_are_others(first, tmp_path, text_files):
    """A dataset is fitted with a shuffle, say, and evaluated without one."""
    lines = tf.data.TextLineDataset(sorted(glob.glob(text_files))).map(lambda line: tf.strings.to_number(line))
    kept = lines.cache(f"{tmp_path}/kept")
    feeds = {"all rows": feed_of(kept.shuffle(9)), "a part": feed_of(kept)}
    feeds["rows of files"] = feed_of(kept, auto_shard_files=True)
    for feed in sorted(feeds, key=lambda name: name != first):
        for _ in range(2):
            assert all_of(read(feeds[feed], 2)) == [0, 10, 11, 20, 21, 22, 23, 24], feed
    # With batches of one row there is work for one rank only, which then has all of them.
    assert all_of(read(feeds["a part"], 2, batch_size=1)) == [0, 10, 11, 20, 21, 22, 23, 24]


# What rank 0 has of each batch.
REMOVED = {1: [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]], 2: [[0, 2], [4, 6], [8, 10]]}


@pytest.mark.parametrize(("workers", "name"), [(1, "kept"), (2, "kept-part-0-of-2")])
def test_what_a_killed_worker_leaves_of_a_cache_is_removed(workers, name, tmp_path):
    alive, left = tmp_path / "alive", tmp_path / "left"
    alive.mkdir()
    writer = iter(numbers(3).cache(str(alive / name)))
    next(writer)
    shutil.copytree(alive, left)
    del writer
    for other in ("kept_more", "kept-part-0-of-20"):  # whole ones
        list(numbers(1).cache(str(left / other)))
    others = {each: (left / each).read_bytes() for each in os.listdir(left) if not each.startswith(f"{name}_0.")}
    assert (left / f"{name}_0.lockfile").exists()
    got = read(feed_of(numbers().cache(str(left / "kept"))), workers)
    assert [share.batch[0].tolist() for share, *_ in got] == REMOVED[workers]
    assert not list(left.glob("*.lockfile"))
    assert {each: (left / each).read_bytes() for each in others} == others


def test_the_lock_of_a_cache_that_is_being_written_here_stays(tmp_path):
    feed = feed_of(numbers(400).cache(f"{tmp_path}/kept"))

    def on_rank(worker):
        source = feed.open(worker, 4, 3)
        steps = source.epoch(0)
        found = [next(steps)]
        feed.open(worker, 4, 3).close()
        assert (tmp_path / "kept_0.lockfile").exists()
        found += steps
        source.close()
        return found

    assert all_of(zip(*run_ranks(1, on_rank), strict=True)) == list(range(400))
    assert (tmp_path / "kept.index").exists()


def test_elements_become_batches():
    x, texts = NUMBERS.astype(np.float32), np.array([f"t{i}" for i in NUMBERS])
    forms = {
        (2, None): (x, NUMBERS),
        (3, None): ((x, texts), NUMBERS),
        (2, 0.5): (x, NUMBERS, x / 2),
        (1, None): {"b": x, "a": texts},
        (4, None): (x, NUMBERS, texts, x > 3),
    }
    for (parts, weight), form in forms.items():
        feed = feed_of(tf.data.Dataset.from_tensor_slices(form))
        share = read(feed, 2)[0][1]
        assert len(share.batch) == parts
        assert feed.labelled == (parts > 1)
        assert (None if share.weights is None else share.weights[0]) == weight
    (features,) = read(feed_of(tf.data.Dataset.from_tensor_slices({"b": x, "a": texts})), 2)[0][0].batch
    assert features["a"].tolist() == [b"t0", b"t2"]
    lone = feed_of(tf.data.Dataset.from_tensor_slices(x))
    assert not lone.labelled
    assert read(lone)[0][0].batch[0].tolist() == [0, 1, 2, 3]


def test_batches_may_be_dropped_and_may_be_of_any_size():
    assert batches(read(feed_of(numbers().batch(4, drop_remainder=True)), 2)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    unknown = numbers().filter(lambda x, y: y >= 0)
    for dataset in (numbers(), unknown):
        assert batches(read(feed_of(dataset), 3, drop_last=True)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    by_length = numbers().bucket_by_sequence_length(lambda x, y: 1, [2], [3, 3])
    assert feed_of(by_length).batched
    assert batches(read(feed_of(by_length), 2)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]


def test_windows_are_records_and_nested_batches_are_batches():
    windows = tf.data.Dataset.range(5).window(3, shift=1, drop_remainder=True).flat_map(lambda each: each.batch(3))
    feed = feed_of(windows)
    assert not feed.batched
    assert read(feed)[0][0].batch[0].tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert feed_of(tf.data.Dataset.range(2).interleave(lambda i: tf.data.Dataset.range(4).batch(2))).batched


def test_a_dataset_without_an_end_goes_on_and_says_so():
    for dataset, third in ((numbers().repeat(), [0, 8, 9, 10]), (numbers().batch(4).repeat(), [8, 9, 10])):
        feed = feed_of(dataset)
        assert feed.infinite
        for workers in (1, 3):
            assert batches(read(feed, workers, limit=3))[2] == third
    assert not feed_of(numbers()).infinite


def halved(x):
    return np.float32(x / 2)


def generated():
    return tf.data.Dataset.from_generator(
        lambda: ((float(i), i) for i in range(7)),
        output_signature=(tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.int64)),
    )


def test_datasets_that_call_python_are_fed_from_the_driver(caplog):
    with caplog.at_level(logging.INFO, "zoo.orca"):
        feed = feed_of(generated())
    assert "run here" in caplog.text
    for epoch in (0, 1):
        got = [value for (share,) in read(feed, epoch=epoch) for value in share.batch[0].tolist()]
        assert got == list(range(7)), "no shuffle, so the dataset's order"
    assert batches(read(feed, 3)) == [[0, 1, 2, 3], [4, 5, 6]]
    shuffled = feed_of(generated().shuffle(3).batch(3))
    assert shuffled.batched
    assert [len(batch) for batch in batches(read(shuffled, 2))] == [3, 3, 1]
    assert batches(read(shuffled, 2, epoch=0)) != batches(read(shuffled, 2, epoch=1))
    eager = numbers().map(lambda x, y: (tf.ensure_shape(tf.py_function(halved, [x], tf.float32), []), y))
    plain = numbers().map(lambda x, y: {"x": tf.numpy_function(halved, [x], tf.float32), "text": tf.as_string(y)})
    assert batches(read(feed_of(eager), 2))[1] == [2, 2.5, 3, 3.5]
    (features,) = read(feed_of(plain))[0][0].batch
    assert features["text"].tolist() == [b"0", b"1", b"2", b"3"]


def growing():
    """Records ([i] * i, i), for i from 1 to 6."""
    return tf.data.Dataset.from_generator(
        lambda: (([i] * i, i) for i in range(1, 7)),
        output_signature=(tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.int64)),
    )


@pytest.mark.parametrize("one_machine", [True, False])
def test_batches_of_datasets_that_call_python_are_kept(one_machine):
    engine = SimpleNamespace(name="local", one_machine=one_machine)
    dropped = as_feed(generated().batch(3, drop_remainder=True), engine=engine)
    assert batches(read(dropped, 2)) == [[0, 1, 2], [3, 4, 5]]
    mapped = as_feed(generated().batch(3).map(lambda x, y: (x - tf.reduce_min(x), y)), engine=engine)
    for epoch in (0, 1):
        assert batches(read(mapped, 2, epoch=epoch)) == [[0, 1, 2], [0, 1, 2], [0]]
    padded = as_feed(growing().padded_batch(4), engine=engine)
    assert padded.batched
    assert padded.labelled
    first, second = read(padded, 2)
    assert [share.batch[0].shape for share in first + second] == [(2, 4), (2, 4), (2, 6), (2, 6)]
    assert [(share.rows, share.total) for share in second] == [(2, 2), (0, 2)]
    assert first[0].batch[0].tolist() == [[1, 0, 0, 0], [2, 2, 0, 0]]
    assert batches(read(padded, 3, start=1), lambda share: share.batch[1]) == [[5, 6]]
    assert padded.sample()[0].shape == (2, 4)
    shuffled = as_feed(numbers(40).shuffle(40).map(called).padded_batch(4), engine=engine)
    epochs = [batches(read(shuffled, 2, epoch=epoch)) for epoch in (0, 1, 1)]
    assert epochs[0] != epochs[1] == epochs[2] == batches(read(shuffled, 3, epoch=1))
    assert sorted(epochs[0]) == sorted(epochs[1]), "the same batches in another order"


def called(x, y):
    return tf.ensure_shape(tf.numpy_function(halved, [x], tf.float32), []), y


LARGE = np.arange(600_000, dtype=np.float32).reshape(300, -1)


def test_large_constants_travel_in_a_file_that_ranks_map():
    before = laid_files()
    feed = feed_of(tf.data.Dataset.from_tensor_slices((LARGE, np.arange(len(LARGE), dtype=np.int16))))
    (file,) = laid_files() - before
    assert os.path.getsize(file) == LARGE.nbytes
    assert len(cloudpickle.dumps(feed)) < LARGE.nbytes
    for engine_sees_files in (True, False):
        feed._is_seen = engine_sees_files
        (share, _) = read(feed, 2, batch_size=100)[1]
        np.testing.assert_array_equal(share.batch[0], LARGE[100:200:2])
    assert len(cloudpickle.dumps(feed)) > LARGE.nbytes
    del feed
    assert laid_files() == before


def laid_files():
    gc.collect()
    return set(glob.glob(os.path.join(tempfile.gettempdir(), "orca-feed-*", "*")))


@pytest.fixture
def text_files(tmp_path):
    """Three files of 1, 2 and 5 lines: file f has the numbers from 10 f on."""
    for number, lines in enumerate((1, 2, 5)):
        (tmp_path / f"{number}.txt").write_text("".join(f"{number * 10 + line}\n" for line in range(lines)))
    return str(tmp_path / "*.txt")


def test_files_are_dealt_when_asked_for(text_files):
    found = sorted(glob.glob(text_files))
    flat = tf.data.TextLineDataset(found)
    shuffled = tf.data.Dataset.list_files(text_files).interleave(tf.data.TextLineDataset, num_parallel_calls=2)
    for lines in (flat, shuffled, shuffled.shuffle(3).batch(4).prefetch(1)):
        dataset = lines.map(lambda line: (tf.strings.to_number(line, tf.int64) // 10, line))
        feed = feed_of(dataset, auto_shard_files=True)
        steps = read(feed, 2)
        for rank in range(2):
            mine = {int(value) for shares in steps for value in shares[rank].batch[0] if shares[rank].rows}
            assert mine in ({0, 2}, {1})
        assert all_of(steps) == [0, 1, 1, 2, 2, 2, 2, 2]
        # With fewer files than workers they are dealt by record, as they are unless asked for.
        assert batches(read(feed, 4)) == batches(read(feed_of(dataset), 2))


def test_files_are_not_dealt_where_something_counts_files_or_records(text_files):
    names = tf.data.Dataset.from_tensor_slices(sorted(glob.glob(text_files)))

    def lines(names):
        return names.interleave(tf.data.TextLineDataset).map(lambda line: tf.strings.to_number(line))

    counted = {
        "files taken": lines(names.take(2)),
        "files skipped": lines(names.skip(1)),
        "files sharded": lines(names.shard(2, 0)),
        "rows taken": lines(names).take(3),
        "rows skipped": lines(names).batch(2).skip(1),
        "rows sharded": lines(names).shard(3, 1),
        "numbered": lines(names).enumerate().map(lambda number, value: value),
        "twice": lines(names.take(1)).concatenate(lines(names)),
        "windows": lines(names).window(2).flat_map(lambda window: window),
        "summed": lines(names).scan(0.0, lambda state, value: (state + value, state + value)),
        "while": lines(names).take_while(lambda value: value < 21),
    }
    for what, dataset in counted.items():
        records = dataset.unbatch() if what == "rows skipped" else dataset
        assert all_of(read(feed_of(dataset, auto_shard_files=True), 2)) == sorted(records.as_numpy_iterator()), what


@pytest.mark.parametrize("dealt", [OWN, FILES])
@pytest.mark.parametrize("batched", [True, False])
def test_a_rank_without_any_rows_takes_part(dealt, batched, tmp_path):
    files = [str(tmp_path / name) for name in ("full", "empty")]
    for file, text in zip(files, ("1\n2\n3\n", ""), strict=True):
        with open(file, "w") as lines:
            lines.write(text)

    def on_rank(worker):
        mine = files if dealt == FILES else files[worker.rank : worker.rank + 1]
        dataset = tf.data.TextLineDataset(mine).map(
            lambda line: ({"text": line, "x": tf.fill([2, 3], tf.strings.length(line))}, tf.strings.to_number(line))
        )
        with tempfile.TemporaryDirectory() as folder:
            shipped = ship(dataset.padded_batch(2) if batched else dataset, folder)
            source = open_dataset(shipped, shipped.tensors(), worker, 4, 3, False, dealt, "data")
        found = list(source.epoch(0))
        source.close()
        return found

    full, empty = run_ranks(2, on_rank)
    assert [(share.rows, share.total) for share in full] == [(2, 2), (1, 1)]
    for share in empty:
        features, target = share.batch
        assert (share.rows, features["x"].shape[1:], features["x"].dtype) == (0, (2, 3), np.int32)
        assert len(features["x"]) == len(target) == len(features["text"]) > 0
        assert isinstance(features["text"][0], bytes)


def test_captured_values_are_those_of_the_time_when_the_feed_is_made():
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([1.0, 2.0])), -1
    )
    factor = tf.Variable(10.0)
    dataset = tf.data.Dataset.from_tensor_slices(["b", "?", "a"]).map(lambda key: (table.lookup(key) * factor, key))
    factor.assign(100.0)
    feed = feed_of(dataset)
    factor.assign(0.0)
    for epoch in range(2):
        assert batches(read(feed, 2, epoch=epoch)) == [[-100, 100, 200]]
    assert factor.numpy() == 0


def test_what_cannot_be_sent_is_fed_from_the_driver():
    table = tf.lookup.experimental.DenseHashTable(tf.string, tf.int64, -1, "empty", "deleted")
    table.insert(tf.constant(["a"]), tf.constant([7], tf.int64))
    feed = feed_of(tf.data.Dataset.from_tensor_slices(["a", "b"]).map(lambda key: (table.lookup(key), key)))
    assert batches(read(feed, 2)) == [[-1, 7]]


def test_a_generator_that_filters_and_changes_rows_filters_alike_on_all_ranks():
    generator = tf.random.Generator.from_seed(5)

    def keep(x, y):
        return generator.uniform([]) < 0.5

    def change(x, y):
        return x, generator.uniform([])

    feed = feed_of(numbers(40).filter(keep).map(change))
    alone = batches(read(feed, epoch=1))
    assert batches(read(feed, 3, epoch=1)) == alone
    assert 5 < sum(map(len, alone)) < 35


def test_datasets_of_a_graph_are_shipped_too():
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        dataset = v1.data.Dataset.from_tensor_slices((NUMBERS.astype(np.float32), NUMBERS))
        dataset = dataset.map(up).shuffle(20).map(down)
        assert kind_of(dataset) == "tf.data.Dataset"
        feeds = [feed_of(dataset), feed_of(dataset.batch(4)), feed_of(dataset.repeat())]
        called = dataset.map(lambda x, y: (tf.numpy_function(lambda value: value, [x], tf.float32), y))
        feeds.append(feed_of(called))
        factor = v1.get_variable("factor", initializer=2.0, use_resource=True)
        scaled = dataset.map(lambda x, y: (x * factor, y))
        with pytest.raises(PreconditionError, match=r"with session.as_default\(\)"):
            feed_of(scaled)
        with v1.Session() as session:
            session.run(factor.initializer)
            feeds.append(feed_of(scaled, session=session))
            session.run(factor.assign(0.5))
            feeds.append(feed_of(scaled))
    records, batched, endless, fed, doubled, half = feeds
    assert endless.infinite
    assert len(set(map(str, (batches(read(records, workers)) for workers in (1, 2, 3))))) == 1
    assert batches(read(batched, 2)) == batches(read(records))
    for feed, factor in ((records, 1), (fed, 1), (doubled, 2), (half, 0.5)):
        assert all_of(read(feed, 2)) == (NUMBERS * factor).tolist()


BAD = {
    "ragged": (lambda: tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])), r"to_tensor\(shape"),
    "sparse": (lambda: tf.data.Dataset.from_tensor_slices(tf.sparse.from_dense([[1, 0]])), "tf.sparse.to_dense"),
    "windows": (lambda: tf.data.Dataset.range(4).window(2), "flat_map"),
    "shapes": (lambda: tf.data.Dataset.range(3).map(lambda i: tf.range(i)), r"the shapes \[0\] and \[2\]"),
    "filtered": (lambda: numbers().filter(lambda x, y: y < 0), "gives no element"),
    "empty": (lambda: numbers().take(0), "gives no element"),
    "no rows of batches": (lambda: numbers().take(0).padded_batch(2), "gives no element"),
    "no rows of generated batches": (lambda: generated().take(0).padded_batch(2), "has no rows"),
    "endless python": (lambda: generated().repeat(), "has no end. Leave out .repeat"),
    "generated shapes": (
        lambda: tf.data.Dataset.from_generator(
            lambda: iter([[1], [1, 2]]), output_signature=tf.TensorSpec([None], tf.int64)
        ),
        r"the shapes \[1\] and \[2\]",
    ),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_fed_is_told(make, message):
    with pytest.raises(InvalidArgumentError, match=message):
        read(feed_of(make()), 2)


def test_more_than_tensorflow_can_serialise_is_told(monkeypatch):
    """It writes nothing then."""
    monkeypatch.setattr(tf.raw_ops, "DatasetToGraphV2", lambda **inputs: tf.constant(b""))
    with pytest.raises(InvalidArgumentError, match="at most 2 GB"):
        feed_of(numbers())


def test_a_few_rows_can_be_tasted_without_going_through_all():
    """Endless datasets, too; of batches the first one is."""
    for dataset, rows in ((numbers().repeat(), 8), (numbers().batch(5).repeat(), 5), (generated(), 2)):
        tasted = taste(dataset, Columns(), {}, HERE)
        share = tasted.share(8, seed=0)
        assert tasted.is_labelled
        assert share.total == rows
        assert tasted.describe(share) == f"batches of {rows} rows: float32, int64"


def test_validation_data_must_be_of_the_same_kind():
    with pytest.raises(InvalidArgumentError, match=r"train data and validation data should be both tf\.data\.Dataset"):
        check_same_kind(numbers(), (NUMBERS, NUMBERS))


def test_maps_that_change_something_stay_where_they_are():
    """A map that counts must see every element, in the dataset's order."""
    count = tf.Variable(0, dtype=tf.int64)

    def number(x, y):
        return x, count.assign_add(1)

    feed = feed_of(numbers().map(number))
    assert isinstance(feed, DatasetFeed)
    graph, cut = with_maps_last(feed._shipped.graph())
    assert cut == graph.sink
