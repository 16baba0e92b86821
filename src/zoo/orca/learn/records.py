"""Records one by one, where they lie: RDDs on Spark, XShards with a few of an RDD's methods on the other engines."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from zoo.orca.context import current_engine
from zoo.orca.data.shard import XShards
from zoo.orca.engine.base import Engine, Placement
from zoo.orca.engine.garbage import leave_modules_out
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.metrics import Metric
from zoo.orca.learn.predict.model import Model, Predictor, Shipment, as_outputs
from zoo.orca.optional import is_instance_of


class Records(XShards):
    """Records on the embedded engine or on Ray, to be used like an RDD: each shard is one record.

    Where the published interface returns an RDD, calls return one on Spark and this class elsewhere.

    Example:
        >>> Records.of([1, 2, 3]).map(lambda record: record * 10).collect()
        [10, 20, 30]
    """

    def __init__(self, placement: Placement):
        super().__init__(placement, transient=True)

    @staticmethod
    def of(records: Iterable[Any], num_partitions: int | None = None) -> Records:
        """Records of the driver, in so many partitions (the engine's cores), on the current engine."""
        return Records(place(list(records), current_engine(), num_partitions))

    def map(self, func: Callable[[Any], Any]) -> Records:
        """What func returns for each record."""
        return Records(self.placement.map(lambda index, records: map(func, records)))

    def count(self) -> int:
        """How many records there are."""
        return sum(count for (count,) in self.placement.map(lambda index, records: [sum(1 for _ in records)]).fetch())

    def take(self, num: int) -> list[Any]:
        """The first records."""
        firsts = self.placement.map(lambda index, records: itertools.islice(records, num)).fetch()
        return list(itertools.islice(itertools.chain.from_iterable(firsts), num))

    def first(self) -> Any:
        """The first record."""
        found = self.take(1)
        if not found:
            raise InvalidArgumentError(
                "There is no first record: there are none. Look at the filter or the path they came from."
            )
        return found[0]

    def getNumPartitions(self) -> int:
        """The number of partitions, as an RDD calls it."""
        return self.num_partitions()


def placement_of(records: Any, what: str = "rdd") -> Placement:
    """Where records lie that users give as an RDD, as XShards of a record each, or as a list."""
    if is_instance_of(records, "pyspark", "RDD"):
        from zoo.orca.engine.spark import SparkPlacement

        return SparkPlacement(records)
    if isinstance(records, XShards):
        return records.placement
    if isinstance(records, list | tuple):
        return place(records, current_engine())
    raise InvalidArgumentError(
        f"Expected {what} to be an RDD of records, XShards of a record each (Records.of(...)), or a list of records, "
        f"got a {type(records).__name__}."
    )


def place(records: Sequence[Any], engine: Engine, num_partitions: int | None = None) -> Placement:
    """The driver's records on an engine, in so many even parts (as many as it has cores)."""
    count = min(num_partitions or engine.cores, max(1, len(records)))
    bounds = np.linspace(0, len(records), count + 1).astype(int)
    return engine.place([list(records[start:stop]) for start, stop in itertools.pairwise(bounds)])


def as_records(placement: Placement) -> Any:
    """What users are given for records: an RDD on Spark, Records elsewhere."""
    rdd = getattr(placement, "rdd", None)
    return Records(placement) if rdd is None else rdd


def place_arrays(arrays: Sequence[np.ndarray]) -> Placement:
    """The rows of arrays of one length as records, a tuple of the arrays' rows each, on the current engine."""
    engine = current_engine()
    bounds = np.linspace(0, len(arrays[0]), min(engine.cores, max(1, len(arrays[0]))) + 1).astype(int)
    pieces = [[array[start:stop] for array in arrays] for start, stop in itertools.pairwise(bounds)]
    return place(pieces, engine).map(_rows_of_pieces, changes=False)


def take_columns(records: Placement, columns: Sequence[int]) -> Placement:
    """Some of the arrays of records that are tuples."""
    chosen = list(columns)
    return records.map(lambda index, rows: (tuple(row[column] for column in chosen) for row in rows), changes=False)


def predict_records(
    records: Placement, predictor: Predictor, batch_size: int, whole_batches: bool = False
) -> Placement:
    """The prediction for each record, a tuple of arrays: an array, or a list of them for several outputs.

    Args:
        whole_batches: whether the model takes batches of exactly this size; a short one is filled up for it.
    """

    def predict(model: Model, rows: Iterator[Any]) -> Iterator[Any]:
        for batch in batches(rows, batch_size):
            missing = batch_size - len(batch) if whole_batches else 0
            result = model(stack([*batch, *batch[-1:] * missing]))
            yield from itertools.islice(_each_row(result), len(batch))

    return map_with_model(records, predictor, predict)


def predict_batches(batches: Placement, predictor: Predictor) -> Placement:
    """The prediction for each batch, a tuple of arrays."""
    return map_with_model(batches, predictor, lambda model, rows: (model(tuple(map(np.asarray, row))) for row in rows))


def measure_records(
    records: Placement,
    predictor: Predictor,
    batch_size: int,
    methods: Sequence[tuple[int, Metric]],
    inputs: Sequence[int],
    label: int,
) -> list[tuple[str, float, int]]:
    """(name, figure, rows) of each metric over all records, by state.

    Args:
        methods: metrics, each with the number of the output that it measures.
        inputs, label: which of a record's arrays the model is given, and which is the label.
    """

    def measure(model: Model, rows: Iterator[Any]) -> Iterator[tuple[list[np.ndarray], int]]:
        metrics, count = [metric.get_metric("bigdl") for _, metric in methods], 0
        for batch in batches(rows, batch_size):
            outputs = as_outputs(model(stack([[record[column] for column in inputs] for record in batch])))
            labels = np.stack([np.asarray(record[label]) for record in batch])
            for (output, _), metric in zip(methods, metrics, strict=True):
                metric(outputs[output], labels)
            count += len(batch)
        yield [metric.state() for metric in metrics], count

    parts = [part for (part,) in map_with_model(records, predictor, measure).fetch()]
    rows = sum(count for _, count in parts)
    measured = []
    for number, (_, method) in enumerate(methods):
        metric = method.get_metric("bigdl")
        metric.load_sum(np.sum([states[number] for states, _ in parts], axis=0))
        measured.append((metric.name, metric.value(), rows))
    return measured


def map_with_model(
    records: Placement, predictor: Predictor, function: Callable[[Model, Iterator[Any]], Iterator[Any]]
) -> Placement:
    """What a function of the model and a partition's records gives, where the records lie."""
    shipment = Shipment(records.engine, predictor, tasks=records.num_partitions)

    def run(index: int, rows: Iterator[Any]) -> Iterator[Any]:
        leave_modules_out()
        return function(shipment.model(), iter(rows))

    rdd = getattr(records, "rdd", None)
    if rdd is not None:
        # Spark itself must pickle the function, for each job anew: only then does it send the broadcast along, which
        # it also frees when no RDD needs it.
        return placement_of(rdd.mapPartitionsWithIndex(run))
    result = records.map(run, changes=False)
    weakref.finalize(result, shipment.release)
    return result


def batches(rows: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Records, so many at a time."""
    while batch := list(itertools.islice(rows, size)):
        yield batch


def stack(records: Sequence[Sequence[Any]]) -> tuple[np.ndarray, ...]:
    """Records, tuples of arrays, as a tuple of arrays of them all."""
    columns = list(zip(*records, strict=True))
    try:
        return tuple(np.stack([np.asarray(value) for value in column]) for column in columns)
    except ValueError as error:
        shapes = sorted({tuple(np.shape(value) for value in record) for record in records})
        raise InvalidArgumentError(
            f"Records of one batch must have arrays of one shape, but theirs are {shapes[:3]}. Bring them to one "
            "shape, or use batches of one record."
        ) from error


def _each_row(result: Any) -> Iterator[Any]:
    """The prediction for each row of a batch: an array, also where that is a number, or a list of arrays."""
    rows = [map(np.asarray, output) for output in as_outputs(result)]
    return map(list, zip(*rows, strict=True)) if isinstance(result, list) else rows[0]


def _rows_of_pieces(index: int, pieces: Iterator[Sequence[np.ndarray]]) -> Iterator[tuple[Any, ...]]:
    for piece in pieces:
        yield from zip(*piece, strict=True)
