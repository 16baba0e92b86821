"""What the Spark read backend understands: its keyword rules, parsed once, the same on every engine."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from zoo.orca.data.pandas.columns import ColumnRules
from zoo.orca.data.pandas.schema import Field, parse_schema
from zoo.orca.errors import InvalidArgumentError

PANDAS_BACKEND = 'OrcaContext.pandas_read_backend = "pandas" takes all of pandas\' arguments'


@dataclass(frozen=True)
class CsvRules(ColumnRules):
    """All that read_csv understands with the Spark backend."""

    header: bool = True
    squeeze: bool = False
    index_col: Any = None
    sep: str = ","
    comment: str | None = None
    quotechar: str = '"'
    escapechar: str | None = None

    def file_columns(self, cells: Sequence[str]) -> list[str]:
        """The names of a file's columns, by the fields of its first record."""
        if not self.header:
            return [str(position) for position in range(len(cells))]
        return _distinct([cell or f"Unnamed: {position}" for position, cell in enumerate(cells)])

    def syntax(self) -> dict[str, Any]:
        """How fields are told apart, as pandas' arguments."""
        given = {"sep": self.sep, "comment": self.comment, "quotechar": self.quotechar, "escapechar": self.escapechar}
        return {name: value for name, value in given.items() if value is not None}

    def finish(self, frame: pd.DataFrame) -> pd.DataFrame | pd.Series:
        """What is done with every frame when its columns are right."""
        if self.index_col is not None:
            frame = frame.set_index(_index_names(self.index_col, list(frame.columns)))
        return frame.iloc[:, 0] if self.squeeze and frame.shape[1] == 1 else frame

    @property
    def finishes(self) -> bool:
        return self.squeeze or self.index_col is not None


def parse_csv_rules(arguments: dict[str, Any]) -> CsvRules:
    """Check read_csv's keywords against the rules.

    >>> parse_csv_rules({"sep": ";", "header": None}).header
    False
    """
    known = {
        "header", "names", "usecols", "dtype", "squeeze", "index_col", "sep", "comment", "quotechar", "escapechar",
        "mangle_dupe_cols", "parse_dates",
    }  # fmt: skip
    _check_known(arguments, known, "read_csv")
    _check_only("mangle_dupe_cols", arguments.get("mangle_dupe_cols", True), True)
    _check_only("parse_dates", arguments.get("parse_dates", False), False)
    names, schema = _names_or_schema(arguments.get("names"))
    return CsvRules(
        names=names,
        schema=schema,
        usecols=_usecols(arguments.get("usecols")),
        dtype=arguments.get("dtype"),
        header=_header(arguments.get("header", "infer"), names is not None),
        squeeze=bool(arguments.get("squeeze", False)),
        index_col=_index_col(arguments.get("index_col")),
        sep=_character("sep", arguments.get("sep", ","), any_length=True) or ",",
        comment=_character("comment", arguments.get("comment")),
        quotechar=_character("quotechar", arguments.get("quotechar", '"')) or '"',
        escapechar=_character("escapechar", arguments.get("escapechar")),
    )


def parse_json_rules(arguments: dict[str, Any]) -> ColumnRules:
    """Check read_json's keywords against the rules."""
    _check_known(arguments, {"names", "usecols", "dtype", "lines", "orient"}, "read_json")
    _check_only("lines", arguments.get("lines", True), True)
    _check_only("orient", arguments.get("orient", "records"), "records")
    names = _name_list(arguments["names"]) if arguments.get("names") is not None else None
    return ColumnRules(names, None, _usecols(arguments.get("usecols")), arguments.get("dtype"))


def _check_known(arguments: dict[str, Any], known: set[str], function: str) -> None:
    for name in arguments:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        meant = f" Did you mean '{near[0]}'?" if near else f" Known are {', '.join(sorted(known))}."
        raise InvalidArgumentError(
            f"{function} with the Spark read backend has no argument '{name}'.{meant} {PANDAS_BACKEND}."
        )


def _check_only(name: str, value: Any, only: Any) -> None:
    if value is not None and value != only:
        raise InvalidArgumentError(
            f"The Spark read backend takes only {name}={only!r}, got {value!r}. {PANDAS_BACKEND}."
        )


def _names_or_schema(names: Any) -> tuple[list[str] | None, list[Field] | None]:
    if names is None:
        return None, None
    if isinstance(names, str):
        schema = parse_schema(names)
        return _name_list([each.name for each in schema]), schema
    return _name_list(names), None


def _name_list(names: Any) -> list[str]:
    given = [str(name) for name in names]
    if len(set(given)) != len(given):
        raise InvalidArgumentError(f"Duplicate names are not allowed, got {given}. Give every column its own name.")
    return given


def _header(header: Any, named: bool) -> bool:
    if isinstance(header, str) and header == "infer":
        return not named
    if header is None or (isinstance(header, int) and not isinstance(header, bool) and header == 0):
        return header is not None
    raise InvalidArgumentError(f'header must be "infer", 0 or None with the Spark read backend, got {header!r}.')


def _usecols(usecols: Any) -> list[Any] | Callable[[str], bool] | None:
    if usecols is None or callable(usecols):
        return usecols
    given = [usecols] if isinstance(usecols, str | int) else list(usecols)
    if all(isinstance(item, str) for item in given) or all(isinstance(item, int) for item in given):
        return given
    raise InvalidArgumentError(
        f"usecols must be a list of integers, a list of names, or a function of a name, got {usecols!r}."
    )


def _index_col(index_col: Any) -> Any:
    return None if index_col is False else index_col


def _index_names(index_col: Any, columns: list[Any]) -> list[Any]:
    items = index_col if isinstance(index_col, list | tuple) else [index_col]
    found = [columns[item] if isinstance(item, int) and item not in columns and item < len(columns) else item
             for item in items]  # fmt: skip
    missing = [item for item in found if item not in columns]
    if missing:
        raise InvalidArgumentError(f"index_col names columns that are not read: {missing}. They are {columns}.")
    return found


def _character(name: str, value: Any, any_length: bool = False) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value or (len(value) != 1 and not any_length):
        raise InvalidArgumentError(f"{name} must be one character, got {value!r}.")
    return value


def _distinct(names: Sequence[str]) -> list[str]:
    """Names with repeated ones numbered as pandas does.

    >>> _distinct(["a", "b", "a"])
    ['a', 'b', 'a.1']
    """
    taken: set[str] = set()
    counts: dict[str, int] = {}
    out = []
    for name in names:
        new = name
        while new in taken or (new != name and new in names):
            counts[name] = counts.get(name, 0) + 1
            new = f"{name}.{counts[name]}"
        taken.add(new)
        out.append(new)
    return out
