"""Images as they are encoded, in a folder of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from bigdl.transform.vision.feature import ImageFeature
from bigdl.transform.vision.opencv import read_bytes
from zoo.orca.data.file import exists, list_files, makedirs, open_file
from zoo.orca.engine.base import Engine, Placement
from zoo.orca.errors import PathExistsError
from zoo.orca.learn.records import batches, place

# So many images are held at once, and are a row group of a file.
IMAGES_AT_ONCE = 64


def write_stored(files: Placement, output: str) -> None:
    """Write image files to a new folder, a Parquet file for each partition."""
    if exists(output):
        raise PathExistsError(f"{output} exists already. Choose another folder, or remove it first.")
    makedirs(output)

    def write(index: int, names: Iterator[str]) -> Iterator[str]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema([("uri", pa.string()), ("bytes", pa.binary())])
        path = f"{output.rstrip('/')}/part-{index:05d}.parquet"
        with open_file(path, "wb") as file, pq.ParquetWriter(file, schema) as writer:
            for some in batches(iter(names), IMAGES_AT_ONCE):
                rows = [{"uri": name, "bytes": read_bytes(name)} for name in some]
                writer.write_table(pa.Table.from_pylist(rows, schema))
        yield path

    files.map(write).fetch()


def read_stored(path: str, engine: Engine | None = None) -> Any:
    """The images of such a folder: as features here, or as a placement on an engine."""
    files = list_files(path, [".parquet"])
    if engine is None:
        return chain.from_iterable(map(_features, files))
    return place(files, engine).map(lambda index, names: chain.from_iterable(map(_features, names)), changes=False)


def _features(path: str) -> Iterator[ImageFeature]:
    import pyarrow.parquet as pq

    with open_file(path) as file:
        for some in pq.ParquetFile(file).iter_batches(IMAGES_AT_ONCE, columns=["uri", "bytes"]):
            for row in some.to_pylist():
                yield ImageFeature(row["bytes"], path=row["uri"])
