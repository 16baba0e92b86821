"""read_json: with pandas' own arguments, or by the rules of the Spark backend (one JSON object a line)."""

from __future__ import annotations

from functools import partial
from typing import Any

from zoo.orca.context import OrcaContext, current_engine
from zoo.orca.data.pandas.blocks import Finish, one_partition_a_block, partitions_up_to_cores, read_files
from zoo.orca.data.pandas.columns import ColumnRules
from zoo.orca.data.pandas.json_reader import AS_WRITTEN, JsonReader, choose_columns
from zoo.orca.data.pandas.paths import Paths, files_of, spark_files_of
from zoo.orca.data.pandas.rules import parse_json_rules
from zoo.orca.data.shard import XShards
from zoo.orca.engine.bar import job
from zoo.orca.errors import InvalidArgumentError


@job("read_json")
def read_json(file_path: Paths, **kwargs: Any) -> XShards:
    """Read JSON files into shards of pandas frames; large files of one object a line are read by all workers at once.

    Args:
        file_path: a file, a list of files or a folder; local or any fsspec URL (s3://, hdfs://).
        kwargs: pandas' own (orient, lines, ...) with `OrcaContext.pandas_read_backend = "pandas"`; with "spark", the
            default, out of names, usecols, dtype, and columns come in the order of their names.

    Example:
        >>> read_json("/data/events", usecols=["user", "item"]).collect()  # doctest: +SKIP
    """
    engine = current_engine()
    if OrcaContext.pandas_read_backend == "pandas":
        if kwargs.get("chunksize") or kwargs.get("iterator"):
            raise InvalidArgumentError("read_json already reads in pieces: leave out chunksize and use the shards.")
        return read_files(engine, files_of(file_path), JsonReader(kwargs), partitions_up_to_cores)
    rules = parse_json_rules(kwargs)
    if engine.name == "spark":
        from zoo.orca.data.pandas import spark_frames

        if spark_frames.knows(file_path):
            return spark_frames.read_json(engine, file_path, rules)
    reader = JsonReader(AS_WRITTEN)
    return read_files(engine, spark_files_of(file_path), reader, one_partition_a_block, partial(_chooser, rules))


def _chooser(rules: ColumnRules, found: list[str]) -> Finish:
    # Spark puts the fields of JSON objects in the order of their names, and `names` counts on it.
    ordered = sorted(found)
    return partial(choose_columns, rules.choose(ordered), ordered)
