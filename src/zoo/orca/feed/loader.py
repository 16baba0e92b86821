"""A torch DataLoader as a feed: its batches are the global batches, and each rank loads its rows of every one of them.

What the user set on the loader (samplers, collate_fn, worker processes, ...) is kept. Only the order is made to agree:
samplers run on every rank, apart from training, with generators that are seeded from the seed and the epoch. So N
workers take the steps that plain torch takes after `torch.manual_seed(seed + epoch)`.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from zoo.orca.engine.pickling import pack
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.base import Feed
from zoo.orca.feed.loader_order import Rng, is_stream
from zoo.orca.feed.loader_source import LoaderSource, altered, count_steps, length_of, open_loader
from zoo.orca.optional import is_instance_of

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.engine.worker import Worker


def is_loader(value: Any) -> bool:
    """Whether value is a torch DataLoader; torch is not imported to find out."""
    return is_instance_of(value, "torch.utils.data", "DataLoader")


class LoaderFeed(Feed):
    """A DataLoader, which travels to the workers as it is."""

    def __init__(self, loader: Any, engine: Engine):
        self.engine = engine
        check_not_empty(loader)
        self._packed = pack(altered(loader, _iterator=None), "the DataLoader")
        self._loader = loader

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"engine": None, "_loader": None}  # these are the driver's

    def sample(self) -> Any | None:
        """One batch, loaded without worker processes; None when it cannot be had on the driver.

        Neither the global generators nor the loader's own change by it."""
        if self._loader is None or is_stream(self._loader):
            return None
        if self._loader.num_workers and self._loader.worker_init_fn is not None:
            return None  # the dataset may need what it does
        with Rng(0).on():
            return next(iter(_in_this_process(self._loader)))

    def open(
        self, worker: Worker, batch_size: int, seed: int, shuffle: bool = True, drop_last: bool = False
    ) -> LoaderSource:
        """This rank's view. Shuffling, dropping and the batch size are the loader's own business."""
        return open_loader(self._packed.load(), worker, seed)


def check_not_empty(loader: Any) -> None:
    length = length_of(loader.dataset)
    if length == 0:
        raise InvalidArgumentError(
            f"the DataLoader's dataset, a {type(loader.dataset).__qualname__}, is empty. Expected at least one row."
        )
    if count_steps(loader) == 0:
        raise InvalidArgumentError(
            f"the DataLoader has no batches: its dataset has {length} rows, its batch_size is {loader.batch_size} and "
            f"drop_last is {loader.drop_last}. Use a smaller batch_size, or drop_last=False."
        )


def _in_this_process(loader: Any) -> Any:
    """A copy that starts no process and leaves the loader's samplers alone; the dataset is shared."""
    memo = {id(loader.dataset): loader.dataset}
    batch_sampler, sampler, generator = copy.deepcopy((loader.batch_sampler, loader.sampler, loader.generator), memo)
    return altered(
        loader,
        batch_sampler=batch_sampler,
        sampler=sampler,
        generator=generator,
        num_workers=0,
        prefetch_factor=None,
        timeout=0,
        pin_memory=False,
        persistent_workers=False,
        _iterator=None,
    )
