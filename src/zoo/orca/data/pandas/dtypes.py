"""One dtype per column over all blocks of a read, as if pandas had seen the whole file at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

EXACT_IN_FLOAT = 2**53
NUMBERS = frozenset({"int", "uint", "float"})
BOOLEANS = frozenset({"bool", "maybe_bool"})


@dataclass(frozen=True)
class Kind:
    """What a block's column turned out to be: empty, missing, int, uint, float, bool, maybe_bool, text, other."""

    name: str
    dtype: Any
    negative: bool = False
    beyond_float: bool = False


MISSING = Kind("missing", np.dtype("float64"))


@dataclass(frozen=True)
class Target:
    """What a column becomes in every block: of this dtype, or text as it stands in the file."""

    dtype: Any
    text: bool = False


def kind_of(column: pd.Series) -> Kind:
    """The kind of one column of one block."""
    dtype = column.dtype
    if not len(column):
        return Kind("empty", dtype)
    if not isinstance(dtype, np.dtype):
        return Kind("other", dtype)
    if dtype.kind == "f":
        return Kind("missing" if _all_missing(column) else "float", dtype)
    if dtype.kind in "iu":
        low, high = int(column.min()), int(column.max())
        large = max(-low, high) > EXACT_IN_FLOAT
        return Kind("int" if dtype.kind == "i" else "uint", dtype, low < 0, large)
    if dtype.kind == "b":
        return Kind("bool", dtype)
    return _kind_of_objects(column) if dtype.kind == "O" else Kind("other", dtype)


def _all_missing(column: pd.Series) -> bool:
    return bool(pd.isna(column.iat[0])) and bool(column.isna().all())


def _kind_of_objects(column: pd.Series) -> Kind:
    # pandas makes a column of objects from text or from booleans with gaps, never from a mix: one value tells.
    known = next((value for value in column.array if not _is_missing(value)), None)
    if known is None:
        return Kind("missing", column.dtype)
    if isinstance(known, bool | np.bool_):
        return Kind("maybe_bool", column.dtype)
    return Kind("text", column.dtype)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def kinds_of(frame: pd.DataFrame) -> dict[Any, Kind]:
    """The kind of every column of one block."""
    return {name: kind_of(frame[name]) for name in frame.columns}


def agree(blocks: Sequence[Mapping[Any, Kind]]) -> dict[Any, Target]:
    """The columns whose blocks differ, and what each must become."""
    columns: dict[Any, list[Kind]] = {}
    for block in blocks:
        for name, kind in block.items():
            columns.setdefault(name, []).append(kind)
    return {
        name: target
        for name, kinds in columns.items()
        if len({(kind.name, kind.dtype) for kind in kinds}) > 1 and (target := _target(kinds)) is not None
    }


def _target(kinds: Sequence[Kind]) -> Target | None:
    names = {kind.name for kind in kinds}
    gaps = "missing" in names
    known = names - {"empty", "missing"}
    if "other" in known:
        return _common_category(kinds)
    if known <= NUMBERS:
        return _number_target(kinds, known, gaps)
    if known == {"bool"} and not gaps:
        return Target(np.dtype(bool))
    if known <= BOOLEANS:
        return Target(np.dtype(object))
    return Target(np.dtype(object), text=True)


def _number_target(kinds: Sequence[Kind], known: set[str], gaps: bool) -> Target:
    if known == {"int"} and not gaps:
        return Target(np.dtype("int64"))
    if known <= {"int", "uint"} and "uint" in known:
        # Beyond int64 and yet with a sign or a gap, pandas gives up on numbers.
        if gaps or any(kind.negative for kind in kinds):
            return Target(np.dtype(object), text=True)
        return Target(np.dtype("uint64"))
    return Target(np.dtype("float64"))


def _common_category(kinds: Sequence[Kind]) -> Target | None:
    dtypes = [kind.dtype for kind in kinds if kind.name != "empty"]
    if not all(isinstance(dtype, pd.CategoricalDtype) and not dtype.ordered for dtype in dtypes):
        return None
    union = dtypes[0].categories
    for dtype in dtypes[1:]:
        union = union.union(dtype.categories)
    return Target(pd.CategoricalDtype(union.sort_values()))


def needs_rereading(kind: Kind, target: Target) -> bool:
    """Tell whether a block's values, as they were parsed, no longer say what the target needs."""
    if target.text:
        return kind.name in NUMBERS | BOOLEANS
    return kind.beyond_float and target.dtype == np.dtype("float64")


def widen_integers(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with every signed integer column as int64."""
    narrow = [name for name, dtype in frame.dtypes.items() if dtype.kind == "i" and dtype != np.dtype("int64")]
    return frame.astype(dict.fromkeys(narrow, "int64")) if narrow else frame
