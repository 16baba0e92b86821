"""Placements for engines that have no plan of their own: what to compute is kept as recipes until it is needed."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from zoo.orca.engine.base import CombineFunction, Engine, MapFunction, Placement, SplitFunction, deal
from zoo.orca.engine.pickling import Packed, pack
from zoo.orca.engine.recipe import Added, Combined, Mapped, Pieces, Recipe, Stored, Zipped, pieces_by_target
from zoo.orca.errors import ShardsLostError

LOSSES = 2
logger = logging.getLogger("zoo.orca")
Result = TypeVar("Result")


class LazyEngine(Engine):
    """An engine that computes recipes; the first failure of a partition is raised as its own type."""

    @abstractmethod
    def store(self, recipes: Sequence[Recipe]) -> list[Stored]:
        """Compute every partition and keep its shards, until the result is dropped."""

    @abstractmethod
    def load(self, recipes: Sequence[Recipe]) -> list[list[Any]]:
        """Compute every partition and bring its shards to the driver."""

    @abstractmethod
    def split(self, recipes: Sequence[Recipe], num_targets: int) -> list[Pieces]:
        """Compute partitions that yield (target, piece) pairs and keep the pieces by target."""

    @abstractmethod
    def consume(self, recipes: Sequence[Recipe]) -> None:
        """Compute every partition for its errors alone."""

    def deal_recipes(self, data: Placement | None, num_workers: int) -> list[list[tuple[int, Recipe]]]:
        """The (partition, recipe) pairs of each rank."""
        recipes = _surviving(data.recipes) if isinstance(data, LazyPlacement) else []
        return [[(index, recipes[index]) for index in mine] for mine in deal(len(recipes), num_workers)]


class LazyPlacement(Placement):
    """Partitions that are stored, or a way to make them from other placements."""

    engine: LazyEngine

    def __init__(self, engine: LazyEngine, num_partitions: int, make: Callable[[], Sequence[Recipe]]):
        self.engine = engine
        self.num_partitions = num_partitions
        self._make = make
        self._persisted = False
        self._given_up = False
        self._stored: list[Stored] | None = None

    def map(self, fn: MapFunction, changes: bool = True) -> LazyPlacement:
        function = pack(fn)
        return LazyPlacement(self.engine, self.num_partitions, lambda: self._mapped(function, changes))

    def zip(self, other: Placement, fn: Callable[[Iterator[Any], Iterator[Any]], Any]) -> LazyPlacement:
        function = pack(fn)

        def make() -> list[Recipe]:
            pairs = zip(self.recipes(), other.recipes(), strict=True)  # type: ignore[attr-defined]
            return [Zipped(function, mine, theirs) for mine, theirs in pairs]

        return LazyPlacement(self.engine, self.num_partitions, make)

    def extend(self, fn: Callable[[Any], Any], join: Callable[[Any, Any], Any]) -> LazyPlacement:
        return _ExtendedPlacement(self, fn, join)

    def exchange(self, split: SplitFunction, num_partitions: int, combine: CombineFunction) -> LazyPlacement:
        splitter, combiner = pack(split), pack(combine)
        sources: list[Pieces] = []

        def make() -> list[Recipe]:
            if not sources:  # computing again what was uncached needs no second exchange
                sources.extend(self.engine.split(self._mapped(splitter, changes=False), num_partitions))
            by_target = pieces_by_target(sources, num_partitions)
            return [Combined(combiner, target, mine) for target, mine in enumerate(by_target)]

        return LazyPlacement(self.engine, num_partitions, make)

    def persist(self) -> None:
        self._persisted = True

    def unpersist(self) -> None:
        self._persisted = self._given_up = False
        self._stored = None

    def give_up(self) -> None:
        self._given_up = True

    @property
    def is_persisted(self) -> bool:
        return self._persisted

    def compute(self) -> None:
        def run() -> None:
            recipes = self.recipes()
            if not self._persisted:
                self.engine.consume(recipes)

        _surviving(run)

    def fetch(self) -> list[list[Any]]:
        return _surviving(lambda: self.engine.load(self.recipes()))

    def recipes(self) -> Sequence[Recipe]:
        """How to get each partition; what is to be kept, or was and is lost, is computed and stored first."""
        if self._stored is not None and not any(stored.is_lost for stored in self._stored):
            return self._take_stored() if self._given_up else self._stored
        recipes = self._make()
        if not self._persisted:
            return recipes
        # What the driver placed is kept already, where every process can read it.
        placed = [each for each in recipes if isinstance(each, Stored)]
        self._stored = placed if len(placed) == len(recipes) else self.engine.store(recipes)
        for recipe, stored in zip(recipes, self._stored, strict=True):
            if recipe.lends and recipe is not stored:  # both may hold the same arrays now
                for each in (*recipe.stored(), stored):
                    each.pin()
        return self._stored

    def _take_stored(self) -> Sequence[Recipe]:
        """The shards for their last reader, who need not copy them; after that they are gone."""
        taken, self._stored, self._given_up = self._stored or [], None, False
        return [stored.last_read() for stored in taken]

    def _mapped(self, function: Packed, changes: bool) -> list[Recipe]:
        return [Mapped(function, index, source, changes) for index, source in enumerate(self.recipes())]


class _ExtendedPlacement(LazyPlacement):
    """Shards with something added. Where the shards are kept already, what is added is all that is kept of these."""

    def __init__(self, source: LazyPlacement, fn: Callable[[Any], Any], join: Callable[[Any, Any], Any]):
        whole = super(LazyPlacement, source).extend(fn, join)
        super().__init__(source.engine, source.num_partitions, whole.recipes)  # type: ignore[attr-defined]
        self._source = source
        self._add = pack(fn)
        self._join = pack(lambda shards, added: map(join, shards, added))
        self._joined: list[Recipe] | None = None

    def unpersist(self) -> None:
        super().unpersist()
        self._joined = None

    def recipes(self) -> Sequence[Recipe]:
        if self._joined is not None and not any(stored.is_lost for each in self._joined for stored in each.stored()):
            return self._joined
        if not self._persisted or not self._source.is_persisted:
            return super().recipes()
        shards = self._source.recipes()
        for stored in (stored for each in shards for stored in each.stored()):
            stored.pin()
        added = self.engine.store([Added(self._add, each) for each in shards])
        self._joined = [
            Zipped(self._join, mine, theirs, changes=False) for mine, theirs in zip(shards, added, strict=True)
        ]
        return self._joined


def _surviving(action: Callable[[], Result]) -> Result:
    """Do it again from what it was made of when shards are lost with the process that kept them."""
    for _ in range(LOSSES):
        try:
            return action()
        except ShardsLostError as lost:
            logger.warning("%s They are computed again.", lost)
    return action()
