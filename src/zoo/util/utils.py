"""Small helpers with a published import path: samples of arrays, rows as arrays, where this process runs."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common.tensors import Sample
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.names import public_names

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

_ROUTABLE = ("192.0.2.1", 1)  # an address kept for documentation: nothing is sent to it


def to_sample_rdd(x: Any, y: Any, sc: SparkContext, num_slices: int | None = None) -> RDD:
    """An RDD with a Sample for each row of x and y.

    Example: ``to_sample_rdd(np.ones((8, 3)), np.zeros(8), sc, num_slices=2)``
    """
    if len(x) != len(y):
        raise InvalidArgumentError(f"Expected as many rows in x as in y, got {len(x)} and {len(y)}")
    pairs = list(zip(np.asarray(x), np.asarray(y), strict=True))
    return sc.parallelize(pairs, num_slices).map(lambda pair: Sample.from_ndarray(*pair))


def get_node_ip() -> str:
    """The address under which other machines reach this one; loopback when there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ROUTABLE)
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def detect_python_location() -> str:
    """The interpreter that runs this code."""
    return sys.executable


def convert_row_to_numpy(
    row: Any, schema: Any, feature_cols: Sequence[str], label_cols: Sequence[str] | None, accept_str_col: bool = False
) -> tuple[Any, ...]:
    """(features, labels) of a Spark Row, or (features,) without label_cols.

    A single column is an array, several are a list of arrays. Numbers keep their type; arrays of numbers and ML vectors
    are float32; text is taken only with accept_str_col.
    """
    fields = {field.name: field.dataType.simpleString() for field in schema.fields}
    sides = [feature_cols, label_cols] if label_cols else [feature_cols]
    arrays = [[_cell(row, name, fields, accept_str_col) for name in side] for side in sides]
    return tuple(side[0] if len(side) == 1 else side for side in arrays)


_DTYPES = {"float": np.float32, "double": np.float64, "int": np.int32, "bigint": np.int64}


def _cell(row: Any, name: str, fields: dict[str, str], accept_text: bool) -> np.ndarray:
    kind = fields.get(name)
    if kind is None:
        raise InvalidArgumentError(f"Expected a column {name!r}, but there are {', '.join(fields)}")
    value = row[name]
    if kind in _DTYPES:
        return np.array(value, dtype=_DTYPES[kind])
    if kind == "vector":
        return value.toArray().astype(np.float32)
    if kind in ("string", "array<string>") and accept_text:
        return np.array(value)
    if kind.startswith("array<") and kind != "array<string>":
        return np.array(value, dtype=np.float32)
    raise InvalidArgumentError(
        f"Expected {name!r} to be a number, an array of numbers or an ML vector, but it is {kind}. "
        "Cast it, or leave it out."
    )


__dir__ = public_names(globals())
