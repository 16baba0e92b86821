"""Image sets in Parquet files: written with pyarrow, read on every engine with no JVM."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from zoo.orca.data.file import PathLike
from zoo.orca.data.image.layout import Chunk, Layout
from zoo.orca.data.image.readers import read_parquet
from zoo.orca.data.image.records import Record, Schema, table_to_arrays, table_to_records
from zoo.orca.data.image.store import DEFAULT_BLOCK_SIZE, store_records
from zoo.orca.data.image.utils import SchemaField
from zoo.orca.data.image.writers import (
    _write_ndarrays,
    write_from_directory,
    write_mnist,
    write_parquet,
    write_voc,
)
from zoo.orca.errors import ContextError, NotOfferedError

if TYPE_CHECKING:
    from pyspark import RDD

    from zoo.orca.data.shard import XShards
    from zoo.orca.data.tf.data import Dataset

__all__ = [
    "ParquetDataset",
    "_write_ndarrays",
    "read_parquet",
    "write_from_directory",
    "write_mnist",
    "write_parquet",
    "write_voc",
]


class ParquetDataset:
    """A set of records with images, arrays and scalars, in numbered chunks of Parquet."""

    @staticmethod
    def write(
        path: PathLike,
        generator: Iterable[Mapping[str, Any]],
        schema: Schema,
        block_size: int = DEFAULT_BLOCK_SIZE,
        write_mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        """Write records, dicts with exactly the schema's keys, block_size of them to a chunk.

        An IMAGE is given as a file path and stored as the file's bytes. The write mode is "overwrite", "append",
        "errorifexists" or "ignore"; if writing fails, what was there stays.

        Example::

            schema = {"image": SchemaField(FeatureType.IMAGE, DType.BYTES, ()),
                      "label": SchemaField(FeatureType.SCALAR, DType.INT32, ())}
            ParquetDataset.write("file:///data/cats", [{"image": "cat.jpg", "label": 1}], schema)
        """
        store_records(path, generator, schema, block_size, write_mode, **kwargs)

    @staticmethod
    def _read_as_dict_rdd(path: PathLike) -> tuple[RDD[Record], dict[str, SchemaField]]:
        """An RDD of one dict a record, in writing order, and the schema."""
        layout = Layout.of(path)
        schema, chunks = layout.schema(), layout.chunks()
        context = _active_spark_context()
        return context.parallelize(chunks, max(1, len(chunks))).flatMap(partial(_records, schema)), schema

    @staticmethod
    def _read_as_xshards(path: PathLike) -> XShards:
        """XShards on the current engine: one dict of stacked columns a chunk, in writing order."""
        from zoo.orca.context import current_engine
        from zoo.orca.data.shard import XShards

        layout = Layout.of(path)
        pieces = [[chunk] for chunk in layout.chunks()] or [[]]
        placement = current_engine().place(pieces).map(partial(_stacked, layout.schema()))
        return XShards.from_placement(placement)

    @staticmethod
    def read_as_tf(path: PathLike) -> Dataset:
        """A zoo Dataset of the records, for the TensorFlow estimators.

        Example: ``ParquetDataset.read_as_tf("file:///data/mnist").map(lambda r: (r["image"], r["label"]))``
        """
        from zoo.orca.data.tf.data import Dataset

        return Dataset.from_tensor_slices(ParquetDataset._read_as_xshards(path))

    @staticmethod
    def read_as_torch(path: PathLike) -> None:
        """Not offered by the published interface; `read_parquet("dataloader", path)` is."""
        raise NotOfferedError(f'read_as_torch is not offered. Type: read_parquet("dataloader", path={path!r})')


def _active_spark_context() -> Any:
    # pyspark that was never imported has no active context, and need not be imported to know it.
    pyspark = sys.modules.get("pyspark")
    context = pyspark.SparkContext._active_spark_context if pyspark is not None else None
    if context is None:
        raise ContextError(
            "Reading an image set as an RDD needs a SparkContext, and none is active. "
            'Type: init_orca_context(cluster_mode="local"), or use _read_as_xshards, which runs on any engine'
        )
    return context


def _records(schema: Schema, chunk: Chunk) -> Iterator[Record]:
    for batch in chunk.batches():
        yield from table_to_records(batch, schema)


def _stacked(schema: Schema, index: int, chunks: Iterable[Chunk]) -> Iterator[dict[str, Any]]:
    for chunk in chunks:
        yield table_to_arrays(chunk.table(), schema)
