"""Records for training, of any form that users have them in, as the shards that estimators take."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bigdl.transform.vision.feature import ImageFeature
from bigdl.transform.vision.predicted import inputs_of
from bigdl.util.common import Sample
from zoo.orca.data.shard import XShards
from zoo.orca.engine.base import Placement
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.records import stack

# Records are stacked into shards of so many, or of so many bytes: images are large, rows of a table are not.
SHARD_ROWS = 1024
SHARD_BYTES = 64 << 20


def as_sample(record: Any) -> Sample:
    """A record as a Sample: a Sample, an ImageFeature, (features, labels), or features alone."""
    if isinstance(record, Sample):
        return record
    if isinstance(record, ImageFeature):
        if isinstance(record.get("sample"), Sample):
            return record["sample"]
        label = record.get_label()
        return Sample.from_ndarray(inputs_of(record), [] if label is None else [np.asarray(label, np.float32)])
    try:
        features, labels = record if isinstance(record, tuple) and len(record) == 2 else (record, [])
        return Sample.from_ndarray(*(_numbers(side) for side in (features, labels)))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            "A record must be a Sample, an ImageFeature, (features, labels) or an array, but is a "
            f"{type(record).__name__}."
        ) from error


def shards_of(records: Placement) -> XShards:
    """Shards {"x": ..., "y": ...} of records; "y" is left out where they have no labels."""
    return XShards.from_placement(records.map(_shards, changes=False), transient=True)


def _shards(index: int, records: Iterator[Any]) -> Iterator[dict[str, Any]]:
    arrays = map(_arrays, records)
    first = next(arrays, None)
    if first is None:
        return
    size = sum(array.nbytes for side in first for array in side)
    count = max(1, min(SHARD_ROWS, SHARD_BYTES // max(1, size)))
    rows = itertools.chain([first], arrays)
    while chunk := list(itertools.islice(rows, count)):
        features, labels = (_stacked([row[side] for row in chunk]) for side in range(2))
        yield {"x": features} if labels is None else {"x": features, "y": labels}


def _arrays(record: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    sample = as_sample(record)
    return [each.to_ndarray() for each in sample.features], [each.to_ndarray() for each in sample.labels]


def _stacked(rows: Sequence[Sequence[np.ndarray]]) -> Any:
    """One array, or a list of several, of the rows of a shard; None where rows hold none."""
    if len({len(row) for row in rows}) > 1:
        raise InvalidArgumentError(
            "Records must have as many arrays each, but some have "
            f"{' and others '.join(map(str, sorted({len(row) for row in rows})))} (labels, perhaps)."
        )
    if not rows[0]:
        return None
    arrays = list(stack(rows))
    return arrays[0] if len(arrays) == 1 else arrays


def _numbers(side: Any) -> Any:
    if isinstance(side, list | tuple) and any(isinstance(each, np.ndarray | list | tuple) for each in side):
        return [np.asarray(each, np.float32) for each in side]
    return [] if isinstance(side, list) and not side else np.asarray(side, np.float32)
