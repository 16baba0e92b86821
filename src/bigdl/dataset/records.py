"""Records for training, of any form that users have them in, as Samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigdl.transform.vision.feature import ImageFeature
from bigdl.transform.vision.predicted import inputs_of
from bigdl.util.common import Sample
from zoo.orca.engine.base import Placement
from zoo.orca.errors import InvalidArgumentError


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


def as_samples(records: Placement) -> Placement:
    """Records as Samples, where they lie."""
    return records.map(lambda index, rows: map(as_sample, rows), changes=False)


def _numbers(side: Any) -> Any:
    if isinstance(side, list | tuple) and any(isinstance(each, np.ndarray | list | tuple) for each in side):
        return [np.asarray(each, np.float32) for each in side]
    none = side is None or (isinstance(side, list) and not side)
    return [] if none else np.asarray(side, np.float32)
