"""The plan: every row once, the same batches for every worker count, all of it a pure function."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.orca.feed.plan import Plan, split

SHARDS = st.lists(st.integers(0, 40) | st.integers(0, 2), min_size=1, max_size=12).map(tuple)


def rows_of(plan, pieces, epoch):
    """The (shard, row) pairs of pieces."""
    found = []
    for piece in pieces:
        order = plan.order(epoch, piece.shard)
        places = slice(piece.start, piece.stop)
        rows = range(piece.start, piece.stop) if order is None else order[places].tolist()
        found += [(piece.shard, row) for row in rows]
    return found


@given(SHARDS, st.integers(1, 50), st.integers(0, 99), st.integers(0, 3), st.booleans(), st.booleans())
def test_every_row_is_in_exactly_one_batch(rows, batch_size, seed, epoch, shuffle, spread):
    plan = Plan(rows, batch_size, seed, shuffle, spread=spread)
    batches = [rows_of(plan, pieces, epoch) for pieces in plan.batches(epoch)]
    everything = [(shard, row) for shard, count in enumerate(rows) for row in range(count)]
    assert sorted(itertools.chain(*batches)) == everything
    assert len(batches) == plan.steps == -(-len(everything) // batch_size)
    assert plan.total == len(everything)
    assert all(len(batch) == batch_size for batch in batches[:-1])


@given(SHARDS, st.integers(1, 50), st.integers(0, 9))
def test_without_the_last_batch_all_batches_are_full(rows, batch_size, seed):
    plan = Plan(rows, batch_size, seed, drop_last=True)
    batches = [rows_of(plan, pieces, 0) for pieces in plan.batches(0)]
    assert [len(batch) for batch in batches] == [batch_size] * (sum(rows) // batch_size)
    assert plan.total == sum(map(len, batches))
    assert max(Counter(itertools.chain(*batches)).values(), default=1) == 1


@given(SHARDS, st.integers(1, 20), st.integers(0, 9), st.integers(0, 3), st.integers(0, 10))
def test_starting_at_a_step_gives_the_batches_from_there(rows, batch_size, seed, epoch, start):
    plan = Plan(rows, batch_size, seed)
    assert list(map(list, plan.batches(epoch, start))) == list(map(list, plan.batches(epoch)))[start:]


@given(SHARDS, st.integers(1, 20), st.integers(0, 9))
def test_unshuffled_rows_come_in_their_order(rows, batch_size, seed):
    plan = Plan(rows, batch_size, seed, shuffle=False)
    flat = [row for pieces in plan.batches(5) for row in rows_of(plan, pieces, 5)]
    assert flat == [(shard, row) for shard, count in enumerate(rows) for row in range(count)]


@given(st.lists(st.integers(1, 200), min_size=2, max_size=6).map(tuple), st.integers(8, 32), st.integers(0, 99))
def test_every_batch_takes_its_due_share_of_every_shard(rows, batch_size, seed):
    plan = Plan(rows, batch_size, seed)
    left = np.array(rows)
    for pieces in plan.batches(0):
        size = min(batch_size, left.sum())
        due = left * size / left.sum()
        takes = np.zeros(len(rows), dtype=int)
        for piece in pieces:
            takes[piece.shard] += len(piece)
        assert (np.abs(takes - due) < 1).all()
        left = left - takes


@given(st.integers(0, 100), st.integers(1, 9))
def test_a_batch_is_split_evenly_and_wholly(rows, world_size):
    parts = split(rows, world_size)
    assert len(parts) == world_size
    assert list(itertools.chain(*parts)) == list(range(rows))
    sizes = [len(part) for part in parts]
    assert all(size != 1 for size in sizes) or rows == 1
    busy = [size for size in sizes if size]
    assert not busy or max(busy) - min(busy) <= 1


@given(SHARDS, st.integers(1, 30), st.integers(0, 9), st.integers(1, 5))
def test_the_parts_of_all_ranks_make_the_batch(rows, batch_size, seed, world_size):
    plan = Plan(rows, batch_size, seed)
    for pieces in plan.batches(1):
        whole = rows_of(plan, pieces, 1)
        parts = [rows_of(plan, pieces.cut(part), 1) for part in split(len(whole), world_size)]
        assert list(itertools.chain(*parts)) == whole
        held = np.arange(len(rows)) % 2 == 1
        assert rows_of(plan, pieces.of(held), 1) == [(shard, row) for shard, row in whole if held[shard]]


def test_another_epoch_or_seed_is_another_order():
    rows = (50, 30, 20)
    seen = set()
    for seed, epoch in itertools.product((0, 1), (0, 1)):
        plan = Plan(rows, 10, seed)
        seen.add(tuple(rows_of(plan, next(plan.batches(epoch)), epoch)))
    assert len(seen) == 4


def test_shards_of_one_row_are_shuffled_too():
    plan = Plan((1,) * 100, 10)
    firsts = {tuple(next(plan.batches(epoch)).shards) for epoch in range(5)}
    assert len(firsts) == 5


@pytest.mark.parametrize("rows", [(), (0,), (0, 0)])
def test_no_rows_are_no_batches(rows):
    plan = Plan(rows, 4)
    assert (plan.steps, plan.total, list(plan.batches(0))) == (0, 0, [])
