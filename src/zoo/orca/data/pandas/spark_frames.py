"""Reading with Spark itself, on the Spark engine: its readers and file systems, frames carried as Arrow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from zoo.orca.data.pandas.blocks import Finish, conform
from zoo.orca.data.pandas.columns import ColumnRules, Columns
from zoo.orca.data.pandas.dtypes import agree, kinds_of, widen_integers
from zoo.orca.data.pandas.paths import Paths
from zoo.orca.data.pandas.rules import CsvRules
from zoo.orca.data.shard import SparkXShards
from zoo.orca.engine.base import Engine
from zoo.orca.errors import InvalidArgumentError, PathNotFoundError
from zoo.orca.optional import require

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

# What pandas' parser finds by itself; the rest that Spark guesses (dates, times, decimals) stays text as in pandas.
GUESSED_TYPES = ("int", "bigint", "double", "boolean", "string")


def knows(paths: Paths) -> bool:
    """Tell whether the running Spark can read from where the paths lie; fsspec reads what it cannot."""
    schemes = {path.partition("://")[0] for path in _strings(paths) if "://" in path}
    jvm, hadoop = _session()._jvm, _session()._jsc.hadoopConfiguration()
    error = require("py4j.protocol", "Reading with Spark").Py4JJavaError
    for scheme in schemes:
        try:
            jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, hadoop)
        except error:
            return False
    return True


def read_csv(engine: Engine, paths: Paths, rules: CsvRules) -> SparkXShards:
    """Read CSV by the rules with Spark's own reader."""
    with _missing_paths():
        options = _csv_options(rules) | {"multiLine": _has_quoted_newlines(paths, rules)}
        plain = _session().read.options(**options, header=False)
        first = plain.csv(_strings(paths)).head()
        if first is None:
            raise pd.errors.EmptyDataError(f"No columns to parse from file: {', '.join(_strings(paths))}")
        columns = rules.choose(rules.file_columns([cell or "" for cell in first]))
        reader = _session().read.options(**options, header=rules.header)
        df = reader.schema(_csv_schema(reader, paths, columns)).csv(_strings(paths))
    chosen = _without_nan_texts(_pick(df, columns))
    finish = partial(_finish_csv, rules, columns.dtypes) if rules.finishes or columns.dtypes else None
    return _to_shards(engine, chosen, columns.names, finish, gap=np.nan)


def read_json(engine: Engine, paths: Paths, rules: ColumnRules) -> SparkXShards:
    """Read one JSON object a line with Spark's own reader."""
    with _missing_paths():
        df = _session().read.json(_strings(paths))
    columns = rules.choose(df.columns)
    finish = partial(_cast, columns.dtypes) if columns.dtypes else None
    return _to_shards(engine, _pick(df, columns), columns.names, finish)


def read_parquet(
    engine: Engine, paths: Paths, columns: list[str] | None, schema: Any, options: dict[str, Any]
) -> SparkXShards:
    """Read Parquet with Spark's own reader."""
    reader = _session().read.options(**options)
    if schema is not None:
        reader = _with_schema(reader, schema)
    with _missing_paths():
        df = reader.parquet(*_strings(paths))
    unknown = [name for name in columns or [] if name not in df.columns]
    if unknown:
        raise InvalidArgumentError(f"columns {unknown} are not in the files, whose columns are {df.columns}.")
    chosen = df.columns if columns is None else columns
    return _to_shards(engine, df.select([f"`{name}`" for name in chosen]), chosen)


def _with_schema(reader: Any, schema: Any) -> Any:
    parse_error = require("pyspark.errors", "Reading with Spark").ParseException
    try:
        return reader.schema(schema)
    except parse_error as error:
        raise InvalidArgumentError(
            f'The schema {schema!r} is not known here. Write it as "a int, b string". Spark says: {error}'
        ) from error


def _session() -> SparkSession:
    sql = require("pyspark.sql", "Reading with Spark")
    return sql.SparkSession.builder.getOrCreate()


def _strings(paths: Paths) -> list[str]:
    return [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


@contextmanager
def _missing_paths() -> Iterator[None]:
    """Spark's own words for a missing path, in our type."""
    analysis_error = require("pyspark.errors", "Reading with Spark").AnalysisException
    try:
        yield
    except analysis_error as error:
        if "Path does not exist" not in str(error):
            raise
        raise PathNotFoundError(str(error)) from error


def _csv_options(rules: CsvRules) -> dict[str, Any]:
    # pandas doubles a quote where Spark escapes it with a backslash, unless told otherwise.
    options = {"sep": rules.sep, "quote": rules.quotechar, "escape": rules.escapechar or rules.quotechar}
    return options | ({"comment": rules.comment} if rules.comment else {}) | {"nullValue": "", "emptyValue": ""}


def _has_quoted_newlines(paths: Paths, rules: CsvRules) -> bool:
    """Whether some line has an odd number of quotes; only then must Spark read files whole."""
    functions = require("pyspark.sql.functions", "Reading with Spark")
    line = functions.col("value")
    bare = functions.replace(line, functions.lit(rules.quotechar), functions.lit(""))
    odd = (functions.length(line) - functions.length(bare)) % 2 == 1
    return bool(_session().read.text(_strings(paths)).where(odd).head(1))


def _csv_schema(reader: Any, paths: Paths, columns: Columns) -> StructType:
    """The type of every column in the files: as declared, else as Spark guesses it from all values."""
    types = require("pyspark.sql.types", "Reading with Spark")
    declared = {field.name: field.type for field in columns.schema or []}
    texts = {name for name, dtype in columns.dtypes.items() if pd.api.types.is_string_dtype(dtype)}
    names = dict(zip(columns.positions, columns.names, strict=True))
    guessed: list[DataType] = []
    if any(name not in declared and name not in texts for name in columns.names):
        guessed = [field.dataType for field in reader.option("inferSchema", True).csv(_strings(paths)).schema.fields]
    fields = []
    for position in range(columns.width):
        name = names.get(position)
        if name in declared:
            kind = types._parse_datatype_string(declared[name])
        elif name in texts or not guessed or guessed[position].simpleString() not in GUESSED_TYPES:
            kind = types.StringType()
        else:
            kind = guessed[position]
        fields.append(types.StructField(f"_{position}", kind))
    return types.StructType(fields)


def _pick(df: DataFrame, columns: Columns) -> DataFrame:
    return df.select([f"`{df.columns[position]}`" for position in columns.positions])


def _without_nan_texts(df: DataFrame) -> DataFrame:
    """The word NaN is a missing value in text columns, as Spark takes it in columns of numbers."""
    functions = require("pyspark.sql.functions", "Reading with Spark")
    texts = [name for name, kind in df.dtypes if kind == "string"]
    return df.withColumns({name: functions.nullif(df[name], functions.lit("NaN")) for name in texts})


def _to_shards(
    engine: Engine, df: DataFrame, names: list[str], finish: Finish | None = None, gap: Any = None
) -> SparkXShards:
    """One pandas frame a partition, with these column names and the same dtypes in all, and gap for null texts."""
    if df.rdd.getNumPartitions() < engine.nodes:
        df = df.repartition(engine.nodes)
    read = _frames(df, names, gap).cache()
    targets = agree(read.map(kinds_of).collect())
    frames = read.map(partial(_conform, targets)) if targets else read
    shards = SparkXShards(frames if finish is None else frames.map(finish))
    if shards.rdd is not read:
        read.unpersist()
    return shards


def _frames(df: DataFrame, names: list[str], gap: Any) -> RDD[pd.DataFrame]:
    # Numbered while in Spark, which tells no "a" from "A" and takes "a.b" for a field of "a".
    numbered = df.toDF(*[f"_{position}" for position in range(len(names))])
    return numbered.mapInArrow(_pack, "frame binary").rdd.map(lambda row: _unpack(row[0], names, gap))


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All batches of a partition as one Arrow stream, which passes the JVM as a single value."""
    import pyarrow as pa

    held = list(batches)
    if not held:
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, held[0].schema) as writer:
        for batch in held:
            writer.write_batch(batch)
    yield pa.record_batch([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["frame"])


def _unpack(packed: bytes, names: list[str], gap: Any) -> pd.DataFrame:
    import pyarrow as pa

    table = pa.ipc.open_stream(packed).read_all()
    frame = widen_integers(table.to_pandas())
    if gap is not None:
        for name in (field.name for field in table.schema if pa.types.is_string(field.type)):
            frame[name] = frame[name].where(frame[name].notna(), gap)
    frame.columns = pd.Index(names)
    return frame


def _conform(targets: dict[Any, Any], frame: pd.DataFrame) -> pd.DataFrame:
    return conform(frame, targets, frame.astype)


def _cast(dtypes: dict[str, Any], frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype(dtypes) if dtypes else frame


def _finish_csv(rules: CsvRules, dtypes: dict[str, Any], frame: pd.DataFrame) -> pd.DataFrame | pd.Series:
    return rules.finish(_cast({name: kind for name, kind in dtypes.items() if not _is_text(kind)}, frame))


def _is_text(dtype: Any) -> bool:
    return bool(pd.api.types.is_string_dtype(dtype))
