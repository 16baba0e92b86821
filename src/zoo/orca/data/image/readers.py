"""Reading an image set in one process: as a torch DataLoader or a tf.data.Dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from zoo.orca.data.file import PathLike
from zoo.orca.data.image.layout import Chunk, Layout
from zoo.orca.data.image.records import Record, Schema, table_to_records
from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.optional import require

if TYPE_CHECKING:
    import tensorflow as tf
    from torch.utils.data import DataLoader, IterableDataset

Transform = Callable[[Any], Any]


def read_parquet(
    format: str,
    path: PathLike,
    transforms: Transform | None = None,
    config: Mapping[str, Any] | None = None,
    batch_size: int = 1,
    *args: Any,
    **kwargs: Any,
) -> DataLoader | tf.data.Dataset:
    """Read an image set as a "dataloader" (torch) or a "tf_dataset" (which needs `output_types=`).

    `config` may hold `num_shards` and `rank`, to read one share of the chunks, and `num_workers` (torch). A
    tf.data.Dataset has a batch dimension only with a batch_size above 1. What else is given goes to the
    DataLoader or to `tf.data.Dataset.from_generator`.

    Example: ``read_parquet("dataloader", "file:///data/mnist", config={"num_workers": 2}, batch_size=32)``
    """
    readers = {"dataloader": _as_dataloader, "tf_dataset": _as_tf_dataset}
    if format not in readers:
        raise InvalidArgumentError(f"Expected format to be one of {sorted(readers)}, got {format!r}")
    layout, settings = Layout.of(path), dict(config or {})
    schema = layout.schema()
    chunks = _share_of(layout.chunks(), settings.get("num_shards"), settings.get("rank"))
    return readers[format](chunks, schema, transforms, settings, batch_size, *args, **kwargs)


def _share_of(chunks: Sequence[Chunk], num_shards: int | None, rank: int | None) -> list[Chunk]:
    """The chunks whose number leaves the rank when divided by num_shards; all of them without num_shards."""
    if num_shards is None:
        if rank is not None:
            raise InvalidArgumentError(f"Expected config to have num_shards beside rank, got only rank={rank}")
        return list(chunks)
    if not 1 <= num_shards <= len(chunks):
        raise PreconditionError(
            f"Expected config['num_shards'] to be from 1 to the number of chunks, {len(chunks)}, got {num_shards}. "
            "Write the set with a smaller block_size to have more chunks."
        )
    if rank is None or not 0 <= rank < num_shards:
        raise PreconditionError(f"Expected config['rank'] to be from 0 to {num_shards - 1}, got {rank}")
    return list(chunks[rank::num_shards])


def _records_of(chunks: Sequence[Chunk], schema: Schema) -> Iterator[Record]:
    for chunk in chunks:
        for batch in chunk.batches():
            yield from table_to_records(batch, schema)


def _as_dataloader(
    chunks: Sequence[Chunk],
    schema: Schema,
    transforms: Transform | None,
    settings: Mapping[str, Any],
    batch_size: int,
    *args: Any,
    **kwargs: Any,
) -> DataLoader:
    kwargs.setdefault("num_workers", settings.get("num_workers", 0))
    stream = _torch_stream(chunks, schema, transforms)
    return require("torch.utils.data", 'read_parquet("dataloader")').DataLoader(stream, batch_size, *args, **kwargs)


def _torch_stream(chunks: Sequence[Chunk], schema: Schema, transforms: Transform | None) -> IterableDataset:
    """The records as torch's kind of stream, of which each worker process reads its own part of the chunks."""
    torch_data: Any = require("torch.utils.data", 'read_parquet("dataloader")')

    # Made here because importing this module must not load torch; so it says how to be made in another process.
    class RecordStream(torch_data.IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            worker = torch_data.get_worker_info()
            mine = chunks if worker is None else chunks[worker.id :: worker.num_workers]
            records = _records_of(mine, schema)
            return records if transforms is None else map(transforms, records)

        def __reduce__(self) -> tuple[Any, ...]:
            return _torch_stream, (chunks, schema, transforms)

    return RecordStream()


def _as_tf_dataset(
    chunks: Sequence[Chunk],
    schema: Schema,
    transforms: Transform | None,
    settings: Mapping[str, Any],
    batch_size: int,
    *args: Any,
    **kwargs: Any,
) -> tf.data.Dataset:
    if not args and not {"output_types", "output_signature"} & set(kwargs):
        raise PreconditionError(
            'Expected output_types= (a dict of key to TensorFlow type) for read_parquet("tf_dataset"), got none. '
            f"The set has the keys {list(schema)}"
        )
    tf = require("tensorflow", 'read_parquet("tf_dataset")')
    dataset = tf.data.Dataset.from_generator(partial(_records_of, chunks, schema), *args, **kwargs)
    if transforms is not None:
        dataset = dataset.map(transforms)
    return dataset.batch(batch_size) if batch_size > 1 else dataset
