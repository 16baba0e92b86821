"""A torch DataLoader as one rank reads it: map-style, sharded by its own sampler, without batching, and as a stream."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import logging
import tempfile
import warnings
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.base import Share, Source
from zoo.orca.feed.loader_cut import Cut, CutItem, CutSamples, mark_of, slice_of
from zoo.orca.feed.loader_order import Order, index_sampler, is_stream
from zoo.orca.feed.plan import GHOST_ROWS, split
from zoo.orca.optional import is_instance_of

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker

logger = logging.getLogger("zoo.orca")

_END = object()


def open_loader(loader: Any, worker: Worker, seed: int) -> LoaderSource:
    """This rank's view of a loader that every rank has."""
    order = Order(loader, seed)
    if is_stream(loader):
        return StreamSource(loader, order, worker)
    if loader.batch_sampler is None:
        return ItemSource(loader, order, worker)
    return (ShardedSource if _shards_by_rank(order, worker) else IndexSource)(loader, order, worker)


def altered(loader: Any, **changes: Any) -> Any:
    """A copy of a loader, subclass and all, with other attributes; torch lets only the constructor set some."""
    changed = copy.copy(loader)
    vars(changed).update(changes)
    return changed


def count_steps(loader: Any) -> int | None:
    """The batches of an epoch, where the loader knows them."""
    return None if is_stream(loader) else length_of(index_sampler(loader))


def length_of(sized: Any) -> int | None:
    """Its `len`, if it has one."""
    try:
        return len(sized)
    except (TypeError, NotImplementedError, AttributeError):
        return None


class LoaderSource(Source):
    """Read one epoch at a time, in the thread that trains: ranks agree meanwhile.

    Attributes:
        agree: sums a whole number below 2**31 over all ranks, which call it together. Without one the driver is asked,
            which is slow for streams.
    """

    agree: Callable[[int], int] | None = None

    def __init__(self, loader: Any, order: Order, worker: Worker):
        import torch

        self._worker = worker
        self._order = order
        self._seeds = torch.Generator()
        # Batches are known by their place, so that in_order=False cannot be had.
        self._loader = altered(
            loader, generator=self._seeds, in_order=True, _iterator=None, _IterableDataset_len_called=None
        )
        self._iterator: Any = None
        facts = self._gather(_Facts.of(loader, order))
        order.generator_seeds = facts[0].generator_seeds
        self.steps, self.rows = self._known(facts)

    @abstractmethod
    def _known(self, facts: list[_Facts]) -> tuple[int | None, int | None]:
        """The steps and rows of an epoch, from what all ranks say of their loaders."""

    def close(self) -> None:
        """End the loader's worker processes."""
        _end(self._iterator)
        self._iterator = None
        self._loader._iterator = None

    def _gather(self, value: Any) -> list[Any]:
        return [value] if self._worker.world_size == 1 else self._worker.all_gather(value)

    def _sum(self, value: int) -> int:
        if self._worker.world_size == 1:
            return value
        return sum(self._worker.all_gather(value)) if self.agree is None else self.agree(value)

    def _all_have(self, mark: int) -> bool:
        return self._sum(mark) == mark * self._worker.world_size

    def _batches(
        self, base_seed: int, scope: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
    ) -> Generator[Any, None, None]:
        """What this rank's loader yields in an epoch; its worker processes are seeded from base_seed."""
        self._seeds.manual_seed(base_seed % 2**64)
        tempfile.gettempdir()  # found by writing a file: not in worker processes, which may end while they do it
        with warnings.catch_warnings(), scope():
            # Whoever made the loader was told already.
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            iterator = self._iterator = iter(self._loader)
        try:
            while True:
                with scope():
                    batch = next(iterator, _END)
                if batch is _END:
                    return
                yield batch
        finally:
            if not self._loader.persistent_workers:
                _end(iterator)


class MapSource(LoaderSource):
    """Rows are asked for by index, and every rank knows the whole order."""

    #: The attribute of the loader that says which rows come next.
    slot = "batch_sampler"

    def __init__(self, loader: Any, order: Order, worker: Worker):
        super().__init__(loader, order, worker)
        self._plan = _Planned()
        vars(self._loader)[self.slot] = self._plan
        self._mark = 0

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Share]:
        self._mark = 0
        # Processes of the loader draw random numbers of their own, batch by batch: they must make those before, too.
        replayed = start if self._loader.num_workers else 0
        self._plan.make = functools.partial(self._wanted, epoch, start - replayed)
        # Ranks change different rows at random, so each draws something else; rank 0 what plain torch would.
        batches = self._batches(self._order.seed(epoch) + (self._worker.rank << 32))
        try:
            first = next(batches, _END)
            self._check_order(epoch)
            shares = map(self._share, itertools.chain([] if first is _END else [first], batches))
            yield from itertools.islice(shares, replayed, None)
        finally:
            batches.close()

    @abstractmethod
    def _wanted(self, epoch: int, start: int) -> Iterator[Any]:
        """What this rank's loader is to load, step by step."""

    @abstractmethod
    def _share(self, batch: Any) -> Share: ...

    def _known(self, facts: list[_Facts]) -> tuple[int | None, int | None]:
        for rank, theirs in enumerate(facts):
            if theirs.measures != facts[0].measures:
                raise InvalidArgumentError(
                    "every worker must make the same DataLoader, for each takes its part of every batch, but the data "
                    f"creator gave rank 0 {facts[0].words()} and rank {rank} {theirs.words()}. Return the whole data "
                    "on every worker, or give the loader a DistributedSampler."
                )
        return facts[0].steps, facts[0].rows

    def _keys(self, epoch: int, start: int) -> Iterator[Any]:
        """The global order, from step `start` on."""
        for key in itertools.islice(self._order.keys(epoch), start, None):
            self._mark = self._mark or mark_of(key)
            yield key

    def _check_order(self, epoch: int) -> None:
        if not self._all_have(self._mark):
            raise InvalidArgumentError(
                f"the DataLoader's sampler gives the workers different rows in epoch {epoch}, so that its batches "
                "cannot be dealt. Expected the same order on every worker: let the sampler draw from torch's, numpy's "
                "or Python's global generator or from a torch.Generator (they are seeded for it), or seed its own in "
                "set_epoch(epoch). A sampler that shards by rank must have `num_replicas` and `rank`, as torch's "
                "DistributedSampler has."
            )


class IndexSource(MapSource):
    """The usual loader: this rank's part of the indices of every batch."""

    def __init__(self, loader: Any, order: Order, worker: Worker):
        super().__init__(loader, order, worker)
        self._sizes: deque[tuple[int, int]] = deque()  # of batches that are asked for and not there yet

    def _wanted(self, epoch: int, start: int) -> Iterator[Any]:
        self._sizes.clear()
        for batch in self._keys(epoch, start):
            indices = batch if hasattr(batch, "__getitem__") and hasattr(batch, "__len__") else list(batch)
            part = split(len(indices), self._worker.world_size)[self._worker.rank]
            self._sizes.append((len(part), len(indices)))
            yield indices[slice_of(part)]

    def _share(self, batch: Any) -> Share:
        rows, total = self._sizes.popleft()
        return Share(batch, rows, total)


class ShardedSource(MapSource):
    """A loader whose sampler shards by rank already: its batches are this rank's parts as they are."""

    def __init__(self, loader: Any, order: Order, worker: Worker):
        super().__init__(loader, order, worker)
        self._steps: list[tuple[Any, int, int]] = []
        self._sizes: Iterator[tuple[Any, int, int]] = iter(())

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Share]:
        self._steps = self._agreed_steps(list(self._order.keys(epoch)))
        yield from super().epoch(epoch, start)

    def _agreed_steps(self, batches: list[Any]) -> list[tuple[Any, int, int]]:
        """(indices, rows that count, rows over all ranks) of every step that any rank takes."""
        sizes = self._gather([len(batch) for batch in batches])
        totals = [sum(step) for step in itertools.zip_longest(*sizes, fillvalue=0)]
        if totals and not batches:
            raise InvalidArgumentError(
                f"the DataLoader's sampler gives rank {self._worker.rank} no rows, but others some. "
                "Use fewer workers, or a sampler that gives every rank some."
            )
        steps = [(batch, len(batch), total) for batch, total in zip(batches, totals, strict=False)]
        return steps + [(batches[-1][:GHOST_ROWS], 0, total) for total in totals[len(batches) :]]

    def _wanted(self, epoch: int, start: int) -> Iterator[Any]:
        self._sizes = iter(self._steps[start:])
        return (indices for indices, _, _ in self._steps[start:])

    def _share(self, batch: Any) -> Share:
        _, rows, total = next(self._sizes)
        return Share(batch, rows, total)

    def _known(self, facts: list[_Facts]) -> tuple[int | None, int | None]:
        steps = [each.steps for each in facts if each.steps is not None]
        rows = [each.rows for each in facts if each.rows is not None]
        return max(steps) if len(steps) == len(facts) else None, sum(rows) if len(rows) == len(facts) else None


class ItemSource(MapSource):
    """A loader without automatic batching: every item is a batch, of which this rank keeps its rows."""

    slot = "sampler"

    def __init__(self, loader: Any, order: Order, worker: Worker):
        super().__init__(loader, order, worker)
        self._loader.collate_fn = CutItem(loader.collate_fn, worker.rank, worker.world_size)

    def _wanted(self, epoch: int, start: int) -> Iterator[Any]:
        return self._keys(epoch, start)

    def _share(self, batch: Cut) -> Share:
        _, rows, total, mine = batch
        return Share(mine, rows, total)


class StreamSource(LoaderSource):
    """An iterable dataset: every rank reads the stream and keeps its rows of each batch; ranks agree at every step."""

    def __init__(self, loader: Any, order: Order, worker: Worker):
        super().__init__(loader, order, worker)
        cut = CutItem if loader.batch_sampler is None else CutSamples
        self._loader.collate_fn = cut(loader.collate_fn, worker.rank, worker.world_size)
        self._pipe = _Pipe(loader.dataset) if _is_pipe(loader.dataset) else None
        if self._pipe is not None:
            vars(self._loader)["dataset"] = self._pipe

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Share]:
        rng = self._order.begin(epoch)
        with rng.on():
            self._order.draw_base_seed()
        if self._pipe is not None:
            self._pipe.seed = self._order.seed(epoch)
        # In this process the stream draws from the global generators: it must find there what other ranks' does.
        scope = contextlib.nullcontext if self._loader.num_workers else rng.on
        cuts = self._batches(self._order.seed(epoch), scope)
        try:
            yield from self._in_step(itertools.islice(cuts, start, None), epoch, start)
        finally:
            cuts.close()

    def _in_step(self, cuts: Iterator[Cut], epoch: int, start: int) -> Iterator[Share]:
        """This rank's shares, and after its last one shares that count for nothing until all ranks have ended."""
        batch: Any = _END
        for step in itertools.count(start):
            mark, rows, _, batch = next(cuts, (0, 0, 0, batch))
            if step == start and not self._all_have(mark):
                self._warn_of_different_rows()
            total = self._sum(rows)
            if total == 0:
                if step == 0:
                    raise self._no_rows(epoch, "to any worker")
                return
            if batch is _END:
                raise self._no_rows(epoch, f"to rank {self._worker.rank}, but some to others")
            yield Share(batch, rows, total)

    def _no_rows(self, epoch: int, to_whom: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"the DataLoader's dataset gave no rows {to_whom} in epoch {epoch}. Expected a dataset that gives the "
            "whole stream on every worker, each time that `iter` is called on it."
        )

    def _warn_of_different_rows(self) -> None:
        if self._worker.rank == 0:
            logger.warning(
                "The DataLoader's dataset gives the workers different rows. Each takes its part of every batch and "
                "relies on the others to take theirs of the same batch, so rows are lost if the dataset shards by "
                "rank. Let it give the whole stream on every worker."
            )

    def _known(self, facts: list[_Facts]) -> tuple[int | None, int | None]:
        return None, None


@dataclass(frozen=True)
class _Facts:
    """What a rank knows of its loader."""

    length: int | None
    steps: int | None
    rows: int | None
    generator_seeds: list[int]

    @staticmethod
    def of(loader: Any, order: Order) -> _Facts:
        return _Facts(length_of(loader.dataset), count_steps(loader), _count_rows(loader), order.generator_seeds)

    @property
    def measures(self) -> tuple[Any, ...]:
        return self.length, self.steps, self.rows, len(self.generator_seeds)

    def words(self) -> str:
        return f"{self.length} rows in {self.steps} batches"


class _Planned:
    """A sampler that yields what `make` makes; persistent workers keep the sampler, so epochs change what it makes."""

    make: Callable[[], Iterable[Any]]

    def __iter__(self) -> Iterator[Any]:
        yield from self.make()


class _Pipe:
    """A DataPipe that is sharded over the loader's worker processes alone; torch would shard it over ranks too.

    Attributes:
        seed: what it shuffles by; one more each time, since persistent workers are not told of a new epoch.
    """

    def __init__(self, pipe: Any):
        self._pipe = pipe
        self.seed = 0

    def __iter__(self) -> Iterator[Any]:
        import torch
        from torch.utils.data import get_worker_info
        from torch.utils.data.graph_settings import apply_random_seed, apply_sharding

        info = get_worker_info()
        apply_sharding(self._pipe, info.num_workers if info else 1, info.id if info else 0)
        apply_random_seed(self._pipe, torch.Generator().manual_seed(self.seed))
        self.seed += 1
        return iter(self._pipe)


def _is_pipe(dataset: Any) -> bool:
    return is_instance_of(dataset, "torch.utils.data", "IterDataPipe")


def _shards_by_rank(order: Order, worker: Worker) -> bool:
    """Whether a sampler shards by rank, as DistributedSampler does; if so it is told this worker's rank."""
    sharding = [each for each in order.samplers if hasattr(each, "num_replicas") and hasattr(each, "rank")]
    for sampler in sharding:
        if sampler.num_replicas not in (1, worker.world_size):
            raise InvalidArgumentError(
                f"the DataLoader's {type(sampler).__qualname__} is made for {sampler.num_replicas} replicas, but there "
                f"are {worker.world_size} workers. Use num_replicas={worker.world_size}, or leave the sampler out: "
                "every batch is dealt to the workers anyway."
            )
        if sampler.num_replicas > 1:
            sampler.rank = worker.rank
    return any(sampler.num_replicas > 1 for sampler in sharding)


def _count_rows(loader: Any) -> int | None:
    """The rows of an epoch, where they follow from the samplers' lengths."""
    from torch.utils.data import BatchSampler

    batches = loader.batch_sampler
    if isinstance(batches, list | tuple):
        return sum(map(len, batches))
    rows = None if is_stream(loader) or type(batches) is not BatchSampler else length_of(batches.sampler)
    if rows is None:
        return None
    return rows // batches.batch_size * batches.batch_size if batches.drop_last else rows


def _end(iterator: Any) -> None:
    """End the worker processes of a loader's iterator now, and not when it happens to be collected."""
    end = getattr(iterator, "_shutdown_workers", None) or getattr(iterator, "close", None)
    if end is not None:
        end()
