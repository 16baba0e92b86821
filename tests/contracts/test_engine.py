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
LARGE = 20_000  # Ray keeps arrays of so many numbers by themselves
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
    placed = engine.place([[np.arange(3)], [pd.DataFrame({"a": [1, 2]})], [{"x": np.zeros(LARGE)}]])
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
    np.testing.assert_array_equal(nested["x"], np.full(LARGE, 5))
    assert frame["a"].tolist() == [9, 2]
    (array,), (frame,), (nested,) = placed.fetch()
    np.testing.assert_array_equal(array, [0, 1, 2])
    np.testing.assert_array_equal(nested["x"], np.zeros(LARGE))
    assert frame["a"].tolist() == [1, 2]


def arrays(placed):
    """A number of each array of a partition, and whether all of the array is the same."""
    return [[(float(each[0]), bool((each == each[0]).all())) for each in shards] for shards in placed.fetch()]


class TestExtend:
    """Shards with something added, however those that they are made of fare."""

    @pytest.fixture
    def placed(self, engine):
        placed = engine.place([[0, 1], [], [2]]).map(lambda index, shards: (np.full(LARGE, each) for each in shards))
        placed.persist()
        placed.compute()
        return placed

    @pytest.fixture
    def extended(self, placed):
        extended = placed.extend(lambda array: array * 10, lambda array, added: {"array": array, "added": added})
        extended.persist()
        extended.compute()
        return extended

    @staticmethod
    def both(extended):
        parts = [extended.map(lambda index, shards, key=key: (e[key] for e in shards)) for key in ("array", "added")]
        return list(map(arrays, parts))

    AS_MADE = [
        [[(0.0, True), (1.0, True)], [], [(2.0, True)]],
        [[(0.0, True), (10.0, True)], [], [(20.0, True)]],
    ]

    @staticmethod
    def spoil(index, shards):
        for shard in shards:
            for array in shard.values() if isinstance(shard, dict) else [shard]:
                array[:] = -1
            yield shard

    def test_what_was_there_and_what_was_added(self, extended):
        assert self.both(extended) == self.AS_MADE
        (first, second), none, (third,) = extended.fetch()
        assert [each["added"][0] for each in (first, second, third)] == [0, 10, 20]
        assert none == []

    def test_readers_change_neither(self, placed, extended):
        assert [part["added"][0] for shards in extended.map(self.spoil).fetch() for part in shards] == [-1, -1, -1]
        assert self.both(extended) == self.AS_MADE
        assert arrays(placed.map(self.spoil)) == [[(-1.0, True), (-1.0, True)], [], [(-1.0, True)]]
        assert arrays(placed) == self.AS_MADE[0]
        assert self.both(extended) == self.AS_MADE

    def test_the_shards_may_be_used_up_by_others(self, placed, extended):
        placed.give_up()
        spoilt = placed.map(self.spoil)
        spoilt.persist()
        spoilt.compute()
        placed.unpersist()
        assert self.both(extended) == self.AS_MADE

    def test_it_may_be_given_up_itself(self, placed, extended):
        extended.give_up()
        spoilt = extended.map(self.spoil)
        spoilt.persist()
        spoilt.compute()
        extended.unpersist()
        assert not extended.is_persisted
        assert arrays(placed) == self.AS_MADE[0]
        assert self.both(extended) == self.AS_MADE

    def test_of_shards_that_nobody_keeps(self, placed):
        placed.unpersist()
        extended = placed.extend(lambda array: array * 10, lambda array, added: {"array": array, "added": added})
        assert self.both(extended) == self.AS_MADE
        extended.persist()
        extended.compute()
        assert self.both(extended) == self.AS_MADE

    def test_twice(self, extended):
        more = extended.extend(lambda shard: shard["added"] + 1, lambda shard, added: {**shard, "added": added})
        more.persist()
        more.compute()
        extended.unpersist()
        assert self.both(more) == [self.AS_MADE[0], [[(1.0, True), (11.0, True)], [], [(21.0, True)]]]


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
