"""Nested features taken apart and put together again."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.structure import describe, flatten, unflatten

arrays = st.integers(1, 4).map(lambda rows: np.arange(rows * 2).reshape(rows, 2))
nested = st.recursive(
    arrays,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.lists(inner, min_size=1, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, min_size=1, max_size=3)
    ),
    max_leaves=6,
)


def same(one, other) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(one, other)
    if type(one) is not type(other) or len(one) != len(other):
        return False
    if isinstance(one, dict):
        return all(same(one[key], other[key]) for key in one)
    return all(map(same, one, other))


@given(nested)
def test_what_is_taken_apart_is_put_together_again(x):
    leaves, spec = flatten(x)
    assert all(isinstance(leaf, np.ndarray) for leaf in leaves)
    assert same(unflatten(leaves, spec), x)
    copy = pickle.loads(pickle.dumps(spec))
    assert copy == spec
    assert hash(copy) == hash(spec)


def test_dicts_filled_in_another_order_have_one_spec():
    one, one_spec = flatten({"a": np.zeros(1), "b": np.ones(1)})
    other, other_spec = flatten({"b": np.ones(1), "a": np.zeros(1)})
    assert one_spec == other_spec
    assert [leaf.tolist() for leaf in one] == [leaf.tolist() for leaf in other]


@pytest.mark.parametrize(
    "x",
    [
        np.array([1, 2]),
        [1, 2],
        (1, 2),
        pd.Series([1, 2]),
        pd.Series([1, 2], dtype="Int64"),
        memoryview(b"\1\2").tolist(),
    ],
)
def test_arrays_of_many_kinds(x):
    leaves, spec = flatten(x)
    assert spec.kind == "array"
    assert leaves[0].tolist() == [1, 2]


def test_a_series_of_arrays_is_stacked():
    leaves, _ = flatten(pd.Series([np.ones(2), np.zeros(2)]))
    assert leaves[0].shape == (2, 2)


def test_words():
    assert describe(flatten([np.zeros(1), np.zeros(1)])[1]) == "a list of 2 arrays"
    assert describe(flatten({"a": (np.zeros(1),)})[1]) == "a dict of ('a': a tuple of (an array))"


@pytest.mark.parametrize(
    ("x", "word"),
    [
        (3, "int"),
        ("text", "str"),
        (None, "NoneType"),
        ([], "empty list"),
        ({}, "empty dict"),
        (np.array(3), "no dimension"),
        (pd.DataFrame({"a": [1]}), "DataFrame"),
        ([np.zeros(1), object()], "object"),
    ],
)
def test_what_is_no_array_is_named(x, word):
    with pytest.raises(InvalidArgumentError, match=word):
        flatten(x)


def test_too_few_leaves():
    with pytest.raises(InvalidArgumentError, match="a list of 2 arrays needs 2 arrays, but there are 1"):
        unflatten([np.zeros(1)], flatten([np.zeros(1), np.zeros(1)])[1])
