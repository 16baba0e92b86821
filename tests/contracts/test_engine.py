"""One suite for every engine: shards are placed, mapped, zipped and exchanged alike."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.orca.engine.base import deal
from zoo.orca.errors import NotPicklableError

EXAMPLES = {"local": 25, "spark": 4, "ray": 4}
PARTITIONS = st.lists(st.lists(st.integers(), max_size=5), min_size=1, max_size=5)


def test_placed_shards_come_back_by_partition(engine):
    assert engine.place([[1, "two"], [], [None]]).fetch() == [[1, "two"], [], [None]]


def test_map_knows_the_partition_and_keeps_order(engine):
    placed = engine.place([[1, 2], [], [3]]).map(lambda index, shards: [(index, shard * 10) for shard in shards])
    assert placed.num_partitions == 3
    assert placed.fetch() == [[(0, 10), (0, 20)], [], [(2, 30)]]


def test_map_is_lazy_and_persist_computes_once(engine, tmp_path):
    def note(index, shards):
        with open(tmp_path / "calls", "a") as file:
            file.write("x")
        return shards

    calls = tmp_path / "calls"
    placed = engine.place([[1], [2]]).map(note)
    assert not calls.exists()
    placed.persist()
    placed.compute()
    assert placed.fetch() == [[1], [2]]
    assert placed.map(lambda index, shards: shards).fetch() == [[1], [2]]
    assert calls.read_text() == "xx"
    assert placed.is_persisted
    placed.unpersist()
    assert not placed.is_persisted
    assert placed.fetch() == [[1], [2]]
    assert calls.read_text() == "xxxx"


def test_zip_gives_both_partitions(engine):
    left, right = engine.place([[1, 2], [3]]), engine.place([["a"], []])
    zipped = left.zip(right, lambda mine, theirs: [(list(mine), list(theirs))])
    assert zipped.fetch() == [[([1, 2], ["a"])], [([3], [])]]


def test_exchange_orders_pieces_by_source(engine):
    def check(partitions, count):
        placed = engine.place(partitions)
        moved = placed.exchange(
            lambda index, shards: ((shard % count, (index, shard)) for shard in shards),
            count,
            lambda target, pieces: [(target, list(pieces))],
        )
        pairs = [(index, shard) for index, shards in enumerate(partitions) for shard in shards]
        assert moved.fetch() == [[(target, [p for p in pairs if p[1] % count == target])] for target in range(count)]

    given(PARTITIONS, st.integers(1, 4))(settings(max_examples=EXAMPLES[engine.name], deadline=None)(check))()


def test_functions_may_change_shards_in_place(engine):
    placed = engine.place([[np.arange(3)], [pd.DataFrame({"a": [1, 2]})], [{"x": np.zeros(2)}]])
    placed.persist()

    def change(index, shards):
        for shard in shards:
            if isinstance(shard, np.ndarray):
                shard += 1
            elif isinstance(shard, dict):
                shard["x"] += 5
            else:
                shard.iloc[0, 0] = 9
            yield shard

    (array,), (frame,), (nested,) = placed.map(change).fetch()
    np.testing.assert_array_equal(array, [1, 2, 3])
    np.testing.assert_array_equal(nested["x"], [5, 5])
    assert frame["a"].tolist() == [9, 2]
    (array,), (frame,), (nested,) = placed.fetch()
    np.testing.assert_array_equal(array, [0, 1, 2])
    np.testing.assert_array_equal(nested["x"], [0, 0])
    assert frame["a"].tolist() == [1, 2]


def test_an_error_over_shards_keeps_its_type_and_tells_where(engine):
    placed = engine.place([[1], [0], [2]]).map(lambda index, shards: [1 / shard for shard in shards])
    with pytest.raises(ZeroDivisionError, match="division by zero") as caught:
        placed.compute()
    assert "raised while computing partition 1" in caught.value.__notes__[0]
    assert "1 / shard" in caught.value.remote_traceback
    with pytest.raises(ZeroDivisionError):
        placed.fetch()


def test_a_function_that_cannot_be_sent_is_named_before_anything_runs(engine):
    lock = threading.Lock()
    with pytest.raises(NotPicklableError, match=r"the variable 'lock', a _thread.lock.*inside the function"):
        engine.place([[1]]).map(lambda index, shards: [lock for _ in shards])


def test_shared_values_reach_every_partition(engine):
    shared = engine.share({"offset": 100})
    placed = engine.place([[1], [2]]).map(lambda index, shards: [shard + shared.value["offset"] for shard in shards])
    assert placed.fetch() == [[101], [102]]
    shared.unpersist()


def test_classes_of_the_script_survive_the_way_there_and_back(engine):
    class Point:
        def __init__(self, x):
            self.x = x

    ((back,),) = engine.place([[Point(3)]]).map(lambda index, shards: [Point(shard.x + 1) for shard in shards]).fetch()
    assert isinstance(back, Point)
    assert back.x == 4


@given(st.integers(0, 200), st.integers(1, 50))
def test_deal_is_contiguous_even_and_complete(partitions, workers):
    dealt = deal(partitions, workers)
    assert [index for mine in dealt for index in mine] == list(range(partitions))
    assert len(dealt) == workers
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
