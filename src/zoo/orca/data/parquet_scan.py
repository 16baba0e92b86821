"""A Spark DataFrame that only reads Parquet files: workers can read the same rows themselves, with pyarrow.

Spark's own plan says which part of which file belongs to which partition, so rows, order and partitions are Spark's.
Whatever is not known to give the same rows is no plain scan.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from zoo.orca.optional import is_instance_of

# Bytes of a column that are read ahead: a row group can be as large as its file, and must not lie in memory whole.
READ_AHEAD = 1 << 18
# What a batch holds where its number of rows is left open: enough to forget what a batch costs.
BATCH_BYTES = 2 << 20

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
_EXECUTION = "org.apache.spark.sql.execution."
_SOURCES = _EXECUTION + "datasources."
_ATTRIBUTE = "org.apache.spark.sql.catalyst.expressions.AttributeReference"
# Exact classes: a subclass may drop rows that the files hold (deletion vectors, for one).
_RELATION = _SOURCES + "HadoopFsRelation"
_FORMAT = _SOURCES + "parquet.ParquetFileFormat"
_INDEX = _SOURCES + "InMemoryFileIndex"
# What these options say shows in the list of files, or in the columns; others may change what is read.
_OPTIONS = {"path", "paths", "basepath", "mergeschema", "recursivefilelookup", "pathglobfilter"}
_OPTIONS |= {"modifiedbefore", "modifiedafter", "serialization.format"}
# Settings under which Spark leaves out files, or finds columns by other means than their names.
_MUST_BE_OFF = (
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.parquet.fieldId.read.enabled",
)
_NUMBERS = {
    "ByteType": pa.int8(),
    "ShortType": pa.int16(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "BooleanType": pa.bool_(),
}


@dataclass(frozen=True)
class Split:
    """Bytes of a Parquet file: the row groups whose middle lies in them."""

    path: str
    start: int
    length: int

    def row_groups(self, metadata: pq.FileMetaData) -> list[int]:
        """The numbers of its row groups."""
        return [
            number
            for number in range(metadata.num_row_groups)
            if self.start <= _middle(metadata.row_group(number)) < self.start + self.length
        ]


@dataclass(frozen=True)
class ParquetScan:
    """The partitions of a DataFrame, in Spark's order, as splits of Parquet files; it needs no Spark and pickles.

    >>> import tempfile
    >>> path = tempfile.mktemp()
    >>> pq.write_table(pa.table({"x": [1, 2, 3]}), path)
    >>> scan = ParquetScan(((Split(path, 0, 1 << 20),),))
    >>> [batch.column("x").to_pylist() for batch in scan.batches(0, ["x"], rows=2)]
    [[1, 2], [3]]
    """

    partitions: tuple[tuple[Split, ...], ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of all files, each once."""
        return tuple(dict.fromkeys(split.path for splits in self.partitions for split in splits))

    def batches(self, partition: int, names: Sequence[str], rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, in order, in batches of at most `rows` rows; its columns are in the order given.

        Memory is bounded by the batch, a page of each column and READ_AHEAD.

        Args:
            rows: if not given, as many as make about BATCH_BYTES.
        """
        columns = list(dict.fromkeys(names))
        for split in self.partitions[partition]:
            with pq.ParquetFile(split.path, buffer_size=READ_AHEAD, pre_buffer=False) as file:
                groups = split.row_groups(file.metadata)
                if groups:
                    size = rows or _rows_of_a_batch(file.metadata, groups[0], columns)
                    found = file.iter_batches(size, row_groups=groups, columns=columns, use_threads=False)
                    yield from (batch.select(columns) for batch in found)

    def first_row(self, names: Sequence[str]) -> pa.RecordBatch | None:
        """These columns of the first row; None if there is no row."""
        found = (self.batches(partition, names, rows=1) for partition in range(len(self.partitions)))
        return next(itertools.chain.from_iterable(found), None)


def plain_scan(df: Any, names: Sequence[str]) -> ParquetScan | None:
    """The files behind columns of a Spark DataFrame, if it does nothing but read them from this machine's disks.

    It looks at Spark's plan and at the ends of the files; no job is run. None whenever it is not certain that reading
    the files gives the rows of `df.select(*names)`, in the same order and the same partitions.

    Args:
        names: columns of the DataFrame.
    """
    if not is_instance_of(df, "pyspark.sql", "DataFrame") or not hasattr(df, "_jdf"):
        return None
    if df.isStreaming or not names or any("." in name or "`" in name for name in names):
        return None
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    names = list(dict.fromkeys(names))
    try:
        chosen = df.select(*(f"`{name}`" for name in names))
        types = [_arrow_type(field.dataType) for field in chosen.schema.fields]
        if None in types or any(df.sparkSession.conf.get(key) != "false" for key in _MUST_BE_OFF):
            return None
        execution = chosen._jdf.queryExecution()
        if not _only_reads(execution.optimizedPlan(), names):
            return None
        partitions = _partitions(execution.sparkPlan())
    except (Py4JError, PySparkException):
        return None
    if not partitions:
        return None
    scan = ParquetScan(partitions)
    fields = dict(zip(names, types, strict=True))
    return scan if all(_holds(path, fields) for path in scan.files) else None


def _arrow_type(kind: Any) -> pa.DataType | None:
    """What the files must say of a column of this Spark type; None for a type whose values may be read differently."""
    if type(kind).__name__ == "ArrayType":
        element = _arrow_type(kind.elementType)
        return None if element is None else pa.list_(element)
    return _NUMBERS.get(type(kind).__name__)


def _only_reads(plan: Any, names: Sequence[str]) -> bool:
    """Whether a plan, as Spark will run it, only chooses columns of Parquet files."""
    chosen = plan
    while _class(plan) == _LOGICAL + "Project":
        if any(_class(each) != _ATTRIBUTE for each in _elements(plan.projectList())):
            return False
        plan = plan.child()
    if _class(plan) != _SOURCES + "LogicalRelation" or not _is_parquet(plan.relation()):
        return False
    folders = {name.lower() for name in plan.relation().partitionSchema().fieldNames()}
    in_files = {each.exprId().id(): each.name() for each in _elements(plan.output())}
    found = [in_files.get(each.exprId().id()) for each in _elements(chosen.output())]
    return found == list(names) and not any(name.lower() in folders for name in names)


def _is_parquet(relation: Any) -> bool:
    return (
        _class(relation) == _RELATION
        and _class(relation.fileFormat()) == _FORMAT
        and _class(relation.location()) == _INDEX
        and not relation.bucketSpec().isDefined()
        and {key.lower() for key in _elements(relation.options().keys().toSeq())} <= _OPTIONS
    )


def _partitions(plan: Any) -> tuple[tuple[Split, ...], ...] | None:
    """What Spark's tasks would read; None if a file is not on this machine."""
    while _class(plan) == _EXECUTION + "ProjectExec":
        plan = plan.child()
    if _class(plan) != _EXECUTION + "FileSourceScanExec":
        return None
    rdd = plan.inputRDD()
    if _class(rdd) != _SOURCES + "FileScanRDD":
        return None
    partitions = []
    for partition in _elements(rdd.filePartitions()):
        files = [(_local_path(file.filePath().toString()), file.start(), file.length()) for file in partition.files()]
        if any(path is None for path, _, _ in files):
            return None
        partitions.append(tuple(Split(str(path), start, length) for path, start, length in files))
    return tuple(partitions)


def _holds(path: str, fields: dict[str, pa.DataType]) -> bool:
    """Whether a file has exactly these columns, of these types, and none that differs from them by case alone."""
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException):
        return False
    lowered = [name.lower() for name in schema.names]
    return all(
        lowered.count(name.lower()) == 1 and name in schema.names and _same_type(schema.field(name).type, kind)
        for name, kind in fields.items()
    )


def _same_type(found: pa.DataType, expected: pa.DataType) -> bool:
    """Whether types are the same, whatever the elements of lists are called."""
    if pa.types.is_list(found) and pa.types.is_list(expected):
        return _same_type(found.value_type, expected.value_type)
    return bool(found == expected)


def _rows_of_a_batch(metadata: pq.FileMetaData, group: int, names: Sequence[str]) -> int:
    """How many rows of a row group make BATCH_BYTES once they are decoded."""
    first = metadata.row_group(group)
    columns = [first.column(number) for number in range(first.num_columns)]
    chosen = [column for column in columns if column.path_in_schema.partition(".")[0] in names]
    # Counted as 8 bytes each, for what is stored can be much smaller than what it stands for.
    row_bytes = 8 * sum(column.num_values for column in chosen) / max(1, first.num_rows)
    return max(1, int(BATCH_BYTES / max(1.0, row_bytes)))


def _middle(group: pq.RowGroupMetaData) -> int:
    """The byte that decides which split a row group belongs to, as Parquet's Java library reckons it."""
    columns = [group.column(number) for number in range(group.num_columns)]
    start = columns[0].data_page_offset
    if columns[0].has_dictionary_page:
        start = min(start, columns[0].dictionary_page_offset)
    return start + sum(column.total_compressed_size for column in columns) // 2


def _local_path(uri: str) -> str | None:
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" and not parts.netloc else None


def _class(thing: Any) -> str:
    return str(thing.getClass().getName())


def _elements(sequence: Any) -> Iterator[Any]:
    """What a Scala Seq holds."""
    return (sequence.apply(number) for number in range(sequence.size()))
