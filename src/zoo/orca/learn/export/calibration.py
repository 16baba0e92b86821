"""Some rows of any data that estimators take, for a model that is exported."""

from __future__ import annotations

from typing import Any

import pandas as pd

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed import arrays_as_shard, engine_of, kind_of
from zoo.orca.feed.shards import Columns
from zoo.orca.feed.structure import flatten, unflatten
from zoo.orca.feed.taste import taste
from zoo.orca.learn.export.int8 import Calibration
from zoo.orca.learn.export.rows import Rows, split, spread
from zoo.orca.learn.predict.model import count_rows


def is_in_memory(data: Any) -> bool:
    """Whether data is arrays or a pandas frame."""
    return kind_of(data) in ("arrays", "pandas DataFrame")


def gather(data: Any, columns: Columns, count: int, what: str, needs_labels: bool = False) -> Calibration:
    """About so many rows of data, and their labels: of data in memory from all over it, else the first ones.

    Args:
        needs_labels: whether columns of labels that are not there are an error.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidArgumentError(f"calibration_rows must be a whole number of at least 1, but is {count!r}.")
    if not needs_labels and not _has(data, columns.labels):
        columns = Columns(columns.features)
    data = _spread(data, count) if is_in_memory(data) else data
    found = taste(data, columns, {}, engine_of(data), what, count)
    features, labels = split(found.share(count, 0).batch)
    names = () if kind_of(data) == "arrays" else columns.features
    return Calibration(Rows.of(features, names), labels if found.is_labelled else None)


def _has(data: Any, names: tuple[str, ...]) -> bool:
    """Whether a frame has columns; what has none by name is taken as it is."""
    kind = kind_of(data)
    if kind not in ("pandas DataFrame", "Spark DataFrame", "Ray Dataset"):
        return True
    known = data.columns() if kind == "Ray Dataset" else data.columns
    return set(names) <= set(known)


def _spread(data: Any, count: int) -> Any:
    """Some rows of data in memory, from all over it."""
    if isinstance(data, pd.DataFrame):
        return data.iloc[spread(len(data), count)]
    shard = {key: value for key, value in arrays_as_shard(data).items() if key in ("x", "y") and value is not None}
    leaves, spec = flatten(shard)
    places = spread(count_rows(leaves), count)
    return unflatten([leaf[places] for leaf in leaves], spec)
