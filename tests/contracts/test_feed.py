"""One suite for feeds on every engine: whatever the data is, an epoch gives every row once, in the same batches."""

from __future__ import annotations

import gc
import glob
import itertools
import os
import tempfile
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

from zoo.orca import OrcaContext
from zoo.orca.data import XShards
from zoo.orca.data.tf.data import Dataset
from zoo.orca.engine.gang import run_gang
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed import as_feed
from zoo.orca.feed.arrays import SharedFeed
from zoo.orca.feed.plan import Plan
from zoo.orca.feed.rows import DealtFeed, RowsFeed
from zoo.orca.feed.shards import Columns
from zoo.orca.feed.taste import Alone
from zoo.orca.feed.tf_data import DatasetFeed

COUNT = 17
SIZES = (0, 5, 0, 1, 9, 2, 0)
BATCH = 6
ID = np.arange(COUNT, dtype=np.float32)
PAIR = np.stack([ID, ID * 10], axis=1)
GRID = np.arange(COUNT * 6, dtype=np.float32).reshape(COUNT, 2, 3)
LABEL = np.arange(COUNT) % 3
WEIGHT = ID / 4


def cut(array):
    return np.split(array, np.cumsum(SIZES)[:-1])


def shards(engine, **columns):
    """Partitions of one dict shard each, or of none."""
    pieces = zip(SIZES, *map(cut, columns.values()), strict=True)
    return XShards.from_placement(
        engine.place([[dict(zip(columns, each, strict=True))] if size else [] for size, *each in pieces])
    )


def frames(engine, **columns):
    return shards(engine, **columns).transform_shard(
        lambda shard: pd.DataFrame({name: list(values) for name, values in shard.items()})
    )


def nested(engine, build):
    """Dict shards whose features were put together by `build`."""
    return shards(engine, a=ID, b=PAIR, y=LABEL).transform_shard(
        lambda shard: {"x": build(shard["a"], shard["b"]), "y": shard["y"]}
    )


def spark_frame(schema="a float, b array<float>, y int, w double", **columns):
    """A DataFrame in the partitions of SIZES, empty ones included."""
    columns = columns or {"a": ID, "b": PAIR, "y": LABEL, "w": WEIGHT}
    rows = list(zip(*(values.tolist() for values in columns.values()), strict=True))
    parts = [rows[end - size : end] for size, end in zip(SIZES, np.cumsum(SIZES), strict=True)]
    session = OrcaContext.get_spark_session()
    rdd = session.sparkContext.parallelize(parts, len(parts)).flatMap(lambda part: part)
    return session.createDataFrame(rdd, schema)


def ray_dataset():
    import ray.data

    table = pd.DataFrame({"a": ID, "b": list(PAIR), "y": LABEL, "w": WEIGHT})
    starts = np.cumsum([0, *SIZES])
    return ray.data.from_pandas([table.iloc[s:e] for s, e in itertools.pairwise(starts) if e > s])


COLUMNS = Columns(("a", "b"), ("y",))
WEIGHTED = Columns(("a", "b"), ("y",), "w")
WIDE = {"a": ID, "b": PAIR, "y": LABEL, "w": WEIGHT}
# Each gives the features (id, pair), the label, and (where it says so) the weights.
KINDS = {
    "tuple": lambda engine: (([ID, PAIR], LABEL), Columns()),
    "dict": lambda engine: ({"x": (ID, PAIR), "y": LABEL}, Columns()),
    "pandas": lambda engine: (pd.DataFrame({"a": ID, "b": list(PAIR), "y": LABEL}), COLUMNS),
    "shards-of-lists": lambda engine: (nested(engine, lambda a, b: [a, b]), Columns()),
    "shards-of-tuples": lambda engine: (nested(engine, lambda a, b: (a, b)), Columns()),
    "shards-of-frames": lambda engine: (frames(engine, **WIDE), WEIGHTED),
}
SPARK_KINDS = {"spark-frame": lambda engine: (spark_frame(), WEIGHTED)}
RAY_KINDS = {"ray-dataset": lambda engine: (ray_dataset(), WEIGHTED)}


def kinds_of(engine):
    """All kinds where gangs are quick, elsewhere those that the engine knows by itself."""
    if engine.name == "local":
        return KINDS
    plain = {name: KINDS[name] for name in ("dict", "shards-of-frames")}
    return plain | (SPARK_KINDS if engine.name == "spark" else RAY_KINDS)


def read(feed, workers, **options):
    """What every rank is given: [epoch][step][rank] as Shares."""
    (found,) = read_each([feed], workers, **options)
    return found


def read_each(feeds, workers, batch_size=BATCH, epochs=(0,), shuffle=True, start=0):
    """`read` for several feeds; one gang does for all that carry their data themselves."""

    def on_worker(worker, feeds):
        found = []
        for feed in feeds:
            source = feed.open(worker, batch_size, seed=3, shuffle=shuffle)
            found.append(([list(source.epoch(epoch, start)) for epoch in epochs], source.steps, source.rows))
            source.close()
        return found

    together = [[feed for feed in feeds if feed.data is None], *([feed] for feed in feeds if feed.data is not None)]
    results = {}
    for each in filter(None, together):
        ranks = run_gang(each[0].engine, on_worker, workers, each, data=each[0].data)
        results |= dict(zip(map(id, each), zip(*ranks, strict=True), strict=True))
    return [_by_step(results[id(feed)], len(epochs)) for feed in feeds]


def _by_step(ranks, epochs):
    assert {rows for _, _, rows in ranks} == {COUNT}
    assert len({steps for _, steps, _ in ranks}) == 1
    return [list(zip(*(shares[number] for shares, *_ in ranks), strict=True)) for number in range(epochs)]


def ids(shares):
    """The ids that count, over all ranks of a step."""
    return [int(value) for share in shares if share.rows for value in share.batch[0]]


def check_rows(shares):
    """Every row is whole: all its values belong to one id."""
    for share in shares:
        first, pair, label = share.batch
        assert len(first) == len(pair) == len(label)
        if share.rows:
            assert len(first) == share.rows
            np.testing.assert_array_equal(pair, np.stack([first, first * 10], axis=1))
            np.testing.assert_array_equal(label, first.astype(int) % 3)
            if share.weights is not None:
                np.testing.assert_array_equal(share.weights, first / 4)


@pytest.fixture(params=["one-machine", "cluster"])
def apart(request, engine, monkeypatch):
    """Whether ranks see each other's files."""
    if request.param == "cluster":
        monkeypatch.setattr(type(engine), "one_machine", property(lambda self: False))
    return request.param == "cluster"


def test_every_kind_gives_every_row_once_an_epoch(engine, apart):
    made = {name: make(engine) for name, make in kinds_of(engine).items()}
    feeds = [as_feed(data, columns) for data, columns in made.values()]
    found = read_each(feeds, workers=3, epochs=(0, 1))
    for name, feed, epochs in zip(made, feeds, found, strict=True):
        assert isinstance(feed, (DealtFeed, SharedFeed) if apart else RowsFeed), name
        weighted = made[name][1].weight is not None
        for steps in epochs:
            assert sorted(each for shares in steps for each in ids(shares)) == list(range(COUNT)), name
            assert [len(ids(shares)) for shares in steps] == [6, 6, 5], name
            for shares in steps:
                check_rows(shares)
                assert {share.total for share in shares} == {len(ids(shares))}
                assert all((share.weights is not None) == weighted for share in shares)
        assert [ids(shares) for shares in epochs[0]] != [ids(shares) for shares in epochs[1]], name


def test_batches_are_the_plans_wherever_rows_lie(engine, apart):
    """Neither the engine nor the workers nor the machines decide what is in a batch."""
    feed = as_feed(shards(engine, x=ID, y=LABEL))
    starts = np.cumsum([0, *SIZES])
    plan = Plan(SIZES, BATCH, seed=3)
    expected = [
        sorted(
            int(starts[piece.shard] + row)
            for piece in pieces
            for row in plan.order(1, piece.shard)[piece.start : piece.stop]
        )
        for pieces in plan.batches(epoch=1)
    ]
    for workers, start in ((1, 0), (2, 0), (4, 0), (3, 2)) if engine.name == "local" else ((2, 1),):
        (steps,) = read(feed, workers, epochs=(1,), start=start)
        assert [sorted(ids(shares)) for shares in steps] == expected[start:]


@pytest.mark.engines("spark")
def test_a_frame_gives_the_batches_of_its_shards(engine, apart):
    """Empty partitions of a DataFrame make no difference."""
    columns = Columns(("a",), ("y",))
    found = [
        [sorted(ids(shares)) for shares in read(as_feed(data, columns), 2)[0]]
        for data in (spark_frame(), frames(engine, a=ID, y=LABEL))
    ]
    assert found[0] == found[1]


def test_unshuffled_rows_come_in_order(engine):
    made = [make(engine) for make in kinds_of(engine).values()]
    for (steps,) in read_each([as_feed(data, columns) for data, columns in made], workers=3, shuffle=False):
        assert [each for shares in steps for each in ids(shares)] == list(range(COUNT))


def test_more_workers_than_rows(engine, apart):
    """Those without rows are given some that count for nothing, like the others' in shape and type."""
    feed = as_feed(XShards.from_placement(engine.place([[], [{"x": PAIR[:1], "y": LABEL[:1]}]])))

    def on_worker(worker, feed):
        return list(feed.open(worker, 4, seed=0).epoch(0))

    found = run_gang(feed.engine, on_worker, 3, feed, data=feed.data)
    assert sorted(share.rows for (share,) in found) == [0, 0, 1]
    for (share,) in found:
        assert share.total == 1
        assert [each.dtype for each in share.batch] == [np.float32, np.int64]
        assert [each.shape[1:] for each in share.batch] == [(2,), ()]


def test_features_in_a_dict_and_no_labels(engine):
    feed = as_feed(shards(engine, x=PAIR).transform_shard(lambda shard: {"x": {"deep": {"pair": shard["x"]}}}))
    (steps,) = read(feed, 2)
    for share in steps[0]:
        features, target = share.batch
        assert features["deep"]["pair"].shape[1:] == (2,)
        assert (target == -1).all()


@pytest.mark.engines("spark")
def test_columns_of_a_frame(engine):
    """Vectors dense and sparse, nested arrays, several labels, and the types of scalars."""
    from pyspark.ml.linalg import Vectors

    rows = [
        (
            number,
            Vectors.dense(number, 1) if number % 2 else Vectors.sparse(2, {0: float(number)}),
            Vectors.dense(number, 2.5),
            GRID[number].tolist(),
            number % 3,
            float(number),
            number % 2 == 0,
        )
        for number in range(COUNT)
    ]
    schema = ["a", "mixed", "dense", "grid", "small", "real", "flag"]
    df = OrcaContext.get_spark_session().createDataFrame(rows, schema).repartition(3)
    df = df.withColumn("small", df.small.cast("int"))
    feed = as_feed(df, Columns(("a", "mixed", "dense", "grid"), ("small", "real", "flag")))
    (steps,) = read(feed, 2)
    assert sorted(each for shares in steps for each in ids(shares)) == list(range(COUNT))
    for share in steps[0]:
        numbers, mixed, dense, grid, (small, real, flag) = share.batch
        assert [each.dtype for each in (numbers, mixed, dense, grid, small, real, flag)] == [
            np.int64, np.float32, np.float32, np.float32, np.int32, np.float64, np.bool_,
        ]  # fmt: skip
        np.testing.assert_array_equal(mixed, np.stack([numbers, numbers % 2], axis=1))
        np.testing.assert_array_equal(dense, np.stack([numbers, np.full(len(numbers), 2.5)], axis=1))
        np.testing.assert_array_equal(grid, GRID[numbers])
        np.testing.assert_array_equal(small, numbers % 3)
        np.testing.assert_array_equal(real, numbers)
        np.testing.assert_array_equal(flag, numbers % 2 == 0)


def test_shards_that_differ_are_refused_with_both_descriptions(engine):
    unlike = XShards.from_placement(engine.place([[{"x": PAIR}], [{"x": GRID}]]))
    with pytest.raises(InvalidArgumentError, match=r"partition 1 has .*float32\[2, 3\].*before it have .*float32\[2\]"):
        as_feed(unlike)


def test_data_without_rows_is_refused(engine, apart):
    nothing = XShards.from_placement(engine.place([[], []]))
    with pytest.raises(InvalidArgumentError, match="training data has no rows"):
        read(as_feed(nothing, what="training data"), workers=2)


@pytest.mark.engines("spark", "ray")
def test_cached_data_is_laid_down_once(engine):
    """And again if it is not cached; the files are gone with the data."""
    columns = Columns(("a",), ("y",))
    data = spark_frame().cache() if engine.name == "spark" else frames(engine, a=ID, y=LABEL)
    feed = as_feed(data, columns)
    before = laid_files()
    assert before
    assert as_feed(data, columns) is feed
    assert laid_files() == before
    del feed
    assert laid_files() == before
    if engine.name == "spark":
        data.unpersist()
    else:
        data.uncache()
    feed = as_feed(data, columns)
    assert laid_files()
    assert not laid_files() & before
    del feed
    assert not laid_files()


def tf_kinds(engine):
    """Datasets of records (id, pair), label: of the driver's arrays, of files, from Python functions, of shards."""
    import tensorflow as tf

    def whole(a):
        return (a, tf.stack([a, a * 10])), tf.cast(a, tf.int64) % 3

    numbers = tf.data.Dataset.from_tensor_slices(ID)
    large = tf.data.Dataset.from_tensor_slices((ID, np.zeros((COUNT, 20_000), np.float32)))
    called = numbers.map(lambda a: tf.ensure_shape(tf.numpy_function(lambda value: value, [a], tf.float32), []))
    in_shards = Dataset.from_tensor_slices(shards(engine, x=ID)).map(lambda record: whole(record["x"]))
    return {
        "records": numbers.map(whole).shuffle(COUNT),
        "batches": numbers.shuffle(COUNT, seed=2).map(whole).batch(BATCH).prefetch(1),
        "a large constant": large.map(lambda a, zeros: whole(a + zeros[0])).shuffle(5),
        "unknown length": numbers.filter(lambda a: a >= 0).shuffle(COUNT).map(whole),
        "python": called.map(whole).shuffle(COUNT),
        "shards": in_shards,
    }


def test_datasets_of_tensorflow(engine, monkeypatch):
    """Guarantees 1 and 2, where ranks see the driver's files and where they do not."""
    made = tf_kinds(engine)
    feeds = [as_feed(data, engine=engine) for data in made.values()]
    monkeypatch.setattr(type(engine), "one_machine", property(lambda self: False))
    in_files = [feed for feed in feeds if isinstance(feed, DatasetFeed)]
    feeds += [as_feed(data, engine=engine) for name, data in made.items() if name in ("a large constant", "python")]
    names = [*made, "a large constant, sent", "python, sent"]

    def on_worker(worker, feeds):
        found = []
        for feed in feeds:
            with closing(feed.open(worker, BATCH, seed=3)) as source:
                found.append([list(source.epoch(0)), list(source.epoch(1)), list(source.epoch(1, start=2))])
        return found

    ranks = run_gang(engine, on_worker, 3, feeds)
    for number, name in enumerate(names):
        epochs = [list(zip(*each, strict=True)) for each in zip(*(rank[number] for rank in ranks), strict=True)]
        for steps in epochs[:2]:
            assert sorted(each for shares in steps for each in ids(shares)) == list(range(COUNT)), name
            assert [len(ids(shares)) for shares in steps] == [6, 6, 5], name
            for shares in steps:
                check_rows(shares)
                assert {share.total for share in shares} == {len(ids(shares))}, name
        first, second, rest = ([sorted(ids(shares)) for shares in steps] for steps in epochs)
        assert first != second, name
        assert rest == second[2:], name
        if feeds[number] in in_files:
            assert second == [sorted(ids(shares)) for shares in read_alone(feeds[number])], name


def read_alone(feed):
    """The steps of epoch 1 as one rank in this process is given them."""
    with closing(feed.open(Alone(), BATCH, seed=3)) as source:
        return [(share,) for share in source.epoch(1)]


def laid_files():
    gc.collect()
    return set(glob.glob(os.path.join(tempfile.gettempdir(), "orca-feed-*", "*")))
