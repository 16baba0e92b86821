"""The fast way through a plain CSV block: Arrow's parser, where it gives what pandas' would.

pandas reads the first rows and so decides names and types; Arrow, about twice as fast, reads the rest with these
types and no guessing. Whatever Arrow will not take as such (a word in a column of numbers, a short line) is left to
pandas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv

from zoo.orca.data.pandas.source import Window

# The words that pandas' documentation lists as missing values.
MISSING_WORDS = frozenset(
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
     "NULL", "NaN", "None", "n/a", "nan", "null"}
)  # fmt: skip
SAMPLE_ROWS = 100
SAMPLE_BYTES = 1 << 14
SMALL_BYTES = 1 << 18  # below, the sample costs more than it brings
TYPES = {"i": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "O": pa.string()}
# Arguments that Arrow can follow, or that do not matter here.
KNOWN = {"sep", "delimiter", "header", "names", "usecols", "dtype", "na_values", "keep_default_na", "low_memory",
         "quotechar", "engine", "encoding", "compression"}  # fmt: skip
# Line ends and bytes that the two parsers do not read alike.
ODD_BYTES = (b"\r", b"\0")
# Arrow takes these for whole numbers, which are words to pandas.
HEXADECIMAL = (b"0x", b"0X")

PandasParse = Callable[[bytes, dict[str, Any]], pd.DataFrame]


@dataclass(frozen=True)
class Layout:
    """What pandas makes of the first rows: the output columns, where each stands in a record, and its type."""

    columns: pd.Index
    positions: list[int]
    types: list[pa.DataType]
    width: int


def parse(header: bytes, body: Window, arguments: Mapping[str, Any], with_pandas: PandasParse) -> pd.DataFrame | None:
    """The frame that pandas would make of header and body; None where only pandas itself can tell.

    Args:
        with_pandas: parses bytes with pandas, given arguments beside the user's.
    """
    if len(body) <= SMALL_BYTES or not _is_plain(body, arguments):
        return None
    layout = _layout(header, body, arguments, with_pandas)
    if layout is None or (pa.int64() in layout.types and any(map(body.holds, HEXADECIMAL))):
        return None
    try:
        table = _read(body, layout, arguments)
    except pa.ArrowInvalid:
        return None
    return _to_pandas(table, layout)


def _is_plain(body: Window, arguments: Mapping[str, Any]) -> bool:
    quote = arguments.get("quotechar", '"').encode()
    given = arguments.get("na_values")
    marks = given if isinstance(given, list) else [given] if given is not None else []
    return (
        arguments.keys() <= KNOWN
        and all(isinstance(mark, str) and not _is_number(mark) for mark in marks)
        and not any(body.holds(odd) for odd in (*ODD_BYTES, quote))
    )


def _is_number(word: str) -> bool:
    """Whether pandas would take the word for a missing value however the number is written."""
    try:
        float(word)
    except ValueError:
        return False
    return word not in MISSING_WORDS


def _layout(header: bytes, body: Window, arguments: Mapping[str, Any], with_pandas: PandasParse) -> Layout | None:
    lines = body.head(SAMPLE_BYTES)
    lines = lines[: lines.rfind(b"\n") + 1]
    width = lines[: lines.find(b"\n")].count(_separator(arguments)) + 1
    if width == 1:  # a line of blanks is a record for Arrow and nothing for pandas
        return None
    sample = with_pandas(header + lines, {"nrows": SAMPLE_ROWS})
    numbered = _separator(arguments).join(b"%d" % position for position in range(width)) + b"\n"
    where = with_pandas(header + numbered, {"dtype": str})
    if len(where) != 1 or where.isna().any(axis=None) or not where.columns.equals(sample.columns):
        return None
    if not isinstance(where.index, pd.RangeIndex) or not isinstance(sample.index, pd.RangeIndex):
        return None
    missing = frozenset(_null_words(arguments))
    if not all(_is_usual(sample.iloc[:, index], missing) for index in range(len(sample.columns))):
        return None
    types = [TYPES[dtype.kind] for dtype in sample.dtypes]
    return Layout(sample.columns, [int(position) for position in where.iloc[0]], types, width)


def _is_usual(column: pd.Series, missing: frozenset[str]) -> bool:
    """Whether Arrow would make of the column what pandas made of it."""
    if column.dtype == object:
        # Among integers too large for it, pandas leaves missing values as words.
        return all(isinstance(value, str) and value not in missing for value in column.dropna())
    return column.dtype in (np.dtype("int64"), np.dtype("float64"), np.dtype("bool"))


def _read(body: Window, layout: Layout, arguments: Mapping[str, Any]) -> pa.Table:
    names = [str(position) for position in range(layout.width)]
    chosen = [names[position] for position in layout.positions]
    return arrow_csv.read_csv(
        pa.py_buffer(body.view()),
        read_options=arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(body) + 1),
        parse_options=arrow_csv.ParseOptions(delimiter=_separator(arguments).decode(), quote_char=False),
        convert_options=arrow_csv.ConvertOptions(
            check_utf8=not body.is_surely_ascii(),  # one look at all bytes costs less than one at every word
            include_columns=chosen,
            column_types=dict(zip(chosen, layout.types, strict=True)),
            null_values=_null_words(arguments),
            strings_can_be_null=True,
            true_values=["True", "TRUE", "true"],
            false_values=["False", "FALSE", "false"],
        ),
    )


def _null_words(arguments: Mapping[str, Any]) -> list[str]:
    given = arguments.get("na_values")
    words = {given} if isinstance(given, str) else set(given or ())
    return sorted(words | MISSING_WORDS if arguments.get("keep_default_na", True) else words)


def _to_pandas(table: pa.Table, layout: Layout) -> pd.DataFrame | None:
    gaps = [index for index, column in enumerate(table.columns) if column.null_count]
    if any(layout.types[index] == pa.bool_() for index in gaps):
        return None
    frame = table.to_pandas(use_threads=False)
    frame.columns = layout.columns
    for index in gaps:
        if layout.types[index] == pa.string():
            words = frame.iloc[:, index].to_numpy(copy=True)
            words[table.column(index).is_null().to_numpy()] = np.nan  # Arrow has None where pandas has NaN
            frame.isetitem(index, words)
    return frame


def _separator(arguments: Mapping[str, Any]) -> bytes:
    return arguments.get("sep", arguments.get("delimiter", ",")).encode()
