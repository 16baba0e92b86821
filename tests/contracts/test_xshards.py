"""One suite for XShards on every engine: the published interface, and nothing lost, doubled or out of order."""

from __future__ import annotations

import os
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.orca import OrcaContext
from zoo.orca.data import SharedValue, SparkXShards, XShards
from zoo.orca.errors import (
    InvalidArgumentError,
    InvalidKeyError,
    PathExistsError,
    PathNotFoundError,
    PreconditionError,
    ShardTypeError,
)

EXAMPLES = {"local": 25, "spark": 3, "ray": 4}


def property_test(engine, *strategies):
    """Run a check on random data, more often where it is cheap."""

    def run(check):
        given(*strategies)(settings(max_examples=EXAMPLES[engine.name], deadline=None)(check))()

    return run


def placed(engine, partitions):
    return XShards.from_placement(engine.place(partitions))


def frame(*values, city="ab"):
    return pd.DataFrame({"n": list(values), "city": [city[value % len(city)] for value in values]})


@pytest.fixture
def frames(engine):
    return placed(engine, [[frame(1, 2, 3)], [frame(4, 5)], [frame(6)]])


class TestPartition:
    def test_a_structure_is_rebuilt_in_every_shard(self, engine):
        data = {"x": np.arange(10).reshape(5, 2), "y": [np.arange(5), (np.ones(5), np.zeros((5, 1, 2)))]}
        shards = XShards.partition(data, num_shards=2).collect()
        assert [shard["x"].shape for shard in shards] == [(3, 2), (2, 2)]
        assert [shard["y"][1][1].shape for shard in shards] == [(3, 1, 2), (2, 1, 2)]
        assert isinstance(shards[0]["y"][1], tuple)
        np.testing.assert_array_equal(shards[1]["y"][0], [3, 4])

    def test_the_kind_is_that_of_the_engine_and_the_default_is_its_cores(self, engine):
        shards = XShards.partition(np.arange(8))
        assert shards.num_partitions() == engine.cores == 4
        assert isinstance(shards, SparkXShards) == (engine.name == "spark")

    def test_pieces_are_those_of_array_split(self, engine):
        @property_test(engine, st.integers(1, 30), st.integers(1, 6))
        def check(records, num_shards):
            if num_shards > records:
                return
            array = np.arange(records)
            got = XShards.partition(array, num_shards=num_shards).collect()
            for piece, expected in zip(got, np.array_split(array, num_shards), strict=True):
                np.testing.assert_array_equal(piece, expected)

    @pytest.mark.parametrize(
        ("data", "shards", "error", "text"),
        [
            (np.arange(3), 4, ValueError, r"number of shards must be from 1 .* 4 shards .* 3 records.*num_shards=3"),
            (np.arange(3), 0, ValueError, "number of shards"),
            ([np.arange(3), np.arange(4)], 2, ValueError, r"arrays of one length.*\[3, 4\]"),
            ("text", 2, AssertionError, "found a str"),
            ([1, 2], 1, AssertionError, "found a int"),
            (np.float64(3), 1, AssertionError, "found a float64"),
        ],
    )
    def test_bad_input_is_refused(self, engine, data, shards, error, text):
        with pytest.raises(error, match=text):
            XShards.partition(data, num_shards=shards)

    def test_pandas_frames_can_be_cut_too(self, engine):
        shards = XShards.partition(frame(1, 2, 3), num_shards=2)
        assert [len(shard) for shard in shards.collect()] == [2, 1]


class TestTransform:
    def test_functions_get_their_arguments(self, engine):
        def negative(df, column_name, factor=1):
            df[column_name] = df[column_name] * (-factor)
            return df

        shards = placed(engine, [[frame(1)], [frame(2)]]).transform_shard(negative, "n", 3)
        assert [shard["n"].tolist() for shard in shards.collect()] == [[-3], [-6]]

    def test_shared_values(self, engine):
        offset = SharedValue({"n": 100})
        assert offset.value == {"n": 100}
        shards = XShards.partition(np.arange(4), 2)
        moved = shards.transform_shard(lambda shard, shared: shard + shared.value["n"], offset)
        np.testing.assert_array_equal(np.concatenate(moved.collect()), [100, 101, 102, 103])
        offset.unpersist()

    def test_errors_surface_at_construction_with_their_type_and_text(self, engine):
        with pytest.raises(ZeroDivisionError, match="division by zero"):
            XShards.partition(np.arange(4), 2).transform_shard(lambda shard: 1 / 0)

    def test_after_a_failure_the_source_is_as_it_was(self, engine):
        source = XShards.partition({"x": np.zeros(4)}, 2).transform_shard(lambda shard: {"x": shard["x"] + 1})

        def spoil_and_fail(shard):
            shard["x"] += 100
            raise ValueError("after the harm was done")

        with pytest.raises(ValueError, match="after the harm"):
            source.transform_shard(spoil_and_fail)
        assert np.concatenate([shard["x"] for shard in source.collect()]).tolist() == [1, 1, 1, 1]
        zipped = source.zip(source)
        assert [one["x"].tolist() == other["x"].tolist() == [1, 1] for one, other in zipped.collect()] == [True, True]

    def test_a_failure_ends_what_runs_on_beside_it(self, engine, tmp_path):
        def fail_beside_a_long_one(shard):
            if shard[0] == 0:
                (tmp_path / "long").touch()
                time.sleep(3600)
            while not (tmp_path / "long").exists():
                time.sleep(0.01)
            raise ValueError("one of the two")

        with pytest.raises(ValueError, match="one of the two"):
            XShards.partition(np.arange(2), 2).transform_shard(fail_beside_a_long_one)

        everyone = engine.cores

        def meet(shard):
            (tmp_path / f"{shard[0]}.here").touch()
            until = time.monotonic() + 60
            while time.monotonic() < until and len(list(tmp_path.glob("*.here"))) < everyone:
                time.sleep(0.01)
            return len(list(tmp_path.glob("*.here")))

        met = XShards.partition(np.arange(everyone), everyone).transform_shard(meet).collect()
        assert met == [everyone] * everyone

    def test_lazy_mode_computes_later(self, engine, tmp_path):
        def note(shard):
            (tmp_path / f"{shard[0]}").touch()
            return shard

        source = XShards.partition(np.arange(4), 2)
        OrcaContext._eager_mode = False
        try:
            shards = source.transform_shard(note)
            assert not os.listdir(tmp_path)
            assert not shards.eager
            shards.compute()
        finally:
            OrcaContext._eager_mode = True
        assert sorted(os.listdir(tmp_path)) == ["0", "2"]

    def test_a_transform_does_not_change_what_it_was_made_from(self, engine):
        source = XShards.partition({"x": np.zeros(2)}, 1).cache()

        def spoil(shard):
            shard["x"] += 1
            return shard

        np.testing.assert_array_equal(source.transform_shard(spoil).collect()[0]["x"], [1, 1])
        np.testing.assert_array_equal(source.collect()[0]["x"], [0, 0])


class TestCaching:
    def test_sources_are_uncached_unless_the_user_cached_them(self, engine):
        source = XShards.partition(np.arange(6), 3)
        assert source.is_cached()
        assert not source.user_cached
        moved = source.transform_shard(lambda shard: shard)
        assert moved.is_cached()
        assert not source.is_cached()
        kept = moved.cache()
        assert kept is moved
        kept.transform_shard(lambda shard: shard)
        kept.repartition(2)
        assert kept.is_cached()
        assert kept.uncache() is kept
        assert not kept.is_cached()
        np.testing.assert_array_equal(np.concatenate(kept.collect()), np.arange(6))

    def test_every_operation_uncaches_its_source(self, engine):
        for operate in (
            lambda xs: xs.repartition(2),
            lambda xs: xs.partition_by("n"),
            lambda xs: xs.transform_shard(len),
            lambda xs: xs.zip(placed(engine, [[1], [2]])),
        ):
            source = placed(engine, [[frame(1)], [frame(2)]])
            result = operate(source)
            assert result.is_cached()
            assert not source.is_cached()

    def test_selecting_is_neither_cached_nor_computed(self, engine):
        selected = placed(engine, [[{"a": 1}]])["nothing"]
        assert not selected.is_cached()
        with pytest.raises(InvalidKeyError, match=r"Invalid key for this XShards: 'nothing'.*It has \['a'\]"):
            selected.collect()

    def test_split_caches_its_parts(self, engine):
        source = placed(engine, [[(1, "a")], [(2, "b")]])
        numbers, letters = source.split()
        assert numbers.collect() == [1, 2]
        assert letters.collect() == ["a", "b"]
        assert numbers.is_cached()
        assert letters.is_cached()
        assert not source.is_cached()


SIZES = st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=4)


class TestRepartition:
    def test_arrays_and_lists_keep_their_order(self, engine):
        @property_test(engine, SIZES, st.integers(1, 6), st.booleans())
        def check(sizes, count, arrays):
            values = iter(range(1000))
            partitions = [[[next(values) for _ in range(size)] for size in partition] for partition in sizes]
            expected = [value for partition in partitions for shard in partition for value in shard]
            if arrays:
                partitions = [[np.array(shard, dtype=int) for shard in partition] for partition in partitions]
            result = placed(engine, partitions).repartition(count)
            fetched = result.placement.fetch()
            assert len(fetched) == result.num_partitions() == count
            assert all(len(partition) <= 1 for partition in fetched) or not expected
            assert [int(value) for partition in fetched for shard in partition for value in shard] == expected

    def test_frames_lose_and_double_nothing(self, engine):
        @property_test(engine, SIZES, st.integers(1, 6))
        def check(sizes, count):
            values = iter(range(1000))
            partitions = [[frame(*(next(values) for _ in range(size))) for size in partition] for partition in sizes]
            total = next(values)
            result = placed(engine, partitions).repartition(count)
            fetched = result.placement.fetch()
            assert len(fetched) == count
            assert all(len(partition) <= 1 for partition in fetched)
            rows = [row for partition in fetched for shard in partition for row in shard.itertuples(index=False)]
            assert sorted(row.n for row in rows) == list(range(total))
            assert all(row.city == "ab"[row.n % 2] for row in rows)
            if count <= len(sizes):
                assert [row.n for row in rows] == list(range(total))

    def test_dtypes_are_kept(self, engine):
        frames = [pd.DataFrame({"i": np.array([i], dtype=np.int8), "f": np.float32(1.5), "s": ["x"]}) for i in (1, 2)]
        for count in (1, 3):
            for shard in placed(engine, [[each] for each in frames]).repartition(count).collect():
                assert [str(dtype) for dtype in shard.dtypes] == ["int8", "float32", "object"]

    def test_other_shards_are_moved_whole_and_in_order(self, engine):
        shards = placed(engine, [[{"a": 1}, {"b": 2}], [], [{"c": 3}]])
        grown = shards.repartition(5)
        assert grown.num_partitions() == 5
        assert grown.collect() == [{"a": 1}, {"b": 2}, {"c": 3}]
        assert grown.repartition(1).placement.fetch() == [[{"a": 1}, {"b": 2}, {"c": 3}]]

    @pytest.mark.parametrize("count", [0, -1, 1.5, "two"])
    def test_bad_counts_are_refused(self, engine, count):
        with pytest.raises(InvalidArgumentError, match="num_partitions must be a whole number of at least 1"):
            placed(engine, [[1]]).repartition(count)


class TestPartitionBy:
    def test_one_value_lives_in_one_partition(self, engine):
        @property_test(
            engine,
            st.lists(st.lists(st.sampled_from(["a", "b", "c", "", None, "ü"]), max_size=5), min_size=1, max_size=4),
            st.integers(1, 5),
        )
        def check(partitions, count):
            numbers = iter(range(1000))
            shards = [
                [pd.DataFrame({"key": pd.Series(keys, dtype=object), "n": [next(numbers) for _ in keys]})]
                for keys in partitions
            ]
            total = next(numbers)
            result = placed(engine, shards).partition_by("key", num_partitions=count)
            fetched = result.placement.fetch()
            assert len(fetched) == count
            homes: dict = {}
            for target, partition in enumerate(fetched):
                for shard in partition:
                    assert shard["n"].is_monotonic_increasing
                    for key in shard["key"]:
                        homes.setdefault(key, set()).add(target)
            assert all(len(targets) == 1 for targets in homes.values())
            assert sorted(n for p in fetched for shard in p for n in shard["n"]) == list(range(total))

    def test_equal_numbers_of_other_dtypes_meet(self, engine):
        shards = placed(engine, [[pd.DataFrame({"k": [1, 2, 3]})], [pd.DataFrame({"k": [1.0, 2.0, np.nan]})]])
        fetched = shards.partition_by("k", 3).placement.fetch()
        homes = [{key for shard in partition for key in shard["k"].dropna()} for partition in fetched]
        assert sum(map(len, homes)) == 3

    def test_the_default_keeps_the_number_of_partitions(self, frames):
        assert frames.partition_by(cols="city").num_partitions() == 3

    def test_bad_columns_are_refused(self, frames, engine):
        with pytest.raises(InvalidArgumentError, match=r"name of one column, but got \['city'\]"):
            frames.partition_by(["city"])
        with pytest.raises(InvalidKeyError, match=r"no column 'town'; the shards have \['n', 'city'\]"):
            frames.partition_by("town")
        with pytest.raises(ShardTypeError, match="pandas DataFrames, but there is a ndarray"):
            XShards.partition(np.arange(4), 2).partition_by("n")


class TestUniqueSplitZipLen:
    def test_unique(self, frames, engine):
        assert isinstance(frames["city"].unique(), np.ndarray)
        assert frames["city"].unique().tolist() == ["b", "a"]
        with pytest.raises(ShardTypeError, match=r"unique needs shards of pandas Series.*DataFrame"):
            frames.unique()

    def test_split_of_anything_else_is_itself(self, engine):
        shards = placed(engine, [[1], [2]])
        assert shards.split() == [shards]
        with pytest.raises(InvalidArgumentError, match=r"shards of one length, but their lengths are \[1, 2\]"):
            placed(engine, [[[1]], [[1, 2]]]).split()

    def test_zip(self, engine):
        pairs = placed(engine, [[np.arange(2)], [np.arange(1)]]).zip(placed(engine, [["a"], ["b"]]))
        assert [(array.tolist(), letter) for array, letter in pairs.collect()] == [([0, 1], "a"), ([0], "b")]

    def test_zip_refuses_what_does_not_fit(self, engine):
        shards = placed(engine, [[1], [2]])
        with pytest.raises(AssertionError, match="other should be a SparkXShards"):
            shards.zip([1, 2])
        with pytest.raises(AssertionError, match="should have the same number of partitions"):
            shards.zip(placed(engine, [[1]]))
        with pytest.raises(ValueError, match="should have the same number of elements in each partition"):
            shards.zip(placed(engine, [[1], [2, 3]]))

    @pytest.mark.parametrize(
        ("partitions", "length"),
        [([[{"a": 1, "b": 2}], [{"a": 1, "b": 2}]], 4), ([[1], [2]], 2), ([[]], 0), ([[[1, 2], [3]], ["abc"]], 6)],
    )
    def test_len_is_the_sum_of_lengths(self, engine, partitions, length):
        assert len(placed(engine, partitions)) == length

    def test_len_of_frames_is_rows(self, frames):
        assert len(frames) == 6

    def test_indexing(self, frames, engine):
        assert [series.tolist() for series in frames["n"].collect()] == [[1, 2, 3], [4, 5], [6]]
        with pytest.raises(ShardTypeError, match="No selection operation available for this XShards"):
            placed(engine, [[3]])["n"].collect()

    def test_for_each_gives_exceptions_as_values(self, engine):
        results = placed(engine, [[1], [0]])._for_each(lambda shard, top: top / shard, 6).collect()
        assert results[0] == 6
        assert isinstance(results[1], ZeroDivisionError)

    def test_class_names(self, frames, engine):
        assert frames._get_class_name() in ("pandas.core.frame.DataFrame", "pandas.DataFrame")
        assert placed(engine, [[{"a": 1}]])._get_class_name() == "dict"


class TestPickles:
    def test_what_was_saved_comes_back_with_its_partitions(self, engine, tmp_path):
        shards = placed(engine, [[{"x": np.arange(3)}, "two"], [], [frame(1)]])
        path = str(tmp_path / "saved")
        assert shards.save_pickle(path) is shards
        back = XShards.load_pickle(path)
        first, second, third = back.placement.fetch()
        np.testing.assert_array_equal(first[0]["x"], np.arange(3))
        assert (first[1], second) == ("two", [])
        pd.testing.assert_frame_equal(third[0], frame(1))
        assert XShards.load_pickle(path, minPartitions=6).num_partitions() == 6

    def test_an_existing_folder_is_not_overwritten(self, engine, tmp_path):
        with pytest.raises(PathExistsError, match="exists already"):
            placed(engine, [[1]]).save_pickle(str(tmp_path))

    def test_nothing_there(self, engine, tmp_path):
        with pytest.raises(PathNotFoundError, match=r"No such file or directory: .*nothing holds no saved shards"):
            XShards.load_pickle(str(tmp_path / "nothing"))


class TestFrames:
    """Beyond the published interface: pandas over all shards."""

    @pytest.fixture
    def whole(self):
        numbers = np.random.default_rng(7)
        return pd.DataFrame(
            {
                "key": numbers.choice(["x", "y", "z"], 50),
                "a": numbers.integers(0, 10, 50),
                "b": np.where(numbers.random(50) < 0.2, np.nan, numbers.random(50)),
            }
        )

    @pytest.fixture
    def shards(self, engine, whole):
        return placed(engine, [[whole.iloc[:20], whole.iloc[20:20]], [whole.iloc[20:21]], [whole.iloc[21:]]])

    def test_to_pandas_and_head(self, shards, whole):
        pd.testing.assert_frame_equal(shards.to_pandas(), whole)
        pd.testing.assert_frame_equal(shards.head(22), whole.head(22))
        assert len(shards.head()) == 5

    def test_describe(self, shards, whole):
        pd.testing.assert_frame_equal(shards.describe(), whole.describe())

    def test_apply(self, shards, whole):
        rows = shards.apply(lambda row: row["a"] * 2)
        assert rows.to_pandas().tolist() == (whole["a"] * 2).tolist()
        values = shards.cache()["key"].apply(str.upper)
        assert values.to_pandas().tolist() == whole["key"].str.upper().tolist()

    @pytest.mark.parametrize("ascending", [True, False])
    @pytest.mark.parametrize("by", ["a", "b", ["key", "b"]])
    def test_sort_values(self, shards, whole, by, ascending):
        ordered = shards.sort_values(by, ascending=ascending)
        expected = whole.sort_values(by, ascending=ascending, kind="stable").reset_index(drop=True)
        pd.testing.assert_frame_equal(ordered.to_pandas(), expected)

    @pytest.mark.parametrize("spec", [{"a": "sum", "b": "max"}, {"b": "mean", "a": "median"}, {"b": "count"}, "size"])
    @pytest.mark.parametrize("by", ["key", ["key", "a"]])
    def test_groupby(self, shards, whole, by, spec):
        got = pd.concat(shards.groupby(by).agg(spec).collect()).sort_index()
        grouped = whole.groupby(by)
        expected = grouped.size() if spec == "size" else grouped.agg(spec)
        if isinstance(expected, pd.Series):
            pd.testing.assert_series_equal(got, expected)
        else:
            pd.testing.assert_frame_equal(got, expected)

    def test_groupby_short_forms(self, shards, whole):
        numbers = shards.transform_shard(lambda df: df[["a", "b"]]).cache()
        for name in ("sum", "mean", "count", "min", "max"):
            got = pd.concat(getattr(numbers.groupby("a"), name)().collect()).sort_index()
            pd.testing.assert_frame_equal(got, getattr(whole[["a", "b"]].groupby("a"), name)())

    @pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
    def test_merge(self, engine, shards, whole, how):
        other = pd.DataFrame({"a": [1.0, 2.0, 2.0, 99.0], "name": ["one", "two", "deux", "none"]})
        got = shards.merge(placed(engine, [[other.iloc[:1]], [other.iloc[1:]]]), on="a", how=how).to_pandas()
        expected = whole.merge(other, on="a", how=how)
        order = ["a", "b", "key", "name"]
        pd.testing.assert_frame_equal(
            got.sort_values(order).reset_index(drop=True), expected.sort_values(order).reset_index(drop=True)
        )

    def test_bad_arguments(self, shards, engine):
        with pytest.raises(InvalidKeyError, match="no column 'c'"):
            shards.sort_values("c")
        with pytest.raises(InvalidKeyError, match="no column 'c'"):
            shards.groupby("c")
        with pytest.raises(InvalidArgumentError, match="how must be one of"):
            shards.merge(shards, on="a", how="sideways")
        with pytest.raises(ShardTypeError, match="to_pandas needs shards of pandas"):
            placed(engine, [[1]]).to_pandas()

    def test_what_a_notebook_shows(self, shards):
        text = shards._repr_html_()
        assert "3 partitions" in text
        assert "<th>key</th>" in text
        assert "<table" not in shards["a"]._repr_html_()
        assert "partitions on" in repr(shards)


class TestPreconditionErrors:
    def test_they_are_assertions_and_value_errors_and_ours(self):
        assert issubclass(PreconditionError, AssertionError)
        assert issubclass(PreconditionError, ValueError)
