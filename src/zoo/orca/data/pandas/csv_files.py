"""read_csv: with pandas' own arguments, or by the rules of the Spark backend."""

from __future__ import annotations

from typing import Any

import pandas as pd

from zoo.orca.context import OrcaContext, current_engine
from zoo.orca.data.pandas.blocks import one_partition_a_block, partitions_up_to_cores, read_files
from zoo.orca.data.pandas.columns import Columns
from zoo.orca.data.pandas.csv_reader import CsvReader, cells_of, first_record
from zoo.orca.data.pandas.paths import Paths, files_of, spark_files_of
from zoo.orca.data.pandas.rules import CsvRules, parse_csv_rules
from zoo.orca.data.shard import XShards
from zoo.orca.engine.bar import job
from zoo.orca.engine.base import Engine
from zoo.orca.errors import InvalidArgumentError


@job("read_csv")
def read_csv(file_path: Paths, **kwargs: Any) -> XShards:
    """Read CSV files into shards of pandas frames; large files are read by all workers at once.

    Args:
        file_path: a file, a list of files or a folder; local or any fsspec URL (s3://, hdfs://).
        kwargs: pandas' own with `OrcaContext.pandas_read_backend = "pandas"`; with "spark", the default, out of header,
            names, usecols, dtype, squeeze, index_col, sep, comment, quotechar, escapechar.

    Example:
        >>> shards = read_csv("/data/taxi", usecols=["fare", "tip"])  # doctest: +SKIP
        >>> shards.transform_shard(lambda frame: frame[frame.tip > 0])  # doctest: +SKIP
    """
    engine = current_engine()
    if OrcaContext.pandas_read_backend == "pandas":
        return read_as_pandas(engine, file_path, kwargs)
    rules = parse_csv_rules(kwargs)
    if engine.name == "spark":
        from zoo.orca.data.pandas import spark_frames

        if spark_frames.knows(file_path):
            return spark_frames.read_csv(engine, file_path, rules)
    return read_by_rules(engine, file_path, rules)


def read_as_pandas(engine: Engine, file_path: Paths, arguments: dict[str, Any]) -> XShards:
    """Read with pandas' own arguments."""
    for name in ("chunksize", "iterator"):
        if arguments.get(name):
            raise InvalidArgumentError(
                f"read_csv already reads in pieces: leave out {name}={arguments[name]!r} and use the shards."
            )
    return read_files(engine, files_of(file_path), CsvReader(arguments), partitions_up_to_cores)


def read_by_rules(engine: Engine, file_path: Paths, rules: CsvRules) -> XShards:
    """Read by the rules of the Spark backend, without Spark."""
    files = spark_files_of(file_path)
    columns = rules.choose(rules.file_columns(_first_cells(files, rules)))
    reader = CsvReader(pandas_arguments(rules, columns))
    return read_files(
        engine, files, reader, one_partition_a_block, lambda found: rules.finish if rules.finishes else None
    )


def _first_cells(files: list[str], rules: CsvRules) -> list[str]:
    """The fields of the first record of the first file that has one."""
    for path in files:
        record = first_record(path, rules.quotechar.encode())
        if record.strip():
            return cells_of(record, rules.syntax())
    raise pd.errors.EmptyDataError(f"No columns to parse from file: {', '.join(files)}")


def pandas_arguments(rules: CsvRules, columns: Columns) -> dict[str, Any]:
    """The rules, for the columns found, as arguments of pandas.read_csv."""
    names = [f"unread {position}" for position in range(columns.width)]
    for position, name in zip(columns.positions, columns.names, strict=True):
        names[position] = name
    declared = {field.name: field.pandas_type for field in columns.schema or [] if field.pandas_type}
    dtypes = {name: kind for name, kind in (declared | columns.dtypes).items() if name in columns.names}
    return {
        **rules.syntax(),
        "header": 0 if rules.header else None,
        "names": names,
        "usecols": columns.positions,
        "dtype": dtypes or None,
        # Spark knows two words for nothing; "NA" or "null" in a text column are text.
        "keep_default_na": False,
        "na_values": ["", "NaN"],
    }
