"""read_parquet: by row groups with pyarrow, or by Spark on the Spark engine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from zoo.orca.context import current_engine
from zoo.orca.data.file import filesystem_of, is_local
from zoo.orca.data.pandas.blocks import one_partition_a_block, read_pieces
from zoo.orca.data.pandas.dtypes import widen_integers
from zoo.orca.data.pandas.paths import Paths
from zoo.orca.data.pandas.schema import parse_schema
from zoo.orca.data.shard import XShards
from zoo.orca.engine.bar import job
from zoo.orca.engine.base import Engine
from zoo.orca.errors import InvalidArgumentError, PathNotFoundError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

# Unpacked bytes of the row groups that make one shard; a larger row group is a shard of its own.
SHARD_BYTES = 64 << 20


@job("read_parquet")
def read_parquet(file_path: Paths, columns: Sequence[str] | None = None, schema: Any = None, **options: Any) -> XShards:
    """Read Parquet files into shards of pandas frames; files with many row groups are read by all workers at once.

    Args:
        file_path: a file, a list of files or a folder (`key=value` folders become columns).
        columns: the columns to read, all by default.
        schema: a StructType or a text like "a int, b string"; columns it names and the files lack are missing values.
        options: Spark's options for Parquet; off Spark only mergeSchema is known.

    Example:
        >>> read_parquet("/data/clicks", columns=["user", "item"]).collect()  # doctest: +SKIP
    """
    engine = current_engine()
    wanted = None if columns is None else list(columns)
    if engine.name == "spark":
        from zoo.orca.data.pandas import spark_frames

        if spark_frames.knows(file_path):
            return spark_frames.read_parquet(engine, file_path, wanted, schema, options)
    return _read_row_groups(engine, file_path, wanted, schema, options)


@dataclass(frozen=True)
class RowGroups:
    """Some row groups of one file."""

    fragment: ds.ParquetFileFragment
    size: int


@dataclass(frozen=True)
class ParquetReader:
    """Reads row groups with one schema for all files."""

    schema: pa.Schema
    columns: list[str]
    fills_columns = False

    def read(self, piece: RowGroups) -> pd.DataFrame:
        table = piece.fragment.to_table(schema=self.schema, columns=self.columns)
        return widen_integers(table.to_pandas())

    def reread(self, piece: RowGroups, dtypes: dict[Any, Any]) -> pd.DataFrame:
        return self.read(piece).astype(dtypes)


def _read_row_groups(
    engine: Engine, file_path: Paths, columns: list[str] | None, schema: Any, options: dict[str, Any]
) -> XShards:
    dataset = _dataset(file_path, _merges(options))
    full = dataset.schema.remove_metadata() if schema is None else _arrow_schema(schema)
    chosen = list(full.names) if columns is None else columns
    unknown = [name for name in chosen if name not in full.names]
    if unknown:
        raise InvalidArgumentError(f"columns {unknown} are not in the files, whose columns are {full.names}.")
    pieces = [piece for fragment in dataset.get_fragments() for piece in _pieces(fragment)]
    sizes = [piece.size for piece in pieces]
    return read_pieces(engine, pieces, sizes, ParquetReader(full, chosen), one_partition_a_block)


def _dataset(file_path: Paths, merge: bool) -> ds.Dataset:
    import pyarrow as pa
    import pyarrow.dataset as ds

    paths = [os.fspath(path) for path in ([file_path] if isinstance(file_path, str | os.PathLike) else file_path)]
    found = [(*filesystem_of(path), path) for path in paths]
    for fs, name, path in found:
        if not fs.exists(name):
            raise PathNotFoundError(f"Path does not exist: {path}")
    names = [name for _, name, _ in found]
    parts = [
        ds.dataset(name, filesystem=None if is_local(path) else fs, format="parquet", partitioning="hive")
        for fs, name, path in found
    ]
    dataset = parts[0] if len(parts) == 1 else ds.dataset(parts)
    if not dataset.schema.names:
        raise PathNotFoundError(f"Path does not exist: {', '.join(names)} holds no Parquet file.")
    if merge:
        schemas = [fragment.physical_schema for fragment in dataset.get_fragments()]
        return dataset.replace_schema(pa.unify_schemas([dataset.schema, *schemas], promote_options="permissive"))
    return dataset


def _pieces(fragment: ds.ParquetFileFragment) -> Iterator[RowGroups]:
    """The row groups of a file in runs of about a shard's size; a file with no rows is one piece too."""
    run: list[int] = []
    size = 0
    for row_group in fragment.row_groups:
        if run and size + row_group.total_byte_size > SHARD_BYTES:
            yield RowGroups(fragment.subset(row_group_ids=run), size)
            run, size = [], 0
        run.append(row_group.id)
        size += row_group.total_byte_size
    yield RowGroups(fragment.subset(row_group_ids=run) if run else fragment, size)


def _arrow_schema(schema: Any) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(field.name, field.arrow_type) for field in parse_schema(schema)])


def _merges(options: dict[str, Any]) -> bool:
    unknown = [name for name in options if name != "mergeSchema"]
    if unknown:
        raise InvalidArgumentError(
            f"read_parquet knows the options {unknown} only on the Spark engine; elsewhere only mergeSchema. "
            'Leave them out, or start Spark with init_orca_context(cluster_mode="local").'
        )
    return str(options.get("mergeSchema", False)).lower() == "true"
