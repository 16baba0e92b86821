"""Rows in a random order: every one once, however they are asked for, and no more of them held than a block."""

from __future__ import annotations

import itertools
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.orca.feed.shuffled import BLOCK, Shuffled

SIZES = st.integers(1, 300) | st.integers(BLOCK - 2, 4 * BLOCK + 2)


def shuffled(rows, seed=0):
    return Shuffled(rows, np.random.default_rng(seed))


@given(SIZES, st.integers(0, 99))
def test_every_row_once(rows, seed):
    assert (np.bincount(shuffled(rows, seed)[0:rows], minlength=rows) == 1).all()


@given(SIZES, st.integers(0, 9), st.data())
def test_pieces_of_any_size_make_the_same_order(rows, seed, data):
    cuts = sorted({0, rows, *data.draw(st.lists(st.integers(0, rows), max_size=8))})
    order = shuffled(rows, seed)
    pieces = [order[start:stop] for start, stop in itertools.pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate(pieces), shuffled(rows, seed)[0:rows])


@given(SIZES, st.integers(0, 9), st.data())
def test_one_may_begin_anywhere(rows, seed, data):
    start = data.draw(st.integers(0, rows))
    np.testing.assert_array_equal(shuffled(rows, seed)[start:rows], shuffled(rows, seed)[0:rows][start:])


@pytest.mark.parametrize("rows", [5, 2 * BLOCK])
def test_there_are_no_rows_but_its_own(rows):
    order = shuffled(rows)
    assert len(order[3:3]) == len(order[rows : rows + 3]) == 0
    assert len(order[rows - 1 : rows + 3]) == 1


@pytest.mark.parametrize("rows", [2 * BLOCK, 3 * BLOCK + 17, 999_983])
def test_an_order_is_as_random_as_any(rows):
    """What is counted of the order lies within five standard deviations of what chance gives, for every seed."""
    for seed in range(6):
        order = shuffled(rows, seed)[0:rows].astype(float)
        for lag in (1, 2, 64):
            assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) * rows**0.5 < 5
        places = np.arange(rows)
        steps = np.diff(order) % rows
        for found, cells, free in (
            (np.histogram2d(places, order, bins=32)[0], 1024, 31 * 31),
            (np.histogram2d(places % 32, order % 32, bins=32)[0], 1024, 31 * 31),
            (np.histogram(steps, bins=256, range=(0, rows))[0], 256, 255),
        ):
            due = rows / cells
            assert abs(((found - due) ** 2 / due).sum() - free) < 5 * (2 * free) ** 0.5


def test_another_seed_is_another_order():
    orders = [shuffled(2 * BLOCK, seed)[0 : 2 * BLOCK] for seed in (1, 2, 3)]
    assert (orders[0] == orders[1]).sum() < 20 > (orders[1] == orders[2]).sum()


def test_a_block_is_held_however_many_rows_there_are():
    rows = 2**35
    order = shuffled(rows)
    tracemalloc.start()
    try:
        found = [order[start : start + 1000] for start in range(0, rows, rows // 8)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(np.unique(np.concatenate(found))) == 1000 * len(found)
    assert max(each.max() for each in found) > 2**34
    assert peak < 10 * 8 * BLOCK + sys.getsizeof(found) + sum(each.nbytes for each in found)
