"""A Spark DataFrame as a feed: every partition goes straight into column files, once.

Where the DataFrame only reads Parquet files, tasks read these themselves; otherwise the rows leave the JVM as Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cloudpickle
import pyarrow as pa

from zoo.orca.data.convert import spark_frame_to_placement
from zoo.orca.data.parquet_scan import ParquetScan, plain_scan
from zoo.orca.engine.channel import Failed
from zoo.orca.engine.gang import raise_worker_error
from zoo.orca.engine.garbage import leave_modules_out
from zoo.orca.engine.spark import SparkEngine
from zoo.orca.engine.worker import describe_failure
from zoo.orca.feed.base import Feed
from zoo.orca.feed.columns import column_to_numpy, select_for_arrow
from zoo.orca.feed.laid import Laid, writing
from zoo.orca.feed.rows import DealtFeed, Folder, RowsFeed
from zoo.orca.feed.shards import Columns, kept, one_or_all

# Whether tasks read Parquet files themselves where they can; the rows are the same either way.
READS_FILES = True


def feed_of_spark_frame(df: Any, columns: Columns, what: str) -> Feed:
    """A feed of a DataFrame; columns that are missing or unusable are an error before any job is run."""
    return kept(df, df.is_cached, columns, lambda: _lay_down(df, columns, what))


def _lay_down(df: Any, columns: Columns, what: str) -> Feed:
    engine = SparkEngine(df.sparkSession.sparkContext)
    chosen = select_for_arrow(df, columns.names, columns.text)
    if not engine.one_machine:
        return DealtFeed(spark_frame_to_placement(chosen), columns, what)
    folder = Folder()
    scan = plain_scan(df, columns.names) if READS_FILES else None
    outcomes = _through_spark(chosen, folder, columns) if scan is None else _from_files(engine, scan, folder, columns)
    return RowsFeed(engine, list(_laid(outcomes)), folder, what)


def _laid(outcomes: list[tuple[int, Laid | Failed]]) -> Iterator[Laid]:
    for partition, outcome in outcomes:
        if isinstance(outcome, Laid):
            yield outcome
        else:
            raise_worker_error(outcome, f"raised while reading partition {partition}")


def _through_spark(chosen: Any, folder: Folder, columns: Columns) -> list[tuple[int, Laid | Failed]]:
    """Each task is given its rows by Spark, as Arrow."""
    path = folder.path

    def lay_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        leave_modules_out()
        partition = TaskContext.get().partitionId()
        outcome = _lay(path, partition, batches, columns)
        yield pa.RecordBatch.from_pydict(
            {"partition": pa.array([partition], pa.int32()), "outcome": [cloudpickle.dumps(outcome)]}
        )

    rows = chosen.mapInArrow(lay_batches, "partition int, outcome binary").collect()
    return sorted(((row.partition, cloudpickle.loads(row.outcome)) for row in rows), key=lambda each: each[0])


def _from_files(
    engine: SparkEngine, scan: ParquetScan, folder: Folder, columns: Columns
) -> list[tuple[int, Laid | Failed]]:
    """Each task reads its rows from the files itself: none of them passes through Spark."""
    path = folder.path
    placed = engine.place([[splits] for splits in scan.partitions])
    laid = placed.map(
        lambda partition, shards: [
            _lay(path, partition, ParquetScan(tuple(shards)).batches(0, columns.names), columns)
        ],
        changes=False,
    )
    return [(partition, outcome) for partition, (outcome,) in enumerate(laid.fetch())]


def _lay(folder: str, partition: int, batches: Iterator[pa.RecordBatch], columns: Columns) -> Laid | Failed:
    """What each task does: write its batches down, and say where, or what went wrong."""
    try:
        with writing(folder, partition, columns.text) as writer:
            for batch in batches:
                writer.append(*_read(batch, columns))
        return writer.laid
    except Exception as error:
        return describe_failure(error, None)
    finally:
        # Spark keeps this process, and a rank may be next in it: Arrow would hold on to what it needed for reading.
        pa.default_memory_pool().release_unused()


def _read(batch: pa.RecordBatch, columns: Columns) -> tuple[Any, Any, Any]:
    """(features, labels, weights) of a batch."""
    arrays = {name: column_to_numpy(batch.column(name), name, accept_text=columns.text) for name in columns.names}
    labels = [arrays[name] for name in columns.labels]
    return (
        [arrays[name] for name in columns.features],
        one_or_all(labels) if labels else None,
        arrays[columns.weight] if columns.weight else None,
    )
