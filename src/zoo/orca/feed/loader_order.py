"""The order in which a torch DataLoader loads: the same on every rank, and apart from what training draws."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from zoo.orca.optional import is_instance_of

_END = object()
_SEEDS = 2**64


class Rng:
    """Global generators (torch's on the CPU, numpy's, Python's) apart from those of training.

    Args:
        seed: where they start; None starts where training is.
    """

    def __init__(self, seed: int | None = None):
        self._seed = seed
        self._state: tuple[Any, ...] | None = None

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Draw from these generators, and leave those of training as they were."""
        training = self._now()
        self._start()
        try:
            yield
        finally:
            self._state = self._now()
            self._set(training)

    def _start(self) -> None:
        import torch

        if self._state is not None:
            self._set(self._state)
        elif self._seed is not None:
            torch.default_generator.manual_seed(self._seed % _SEEDS)  # torch.manual_seed would seed accelerators too
            np.random.seed(self._seed % 2**32)
            random.seed(self._seed)

    @staticmethod
    def _now() -> tuple[Any, ...]:
        import torch

        return torch.get_rng_state(), np.random.get_state(), random.getstate()

    @staticmethod
    def _set(state: tuple[Any, ...]) -> None:
        import torch

        torch.set_rng_state(state[0])
        np.random.set_state(state[1])
        random.setstate(state[2])


class Order:
    """A loader's samplers: what they give depends on the seed and the epoch alone.

    In epoch e the global generators start at seed + e, and a generator of the loader's own at what it was seeded with
    plus e: so the first epoch is the one that plain torch gives.

    Attributes:
        generator_seeds: what the loader's own generators were seeded with.
    """

    def __init__(self, loader: Any, seed: int):
        self._loader = loader
        self._seed = seed
        self.samplers = _samplers(loader)
        self._generators = _generators([loader, *self.samplers])
        self.generator_seeds = [generator.initial_seed() for generator in self._generators]

    def seed(self, epoch: int) -> int:
        """Where the generator starts that the loader's worker processes are seeded from."""
        own = [generator is self._loader.generator for generator in self._generators]
        return epoch + (self.generator_seeds[own.index(True)] if any(own) else self._seed)

    def begin(self, epoch: int) -> Rng:
        """Tell the parts of the loader which epoch it is, and give the global generators for it."""
        parts = [*self.samplers, self._loader.dataset] if is_stream(self._loader) else self.samplers
        for part in parts:
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
        for generator, seed in zip(self._generators, self.generator_seeds, strict=True):
            generator.manual_seed((seed + epoch) % _SEEDS)
        return Rng(self._seed + epoch)

    def draw_base_seed(self) -> None:
        """Draw what torch draws for its worker processes, before samplers and streams draw."""
        import torch

        torch.empty((), dtype=torch.int64).random_(generator=self._loader.generator)

    def keys(self, epoch: int) -> Iterator[Any]:
        """What the samplers yield in an epoch: batches of indices, or items where there is no batching."""
        rng = self.begin(epoch)
        sampler = index_sampler(self._loader)
        with rng.on():
            keys = iter(sampler)
            self.draw_base_seed()
            key = next(keys, _END)
        draws_once = _draws_once(sampler)
        while key is not _END:
            yield key
            with contextlib.nullcontext() if draws_once else rng.on():
                key = next(keys, _END)


def is_stream(loader: Any) -> bool:
    """Whether the loader's dataset is iterable and cannot be asked for a row by index."""
    return is_instance_of(loader.dataset, "torch.utils.data", "IterableDataset")


def index_sampler(loader: Any) -> Any:
    """What says which rows are loaded next."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


def _samplers(loader: Any) -> list[Any]:
    """The loader's samplers, and those that they hold."""
    from torch.utils.data import Sampler

    found: list[Any] = []
    waiting = [loader.batch_sampler, loader.sampler]
    while waiting:
        sampler = waiting.pop()
        if sampler is not None and not any(sampler is each for each in found):
            found.append(sampler)
            waiting += [each for each in getattr(sampler, "__dict__", {}).values() if isinstance(each, Sampler)]
    return found


def _generators(holders: list[Any]) -> list[Any]:
    import torch

    values = [value for each in holders for value in getattr(each, "__dict__", {}).values()]
    return list({id(value): value for value in values if isinstance(value, torch.Generator)}.values())


def _draws_once(sampler: Any) -> bool:
    """Whether a sampler, like torch's own, has drawn all it draws from global generators when it yields a first time.

    Changing over to other generators and back costs a tenth of a millisecond, which small steps would feel."""
    from torch.utils import data

    kinds = (data.SequentialSampler, data.RandomSampler, data.SubsetRandomSampler, data.WeightedRandomSampler)
    inner = sampler.sampler if type(sampler) is data.BatchSampler else sampler
    return type(inner) in kinds or isinstance(inner, list | tuple | range)
