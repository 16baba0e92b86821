"""What a process keeps of shards is its own: what others hold is copied, what nobody else holds is not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from zoo.orca.data import SharedValue, XShards
from zoo.orca.engine.shelf import Shelf, is_alone

HELD = np.zeros(3)
HELD_FRAME = pd.DataFrame({"a": [1, 2]})


def fresh():
    return np.zeros(3)


@pytest.mark.parametrize(
    "make",
    [
        fresh,
        lambda: fresh()[1:],
        lambda: fresh().reshape(1, 3)[:, 1:],
        lambda: {"x": fresh(), "y": [fresh(), (fresh(), "text", 1, None, np.float32(2))]},
        lambda: pd.DataFrame({"base": [1, 2]}),
        lambda: {"frame": pd.Series([1, 2])},
        lambda: np.frombuffer(bytearray(8), np.uint8),
    ],
)
def test_what_nobody_else_holds(make):
    shard = make()
    assert is_alone(shard)
    other = shard
    assert not is_alone(shard)
    del other


@pytest.mark.parametrize(
    "make",
    [
        lambda: HELD,
        lambda: HELD[1:],
        lambda: HELD.reshape(1, 3)[:, 1:],
        lambda: {"x": HELD},
        lambda: [fresh(), (1, HELD[:1])],
        lambda: {"x": [fresh()] * 2},
        lambda: HELD_FRAME,
        lambda: {"x": HELD_FRAME},
        lambda: np.array([[]], object),
        lambda: object(),
    ],
)
def test_what_others_hold_or_nobody_knows(make):
    shard = make()
    assert not is_alone(shard)


def test_only_what_others_hold_is_copied():
    shelf, places = Shelf(budget=1000), []

    def own():
        array = fresh()
        places.append(array.ctypes.data)
        return array

    assert shelf.keep("file", (make() for make in (own, lambda: HELD)))
    first, second = shelf.take("file")
    assert first.ctypes.data == places[0]
    assert second.ctypes.data != HELD.ctypes.data
    assert second.tolist() == HELD.tolist()


def test_a_constant_in_every_shard_is_each_shards_own(engine):
    constant, shared = np.zeros(3), SharedValue(np.zeros(3))
    shards = XShards.partition(np.arange(4), 4)
    takes = [lambda shard: constant]
    if engine.name != "ray":  # which lets nobody write into what is shared
        takes.append(lambda shard: shared.value)
    for make in takes:
        made = shards.transform_shard(make)
        found = made.transform_shard(lambda array: array.__iadd__(1)).collect()
        assert [array.tolist() for array in found] == [[1, 1, 1]] * 4


def test_parts_of_shards_are_their_own(engine):
    def one_more(array):
        array += 1
        return array

    shards = XShards.partition({"a": np.zeros(4), "b": np.ones(4)}, 2).transform_shard(lambda shard: shard).cache()
    parts = shards["a"].cache()
    parts.collect()
    assert [array.tolist() for array in parts.transform_shard(one_more).collect()] == [[1, 1]] * 2
    assert [shard["a"].tolist() for shard in shards.collect()] == [[0, 0]] * 2
    shards.uncache()
    assert [array.tolist() for array in shards["a"].transform_shard(one_more).collect()] == [[1, 1]] * 2
    assert [array.tolist() for array in parts.collect()] == [[0, 0]] * 2


def test_a_function_may_fill_one_array_again_and_again(engine):
    def fill(index, shards):
        array = np.empty(100_000)  # large enough to travel beside the pickle
        for shard in shards:
            for number in (1, 2):
                array[:] = 10 * shard + number
                yield array

    placed = engine.place([[1], [2]]).map(fill)
    placed.persist()
    placed.compute()
    assert [[array[0] for array in shards] for shards in placed.fetch()] == [[11, 12], [21, 22]]


@pytest.mark.engines("local")
def test_shards_go_from_function_to_function_without_a_copy(engine):
    made = XShards.partition(np.zeros(4), 2).transform_shard(lambda array: array + 1)
    noted = made.transform_shard(lambda array: {"x": array, "place": array.ctypes.data})
    assert noted.transform_shard(lambda shard: shard["x"].ctypes.data == shard["place"]).collect() == [True, True]
