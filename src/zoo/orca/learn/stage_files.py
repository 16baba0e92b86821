"""How stages of Spark ML are written and read: its metadata, and beside it, where Spark writes, what is no Param."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from zoo.orca.engine.pickling import dumps
from zoo.orca.errors import CheckpointError
from zoo.orca.optional import require

require("pyspark", "A stage of Spark ML")

import cloudpickle  # noqa: E402 - what is missing is said first
from pyspark.ml.util import (  # noqa: E402
    DefaultParamsReader,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)
from pyspark.sql import SparkSession  # noqa: E402

# Files of any size travel in rows of so many bytes.
PART_BYTES = 16 << 20
_pickles_allowed = contextvars.ContextVar("pickles_allowed", default=False)


class Saved(MLWritable, MLReadable):
    """A stage that can be written and read; `save` and `load` are short for both."""

    def write(self) -> StageWriter:
        return StageWriter(self)

    @classmethod
    def read(cls) -> StageReader:
        return StageReader(cls)

    def _files(self) -> dict[str, bytes]:
        """What must be kept beside the Params, by name."""
        raise NotImplementedError

    @classmethod
    def _from_files(cls, files: dict[str, bytes]) -> Any:
        """The stage, but for its Params."""
        raise NotImplementedError

    def _after_load(self) -> None:
        """Set what does not come out of a file."""


class StageWriter(MLWriter):
    """Writes a stage: `<path>/metadata` as Spark ML does, and `<path>/data` with what it keeps beside its Params."""

    def __init__(self, stage: Any):
        super().__init__()
        self._stage = stage

    def saveImpl(self, path: str) -> None:
        files = self._stage._files()
        DefaultParamsWriter.saveMetadata(self._stage, path, self.sparkSession)
        rows = [(name, number, part) for name, body in files.items() for number, part in _parts(body)]
        frame = self.sparkSession.createDataFrame(rows, "name string, part int, bytes binary")
        frame.coalesce(1).write.parquet(f"{path}/data")


class StageReader(MLReader):
    """Reads what `StageWriter` wrote, as the class that was written."""

    def __init__(self, cls: type):
        super().__init__()
        self._cls = cls

    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        stage = self._class_of(metadata["class"], path)._from_files(_read(self.sparkSession, path))
        stage._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(stage, metadata)
        stage._after_load()
        return stage

    def _class_of(self, name: str, path: str) -> Any:
        known = {f"{each.__module__}.{each.__name__}": each for each in _family(self._cls)}
        if name not in known:
            raise CheckpointError(f"{path} holds a {name}. Load it with {name.rpartition('.')[2]}.load(path).")
        return known[name]


@contextlib.contextmanager
def pickles_allowed() -> Iterator[None]:
    """While it lasts, stages that are pickles may be loaded. Loading a pickle runs code: load only what you trust.

    Example:
        with pickles_allowed():
            PipelineModel.load(path)
    """
    before = _pickles_allowed.set(True)
    try:
        yield
    finally:
        _pickles_allowed.reset(before)


def pickled(value: Any, what: str) -> bytes:
    """A value as bytes; a typed error names the part of it that cannot be one."""
    return dumps(value, what)


def unpickled(body: bytes) -> Any:
    """What `pickled` gave, where the reader has decided that its files are to be trusted."""
    return cloudpickle.loads(body)


def need_pickles_allowed(what: str) -> None:
    """Raise a typed error outside of `pickles_allowed`."""
    if not _pickles_allowed.get():
        raise CheckpointError(
            f"{what} was saved as a pickle, and loading a pickle runs code. If you trust it, type: "
            f"load(path, allow_pickle=True), or, for a whole pipeline, with {__name__}.pickles_allowed(): "
            "PipelineModel.load(path)."
        )


def _parts(body: bytes) -> Iterator[tuple[int, bytearray]]:
    for number in range(max(1, -(-len(body) // PART_BYTES))):
        yield number, bytearray(body[number * PART_BYTES : (number + 1) * PART_BYTES])


def _read(spark: SparkSession, path: str) -> dict[str, bytes]:
    files: dict[str, list[bytes]] = {}
    for row in spark.read.parquet(f"{path}/data").orderBy("name", "part").collect():
        files.setdefault(row["name"], []).append(bytes(row["bytes"]))
    return {name: b"".join(parts) for name, parts in files.items()}


def _family(cls: Any) -> list[Any]:
    """A class and all that are derived from it."""
    return [cls, *(each for child in cls.__subclasses__() for each in _family(child))]
