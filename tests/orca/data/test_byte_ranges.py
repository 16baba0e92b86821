"""Cutting files by bytes: whatever is in them, the shards together are what pandas reads from the whole file."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from zoo.orca.data.pandas import arrow_csv, blocks
from zoo.orca.data.pandas.byte_ranges import (
    Survey,
    line_end,
    nominal_cuts,
    quoted_cuts,
    record_start,
    survey,
)
from zoo.orca.data.pandas.csv_reader import CsvReader
from zoo.orca.data.pandas.dtypes import agree, kinds_of
from zoo.orca.data.pandas.source import MemorySource

TEXTS = st.text(st.sampled_from('ab"\n,; é世0'), max_size=6)  # a bare \r makes pandas itself take all memory
PLAIN = st.text(st.sampled_from("ab0 é世"), max_size=4)
COLUMNS = st.sampled_from(
    [
        st.integers(-5, 5),
        st.integers(-(2**62), 2**62),
        st.floats(allow_infinity=False),
        st.one_of(st.integers(0, 9), st.none()),
        st.booleans(),
        st.one_of(st.booleans(), st.none()),
        TEXTS,
        st.one_of(TEXTS, st.none()),
        st.sampled_from(["007", "7", "1.5", "x", "", "True"]),
    ]
)


@st.composite
def csv_files(draw: st.DrawFn) -> bytes:
    rows = draw(st.integers(1, 40))
    kinds = draw(st.lists(COLUMNS, min_size=1, max_size=4))
    columns = {f"c{i}": draw(st.lists(kind, min_size=rows, max_size=rows)) for i, kind in enumerate(kinds)}
    text = io.StringIO()
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]))
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    frame.to_csv(text, index=False, quoting=quoting, lineterminator=draw(st.sampled_from(["\n", "\r\n"])))
    data = text.getvalue().encode()
    return data.rstrip(b"\r\n") if draw(st.booleans()) else data


@pytest.fixture(params=["pandas", "arrow"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small blocks by pandas, as they are read, and by Arrow, as large ones are."""
    if request.param == "arrow":
        monkeypatch.setattr(arrow_csv, "SMALL_BYTES", 0)
    return request.param


def assert_same(read: pd.DataFrame, whole: pd.DataFrame) -> None:
    """Equal but for what pandas' parser cuts off floats of 17 digits; Arrow rounds them right."""
    assert_frame_equal(read, whole.reset_index(drop=True), rtol=2e-14, atol=0)


def read_in_blocks(path: Path, size: int, **arguments: object) -> pd.DataFrame:
    """What an engine does, in this process."""
    reader = CsvReader(dict(arguments))
    parts = _cut(path, reader, size)
    frames = [reader.read(part) for part in parts]
    targets = agree([kinds_of(frame) for frame in frames])
    fixed = [
        blocks.conform(frame, targets, lambda dtypes, part=part: reader.reread(part, dtypes))
        for part, frame in zip(parts, frames, strict=True)
    ]
    assert len({tuple(frame.dtypes) for frame in fixed}) == 1
    return pd.concat(fixed, ignore_index=True)


def _cut(path: Path, reader: CsvReader, size: int) -> list[blocks.Block]:
    parts = blocks.nominal_blocks(str(path), reader, size)
    return parts if parts[0].whole else blocks.settle(parts, [reader.look(part) for part in parts])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=csv_files(), size=st.integers(3, 200))
def test_blocks_of_any_size_together_are_the_whole_file(tmp_path: Path, data: bytes, size: int) -> None:
    path = tmp_path / "any.csv"
    path.write_bytes(data)
    try:
        whole = pd.read_csv(path, low_memory=False)
    except (pd.errors.EmptyDataError, pd.errors.ParserError):  # a bare \r ahead of a blank trips pandas itself
        return
    assert_same(read_in_blocks(path, size), whole)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.text(st.sampled_from('a",\n5 '), max_size=9), min_size=3, max_size=9), size=st.integers(3, 60))
def test_quotes_in_odd_places_are_read_as_pandas_reads_them(tmp_path: Path, lines: list[str], size: int) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("\n".join(["x,y", *lines]))
    try:
        whole = pd.read_csv(path, low_memory=False)
    except pd.errors.ParserError:
        return
    assert_same(read_in_blocks(path, size), whole)


def test_a_large_block_size_leaves_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    assert [part.whole for part in _cut(path, CsvReader({}), 100)] == [True]


def test_a_file_without_header_keeps_its_width(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1,2,3\n4,5\n6\n7,8,9\n")
    assert_frame_equal(read_in_blocks(path, 4, header=None), pd.read_csv(path, header=None))


@pytest.mark.parametrize(
    "arguments",
    [
        {"usecols": ["b", "a"]},
        {"names": ["x", "y", "z"], "header": 0},
        {"dtype": {"a": "float32"}},
        {"dtype": "category"},
        {"na_values": ["3"]},
        {"index_col": "a"},
        {"skiprows": [1]},
        {"nrows": 4},
        {"comment": "#"},
        {"sep": "[,]", "engine": "python"},
        {"parse_dates": ["c"]},
    ],
    ids=str,
)
def test_pandas_arguments_mean_the_same_in_blocks(tmp_path: Path, arguments: dict[str, object]) -> None:
    path = tmp_path / "a.csv"
    frame = pd.DataFrame({"a": range(20), "b": np.arange(20) / 4, "c": pd.date_range("2020", periods=20).astype(str)})
    frame.to_csv(path, index=False)
    whole = pd.read_csv(path, **arguments)  # type: ignore[call-overload]
    assert_same(read_in_blocks(path, 50, **arguments), whole)


def test_leading_zeros_survive_where_another_block_has_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("code\n" + "007\n" * 30 + "x\n")
    assert read_in_blocks(path, 40)["code"].tolist() == ["007"] * 30 + ["x"]


def test_a_row_too_wide_at_the_start_of_a_block_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2\n" * 9 + "1,2,3\n" + "1,2\n" * 9)
    for size in range(4, 80):
        with pytest.raises(pd.errors.ParserError, match="Expected 2 fields"):
            read_in_blocks(path, size)


def test_a_file_with_an_unnamed_index_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "9,1,2\n" * 9)
    assert [part.whole for part in _cut(path, CsvReader({}), 10)] == [True]


def test_nominal_cuts_are_even_and_cover_the_file() -> None:
    assert nominal_cuts(100, 30) == [0, 25, 50, 75, 100]
    assert nominal_cuts(0, 30) == [0, 0]


def test_a_record_start_inside_quotes_is_behind_the_closing_line() -> None:
    source = MemorySource(b'a\n"x\ny"\nz\n')
    assert [record_start(source, at, at in (3, 4, 5, 6), b'"') for at in range(11)] == [
        0, 2, 2, 8, 8, 8, 8, 8, 8, 10, 10,
    ]  # fmt: skip


def test_a_newline_outside_quotes_ends_the_line() -> None:
    assert line_end(b'a"b\nc"d\n', False, b'"') == (7, False)
    assert line_end(b'a"b\nc', False, b'"') == (-1, True)
    assert line_end(b'a"b\nc', False, None) == (3, False)


def test_a_quote_inside_a_field_stops_the_counting() -> None:
    assert survey(b'a,"b"\n', b"", b'"', b",") == Survey(2, True, False)
    assert not survey(b'5" wide,b\n', b"\n", b'"', b",").sound_outside
    assert quoted_cuts([Survey(1, True, True), Survey(1, True, False)]) is None
    assert quoted_cuts([Survey(1, True, True), Survey(1, False, True), Survey(0, True, True)]) == [False, True, False]


WORDS = [
    *("1", "-2", "+3", "007", "1.5", "1e5", ".5", "5.", " 4", "4 ", "1_000", "0x1A", "inf", "-Infinity"),
    *("99999999999999999999", "18446744073709551615", "NA", "", "nan", "None", "x", "é", "2020-01-01"),
    *("True", "FALSE", "true"),
]
PLAIN_FILES = st.builds(
    lambda header, rows, sep, end: (sep.join(header) + "\n" + "\n".join(sep.join(row) for row in rows) + end).encode(),
    st.lists(st.sampled_from(["a", "b", "a", "c d", ""]), min_size=3, max_size=3),
    st.lists(
        st.lists(
            st.sampled_from(WORDS),
            min_size=3,
            max_size=4,
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["", "\n", "\n\n"]),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=PLAIN_FILES, sample=st.integers(1, 4))
@example(data=b"a,b,c\n1,1,1\n0x1A,1,1\n", sample=1)
def test_plain_values_mean_the_same_to_both_parsers(tmp_path: Path, parser: str, data: bytes, sample: int) -> None:
    path = tmp_path / "plain.csv"
    path.write_bytes(data)
    separator = data[: data.find(b"\n")].decode().strip("abcd ")[:1] or ","
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_csv, "SAMPLE_ROWS", sample)
        try:
            whole = pd.read_csv(path, sep=separator, low_memory=False)
        except pd.errors.ParserError:
            with pytest.raises(pd.errors.ParserError):
                CsvReader({"sep": separator}).read(blocks.Block(str(path), 0, len(data)))
            return
        read = CsvReader({"sep": separator}).read(blocks.Block(str(path), 0, len(data)))
    assert_frame_equal(read, whole, rtol=2e-14, atol=0)
