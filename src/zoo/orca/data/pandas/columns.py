"""Which columns are read, under which names and types: the rules that csv and json share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from zoo.orca.data.pandas.schema import Field
from zoo.orca.errors import InvalidArgumentError


@dataclass(frozen=True)
class Columns:
    """Which columns of the files are read (by position), their names, and the types they must have."""

    width: int
    positions: list[int]
    names: list[str]
    dtypes: dict[str, Any] = field(default_factory=dict)
    schema: list[Field] | None = None


@dataclass(frozen=True)
class ColumnRules:
    """`names`, `usecols` and `dtype`, which csv and json share."""

    names: list[str] | None = None
    schema: list[Field] | None = None
    usecols: list[Any] | Callable[[str], bool] | None = None
    dtype: Any = None

    def choose(self, found: Sequence[str]) -> Columns:
        """Apply the rules to the columns that the files have."""
        names = self._names(len(found))
        positions = self._positions(found, names)
        if names is None:
            chosen = [found[position] for position in positions]
        elif len(names) == len(found):
            chosen = [names[position] for position in positions]
        else:
            chosen = list(names)
        return Columns(len(found), positions, chosen, _dtypes(self.dtype, chosen, positions), self.schema)

    def _names(self, width: int) -> list[str] | None:
        if self.names is not None and self.usecols is None and len(self.names) != width:
            raise InvalidArgumentError(
                f"The number of names ({len(self.names)}) does not match the number of columns in the files "
                f"({width}). Give one name a column, or choose columns with usecols."
            )
        return self.names

    def _positions(self, found: Sequence[str], names: list[str] | None) -> list[int]:
        if self.usecols is None:
            return list(range(len(found)))
        labels = names if names is not None and len(names) == len(found) else list(found)
        positions = _positions(self.usecols, labels)
        if names is not None and len(names) not in (len(positions), len(found)):
            raise InvalidArgumentError(
                f"Passed names did not match usecols: {len(names)} names for {len(positions)} chosen of "
                f"{len(found)} columns. Give one name a chosen column, or one for every column."
            )
        return positions


def _positions(usecols: list[Any] | Callable[[str], bool], labels: Sequence[str]) -> list[int]:
    if callable(usecols):
        return [position for position, label in enumerate(labels) if usecols(label)]
    wanted = {labels.index(item) if isinstance(item, str) and item in labels else item for item in usecols}
    missing = [item for item in wanted if isinstance(item, str) or not 0 <= item < len(labels)]
    if missing:
        raise InvalidArgumentError(
            f"usecols names columns that the files do not have: {missing}. The columns are {list(labels)}."
        )
    # As in pandas, columns come in the order of the file, whatever the order they were asked for in.
    return sorted(wanted)


def _dtypes(dtype: Any, names: list[str], positions: list[int]) -> dict[str, Any]:
    if dtype is None:
        return {}
    if not isinstance(dtype, dict):
        return dict.fromkeys(names, dtype)
    return {_dtype_column(key, names, positions): wanted for key, wanted in dtype.items()}


def _dtype_column(key: Hashable, names: list[str], positions: list[int]) -> str:
    if isinstance(key, str) and key in names:
        return key
    if isinstance(key, int) and key in positions:
        return names[positions.index(key)]
    what = "column index" if isinstance(key, int) else "column"
    raise InvalidArgumentError(
        f"{what} to be set type is not in current dataframe: {key!r}. The columns read are {names}, "
        f"at positions {positions}."
    )
