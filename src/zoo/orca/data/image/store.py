"""Writing an image set: whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zoo.orca.data.file import PathLike
from zoo.orca.data.image.layout import Layout
from zoo.orca.data.image.records import Schema, check_schema, records_to_table
from zoo.orca.data.image.utils import chunks
from zoo.orca.errors import InvalidArgumentError, PathExistsError

WRITE_MODES = ("overwrite", "append", "error", "errorifexists", "ignore")

DEFAULT_BLOCK_SIZE = 1000


def store_records(
    path: PathLike,
    records: Iterable[Mapping[str, Any]],
    schema: Schema,
    block_size: int = DEFAULT_BLOCK_SIZE,
    write_mode: str = "overwrite",
    **options: Any,
) -> None:
    """Write records as an image set; options are those of `pyarrow.parquet.write_table`.

    They are written beside what is there and put in its place at the end, so a failure leaves the old set.
    """
    check_schema(schema)
    if write_mode not in WRITE_MODES:
        raise InvalidArgumentError(f"Expected write_mode to be one of {WRITE_MODES}, got {write_mode!r}")
    layout = Layout.of(path)
    if layout.exists and write_mode == "ignore":
        return
    if layout.exists and write_mode in ("error", "errorifexists"):
        raise PathExistsError(
            f"Expected nothing at {layout.root}, which is an image set already. "
            'Pass write_mode="overwrite" to replace it or write_mode="append" to add to it.'
        )
    if layout.exists and write_mode == "append":
        _check_same_schema(layout, schema)
        _commit(layout, records, schema, block_size, layout.add, first_chunk=layout.next_number(), **options)
    else:
        _commit(layout, records, schema, block_size, layout.replace_with, first_chunk=0, **options)


def _check_same_schema(layout: Layout, schema: Schema) -> None:
    there = layout.schema()
    if there != {name: field._replace(shape=tuple(field.shape)) for name, field in schema.items()}:
        raise InvalidArgumentError(
            f"Expected records of the schema that {layout.root} has, {there}, got {dict(schema)}. "
            'Pass write_mode="overwrite" to replace the set.'
        )


def _commit(
    layout: Layout,
    records: Iterable[Mapping[str, Any]],
    schema: Schema,
    block_size: int,
    put: Callable[[Layout], None],
    first_chunk: int,
    **options: Any,
) -> None:
    with layout.staging() as staged:
        for number, block in enumerate(chunks(records, block_size)):
            table = records_to_table(list(block), schema, first_index=number * block_size)
            staged.write_chunk(first_chunk + number, table, **options)
        staged.write_schema(schema)
        put(staged)
