"""The rows that a model is exported with: they tell its inputs, and what is written is checked with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.feed.columns import frame_columns
from zoo.orca.feed.rows import RowsFeed
from zoo.orca.feed.structure import Spec, as_arguments, count_rows, flatten, unflatten

#: How many rows of a fit are kept for a later export, and how much of them: fewer where they are large.
KEPT = 32
KEPT_BYTES = 8 << 20
#: How many rows of a sample are used.
SAMPLED = 128


@dataclass(frozen=True)
class Rows:
    """Features of some rows, as the flat list of arrays that an exported model takes.

    Attributes:
        leaves: an array for each input, in order.
        spec: how the model's arguments are made of them.
        names: what the inputs are called, as far as the data says; () where it does not.
    """

    leaves: tuple[np.ndarray, ...]
    spec: Spec
    names: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.leaves[0])

    @property
    def features(self) -> tuple[Any, ...]:
        """The model's arguments."""
        return self.arguments(self.leaves)

    def arguments(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Arrays or tensors as the model's arguments."""
        return unflatten(leaves, self.spec)

    def first(self, count: int) -> Rows:
        """The first rows, again from the start when there are fewer."""
        places = np.arange(count) % self.count
        return Rows(tuple(leaf[places] for leaf in self.leaves), self.spec, self.names)

    def only(self, number: int) -> Rows:
        """One row."""
        return Rows(tuple(leaf[number : number + 1] for leaf in self.leaves), self.spec, self.names)

    def some(self, most: int) -> Rows:
        """At most so many rows, in equal distances."""
        places = spread(self.count, most)
        return Rows(tuple(leaf[places] for leaf in self.leaves), self.spec, self.names)

    @staticmethod
    def of(features: tuple[Any, ...], names: Sequence[Any] = ()) -> Rows:
        """The rows of a model's arguments; names are those of columns, one for each argument."""
        leaves, spec = flatten(features)
        lengths = {len(leaf) for leaf in leaves}
        if len(lengths) != 1 or lengths == {0}:
            raise InvalidArgumentError(
                "the rows to export with must be arrays of one length, of at least one row, but they have "
                f"{', '.join(map(str, sorted(lengths)))} rows."
            )
        for leaf in leaves:
            if leaf.dtype.kind not in "biuf":
                raise NotOfferedError(
                    f"the model takes {leaf.dtype} arrays, and only models of numbers can be exported. Turn texts into "
                    "numbers outside of the model, or save it with est.save(path)."
                )
        return Rows(tuple(leaves), spec, _names_of(spec, tuple(map(str, names))))


def rows_of_sample(sample: Any, names: Sequence[Any] = ()) -> Rows:
    """The rows that a user gave: features alone, as est.predict takes arrays; a frame without names is all features."""
    if isinstance(sample, pd.DataFrame):
        columns = list(names) or list(sample.columns)
        return Rows.of(tuple(frame_columns(sample, columns)), columns).some(SAMPLED)
    features = sample["x"] if isinstance(sample, dict) and "x" in sample else sample
    return Rows.of(as_arguments(features), names).some(SAMPLED)


def rows_of_batch(feed: Any, batch: Any, names: Sequence[Any] = ()) -> Rows | None:
    """The features of rows that a fit has seen; None for what is no batch of arrays of numbers."""
    if isinstance(feed, RowsFeed):
        batch = feed.sample(KEPT)
    try:
        features, _ = split(batch)
        arrays = unflatten(*_kept(features))
        return Rows.of(arrays, names)
    except Exception:  # a user's own loader yields what it likes, and export then asks for a sample
        return None


def spread(rows: int, most: int) -> np.ndarray:
    """The places of at most so many rows, in equal distances, for data may be sorted by its labels.

    >>> spread(9, 3).tolist(), spread(2, 3).tolist()
    ([0, 4, 8], [0, 1])
    """
    return np.linspace(0, max(0, rows - 1), min(most, rows)).astype(np.int64)


def split(batch: Any) -> tuple[tuple[Any, ...], Any]:
    """The features and the labels of a batch; one thing alone is a feature."""
    parts = as_arguments(batch)
    return (parts[:-1], parts[-1]) if len(parts) > 1 else (parts, None)


def _kept(features: tuple[Any, ...]) -> tuple[list[np.ndarray], Spec]:
    """Copies of a few rows, for the arrays may be maps of files that go with the fit."""
    leaves, spec = flatten(features)
    row_bytes = sum(leaf.nbytes for leaf in leaves) // max(1, count_rows(features))
    count = min(KEPT, max(2, KEPT_BYTES // max(1, row_bytes)))
    return [np.array(leaf[:count]) for leaf in leaves], spec


def _names_of(spec: Spec, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns, if there is one for each input; the keys of dicts."""
    if len(columns) == spec.leaves:
        return columns
    (only, *more) = spec.parts
    if only.kind == "dict" and not more and only.leaves == len(only.keys):
        return tuple(map(str, only.keys))
    return ()
