"""Columns in files: what was written is what is mapped, whatever its nesting, types and shapes."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.laid import Rows, Table, common_layout, forget, writing

DTYPES = st.sampled_from(["f4", "f8", "i4", "i8", "u1", "?", "f2", "c8", ">f4"])
SHAPES = st.sampled_from([(), (3,), (2, 2), (0,), (1,)])


@st.composite
def structures(draw):
    """(features, labels, weights) of a few rows in a few appends, as (structure of arrays) lists."""
    kinds = draw(st.lists(st.tuples(DTYPES, SHAPES), min_size=1, max_size=5))
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    batches = [
        [draw(npst.arrays(dtype, (size, *shape), elements={"allow_nan": False})) for dtype, shape in kinds]
        for size in sizes
    ]
    with_labels = draw(st.booleans()) and len(kinds) > 1
    weighted = draw(st.booleans())
    nesting = draw(st.sampled_from([list, tuple, lambda parts: {str(n): part for n, part in enumerate(parts)}]))

    def put(arrays):
        features, labels = (arrays[:-1], arrays[-1]) if with_labels else (arrays, None)
        weights = np.arange(len(arrays[0]), dtype=np.float64) if weighted else None
        return nesting(features), labels, weights

    return [put(arrays) for arrays in batches]


def leaves_of(structure):
    return list(structure.values()) if isinstance(structure, dict) else list(structure)


@settings(deadline=None)
@given(structures(), st.randoms(use_true_random=False))
def test_rows_come_back_as_they_were(tmp_path_factory, batches, random):
    folder = str(tmp_path_factory.mktemp("laid"))
    with writing(folder, 0) as writer:
        for batch in batches:
            writer.append(*batch)
    laid = writer.laid
    features = [np.concatenate(parts) for parts in zip(*(leaves_of(batch[0]) for batch in batches), strict=True)]
    assert laid.rows == len(features[0])
    if not laid.rows:
        assert laid.layout is None
        assert os.listdir(folder) == []
        return
    numbers = np.array([random.randrange(laid.rows) for _ in range(6)])
    rows = Rows(laid.layout, {4: Table(laid)})
    (*found, target), weights = laid.layout.build(rows.gather([(4, numbers), (4, slice(0, 1))], 7))
    found = leaves_of(found[0]) if isinstance(batches[0][0], dict) else found
    picked = [*numbers, 0]
    for array, whole in zip(found, features, strict=True):
        np.testing.assert_array_equal(array, whole[picked])
        assert array.dtype == whole.dtype.newbyteorder("=")
    if batches[0][1] is None:
        assert (target == -1).all()
    else:
        np.testing.assert_array_equal(target, np.concatenate([batch[1] for batch in batches])[picked])
    if batches[0][2] is None:
        assert weights is None
    else:
        np.testing.assert_array_equal(weights, np.concatenate([batch[2] for batch in batches])[picked])


def laid_rows(folder, *columns, partition=0):
    with writing(str(folder), partition) as writer:
        writer.append(list(columns))
    return writer.laid


def test_scalars_of_one_type_share_a_file(tmp_path):
    """A row of many columns is one place to look."""
    numbers = [np.arange(5) + n for n in range(20)]
    laid = laid_rows(tmp_path, *numbers, np.ones(5, np.float32), np.ones((5, 3)), np.ones((5, 3)))
    assert len(os.listdir(tmp_path)) == 4
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) == 5 * (20 * 8 + 4 + 2 * 24)
    (*features, _), _ = laid.layout.build(Rows(laid.layout, {0: Table(laid)}).gather([(0, slice(1, 3))], 2))
    assert [feature.tolist() for feature in features[:20]] == [[n + 1, n + 2] for n in range(20)]


def test_several_tables_are_gathered_into_one(tmp_path):
    first, second = laid_rows(tmp_path, np.arange(4)), laid_rows(tmp_path, np.arange(10, 13), partition=1)
    layout = common_layout([first, second])
    rows = Rows(layout, {0: Table(first), 7: Table(second)})
    (found,) = rows.gather([(7, np.array([2, 0])), (0, slice(1, 4)), (7, np.array([1]))], 6)
    assert found.tolist() == [12, 10, 1, 2, 3, 11]
    assert [blank.tolist() for blank in rows.blank(2)] == [[0, 0]]


def test_batches_do_not_touch_the_files(tmp_path):
    """A model that works in place changes its batch alone."""
    laid = laid_rows(tmp_path, np.arange(4.0))
    rows = Rows(laid.layout, {0: Table(laid)})
    for picked in (slice(0, 4), np.arange(4)):
        (batch,) = rows.gather([(0, picked)], 4)
        batch[:] = -1
    assert rows.gather([(0, slice(0, 4))], 4)[0].tolist() == [0, 1, 2, 3]


def test_mapped_files_can_be_forgotten(tmp_path):
    laid = laid_rows(tmp_path, np.arange(4), np.ones((4, 2)))
    table = Table(laid)
    forget(laid.path, laid.layout)
    forget(laid.path, laid.layout)
    assert os.listdir(tmp_path) == []
    assert Rows(laid.layout, {0: table}).gather([(0, slice(2, 4))], 2)[0].tolist() == [2, 3]


def test_a_second_writer_of_a_partition_has_files_of_its_own(tmp_path):
    """A task that is tried again must not write into what its first attempt left."""
    first, second = laid_rows(tmp_path, np.arange(4)), laid_rows(tmp_path, np.arange(5))
    assert [len(Table(laid).groups[0]) for laid in (first, second)] == [4, 5]


def test_partitions_without_rows_have_no_say(tmp_path):
    empty = laid_rows(tmp_path, np.zeros((0, 9)))
    filled = laid_rows(tmp_path, np.zeros((2, 3)))
    assert common_layout([empty, filled, empty]) == filled.layout
    assert common_layout([empty]) is None
    with pytest.raises(InvalidArgumentError, match="nothing to map"):
        Table(empty)


class TestWhatIsRefused:
    def test_columns_of_different_lengths(self, tmp_path):
        with pytest.raises(InvalidArgumentError, match=r"same number of records, but there are \[2, 3\]"):
            laid_rows(tmp_path, np.zeros(2), np.zeros(3))

    @pytest.mark.parametrize(
        "array", [np.array(["a"]), np.array([None]), np.array(["2020-01-01"], "M8[D]")], ids=["text", "object", "date"]
    )
    def test_what_is_no_number(self, tmp_path, array):
        with pytest.raises(InvalidArgumentError, match="must be numbers"):
            laid_rows(tmp_path, array)

    @pytest.mark.parametrize(
        ("other", "words"),
        [
            ([np.zeros((2, 4))], r"float64\[4\].*float64\[3\]"),
            ([np.zeros((2, 3), np.float32)], r"float32\[3\].*float64\[3\]"),
            ([np.zeros((2, 3)), np.zeros(2)], "a list of 2 arrays"),
        ],
        ids=["shape", "type", "number"],
    )
    def test_rows_unlike_those_before(self, tmp_path, other, words):
        with writing(str(tmp_path), 3) as writer:
            writer.append([np.zeros((2, 3))])
            with pytest.raises(InvalidArgumentError, match=f"(?s)partition 3 has .*{words}"):
                writer.append(other)
        with pytest.raises(InvalidArgumentError, match=f"(?s)partition 1 has .*{words}"):
            common_layout([writer.laid, laid_rows(tmp_path, *other)])
