"""Images as they are encoded, in a folder of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bigdl.transform.vision.feature import ImageFeature
from bigdl.transform.vision.opencv import read_bytes
from zoo.orca.data.file import exists, list_files, makedirs, open_file
from zoo.orca.engine.base import Engine, Placement
from zoo.orca.errors import PathExistsError
from zoo.orca.learn.records import place


def write_stored(files: Placement, output: str) -> None:
    """Write image files to a new folder, a Parquet file for each partition."""
    if exists(output):
        raise PathExistsError(f"{output} exists already. Choose another folder, or remove it first.")
    makedirs(output)

    def write(index: int, names: Iterator[str]) -> Iterator[str]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [{"uri": name, "bytes": read_bytes(name)} for name in names]
        schema = pa.schema([("uri", pa.string()), ("bytes", pa.binary())])
        path = f"{output.rstrip('/')}/part-{index:05d}.parquet"
        with open_file(path, "wb") as file:
            pq.write_table(pa.Table.from_pylist(rows, schema), file)
        yield path

    files.map(write).fetch()


def read_stored(path: str, engine: Engine | None = None) -> Any:
    """The images of such a folder: as features here, or as a placement on an engine."""
    files = list_files(path, [".parquet"])
    if engine is None:
        return [feature for file in files for feature in _features(file)]
    return place(files, engine).map(lambda index, names: (each for name in names for each in _features(name)))


def _features(path: str) -> Iterator[ImageFeature]:
    import pyarrow.parquet as pq

    with open_file(path) as file:
        for row in pq.read_table(file, columns=["uri", "bytes"]).to_pylist():
            yield ImageFeature(row["bytes"], path=row["uri"])
