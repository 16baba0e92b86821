"""Where an image set lies: records in `<path>/chunk=<i>/*.parquet`, the schema in `<path>/_orca_metadata`."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from zoo.orca.data.file import PathLike, filesystem_of
from zoo.orca.data.image.records import Schema, schema_from_json, schema_to_json
from zoo.orca.data.image.utils import SchemaField
from zoo.orca.errors import PathNotFoundError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

METADATA = "_orca_metadata"
CHUNK_NAME = re.compile(r"chunk=(\d+)")


@dataclass(frozen=True)
class Chunk:
    """One chunk of an image set. It carries its filesystem, so that a worker needs no variables of the driver."""

    fs: AbstractFileSystem
    path: str

    def batches(self, rows: int = 64) -> Iterator[pa.RecordBatch]:
        """Read the records a few at a time, in writing order."""
        # A filesystem with a thread of its own does not survive a fork: in a new process this makes a new one.
        fs = type(self.fs)(*self.fs.storage_args, **self.fs.storage_options)
        files = [name for name in fs.ls(self.path, detail=False) if name.endswith(".parquet")]
        for name in sorted(files):
            with fs.open(name, "rb") as file:
                yield from pq.ParquetFile(file).iter_batches(rows)

    def table(self) -> pa.Table:
        """Read all records, in writing order."""
        return pa.Table.from_batches(list(self.batches(rows=65536)))


@dataclass(frozen=True)
class Layout:
    """The folder of one image set, on any filesystem."""

    fs: AbstractFileSystem
    root: str

    @classmethod
    def of(cls, path: PathLike) -> Layout:
        """The image set at a path, whether or not it exists yet."""
        fs, root = filesystem_of(path)
        return cls(fs, root.rstrip("/"))

    @property
    def exists(self) -> bool:
        return bool(self.fs.exists(f"{self.root}/{METADATA}"))

    def schema(self) -> dict[str, SchemaField]:
        """Read the schema, or say that there is no image set here."""
        try:
            return schema_from_json(self.fs.cat_file(f"{self.root}/{METADATA}").decode("utf-8"))
        except FileNotFoundError as error:
            raise PathNotFoundError(
                f"No such file or directory: {self.root}/{METADATA}. Expected an image set written by "
                "ParquetDataset.write or write_parquet."
            ) from error

    def chunks(self) -> list[Chunk]:
        """The chunks in writing order: by number, where a filesystem would put chunk=10 before chunk=2."""
        names = [name for name in self._own_parts() if not name.endswith(METADATA)]
        return [Chunk(self.fs, name) for name in sorted(names, key=_chunk_number)]

    def next_number(self) -> int:
        """The number that the next chunk of this set has."""
        return max((_chunk_number(chunk.path) + 1 for chunk in self.chunks()), default=0)

    def write_chunk(self, number: int, table: pa.Table, **options: Any) -> None:
        """Write one chunk; options are those of `pyarrow.parquet.write_table`."""
        folder = f"{self.root}/chunk={number}"
        self.fs.makedirs(folder, exist_ok=True)
        with self.fs.open(f"{folder}/part.parquet", "wb") as file:
            pq.write_table(table, file, **options)

    def write_schema(self, schema: Schema) -> None:
        """Write the schema, which makes the folder an image set."""
        self.fs.makedirs(self.root, exist_ok=True)
        self.fs.pipe_file(f"{self.root}/{METADATA}", schema_to_json(schema).encode("utf-8"))

    @contextmanager
    def staging(self) -> Iterator[Layout]:
        """A place beside the set to write a new one in; whatever is left in it at the end is removed."""
        staged = Layout(self.fs, f"{self.root}/_writing-{uuid.uuid4().hex}")
        is_new = not self.fs.exists(self.root)
        self.fs.makedirs(staged.root, exist_ok=True)
        try:
            yield staged
        finally:
            _remove(self.fs, staged.root)
            # A set that could not be written leaves no empty folder either.
            if is_new and self.fs.isdir(self.root) and not self.fs.ls(self.root):
                _remove(self.fs, self.root)

    def replace_with(self, staged: Layout) -> None:
        """Put the parts of another layout in the place of mine, and mine back if that fails half-way."""
        old = Layout(self.fs, f"{self.root}/_replaced-{uuid.uuid4().hex}")
        moved_out = False
        try:
            _move(self._own_parts(), self, old)
            moved_out = True
            _move(staged._own_parts(), staged, self)
        except BaseException:
            if moved_out:
                _remove(self.fs, *self._own_parts())
            _move(old._own_parts(), old, self)
            _remove(self.fs, old.root)
            raise
        _remove(self.fs, old.root)

    def add(self, staged: Layout) -> None:
        """Put the chunks of another layout beside mine."""
        _move([chunk.path for chunk in staged.chunks()], staged, self)

    def _own_parts(self) -> list[str]:
        # Only these are ever moved or removed: a user may keep other files in the same folder.
        if not self.fs.isdir(self.root):
            return []
        names = [name.rstrip("/") for name in self.fs.ls(self.root, detail=False)]
        ours = [name.rsplit("/", 1)[-1] for name in names]
        return [name for name, base in zip(names, ours, strict=True) if base == METADATA or CHUNK_NAME.fullmatch(base)]


def _chunk_number(path: str) -> int:
    return int(path.rsplit("=", 1)[-1])


def _move(parts: Sequence[str], source: Layout, target: Layout) -> None:
    # The schema goes last: a set that has one is whole.
    for part in sorted(parts, key=lambda part: part.endswith(METADATA)):
        # File by file, because on an object store there is no folder that could be moved.
        for file in source.fs.find(part):
            goal = target.root + file.removeprefix(source.root)
            target.fs.makedirs(goal.rsplit("/", 1)[0], exist_ok=True)
            target.fs.mv(file, goal)
        _remove(source.fs, part)


def _remove(fs: AbstractFileSystem, *paths: str) -> None:
    for path in paths:
        if fs.exists(path):
            fs.rm(path, recursive=True)
