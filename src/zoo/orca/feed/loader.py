"""A torch DataLoader as a feed: its batches are the global batches, and each rank loads its rows of every one of them.

What the user set on the loader (samplers, collate_fn, worker processes, ...) is kept. Only the order is made to agree:
samplers run on every rank, apart from training, with generators that are seeded from the seed and the epoch. So N
workers take the steps that plain torch takes after `torch.manual_seed(seed + epoch)`.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import inspect
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from zoo.orca.engine.pickling import pack
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.base import Feed
from zoo.orca.feed.loader_order import Rng, is_stream
from zoo.orca.feed.loader_source import LoaderSource, altered, count_steps, length_of, open_loader
from zoo.orca.optional import is_instance_of
from zoo.orca.options import OrcaContext

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.engine.worker import Worker


def is_loader(value: Any) -> bool:
    """Whether value is a torch DataLoader; torch is not imported to find out."""
    return is_instance_of(value, "torch.utils.data", "DataLoader")


class LoaderFeed(Feed):
    """A DataLoader, or a function that makes one on each worker.

    Args:
        loader: a DataLoader, `creator(config)` or `creator(config, batch_size)`. A creator finds the global batch
            size in `config["batch_size"]` too, and must make the same loader on every worker.
        config: what a creator is called with.
    """

    def __init__(self, loader: Any, engine: Engine, config: Mapping[str, Any] | None = None):
        self.engine = engine
        self.is_creator = not is_loader(loader)
        if self.is_creator:
            _check_creator(loader)
            self._packed = pack(loader, "the data creator")
        else:
            _check_not_empty(loader)
            self._packed = pack(altered(loader, _iterator=None), "the DataLoader")
        self._loader = None if self.is_creator else loader
        self._config = dict(config or {})
        self._one_by_one = OrcaContext.serialize_data_creator

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
        """This rank's view. Shuffling and dropping are the loader's own business, as is an instance's batch size."""
        loader = self._create(batch_size, seed) if self.is_creator else self._packed.load()
        return open_loader(loader, worker, seed)

    def _create(self, batch_size: int, seed: int) -> Any:
        creator = self._packed.load()
        turn = _turn_on_this_machine() if self._one_by_one else contextlib.nullcontext()
        with turn, Rng(seed).on():  # what it draws (a random split, say) is the same on every worker
            loader = _call_creator(creator, self._config | {"batch_size": batch_size}, batch_size)
        if not is_loader(loader):
            raise InvalidArgumentError(
                f"the data creator {_name(creator)} must return a torch.utils.data.DataLoader, "
                f"but returned a {type(loader).__module__}.{type(loader).__qualname__}."
            )
        _check_not_empty(loader)
        return loader


def _check_not_empty(loader: Any) -> None:
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


def _name(creator: Any) -> str:
    return repr(getattr(creator, "__qualname__", type(creator).__qualname__))


def _parameters(creator: Any) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(creator).parameters.values())
    except (TypeError, ValueError):  # some callables do not tell
        return None


def _check_creator(creator: Any) -> None:
    if not callable(creator):
        raise InvalidArgumentError(
            "data must be a torch.utils.data.DataLoader or a function creator(config, batch_size) that returns one, "
            f"but is a {type(creator).__module__}.{type(creator).__qualname__}."
        )
    if _parameters(creator) == []:
        raise InvalidArgumentError(
            f"the data creator {_name(creator)} takes no arguments. Expected creator(config) or "
            "creator(config, batch_size)."
        )


def _call_creator(creator: Any, config: dict[str, Any], batch_size: int) -> Any:
    """Hand over the batch size if the creator takes it: by its name, or as a second argument that must be given."""
    parameters = _parameters(creator)
    if parameters is None:
        return creator(config, batch_size)
    by_name = [each for each in parameters[1:] if each.name == "batch_size"]
    if by_name and by_name[0].kind is not inspect.Parameter.POSITIONAL_ONLY:
        return creator(config, batch_size=batch_size)
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in parameters if each.kind in places and each.default is inspect.Parameter.empty]
    takes_any = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    return creator(config, batch_size) if by_name or takes_any or len(needed) > 1 else creator(config)


@contextlib.contextmanager
def _turn_on_this_machine() -> Iterator[None]:
    """Wait until no other process of this machine is in here. A folder can be locked as well, which leaves no file."""
    folder = os.open(tempfile.gettempdir(), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)  # closing is not enough when the creator forked
        os.close(folder)
