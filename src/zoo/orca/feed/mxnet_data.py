"""Functions `creator(config, kv)` that make an MXNet iterator, or a gluon DataLoader, on each worker.

Each worker's data is its own: a step takes a batch of every worker's. Workers whose data ends earlier take part without
rows until all have ended.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.engine.base import deal
from zoo.orca.engine.pickling import pack
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.base import Feed, Share, Source
from zoo.orca.feed.elements import as_batch
from zoo.orca.feed.plan import GHOST_ROWS
from zoo.orca.feed.structure import count_rows
from zoo.orca.optional import is_instance_of

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.engine.worker import Worker

_END = object()


@dataclass(frozen=True)
class KV:
    """What a creator is told of the workers, with the names that MXNet's own kvstore has."""

    rank: int
    num_workers: int
    type: str = "dist_sync"


class MXNetCreatorFeed(Feed):
    """`creator(config, kv)`, called on every worker.

    It finds its share of the global batch size in `config["batch_size"]`, and who it is in `kv.rank` and
    `kv.num_workers`. Random numbers that it draws are the same on every worker, so that all can cut up one shuffled
    order; the iterator's own are another worker's and another epoch's.
    """

    def __init__(self, creator: Any, engine: Engine, config: dict[str, Any], what: str = "data"):
        self.engine = engine
        if not callable(creator):
            raise InvalidArgumentError(f"{what} must be a function creator(config, kv), but is {creator!r}.")
        self._packed = pack(creator, "the data creator")
        self._config = config
        self._what = what

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"engine": None}

    def open(self, worker: Worker, batch_size: int, seed: int, shuffle: bool = True, drop_last: bool = False) -> Source:
        """This rank's view. Shuffling and batches are the business of what the creator makes."""
        creator = self._packed.load()
        mine = deal(batch_size, worker.world_size)[worker.rank]
        config = self._config | {"batch_size": len(mine)}
        with _Draws([seed]).on():
            made = _call(creator, config, KV(worker.rank, worker.world_size))
        return MXNetSource(_readable(made, creator), worker, seed, self._what)


class MXNetSource(Source):
    """One worker's batches, in step with the others'.

    Attributes:
        agree: sums a whole number over all ranks, which call it together; used where lengths are not known beforehand.
    """

    agree: Callable[[int], int] | None = None

    def __init__(self, made: Any, worker: Worker, seed: int, what: str):
        self._made = made
        self._worker = worker
        self._seed = seed
        self._what = what
        self._first = _order_of(made)
        everyones = [_sizes(made)] if worker.world_size == 1 else worker.all_gather(_sizes(made))
        self._totals: list[int] | None = None
        if all(sizes is not None for sizes in everyones):
            self._totals = [sum(step) for step in itertools.zip_longest(*everyones, fillvalue=0)]
        self.steps = None if self._totals is None else len(self._totals)
        self.rows = None if self._totals is None else sum(self._totals)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Share]:
        batches = itertools.islice(self._batches(epoch), start, None)
        last: Any = _END
        for step in itertools.count(start):
            batch: Any = next(batches, _END)
            rows = 0 if batch is _END else _rows(batch)
            total = self._total(step, rows)
            if total == 0:
                if step == 0:
                    raise self._no_rows("any worker", epoch)
                return
            if batch is _END and last is _END:
                batch = next(self._batches(epoch), _END)  # taken up in the middle, where this rank has no more
            last = last if batch is _END else batch
            if last is _END:
                raise self._no_rows(f"rank {self._worker.rank}, but some to others,", epoch)
            yield Share(last if rows else _head(last), rows, total)

    def close(self) -> None:
        self._made = None

    def _total(self, step: int, rows: int) -> int:
        if self._worker.world_size == 1:
            return rows
        if self._totals is not None:
            return self._totals[step] if step < len(self._totals) else 0
        return sum(self._worker.all_gather(rows)) if self.agree is None else self.agree(rows)

    def _batches(self, epoch: int) -> Iterator[tuple[Any, ...]]:
        """What the iterator yields in an epoch, without padding; what it draws follows from seed, epoch and rank."""
        draws = _Draws([self._seed, epoch, self._worker.rank, 1])
        with draws.on():
            _restore(self._made, self._first)
            if hasattr(self._made, "reset"):
                self._made.reset()
            iterator = iter(self._made)
        while True:
            with draws.on():
                element = next(iterator, _END)
            if element is _END:
                return
            batch = _as_batch(element)
            if _rows(batch):
                yield batch

    def _no_rows(self, whom: str, epoch: int) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"the creator of {self._what} gave no rows to {whom} in epoch {epoch + 1}. Expected an iterator that gives "
            "batches each time that it is reset; use fewer workers if there are too few rows."
        )


def _call(creator: Any, config: dict[str, Any], kv: KV) -> Any:
    """Hand over kv if the creator takes it."""
    try:
        parameters = list(inspect.signature(creator).parameters.values())
    except (TypeError, ValueError):  # some callables do not tell
        return creator(config, kv)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes_all = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    places = [each for each in parameters if each.kind in kinds]
    return creator(config, kv) if takes_all or len(places) > 1 else creator(config)


def _readable(made: Any, creator: Any) -> Any:
    """What a creator gave, if batches can be taken from it again and again."""
    if isinstance(made, Iterable) and (not isinstance(made, Iterator) or hasattr(made, "reset")):
        return made
    name = getattr(creator, "__qualname__", type(creator).__qualname__)
    raise InvalidArgumentError(
        f"the data creator {name!r} must return an mx.io.DataIter, a gluon DataLoader, or a list of batches, which is "
        f"gone through in every epoch, but returned a {type(made).__module__}.{type(made).__qualname__}."
    )


def _as_batch(element: Any) -> tuple[Any, ...]:
    """A batch of MXNet's as `(*features, target)`, without the rows that only fill it up."""
    if not hasattr(element, "data") or not hasattr(element, "label"):
        batch, _ = as_batch(element)
        return batch
    arrays, labels = list(element.data), list(element.label or [])
    rows = arrays[0].shape[0] - int(getattr(element, "pad", 0) or 0)
    arrays, labels = ([each[:rows] if rows < each.shape[0] else each for each in part] for part in (arrays, labels))
    target = labels[0] if len(labels) == 1 else labels or None
    return (*arrays, target)


def _rows(batch: tuple[Any, ...]) -> int:
    return count_rows(batch[0])


def _head(batch: Any) -> Any:
    """A few of the rows, to take part without counting."""
    if isinstance(batch, dict):
        return {key: _head(each) for key, each in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(_head(each) for each in batch)
    return None if batch is None else batch[:GHOST_ROWS]


def _sizes(made: Any) -> list[int] | None:
    """The rows of every batch of an epoch, where that is known; None else."""
    if _is_exactly(made, "mxnet.io", "NDArrayIter") and made.last_batch_handle in ("pad", "discard"):
        return _cut(made.num_data, made.batch_size, made.last_batch_handle == "pad")
    sampler: Any = (
        getattr(made, "_batch_sampler", None) if _is_exactly(made, "mxnet.gluon.data", "DataLoader") else None
    )
    if _is_exactly(sampler, "mxnet.gluon.data", "BatchSampler") and sampler._last_batch in ("keep", "discard"):
        return _cut(len(sampler._sampler), sampler._batch_size, sampler._last_batch == "keep")
    return None


def _is_exactly(value: Any, module: str, name: str) -> bool:
    """Whether a value is of a class of MXNet's itself: what the user derived from it may do as it likes."""
    return is_instance_of(value, module, name) and type(value).__module__.startswith("mxnet.")


def _cut(rows: int, size: int, keeps: bool) -> list[int]:
    whole, rest = divmod(rows, size)
    return [size] * whole + ([rest] if rest and keeps else [])


def _order_of(made: Any) -> Any:
    """What an NDArrayIter must have before it shuffles, so that an epoch's order does not hang on those before."""
    if is_instance_of(made, "mxnet.io", "NDArrayIter") and made.shuffle:
        return made.data, made.label, made.idx.copy()
    return None


def _restore(made: Any, first: Any) -> None:
    if first is not None:
        made.data, made.label, made.idx = first[0], first[1], first[2].copy()


class _Draws:
    """Random numbers of numpy's and Python's global generators that follow from a place in training."""

    def __init__(self, place: list[int]):
        (start,) = np.random.SeedSequence(place).generate_state(1)
        self._states = np.random.RandomState(int(start)).get_state(), random.Random(int(start)).getstate()

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Within it they are drawn from the global generators, which go on afterwards where they stood."""
        before = np.random.get_state(), random.getstate()
        np.random.set_state(self._states[0])
        random.setstate(self._states[1])
        try:
            yield
        finally:
            self._states = np.random.get_state(), random.getstate()
            np.random.set_state(before[0])
            random.setstate(before[1])
