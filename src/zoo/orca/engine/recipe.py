"""How a worker process gets a partition: from where it is stored, or by a function over another recipe.

Recipes travel to the workers of the engines that keep no plan of their own (the embedded one and Ray). Where shards are
stored differs by engine, so `Stored` and `Pieces` are only named here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.orca.engine.pickling import Packed


class Recipe(ABC):
    """Yields the shards of one partition, in a worker process."""

    @abstractmethod
    def shards(self, borrow: bool = False) -> Iterator[Any]:
        """The shards; a reader who borrows them promises not to change them in place."""

    def stored(self) -> Iterator[Stored]:
        """What must be at hand before this can be computed."""
        return iter(())

    @property
    def lends(self) -> bool:
        """Whether shards that are borrowed from it, or parts of them, are those that somebody keeps."""
        return False


class Stored(Recipe):
    """Shards that were computed and kept; the driver's copy of it owns the storage."""

    @property
    def is_lost(self) -> bool:
        """Whether the process that kept them is gone."""
        return False

    @property
    def lends(self) -> bool:
        return True

    def last_read(self) -> Recipe:
        """The same shards, for a reader who may change them, since nobody reads them after."""
        return self

    def pin(self) -> None:
        """Say that there are others who read it, so that there is no last reader."""

    def stored(self) -> Iterator[Stored]:
        yield self


class Pieces(ABC):
    """The pieces that one source partition split off, for some targets of an exchange.

    Attributes:
        targets: those that it has pieces for.
    """

    targets: Sequence[int]

    @abstractmethod
    def pieces(self, target: int) -> Iterator[Any]: ...

    def only(self, target: int) -> Pieces:
        """As little of it as a reader of one target needs."""
        return self


def pieces_by_target(sources: Iterable[Pieces], num_targets: int) -> list[tuple[Pieces, ...]]:
    """What each target reads: the sources that have something for it, in order.

    With all sources in every recipe, the driver would have to send as many names as there are sources times targets,
    of which few may count: to join neighbours, each source has one target."""
    found: list[list[Pieces]] = [[] for _ in range(num_targets)]
    for source in sources:
        for target in source.targets:
            found[target].append(source.only(target))
    return [tuple(each) for each in found]


@dataclass(frozen=True)
class Mapped(Recipe):
    """What a function makes of a partition."""

    function: Packed
    index: int
    source: Recipe
    changes: bool = True

    def shards(self, borrow: bool = False) -> Iterator[Any]:
        source = self.source.shards(borrow=borrow and not self.changes)
        return iter(self.function.load_once()(self.index, source))

    @property
    def lends(self) -> bool:
        return not self.changes and self.source.lends

    def stored(self) -> Iterator[Stored]:
        return self.source.stored()


@dataclass(frozen=True)
class Added(Recipe):
    """What a function makes of each shard of a partition, which it neither changes nor gives parts of."""

    function: Packed
    source: Recipe

    def shards(self, borrow: bool = False) -> Iterator[Any]:
        return map(self.function.load_once(), self.source.shards(borrow=True))

    def stored(self) -> Iterator[Stored]:
        return self.source.stored()


@dataclass(frozen=True)
class Zipped(Recipe):
    """What a function makes of two partitions."""

    function: Packed
    mine: Recipe
    theirs: Recipe
    changes: bool = True

    def shards(self, borrow: bool = False) -> Iterator[Any]:
        borrow = borrow and not self.changes
        return iter(self.function.load_once()(self.mine.shards(borrow), self.theirs.shards(borrow)))

    @property
    def lends(self) -> bool:
        return not self.changes and (self.mine.lends or self.theirs.lends)

    def stored(self) -> Iterator[Stored]:
        yield from self.mine.stored()
        yield from self.theirs.stored()


@dataclass(frozen=True)
class Combined(Recipe):
    """What a function makes of the pieces that sources split off for this target."""

    function: Packed
    target: int
    sources: tuple[Pieces, ...]

    def shards(self, borrow: bool = False) -> Iterator[Any]:
        pieces = (piece for source in self.sources for piece in source.pieces(self.target))
        return iter(self.function.load_once()(self.target, pieces))


def dealt_shards(dealt: list[tuple[int, Recipe]]) -> Iterator[tuple[int, Any]]:
    """The (partition, shard) pairs of the partitions dealt to a rank."""
    for index, recipe in dealt:
        for shard in recipe.shards():
            yield index, shard
