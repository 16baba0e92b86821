"""Reading files into shards of pandas frames, in parallel, on any engine."""

from zoo.orca.data.pandas.csv_files import read_csv
from zoo.orca.data.pandas.json_files import read_json
from zoo.orca.data.pandas.parquet_files import read_parquet
from zoo.orca.names import public_names

__all__ = ["read_csv", "read_json", "read_parquet"]

__dir__ = public_names(globals())
