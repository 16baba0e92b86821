"""From files to shards on any engine: cut what can be cut, read every block where it lies, make dtypes agree."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import pandas as pd

from zoo.orca.data.pandas.byte_ranges import Survey, nominal_cuts, quoted_cuts
from zoo.orca.data.pandas.dtypes import MISSING, Target, agree, kind_of, kinds_of, needs_rereading
from zoo.orca.data.pandas.source import size_of
from zoo.orca.data.shard import XShards
from zoo.orca.engine.base import Engine

# Large enough that a 12 MB file is read in one go, small enough that two workers share a 32 MB one. It is not derived
# from the number of workers: shards, and with them training batches, must be the same on any number.
BLOCK_BYTES = 16 << 20
PARTITIONS_PER_CORE = 64

Item = TypeVar("Item")
Finish = Callable[[pd.DataFrame], Any]


@dataclass(frozen=True)
class Block:
    """A part of a file between two nominal cuts, or all of it; `header_stop` is where the file's first record ends."""

    path: str
    start: int
    stop: int
    whole: bool = True
    start_inside: bool = False
    stop_inside: bool = False
    header_stop: int = 0


@dataclass(frozen=True)
class Look:
    """What the look at a block before reading found; `header_stop` is None where the file must not be cut."""

    survey: Survey
    header_stop: int | None = 0


class PieceReader(Protocol):
    """How one format is read; it travels to the workers."""

    @property
    def fills_columns(self) -> bool:
        """Whether a piece may lack columns that others have, which then are missing values in it."""

    def read(self, piece: Any, /) -> pd.DataFrame: ...

    def reread(self, piece: Any, dtypes: dict[Any, Any], /) -> pd.DataFrame:
        """The named columns again, as these dtypes, straight from the file."""


class Reader(PieceReader, Protocol):
    """A reader of text, which may be cut."""

    def can_cut(self, path: str) -> bool:
        """Whether parts of the file can be read alone."""

    def look(self, block: Block) -> Look:
        """What must be known of a block before its file can be cut."""


def read_files(
    engine: Engine,
    files: Sequence[str],
    reader: Reader,
    num_partitions: Callable[[int, int], int],
    finish_for: Callable[[list[Any]], Finish | None] = lambda columns: None,
) -> XShards:
    """Read text files into shards, one a block; the arguments are those of `read_pieces`."""
    blocks = cut_files(engine, files, reader)
    weights = [block.stop - block.start for block in blocks]
    return read_pieces(engine, blocks, weights, reader, num_partitions, finish_for)


def read_pieces(
    engine: Engine,
    pieces: Sequence[Any],
    weights: Sequence[int],
    reader: PieceReader,
    num_partitions: Callable[[int, int], int],
    finish_for: Callable[[list[Any]], Finish | None] = lambda columns: None,
) -> XShards:
    """Read pieces into shards, one each, with the same dtypes in all of them.

    Args:
        num_partitions: given the number of pieces and of cores, in how many partitions they lie.
        finish_for: given all columns, what is still to be done with every frame.
    """
    placed = engine.place(group(pieces, weights, num_partitions(len(pieces), engine.cores)))
    frames = placed.map(partial(_each, reader.read))
    frames.persist()
    found = _flatten(frames.map(partial(_each, kinds_of), changes=False).fetch())
    columns = list(dict.fromkeys(name for kinds in found for name in kinds))
    if reader.fills_columns:
        found = [dict.fromkeys(columns, MISSING) | kinds for kinds in found]
    targets, finish = agree(found), finish_for(columns)
    if targets:
        shards = XShards.from_placement(placed.zip(frames, partial(_conform_all, reader, targets, columns, finish)))
    elif finish is not None:
        shards = XShards.from_placement(frames.map(partial(_each, finish)))
    else:
        return XShards.from_placement(frames)
    frames.unpersist()
    return shards


def cut_files(engine: Engine, files: Sequence[str], reader: Reader) -> list[Block]:
    """The blocks of all files, in order; only files larger than a block are looked into."""
    cuts = [nominal_blocks(path, reader, BLOCK_BYTES) for path in files]
    parts = [block for blocks in cuts for block in blocks if not block.whole]
    looks = iter(map_items(engine, reader.look, parts))
    return [
        block
        for blocks in cuts
        for block in (blocks if blocks[0].whole else settle(blocks, [next(looks) for _ in blocks]))
    ]


def nominal_blocks(path: str, reader: Reader, block_bytes: int) -> list[Block]:
    """A file cut at any byte, or whole if it is small or must be."""
    size = size_of(path)
    edges = nominal_cuts(size, block_bytes) if reader.can_cut(path) else [0, size]
    return [Block(path, start, stop, whole=len(edges) == 2) for start, stop in itertools.pairwise(edges)]


def settle(blocks: list[Block], looks: list[Look]) -> list[Block]:
    """The blocks of one file with what the looks found; one block for all of it if it must not be cut."""
    inside = quoted_cuts([look.survey for look in looks])
    header_stop = looks[0].header_stop
    if inside is None or header_stop is None:
        return [replace(blocks[0], stop=blocks[-1].stop, whole=True)]
    edges = [*inside, False]
    return [
        replace(block, start_inside=edges[index], stop_inside=edges[index + 1], header_stop=header_stop)
        for index, block in enumerate(blocks)
    ]


def map_items(engine: Engine, fn: Callable[[Item], Any], items: Sequence[Item]) -> list[Any]:
    """What fn gives for every item, computed on the workers."""
    if not items:
        return []
    groups = group(items, [1] * len(items), min(len(items), PARTITIONS_PER_CORE * engine.cores))
    return _flatten(engine.place(groups).map(partial(_each, fn)).fetch())


def one_partition_a_block(blocks: int, cores: int) -> int:
    """As Spark reads: one shard a partition, as long as partitions are not absurdly many."""
    return min(blocks, PARTITIONS_PER_CORE * cores)


def partitions_up_to_cores(blocks: int, cores: int) -> int:
    """As the pandas backend reads: no more partitions than cores, each of several shards."""
    return min(blocks, max(1, cores))


def group(items: Sequence[Item], weights: Sequence[int], count: int) -> list[list[Item]]:
    """Deal items to count groups, in order, none empty, with weights as even as that allows.

    >>> group("abcd", [9, 1, 1, 1], 2)
    [['a'], ['b', 'c', 'd']]
    """
    groups: list[list[Item]] = [[]]
    left, filled = float(sum(weights)), 0.0
    for index, (item, weight) in enumerate(zip(items, weights, strict=True)):
        groups_left = count - len(groups)
        full = filled + weight / 2 > left / (groups_left + 1) or len(items) - index <= groups_left
        if groups[-1] and groups_left and full:
            groups.append([])
            left, filled = left - filled, 0.0
        groups[-1].append(item)
        filled += weight
    return groups


def _each(fn: Callable[[Any], Any], index: int, items: Iterator[Any]) -> Iterable[Any]:
    return map(fn, items)


def _flatten(partitions: Iterable[Iterable[Any]]) -> list[Any]:
    return [item for partition in partitions for item in partition]


def _conform_all(
    reader: PieceReader,
    targets: dict[Any, Target],
    columns: list[Any],
    finish: Finish | None,
    pieces: Iterator[Any],
    frames: Iterator[pd.DataFrame],
) -> Iterator[Any]:
    for piece, frame in zip(pieces, frames, strict=True):
        if reader.fills_columns:
            frame = frame.reindex(columns=columns)
        conformed = conform(frame, targets, partial(reader.reread, piece))
        yield conformed if finish is None else finish(conformed)


def conform(
    frame: pd.DataFrame, targets: dict[Any, Target], reread: Callable[[dict[Any, Any]], pd.DataFrame]
) -> pd.DataFrame:
    """A frame with the agreed dtypes; what parsing has lost is read again."""
    kinds = {name: kind_of(frame[name]) for name in targets if name in frame.columns}
    again = {
        name: str if targets[name].text else targets[name].dtype
        for name, kind in kinds.items()
        if needs_rereading(kind, targets[name])
    }
    fresh = reread(again) if again else frame
    # A shallow copy shares the columns that stay.
    conformed = frame.copy(deep=False)
    for name in kinds:
        if name in again:
            conformed[name] = fresh[name].array
        elif frame[name].dtype != targets[name].dtype:
            conformed[name] = frame[name].astype(targets[name].dtype)
    return conformed
