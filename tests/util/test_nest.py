"""Nested structures, flat and back."""

from __future__ import annotations

from collections import namedtuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.orca.errors import InvalidArgumentError
from zoo.util import nest

Point = namedtuple("Point", ["x", "y"])
STRUCTURES = st.recursive(
    st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
        | st.builds(Point, inner, inner)
    ),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(STRUCTURES)
def test_flat_leaves_build_the_structure_again(structure):
    again = nest.pack_sequence_as(structure, nest.flatten(structure))
    assert again == structure
    assert type(again) is type(structure)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text("abcd", min_size=1), st.integers(), min_size=1))
def test_dicts_are_read_in_the_order_of_their_keys(structure):
    assert nest.flatten(structure) == [structure[key] for key in sorted(structure)]
    reverse = {key: structure[key] for key in sorted(structure, reverse=True)}
    assert list(nest.pack_sequence_as(reverse, nest.flatten(structure))) == list(reverse)


def test_a_lone_value_is_one_leaf():
    assert nest.flatten("text") == ["text"]
    assert nest.pack_sequence_as("text", [5]) == 5


@pytest.mark.parametrize("leaves", [[], [1], [1, 2, 3]])
def test_another_number_of_leaves_is_refused(leaves):
    with pytest.raises(InvalidArgumentError, match=f"Expected 2 leaves, .* got {len(leaves)}"):
        nest.pack_sequence_as((0, [0]), leaves)
