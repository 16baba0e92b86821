"""Where a TFDataset's rows come from: as records for prediction, and as what an estimator takes for training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.context import current_engine
from zoo.orca.data.file import list_files
from zoo.orca.data.shard import XShards
from zoo.orca.engine.base import Engine, Placement
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed import engine_of
from zoo.orca.feed.columns import spark_column
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.records import batches, place, place_arrays, placement_of, stack
from zoo.orca.learn.tf2.quiet import import_tensorflow
from zoo.util import nest
from zoo.util.utils import convert_row_to_numpy

if TYPE_CHECKING:
    from zoo.tfpark.tf_dataset import TensorMeta

# So many records become one shard: enough to stack at once, few enough to hold beside the shards they become.
SHARD_ROWS = 1024


class Rows(ABC):
    """Rows of flat tuples of arrays, one for each tensor of a dataset."""

    @property
    @abstractmethod
    def engine(self) -> Engine:
        """Where they lie."""

    @property
    @abstractmethod
    def num_partitions(self) -> int: ...

    @abstractmethod
    def records(self) -> Placement:
        """The rows one by one, as flat tuples."""

    @abstractmethod
    def data(self, features: Sequence[int], labels: Sequence[int] = ()) -> tuple[Any, Columns]:
        """What an estimator takes, and its columns, where these tensors are features and those labels."""


@dataclass(frozen=True)
class RecordRows(Rows):
    """Records of an RDD, or of another engine; `read` makes a flat tuple of each."""

    placement: Placement
    read: Callable[[Any], tuple[Any, ...]]

    @property
    def engine(self) -> Engine:
        return self.placement.engine

    @property
    def num_partitions(self) -> int:
        return self.placement.num_partitions

    def records(self) -> Placement:
        read = self.read
        return self.placement.map(lambda index, records: map(read, records), changes=False)

    def data(self, features: Sequence[int], labels: Sequence[int] = ()) -> tuple[Any, Columns]:
        def shards(index: int, records: Iterator[Any]) -> Iterator[dict[str, Any]]:
            for chunk in batches(iter(records), SHARD_ROWS):
                yield _sides(stack(chunk), features, labels)

        return XShards.from_placement(self.records().map(shards, changes=False), transient=True), Columns()


@dataclass(frozen=True)
class ArrayRows(Rows):
    """Arrays of the driver."""

    arrays: Sequence[np.ndarray]

    @property
    def engine(self) -> Engine:
        return current_engine()

    @property
    def num_partitions(self) -> int:
        return min(self.engine.cores, max(1, len(self.arrays[0])))

    def records(self) -> Placement:
        return place_arrays(self.arrays)

    def data(self, features: Sequence[int], labels: Sequence[int] = ()) -> tuple[Any, Columns]:
        return _sides(self.arrays, features, labels), Columns()


@dataclass(frozen=True)
class FrameRows(Rows):
    """Columns of a Spark DataFrame."""

    df: Any
    names: Sequence[str]

    @property
    def engine(self) -> Engine:
        return engine_of(self.df)

    @property
    def num_partitions(self) -> int:
        return self.df.rdd.getNumPartitions()

    def records(self) -> Placement:
        schema, names = self.df.schema, list(self.names)

        def read(index: int, rows: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
            return (tuple(convert_row_to_numpy(row, schema, [name], None)[0] for name in names) for row in rows)

        return placement_of(self.df.select(*map(spark_column, names)).rdd).map(read)

    def data(self, features: Sequence[int], labels: Sequence[int] = ()) -> tuple[Any, Columns]:
        return self.df, Columns(tuple(self.names[at] for at in features), tuple(self.names[at] for at in labels))


@dataclass(frozen=True)
class TfDataRows(Rows):
    """The elements of a tf.data.Dataset, which the workers read."""

    dataset: Any
    count: int

    @property
    def engine(self) -> Engine:
        return current_engine()

    @property
    def num_partitions(self) -> int:
        return self.engine.nodes

    def records(self) -> Placement:
        raise InvalidArgumentError(
            "A TFDataset of a tf.data.Dataset is for training and evaluation, not for prediction. Make one with "
            "TFDataset.from_ndarrays or TFDataset.from_rdd for that."
        )

    def data(self, features: Sequence[int], labels: Sequence[int] = ()) -> tuple[Any, Columns]:
        if [*features, *labels] == list(range(self.count)):
            return self.dataset, Columns()
        # Some of an element's tensors are of no use, or they are wanted in another order.
        return self.dataset.map(lambda *element: _pick(nest.flatten(element), features, labels)), Columns()


def _pick(flat: list[Any], features: Sequence[int], labels: Sequence[int]) -> tuple[Any, ...]:
    x, y = tuple(flat[at] for at in features), tuple(flat[at] for at in labels)
    return (x, y[0] if len(y) == 1 else y) if y else x


def tfrecord_placement(path: Any, engine: Engine) -> Placement:
    """The serialized records of TFRecord files, of a path as `list_files` takes it, as bytes."""
    return place(list_files(path), engine).map(_records_of_files, changes=False)


def reader(metas: Sequence[TensorMeta], take: Callable[[Any], Sequence[Any]]) -> Callable[[Any], tuple[Any, ...]]:
    """A function from a user's record to a flat tuple of arrays, of the types and shapes that the tensors have.

    Args:
        take: the flat list of values in a record.
    """
    expected = [(meta.name, meta.numpy_dtype, tuple(meta.shape)) for meta in metas]

    def read(record: Any) -> tuple[Any, ...]:
        values = take(record)
        if len(values) < len(expected):
            raise InvalidArgumentError(
                f"Expected {len(expected)} arrays in a record ({', '.join(str(name) for name, *_ in expected)}), "
                f"got {len(values)}."
            )
        return tuple(_as_array(value, *each) for value, each in zip(values, expected, strict=False))

    return read


def _as_array(value: Any, name: str, dtype: np.dtype, shape: tuple[int | None, ...]) -> np.ndarray:
    try:
        array = np.asarray(value, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"Expected {dtype} for the tensor {name!r} of a record, got {type(value).__name__}: {value!r:.200}"
        ) from error
    fits = len(shape) == array.ndim and all(
        want is None or want == have for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise InvalidArgumentError(
            f"Expected the tensor {name!r} of a record to have the shape {list(shape)}, got {list(array.shape)}. "
            "Give the shape of one record, without the batch."
        )
    return array


def _sides(arrays: Sequence[np.ndarray], features: Sequence[int], labels: Sequence[int]) -> dict[str, Any]:
    """Arrays as the features, and labels if there are some, of a shard."""
    y = [arrays[at] for at in labels]
    shard = {"x": tuple(arrays[at] for at in features)}
    return shard | ({"y": y[0] if len(y) == 1 else tuple(y)} if y else {})


def _records_of_files(index: int, files: Iterator[str]) -> Iterator[bytes]:
    tf = import_tensorflow("A TFRecord file")
    for path in files:
        yield from tf.data.TFRecordDataset(path).as_numpy_iterator()
