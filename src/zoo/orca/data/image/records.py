"""Records of an image set: a schema as JSON, dicts to Arrow tables, and Arrow tables back to dicts."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from zoo.orca.data.file import open_file
from zoo.orca.data.image.utils import DType, FeatureType, SchemaField
from zoo.orca.errors import InvalidArgumentError

Schema = Mapping[str, SchemaField]
Record = dict[str, Any]

ARROW_TYPES = {
    DType.STRING: pa.string(),
    DType.BYTES: pa.binary(),
    DType.INT32: pa.int32(),
    DType.FLOAT32: pa.float32(),
    DType.UINT8: pa.uint8(),
}


def schema_to_json(schema: Schema) -> str:
    """Write a schema as JSON text."""
    fields = {
        name: {"feature_type": field.feature_type.name, "dtype": field.dtype.name, "shape": list(field.shape)}
        for name, field in schema.items()
    }
    return json.dumps(fields, indent=2)


def schema_from_json(text: str) -> dict[str, SchemaField]:
    """Read back what `schema_to_json` wrote."""
    return {
        name: SchemaField(FeatureType[field["feature_type"]], DType[field["dtype"]], tuple(field["shape"]))
        for name, field in json.loads(text).items()
    }


def check_schema(schema: Schema) -> None:
    """Refuse a schema that could not be written."""
    if not isinstance(schema, Mapping) or not schema:
        raise InvalidArgumentError(f"Expected a schema as a dict of name to SchemaField, got {schema!r}")
    for name, field in schema.items():
        if not (
            isinstance(field, SchemaField)
            and isinstance(field.feature_type, FeatureType)
            and isinstance(field.dtype, DType)
        ):
            raise InvalidArgumentError(
                f"Expected schema['{name}'] to be a SchemaField(feature_type=FeatureType..., dtype=DType..., "
                f"shape=(...)), got {field!r}"
            )


def records_to_table(records: Sequence[Mapping[str, Any]], schema: Schema, first_index: int) -> pa.Table:
    """Encode records, the first of which is number first_index of the whole set, as an Arrow table."""
    for index, record in enumerate(records, first_index):
        _check_keys(record, schema, index)
    columns = {
        name: _encode_column([record[name] for record in records], name, field, first_index)
        for name, field in schema.items()
    }
    return pa.table(columns)


def _check_keys(record: Any, schema: Schema, index: int) -> None:
    if not isinstance(record, Mapping):
        raise InvalidArgumentError(
            f"Expected record {index} to be a dict with the keys {list(schema)}, got {type(record).__name__}"
        )
    if set(record) != set(schema):
        raise InvalidArgumentError(
            f"Expected record {index} to have exactly the schema's keys {list(schema)}, got {list(record)} "
            f"(missing {sorted(set(schema) - set(record))}, unknown {sorted(set(record) - set(schema), key=str)})"
        )


def _encode_column(values: list[Any], name: str, field: SchemaField, first_index: int) -> pa.Array:
    encoded = [
        _encode_value(value, f"record {index}, key '{name}'", field) for index, value in enumerate(values, first_index)
    ]
    arrow_type = ARROW_TYPES[field.dtype] if field.feature_type is FeatureType.SCALAR else pa.binary()
    try:
        return pa.array(encoded, arrow_type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        _raise_for_scalar(encoded, name, arrow_type, first_index)
        raise


def _raise_for_scalar(values: list[Any], name: str, arrow_type: pa.DataType, first_index: int) -> None:
    """Say which record it is that does not fit; Arrow only says that one of them does not."""
    for index, value in enumerate(values, first_index):
        try:
            pa.array([value], arrow_type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"Expected record {index}, key '{name}' to be a {arrow_type} as the schema says, got {value!r}"
            ) from error


def _encode_value(value: Any, where: str, field: SchemaField) -> Any:
    if value is None:
        raise InvalidArgumentError(f"Expected {where} to be a {field.feature_type.value}, got None.")
    if field.feature_type is FeatureType.IMAGE:
        if isinstance(value, bytes | np.ndarray):
            raise InvalidArgumentError(f"Expected {where} to be the path of an image file, got {type(value).__name__}")
        with open_file(value) as file:
            return file.read()
    if field.feature_type is FeatureType.NDARRAY:
        return _encode_array(np.asarray(value), where, field)
    return value.item() if isinstance(value, np.generic) or getattr(value, "ndim", None) == 0 else value


def _encode_array(array: np.ndarray, where: str, field: SchemaField) -> bytes:
    if array.dtype == object:
        raise InvalidArgumentError(
            f"Expected {where} to be an array of {field.dtype.value}, got an array of Python objects."
        )
    if not _fits(array.shape, field.shape):
        raise InvalidArgumentError(f"Expected {where} to have the shape {field.shape}, got {array.shape}")
    buffer = io.BytesIO()
    np.savez_compressed(buffer, array=array)
    return buffer.getvalue()


def _fits(shape: tuple[int, ...], expected: Sequence[int | None]) -> bool:
    # An empty shape is a field whose shape was not given, as well as a single number.
    return not expected or (
        len(shape) == len(expected)
        and all(want in (None, -1, have) for have, want in zip(shape, expected, strict=True))
    )


def _decode_array(data: bytes) -> np.ndarray:
    with np.load(io.BytesIO(data)) as arrays:
        return arrays[arrays.files[0]]


def _decode_column(table: pa.Table | pa.RecordBatch, name: str, field: SchemaField) -> list[Any]:
    values = table.column(name).to_pylist()
    return [_decode_array(data) for data in values] if field.feature_type is FeatureType.NDARRAY else values


def table_to_records(table: pa.Table | pa.RecordBatch, schema: Schema) -> Iterator[Record]:
    """Decode a table into one dict a record: arrays decoded, images as bytes, scalars as they are."""
    columns = [_decode_column(table, name, field) for name, field in schema.items()]
    for values in zip(*columns, strict=True):
        yield dict(zip(schema, values, strict=True))


def table_to_arrays(table: pa.Table, schema: Schema) -> dict[str, Any]:
    """Decode a table into one dict of columns: stacked arrays, and lists where stacking is not possible."""
    return {name: _stack(_decode_column(table, name, field), field) for name, field in schema.items()}


def _stack(values: list[Any], field: SchemaField) -> Any:
    if field.feature_type is FeatureType.NDARRAY:
        fixed = all(length not in (None, -1) for length in field.shape)
        return np.stack(values) if fixed and _alike(values) else values
    # numpy strips trailing zero bytes from byte strings, so these stay Python's.
    if field.feature_type is FeatureType.IMAGE or field.dtype is DType.BYTES:
        return values
    return np.array(values, dtype=str if field.dtype is DType.STRING else field.dtype.value)


def _alike(arrays: Iterable[np.ndarray]) -> bool:
    return len({(array.shape, array.dtype) for array in arrays}) == 1
