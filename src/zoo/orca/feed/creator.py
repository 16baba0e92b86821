"""A function that makes the data on each worker; what it gives, a DataLoader or a tf.data.Dataset, is asked there."""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from zoo.orca.engine.pickling import pack
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed.base import Feed, Source
from zoo.orca.feed.loader import check_not_empty, is_loader
from zoo.orca.feed.loader_order import Rng
from zoo.orca.feed.loader_source import open_loader
from zoo.orca.feed.tf_cuts import count_files
from zoo.orca.feed.tf_data import FILES, RECORDS, is_dataset, open_dataset, ship
from zoo.orca.feed.tf_graph import eagerly, global_seed, tensorflow
from zoo.orca.feed.tf_pipeline import OWN
from zoo.orca.options import OrcaContext

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.engine.worker import Worker
    from zoo.orca.feed.tf_source import DatasetSource


class CreatorFeed(Feed):
    """`creator(config)` or `creator(config, batch_size)`, called on every worker.

    It finds the global batch size in `config["batch_size"]`, and who it is in `config["rank"]` and `config["size"]`. It
    must make the same data on every worker, which is then dealt to them; a tf.data.Dataset may say in its options that
    each worker's is its own (AutoShardPolicy.OFF).

    Attributes:
        batched, infinite: None; that is known on the workers only.
    """

    batched: bool | None = None
    infinite: bool | None = None

    def __init__(self, creator: Any, engine: Engine, config: Mapping[str, Any] | None = None, what: str = "data"):
        self.engine = engine
        _check_creator(creator)
        self._packed = pack(creator, "the data creator")
        self._config = dict(config or {})
        self._one_by_one = OrcaContext.serialize_data_creator
        self._what = what

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"engine": None}

    def open(self, worker: Worker, batch_size: int, seed: int, shuffle: bool = True, drop_last: bool = False) -> Source:
        """This rank's view. Shuffling, dropping and batches are the business of what the creator makes."""
        made = self._create(worker, batch_size, seed)
        if is_dataset(made):
            return _open_dataset(made, worker, batch_size, seed, drop_last, self._what)
        check_not_empty(made)
        return open_loader(made, worker, seed)

    def _create(self, worker: Worker, batch_size: int, seed: int) -> Any:
        creator = self._packed.load()
        config = self._config | {"batch_size": batch_size, "rank": worker.rank, "size": worker.world_size}
        turn = _turn_on_this_machine() if self._one_by_one else contextlib.nullcontext()
        # What it draws (a random split, say) is the same on every worker.
        with turn, Rng(seed).on(), _tensorflow_seeded(seed):
            made = _call_creator(creator, config, batch_size)
        if not is_loader(made) and not is_dataset(made):
            raise InvalidArgumentError(
                f"the data creator {_name(creator)} must return a torch.utils.data.DataLoader or a tf.data.Dataset, "
                f"but returned a {type(made).__module__}.{type(made).__qualname__}."
            )
        return made


def _open_dataset(
    dataset: Any, worker: Worker, batch_size: int, seed: int, drop_last: bool, what: str
) -> DatasetSource:
    """This rank's view of a dataset that every rank has made, dealt as its options say."""
    policies = tensorflow().data.experimental.AutoShardPolicy
    policy = dataset.options().experimental_distribute.auto_shard_policy
    dealt = {policies.OFF: OWN, policies.DATA: RECORDS, policies.AUTO: FILES, policies.FILE: FILES}.get(policy)
    if dealt is None:
        raise InvalidArgumentError(
            f"the auto_shard_policy of a tf.data.Dataset must be AUTO, FILE, DATA or OFF, but is {policy}."
        )
    with eagerly(), tempfile.TemporaryDirectory(prefix="orca-feed-") as folder:
        shipped = ship(dataset, folder)
        if dealt != OWN:
            _check_same(shipped.graph().fingerprint(), worker)
        if policy == policies.FILE:
            _check_files(count_files(shipped.graph()), worker.world_size)
        source = open_dataset(shipped, shipped.tensors(), worker, batch_size, seed, drop_last, dealt, what)
    source.made_from = dataset
    return source


def _check_same(mark: int, worker: Worker) -> None:
    marks = [mark] if worker.world_size == 1 else worker.all_gather(mark)
    if len(set(marks)) > 1:
        other = next(rank for rank, each in enumerate(marks) if each != marks[0])
        raise InvalidArgumentError(
            "every worker must make the same tf.data.Dataset, for each takes its part of every batch, but the data "
            f"creator made another one on rank {other} than on rank 0. Return the whole data on every worker; or, if "
            "the creator shards it by config['rank'], say so in the dataset's options: "
            "experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF."
        )


def _check_files(count: int, workers: int) -> None:
    if count < workers:
        found = (
            f"it reads {count}"
            if count
            else "it does not read from a list of files alone, or it counts files or records (take, skip, shard, zip)"
        )
        raise InvalidArgumentError(
            f"AutoShardPolicy.FILE deals the files of a tf.data.Dataset to the {workers} workers, so there must be at "
            f"least as many, but {found}. Use AutoShardPolicy.AUTO or DATA, or fewer workers."
        )


@contextlib.contextmanager
def _tensorflow_seeded(seed: int) -> Iterator[None]:
    """TensorFlow's global generator starts from the seed, where it is loaded."""
    if "tensorflow" not in sys.modules:
        yield
        return
    with eagerly(), global_seed(seed):
        yield


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
            "data must be a function creator(config, batch_size) that returns a torch.utils.data.DataLoader or a "
            f"tf.data.Dataset, but is a {type(creator).__module__}.{type(creator).__qualname__}."
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
