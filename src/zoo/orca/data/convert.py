"""XShards of pandas frames to and from Spark DataFrames and Ray Datasets: Arrow all the way, no pickled rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from zoo.orca.engine.base import Placement
from zoo.orca.engine.ray_session import ray_is_running
from zoo.orca.errors import ContextError, InvalidArgumentError, ShardTypeError
from zoo.orca.optional import is_instance_of, require

BLOB = "arrow"


def spark_frame_to_placement(df: Any) -> Placement:
    """Pandas shards, one for each partition that has rows, on the Spark that the DataFrame belongs to."""
    from zoo.orca.engine.spark import SparkPlacement

    if not is_instance_of(df, "pyspark.sql", "DataFrame"):
        raise InvalidArgumentError(
            f"from_spark_df takes a Spark DataFrame, but got a {type(df).__name__}. "
            "For pandas type: XShards.partition(frame)."
        )
    packed = df.mapInArrow(_pack_batches, f"{BLOB} binary").rdd
    return SparkPlacement(packed.map(lambda row: unpack(row[BLOB]).to_pandas()))


def placement_to_spark_frame(placement: Placement) -> Any:
    """A Spark DataFrame with the partitions, the rows and the columns of the shards."""
    from zoo.orca.context import OrcaContext
    from zoo.orca.engine.spark import SparkEngine

    if not isinstance(placement.engine, SparkEngine):
        placement = SparkEngine(OrcaContext.get_spark_context()).place(placement.fetch())
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    columns = from_arrow_schema(_common_schema(placement))
    schema = to_arrow_schema(columns)  # as Spark writes them: its times, for one, have microseconds
    blobs = placement.map(lambda index, shards: ([pack(to_arrow(shard).cast(schema))] for shard in shards)).rdd  # type: ignore[attr-defined]
    session = OrcaContext.get_spark_session()
    packed = session.createDataFrame(blobs, f"{BLOB} binary")
    return packed.mapInArrow(_unpack_batches, columns)


def ray_dataset_to_placement(dataset: Any) -> Placement:
    """Pandas shards, one for each block of the Dataset."""
    from zoo.orca.engine.lazy import LazyPlacement
    from zoo.orca.engine.ray import PlainObject, RayEngine

    if not is_instance_of(dataset, "ray.data", "Dataset"):
        raise InvalidArgumentError(
            f"from_ray_dataset takes a Ray Dataset, but got a {type(dataset).__name__}. "
            "For pandas type: XShards.partition(frame)."
        )
    ray = require("ray", "A Ray Dataset")
    as_list = ray.remote(lambda table: [table])
    stored = [PlainObject(as_list.remote(ref)) for ref in dataset.to_arrow_refs()]
    blocks = LazyPlacement(RayEngine(), len(stored), lambda: stored)
    return blocks.map(lambda index, tables: (table.to_pandas() for table in tables))


def placement_to_ray_dataset(placement: Placement) -> Any:
    """A Ray Dataset whose blocks are the shards."""
    from zoo.orca.engine.ray import RayEngine

    if not ray_is_running():
        raise ContextError('a Ray Dataset needs a running Ray. Type: init_orca_context("ray") first.')
    ray, data = require("ray", "A Ray Dataset"), require("ray.data", "A Ray Dataset")
    if not isinstance(placement.engine, RayEngine):
        placement = RayEngine().place(placement.fetch())
    schema = _common_schema(placement)
    tables = placement.map(lambda index, shards: (to_arrow(shard).cast(schema) for shard in shards))
    stored = placement.engine.store(tables.recipes())  # type: ignore[attr-defined]
    joined = ray.remote(lambda each: pa.concat_tables([schema.empty_table(), *each.shards()]))
    return data.from_arrow_refs([joined.remote(each) for each in stored])


def to_arrow(shard: Any) -> pa.Table:
    """A pandas shard as an Arrow table; columns of arrays become lists, nested as deep as the arrays."""
    if isinstance(shard, pd.Series):
        shard = shard.to_frame(shard.name if shard.name is not None else "value")
    if not isinstance(shard, pd.DataFrame):
        raise ShardTypeError(
            f"only shards of pandas DataFrames have rows to convert, but there is a {type(shard).__name__}. "
            "Turn each shard into a DataFrame first (transform_shard)."
        )
    # Arrow takes arrays of one dimension as lists; more dimensions must be nested lists.
    nested = [name for name in shard.columns if shard[name].dtype == object and _holds_matrices(shard[name])]
    if nested:
        shard = shard.assign(**{name: [np.asarray(value).tolist() for value in shard[name]] for name in nested})
    keeps_index = not isinstance(shard.index, pd.RangeIndex)
    return pa.Table.from_pandas(shard, preserve_index=keeps_index).replace_schema_metadata(None)


def pack(table: pa.Table) -> bytes:
    """An Arrow table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def unpack(blob: bytes) -> pa.Table:
    """What `pack` packed."""
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return reader.read_all()


def _holds_matrices(column: pd.Series) -> bool:
    return len(column) > 0 and isinstance(column.iloc[0], np.ndarray) and column.iloc[0].ndim > 1


def _pack_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All batches of a partition in one row of bytes."""
    gathered = [batch for batch in batches if batch.num_rows]
    if gathered:
        yield pa.RecordBatch.from_pydict({BLOB: [pack(pa.Table.from_batches(gathered))]})


def _unpack_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for blob in batch.column(0).to_pylist():
            yield from unpack(blob).to_batches()


def _common_schema(placement: Placement) -> pa.Schema:
    """One schema that all shards fit: missing values and wider numbers in one shard widen the column for all."""
    schemas = placement.map(lambda index, shards: (to_arrow(shard).schema for shard in shards)).fetch()
    found = [schema for partition in schemas for schema in partition]
    if not found:
        raise ShardTypeError(
            "there are no shards, so the columns of a DataFrame are not known. "
            "Expected at least one: look at the files or the filter they came from."
        )
    return pa.unify_schemas(found, promote_options="permissive")
