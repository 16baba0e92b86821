"""JSON by blocks of lines: a newline in a JSON text is always escaped, so every newline ends a record."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from zoo.orca.data.file import open_file
from zoo.orca.data.pandas.blocks import Block, Look
from zoo.orca.data.pandas.byte_ranges import Survey, record_start
from zoo.orca.data.pandas.columns import Columns
from zoo.orca.data.pandas.csv_reader import compression_of, describe
from zoo.orca.data.pandas.source import open_source

# Values as JSON has them: no guessing of numbers and dates from text.
AS_WRITTEN = {"lines": True, "dtype": False, "convert_dates": False, "convert_axes": False, "precise_float": True}
SAFE_ENCODINGS = (None, "utf-8", "utf8")


@dataclass(frozen=True)
class JsonReader:
    """Reads blocks of JSON with pandas' own arguments."""

    arguments: dict[str, Any]

    @property
    def fills_columns(self) -> bool:
        return bool(self.arguments.get("lines"))

    def can_cut(self, path: str) -> bool:
        given = self.arguments
        return (
            bool(given.get("lines"))
            and compression_of(path) is None
            and given.get("compression", "infer") in ("infer", None)
            and given.get("nrows") is None
            and given.get("encoding") in SAFE_ENCODINGS
        )

    def look(self, block: Block) -> Look:
        return Look(Survey(0, True, True))

    def read(self, block: Block) -> pd.DataFrame:
        try:
            if block.whole:
                return self._read_whole(block.path)
            with open_source(block.path) as source:
                start = record_start(source, block.start, False, None)
                stop = record_start(source, block.stop, False, None)
                return pd.read_json(io.BytesIO(source.read(start, stop)), **self.arguments)
        except Exception as error:
            error.add_note(f"while reading {describe(block)}")
            raise

    def reread(self, block: Block, dtypes: dict[Any, Any]) -> pd.DataFrame:
        """The columns with no conversion at all: text stays text, and numbers among text stay numbers."""
        kept = {name: value for name, value in self.arguments.items() if name != "dtype"}
        return replace(self, arguments=kept | {"dtype": False}).read(block)[list(dtypes)].astype(object)

    def _read_whole(self, path: str) -> pd.DataFrame:
        arguments = {"compression": compression_of(path)} | self.arguments
        if arguments["compression"] == "infer":
            arguments["compression"] = compression_of(path)
        with open_file(path) as file:
            return pd.read_json(file, **arguments)


def choose_columns(columns: Columns, found: list[str], frame: pd.DataFrame) -> pd.DataFrame:
    """The chosen columns under their new names and types; `found` are all columns, in the order positions count."""
    chosen = frame.reindex(columns=[found[position] for position in columns.positions])
    chosen.columns = pd.Index(columns.names)
    return chosen.astype(columns.dtypes) if columns.dtypes else chosen
