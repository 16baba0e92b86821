"""What tensors a record holds: their types, names and shapes, however users say it, and how to take them out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.columns import check_spark_columns, spark_column
from zoo.orca.learn.tf.frozen import graph_mode
from zoo.util import nest
from zoo.util.utils import convert_row_to_numpy


@dataclass(frozen=True)
class TensorMeta:
    """The type, the name and the shape (of one record) of a tensor."""

    dtype: Any
    name: str
    shape: list[int | None]

    @property
    def numpy_dtype(self) -> np.dtype:
        return np.dtype(self.dtype.as_numpy_dtype)


def named_metas(names: Any, shapes: Any, types: Any) -> tuple[TensorMeta, ...]:
    """The tensors of records that are lists of arrays."""
    names = ["features", "labels"] if names is None else list(names)
    if shapes is None:
        raise InvalidArgumentError(
            "Expected features=(dtype, shape) (and labels=...), or names=[...], shapes=[...] and types=[...], which "
            "say what a record holds."
        )
    types = [np.float32] * len(names) if types is None else list(types)
    if not len(names) == len(shapes) == len(types):
        raise InvalidArgumentError(
            f"Expected as many names as shapes and types, got {len(names)}, {len(shapes)} and {len(types)}."
        )
    return tuple(tensor_meta(dtype, name, shape) for name, shape, dtype in zip(names, shapes, types, strict=True))


def described_metas(features: Any, labels: Any) -> Any:
    """The tensors of features and labels, each (dtype, shape), a list or a dict of such pairs."""
    described = _side(features, "features", lambda number: "input0" if number is None else f"list_input_{number}")
    if labels is None:
        return described
    first = len(nest.flatten(described))
    return described, _side(labels, "labels", lambda number: f"zoo_input_{first + (number or 0)}")


def _side(given: Any, what: str, name: Callable[[int | None], str]) -> Any:
    if isinstance(given, Mapping):
        return {key: _pair_meta(pair, str(key), what) for key, pair in given.items()}
    if isinstance(given, list):
        return [_pair_meta(pair, name(number), what) for number, pair in enumerate(given)]
    return _pair_meta(given, name(None), what)


def _pair_meta(pair: Any, name: str, what: str) -> TensorMeta:
    if not (isinstance(pair, tuple | list) and len(pair) == 2):
        raise InvalidArgumentError(
            f"Expected {what} to be (dtype, shape), a list of such pairs or a dict of them, got {pair!r}."
        )
    return tensor_meta(pair[0], name, pair[1])


def tensor_meta(dtype: Any, name: str, shape: Any) -> TensorMeta:
    """A tensor of any kind of dtype and shape; dimensions of -1 are not known."""
    tf = graph_mode()
    dims = shape.as_list() if hasattr(shape, "as_list") else shape
    return TensorMeta(tf.as_dtype(dtype), name, [None if each is None or int(each) < 0 else int(each) for each in dims])


def packed_metas(structure: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """Tensors without names of their own, nested as a structure is; dicts give theirs."""
    single = len(pairs) == 1
    metas = [tensor_meta(dtype, "input0" if single else f"input_{n}", shape) for n, (dtype, shape) in enumerate(pairs)]
    names = iter(_key_names(structure))
    metas = [replace(meta, name=next(names) or meta.name) for meta in metas]
    return nest.pack_sequence_as(structure, metas)


def _key_names(structure: Any, key: str | None = None) -> list[str | None]:
    """The key of each leaf that is an item of a dict."""
    if isinstance(structure, Mapping):
        return [name for each in sorted(structure) for name in _key_names(structure[each], _op_name(str(each)))]
    if isinstance(structure, list | tuple):
        return [name for part in structure for name in _key_names(part)]
    return [key]


def _op_name(text: str) -> str:
    """A name that TensorFlow takes."""
    return re.sub(r"[^A-Za-z0-9_.\\/>-]", "_", text if re.match(r"[A-Za-z0-9.]", text) else f"input_{text}")


def take_first(record: Any) -> Sequence[Any]:
    """The values of a record that is a list of arrays, or one array."""
    return record if isinstance(record, list | tuple) else [record]


def taking(has_labels: bool, structure: Any) -> Callable[[Any], list[Any]]:
    """How to take the flat values out of a record of (features, labels), or of features alone."""
    sides = structure if has_labels else (structure,)
    keys = [sorted(side) if isinstance(side, Mapping) else None for side in sides]
    several = [isinstance(side, list) for side in sides]

    def take(record: Any) -> list[Any]:
        parts = record if has_labels else [_features_of(record, several[0] or keys[0] is not None)]
        if has_labels and not (isinstance(parts, list | tuple) and len(parts) >= 2):
            raise InvalidArgumentError(f"Expected records of (features, labels), got {record!r:.200}")
        values: list[Any] = []
        for part, names, is_list in zip(parts, keys, several, strict=False):
            values += [part[name] for name in names] if names is not None else list(part) if is_list else [part]
        return values

    return take


def _features_of(record: Any, nested: bool) -> Any:
    """The features of a record that may be (features, labels) although no labels were asked for."""
    if not isinstance(record, tuple) or not record:
        return record
    return record if nested and not isinstance(record[0], list | tuple | Mapping) else record[0]


def column_metas(df: Any, features: Sequence[str], labels: Sequence[str]) -> Any:
    """The tensors of columns of a Spark DataFrame: (features, labels), or features alone, a list if there are several.

    One column stands for itself. The first row says how long arrays are.
    """
    if not features:
        raise InvalidArgumentError(f"Expected feature_cols to be a list of column names among {df.columns}, got none.")
    names = [*features, *labels]
    check_spark_columns(df, names)
    row = df.select(*map(spark_column, names)).first()
    if row is None:
        raise InvalidArgumentError("The DataFrame has no rows. Look at the filter or the path it came from.")
    cells = {name: convert_row_to_numpy(row, df.schema, [name], None)[0] for name in names}
    sides = [
        tuple(tensor_meta(cells[name].dtype, _op_name(name), cells[name].shape) for name in side)
        for side in (features, labels)
    ]
    found = [side[0] if len(side) == 1 else side for side in sides]
    if labels:
        return tuple(found)
    # A tuple of two would be (features, labels).
    return list(sides[0]) if len(features) > 1 else found[0]
