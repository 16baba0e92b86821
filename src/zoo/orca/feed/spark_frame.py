"""A Spark DataFrame as a feed: every partition leaves the JVM once, as Arrow, straight into column files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pyarrow as pa

from zoo.orca.data.convert import spark_frame_to_placement
from zoo.orca.engine.channel import Failed
from zoo.orca.engine.gang import raise_worker_error
from zoo.orca.engine.spark import SparkEngine
from zoo.orca.engine.worker import describe_failure
from zoo.orca.feed.base import Feed
from zoo.orca.feed.columns import column_to_numpy, select_for_arrow
from zoo.orca.feed.laid import Laid, writing
from zoo.orca.feed.rows import DealtFeed, Folder, RowsFeed
from zoo.orca.feed.shards import Columns, kept, one_or_all


def feed_of_spark_frame(df: Any, columns: Columns, what: str) -> Feed:
    """A feed of a DataFrame; columns that are missing or unusable are an error before any job is run."""
    return kept(df, df.is_cached, columns, lambda: _lay_down(df, columns, what))


def _lay_down(df: Any, columns: Columns, what: str) -> Feed:
    engine = SparkEngine(df.sparkSession.sparkContext)
    chosen = select_for_arrow(df, columns.names, columns.text)
    if not engine.one_machine:
        return DealtFeed(spark_frame_to_placement(chosen), columns, what)
    folder = Folder()
    rows = chosen.mapInArrow(_lay_batches(folder.path, columns), "partition int, outcome binary").collect()
    outcomes = sorted((row.partition, cloudpickle.loads(row.outcome)) for row in rows)
    for partition, outcome in outcomes:
        if isinstance(outcome, Failed):
            raise_worker_error(outcome, f"raised while reading partition {partition}")
    return RowsFeed(engine, [outcome for _, outcome in outcomes], folder, what)


def _lay_batches(folder: str, columns: Columns) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What each task does: write its batches down, and say where, or what went wrong."""

    def lay_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        partition = TaskContext.get().partitionId()
        outcome: Laid | Failed
        try:
            outcome = _lay(folder, partition, batches, columns)
        except Exception as error:
            outcome = describe_failure(error, None)
        yield pa.RecordBatch.from_pydict(
            {"partition": pa.array([partition], pa.int32()), "outcome": [cloudpickle.dumps(outcome)]}
        )

    return lay_batches


def _lay(folder: str, partition: int, batches: Iterator[pa.RecordBatch], columns: Columns) -> Laid:
    with writing(folder, partition, columns.text) as writer:
        for batch in batches:
            arrays = {
                name: column_to_numpy(batch.column(name), name, accept_text=columns.text) for name in columns.names
            }
            labels = [arrays[name] for name in columns.labels]
            writer.append(
                [arrays[name] for name in columns.features],
                one_or_all(labels) if labels else None,
                arrays[columns.weight] if columns.weight else None,
            )
    return writer.laid
