"""Shards as pickles in a folder of any file system: one file a partition, readable on every engine."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Iterator
from typing import Any

import cloudpickle

from zoo.orca.data.file import filesystem_of
from zoo.orca.engine.base import Engine, Placement, deal
from zoo.orca.errors import PathExistsError, PathNotFoundError

MANIFEST = "_orca_shards.json"


def save(placement: Placement, path: str) -> None:
    """Write every partition where it lies; the manifest comes last, so that a half-written folder is never read."""
    fs, folder = filesystem_of(path)
    if fs.exists(folder):
        raise PathExistsError(
            f"{path} exists already, and saved shards need a new folder. Remove it or choose another."
        )
    fs.makedirs(folder, exist_ok=True)

    def write(index: int, shards: Iterator[Any]) -> Iterator[int]:
        fs, folder = filesystem_of(path)
        count = 0
        with fs.open(_part(folder, index), "wb") as file:
            for shard in shards:
                file.write(cloudpickle.dumps(shard, protocol=5))
                count += 1
        yield count

    counts = [count for partition in placement.map(write).fetch() for count in partition]
    with fs.open(f"{folder}/{MANIFEST}", "w") as file:
        json.dump({"format": 1, "partitions": len(counts), "shards": counts}, file)


def load(engine: Engine, path: str, at_least: int | None) -> Placement:
    """Place what `save` wrote, a partition a file; on Spark also a Hadoop sequence file of pickles."""
    fs, folder = filesystem_of(path)
    if not fs.exists(f"{folder}/{MANIFEST}"):
        if engine.name == "spark" and fs.exists(folder):
            return engine.read_pickle_file(path, at_least)  # type: ignore[attr-defined]
        raise PathNotFoundError(f"No such file or directory: {path} holds no saved shards (no {MANIFEST} in it).")
    with fs.open(f"{folder}/{MANIFEST}") as file:
        partitions = json.load(file)["partitions"]
    placed = engine.place([[part] for part in range(partitions)]).map(lambda index, parts: _read(path, parts))
    return placed if not at_least or at_least <= partitions else _spread(placed, at_least)


def _read(path: str, parts: Iterator[int]) -> Iterator[Any]:
    fs, folder = filesystem_of(path)
    for part in parts:
        with fs.open(_part(folder, part), "rb") as file:
            with contextlib.suppress(EOFError):
                while True:
                    yield pickle.load(file)


def _spread(placement: Placement, count: int) -> Placement:
    """Deal the partitions' shards over more partitions, as `minPartitions` asks."""
    owner = [mine.start for mine in deal(count, placement.num_partitions)]
    width = [len(mine) for mine in deal(count, placement.num_partitions)]
    return placement.exchange(
        lambda index, shards: ((owner[index] + number % width[index], shard) for number, shard in enumerate(shards)),
        count,
        lambda target, pieces: pieces,
    )


def _part(folder: str, index: int) -> str:
    return f"{folder}/part-{index:05d}.pickle"
