"""CSV by blocks: the same pandas arguments for every block, each of which starts with the file's own header."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, cast

import pandas as pd

from zoo.orca.data.file import filesystem_of, is_local, open_file
from zoo.orca.data.pandas import arrow_csv
from zoo.orca.data.pandas.blocks import Block, Look
from zoo.orca.data.pandas.byte_ranges import Survey, line_end, record_end, record_start, survey
from zoo.orca.data.pandas.source import ByteStream, MemorySource, Readable, Source, open_source

HEADER_BYTES = 1 << 20
UTF8_NAMES = {None, "utf-8", "utf8", "utf_8", "UTF-8"}
COMPRESSIONS = {
    ".gz": "gzip", ".bz2": "bz2", ".zip": "zip", ".xz": "xz", ".zst": "zstd", ".tar": "tar", ".tgz": "tar",
}  # fmt: skip

# Arguments under which every block can be parsed alone, with the values that allow it; None stands for any value.
SAFE_ARGUMENTS: dict[str, tuple[Any, ...] | None] = {
    "header": ("infer", 0, None),
    "index_col": (None, False),
    "engine": (None, "c"),
    "quoting": (0, 3),
    "doublequote": (True,),
    "skiprows": (None, 0),
    "skipfooter": (0,),
    "skipinitialspace": (False,),
    "parse_dates": (None, False),
    "encoding": tuple(UTF8_NAMES),
    "encoding_errors": (None, "strict"),
    "on_bad_lines": ("error",),
    "compression": ("infer", None),
    **dict.fromkeys(("escapechar", "nrows", "comment", "lineterminator", "converters", "dialect"), (None,)),
    **dict.fromkeys(
        ("sep", "delimiter", "quotechar", "names", "usecols", "dtype", "na_values", "keep_default_na", "na_filter",
         "skip_blank_lines", "low_memory", "thousands", "decimal", "float_precision", "true_values", "false_values")
    ),
}  # fmt: skip


@dataclass(frozen=True)
class CsvReader:
    """Reads blocks of CSV with pandas' own arguments."""

    arguments: dict[str, Any]
    fills_columns = False

    def can_cut(self, path: str) -> bool:
        return (
            compression_of(path) is None
            and self._separator is not None
            and self._quote_is_byte
            and all(_is_safe(name, value) for name, value in self.arguments.items())
        )

    @property
    def _separator(self) -> bytes | None:
        separator = self.arguments.get("sep", self.arguments.get("delimiter", ","))
        plain = isinstance(separator, str) and len(separator) == 1 and separator.isascii()
        return separator.encode() if plain and separator not in ' \\\r\n"' else None

    @property
    def _quote_is_byte(self) -> bool:
        quote = self.arguments.get("quotechar", '"')
        return isinstance(quote, str) and len(quote) == 1 and quote.isascii()

    @property
    def quote(self) -> bytes | None:
        """The quote character; None where quotes mean nothing."""
        return None if self.arguments.get("quoting") == 3 else self.arguments.get("quotechar", '"').encode()

    def look(self, block: Block) -> Look:
        with open_source(block.path) as source:
            found = Survey(0, True, True)
            if self.quote is not None:
                before = source.read(max(0, block.start - 1), block.start)
                data = source.read(block.start, block.stop)
                found = survey(data, before, self.quote, self._separator or b",")
            return Look(found, self._header_stop(source) if block.start == 0 else 0)

    def _header_stop(self, source: Source) -> int | None:
        """Where the first record ends, the header if there is one; None if the file's shape forbids cutting."""
        head = source.read(0, min(HEADER_BYTES, source.size))
        stops: list[int] = []
        at = 0
        # Blank lines ahead of the header belong to it; one record of data shows whether there is an unnamed index.
        while len(stops) < 2:
            end, _ = line_end(head[at:], False, self.quote)
            if end < 0:
                return None
            if head[at : at + end].strip():
                stops.append(at + end + 1)
            at += end + 1
        try:
            first = _parse(head[: stops[1]], None, self.arguments)
        except ValueError:  # odd quotes, or values that do not fit: pandas will say, or not, over the whole file
            return None
        return stops[0] if isinstance(first.index, pd.RangeIndex) else None

    @property
    def _has_header(self) -> bool:
        header = self.arguments.get("header", "infer")
        return header == 0 or (header == "infer" and self.arguments.get("names") is None)

    def read(self, block: Block) -> pd.DataFrame:
        try:
            if not self.can_cut(block.path):
                return self._read_plainly(block.path)
            return self._read_block(block)
        except Exception as error:
            error.add_note(f"while reading {describe(block)}")
            raise

    def reread(self, block: Block, dtypes: dict[Any, Any]) -> pd.DataFrame:
        given = self.arguments.get("dtype")
        merged = given.copy() if isinstance(given, dict) else {}
        merged.update(dtypes)
        return replace(self, arguments=self.arguments | {"dtype": merged}).read(block)

    def _read_plainly(self, path: str) -> pd.DataFrame:
        arguments = dict(self.arguments)
        if arguments.get("compression", "infer") == "infer":
            arguments["compression"] = compression_of(path)
        if is_local(path):
            return pd.read_csv(filesystem_of(path)[1], **arguments)
        with open_file(path) as file:
            return pd.read_csv(file, **arguments)

    def _read_block(self, block: Block) -> pd.DataFrame:
        with open_source(block.path) as source:
            if block.whole:
                return self._parse_block(b"", source, 0, source.size, self.arguments)
            start = record_start(source, block.start, block.start_inside, self.quote)
            stop = record_start(source, block.stop, block.stop_inside, self.quote)
            first = source.read(0, block.header_stop)
            header = first if start and self._has_header else b""
            frame = self._parse_block(header, source, start, stop, self.arguments | self._names(first))
        if not isinstance(frame.index, pd.RangeIndex):
            raise pd.errors.ParserError(
                f"Error tokenizing data. Expected {len(frame.columns)} fields, saw {frame.index.nlevels} more"
            )
        return frame

    def _parse_block(
        self, header: bytes, source: Source, start: int, stop: int, arguments: dict[str, Any]
    ) -> pd.DataFrame:
        """Records from start to stop behind a header, by Arrow where it gives the same, else by pandas."""
        body, names = source.window(start, stop), header
        if self._has_header and not header:
            names = body.head(HEADER_BYTES)
            names = names[: names.find(b"\n") + 1]
            body = replace(body, start=body.start + len(names))
        frame = arrow_csv.parse(names, body, arguments, lambda data, more: _parse(data, None, arguments | more))
        return _parse(header, source.stream(start, stop), arguments) if frame is None else frame

    def _names(self, first: bytes) -> dict[str, Any]:
        """Where nothing names the columns, the numbers pandas gives them by the first record of the file."""
        if self._has_header or self.arguments.get("names") is not None:
            return {}
        return {"names": list(range(len(cells_of(first, self.arguments))))}


def cells_of(record: bytes, arguments: dict[str, Any]) -> list[str]:
    """The fields of one record, as text."""
    syntax = ("sep", "delimiter", "quotechar", "quoting", "escapechar", "comment")
    kept = {name: arguments[name] for name in syntax if name in arguments}
    frame = _parse(record, None, kept | {"header": None, "dtype": str, "na_filter": False})
    return [str(cell) for cell in frame.iloc[0]]


def first_record(path: str, quote: bytes) -> bytes:
    """The bytes up to the end of the first record that is not blank, unpacked if the file is compressed."""
    if compression_of(path) is None:
        with open_source(path) as source:
            return source.read(0, record_end(source, quote))
    with open_file(path, compression="infer") as unpacked:
        head = MemorySource(unpacked.read(HEADER_BYTES))
        return head.read(0, record_end(head, quote))


def _parse(ahead: bytes, stream: Readable | None, arguments: dict[str, Any]) -> pd.DataFrame:
    buffer: Any = ByteStream(ahead, stream)
    # Whole columns at once: pandas' low-memory mode would guess a type for every few thousand rows.
    return cast(pd.DataFrame, pd.read_csv(buffer, **({"low_memory": False} | arguments)))


def _is_safe(name: str, value: Any) -> bool:
    if name not in SAFE_ARGUMENTS:
        return False
    allowed = SAFE_ARGUMENTS[name]
    return allowed is None or any(value is one or (type(value) is type(one) and value == one) for one in allowed)


def compression_of(path: str) -> str | None:
    """What a file is compressed with, by its name."""
    return COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def describe(block: Block) -> str:
    """A block in words, for a note on an error."""
    return block.path if block.whole else f"{block.path}, bytes {block.start} to {block.stop}"
