"""A tf.data.Dataset as a feed: its graph is shipped, and every rank does its part of the work.

The dataset decides what an epoch is and in which order it comes; nothing is shuffled beside that. What it draws at
random follows from the seed and the epoch. Datasets that use what is on the driver only, Python functions above all,
are run there instead, once for each feed, and fed from there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import cloudpickle

from zoo.orca.engine.base import deal
from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.feed.arrays import SharedFeed
from zoo.orca.feed.base import Feed, Source
from zoo.orca.feed.batches import BatchesFeed
from zoo.orca.feed.elements import ElementsFeed, is_labelled, read_element
from zoo.orca.feed.rows import Folder, RowsFeed
from zoo.orca.feed.shards import lay
from zoo.orca.feed.tf_constants import Constant, take_out
from zoo.orca.feed.tf_cuts import SHUFFLES, count_files, is_batched, with_files_of, without_batch
from zoo.orca.feed.tf_graph import DatasetGraph, eagerly, tensorflow
from zoo.orca.feed.tf_pipeline import ALL, OF_FILES, OWN, Pipeline
from zoo.orca.feed.tf_source import INFINITE, BatchesSource, DatasetSource, OwnSource, RecordsSource, read, rows_of

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.engine.worker import Worker

logger = logging.getLogger("zoo.orca")

#: How a dataset is dealt to ranks: by record or by file; OWN is not at all, because each rank has another one.
RECORDS, FILES = "records", "files"

_IGNORE_STATE = 1
_LAID_AT_ONCE = 256
_REMEDIES = {
    "RaggedTensorSpec": "make it a tensor of one shape in a map first (ragged.to_tensor(shape=...))",
    "SparseTensorSpec": "make it dense in a map first (tf.sparse.to_dense)",
    "DatasetSpec": "flatten windows into records first (flat_map)",
}


def is_dataset(value: Any) -> bool:
    """Whether value is a tf.data.Dataset, of either version; tensorflow is not imported to find out."""
    data = getattr(sys.modules.get("tensorflow"), "data", None)
    kind = getattr(data, "Dataset", None)
    return isinstance(kind, type) and isinstance(value, kind)


def feed_of_dataset(dataset: Any, engine: Engine, what: str, by_file: bool = False, session: Any = None) -> Feed:
    """A feed of a dataset that was made on the driver.

    Args:
        by_file: let each rank read files of its own, if the dataset reads at least as many files as there are ranks.
        session: where the variables and tables of a dataset of a graph have their values.
    """
    folder = Folder()
    shipped = ship(dataset, folder.path, session)
    if not shipped.graph().is_bound():
        return DatasetFeed(shipped, folder, engine, what, FILES if by_file else RECORDS)
    return _feed_from_driver(shipped, engine, what)


@dataclass(frozen=True)
class Shipped:
    """A dataset on its way: its graph, its large constants, and what an element is."""

    body: bytes
    constants: tuple[Constant, ...]
    spec: bytes

    def graph(self) -> DatasetGraph:
        return DatasetGraph.of(self.body)

    def element(self) -> Any:
        """The structure of an element; unpickling it imports tensorflow, so it is not done before it is needed."""
        return cloudpickle.loads(self.spec)

    def tensors(self) -> dict[str, Any]:
        with eagerly():
            return {each.name: each.tensor() for each in self.constants}

    def is_infinite(self) -> bool:
        with eagerly(), closing(Pipeline(self.graph(), self.element(), self.tensors(), seed=0)) as pipeline:
            return pipeline.cardinality == INFINITE

    def whole(self) -> Shipped:
        """With everything in it, for machines that do not see the driver's files."""
        return replace(self, constants=tuple(each.whole() for each in self.constants))

    def light(self) -> Shipped:
        """Without what `whole` put in."""
        return replace(self, constants=tuple(replace(each, body=None) for each in self.constants))


def ship(dataset: Any, folder: str, session: Any = None) -> Shipped:
    """Serialise a dataset; its large constants go to files of the folder, and through memory once."""
    tf = tensorflow()
    _check_elements(dataset.element_spec)
    variant = tf.data.experimental.to_variant(dataset)
    path = os.path.join(folder, "graph")
    if isinstance(variant, tf.__internal__.EagerTensor):
        _write(tf, variant, path)
    else:
        with variant.graph.as_default():
            writing = _write(tf, variant, path)
        with _session_for(tf, variant, session) as running:
            running.run(writing)
    if not os.path.getsize(path):  # all that TensorFlow does about a message that is too large
        raise InvalidArgumentError(
            "a tf.data.Dataset can be sent if the arrays in it have at most 2 GB, but they have more. Put them into "
            "an XShards, or into files that the dataset reads."
        )
    body, constants = take_out(path, folder)
    os.unlink(path)
    return Shipped(body, tuple(constants), cloudpickle.dumps(dataset.element_spec))


def _write(tf: Any, variant: Any, path: str) -> Any:
    """Write the graph to a file, where it stays out of Python; in a graph, the operation that does so."""
    graph = tf.raw_ops.DatasetToGraphV2(
        input_dataset=variant, external_state_policy=_IGNORE_STATE, strip_device_assignment=False
    )
    return tf.io.write_file(path, graph)


@contextlib.contextmanager
def _session_for(tf: Any, variant: Any, session: Any) -> Iterator[Any]:
    """The session that has what a dataset of a graph needs: the one given, the default one, or one of its own."""
    graph, default = variant.graph, tf.compat.v1.get_default_session()
    if session is None and default is not None and default.graph is graph:
        session = default
    if session is not None:
        yield session
        return
    if any(op.type in ("VarHandleOp", "VariableV2") for op in _needed(variant.op)):
        raise PreconditionError(
            "the tf.data.Dataset uses variables of a graph, whose values only a session knows. Call this within "
            "`with session.as_default():`."
        )
    with tf.compat.v1.Session(graph=graph) as own:
        own.run(graph.get_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS))
        yield own


def _needed(op: Any) -> set[Any]:
    found, waiting = set(), [op]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += [tensor.op for tensor in each.inputs]
    return found


def _check_elements(spec: Any) -> None:
    tf = tensorflow()
    for each in tf.nest.flatten(spec):
        kind = type(each).__name__
        if not isinstance(each, tf.TensorSpec):
            remedy = _REMEDIES.get(kind, "leave it out in a map first")
            raise InvalidArgumentError(
                f"the elements of a tf.data.Dataset must be tensors, or tuples and dicts of tensors, but there is a "
                f"{kind.removesuffix('Spec')} in them: {remedy}."
            )


class DatasetFeed(Feed):
    """A dataset that each rank rebuilds.

    Attributes:
        batched: whether its elements are batches.
        infinite: whether it has no end, so that an epoch must be given a number of steps.
    """

    def __init__(self, shipped: Shipped, folder: Folder, engine: Engine, what: str, dealt: str = RECORDS):
        self.engine = engine
        self.labelled = is_labelled(shipped.element())
        self.batched = is_batched(shipped.graph())
        self.infinite = shipped.is_infinite()
        self._shipped = shipped
        self._folder = folder
        self._what = what
        self._dealt = dealt
        self._is_seen = engine.one_machine  # whether workers see the driver's files
        self._constants: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        shipped = self._shipped if self._is_seen else self._shipped.whole()
        return vars(self) | {"engine": None, "_folder": None, "_shipped": shipped, "_constants": None}

    def open(self, worker: Worker, batch_size: int, seed: int, shuffle: bool = True, drop_last: bool = False) -> Source:
        """This rank's view. Shuffling is the dataset's own business, as are batches if it has some."""
        if self._constants is None:
            self._constants = self._shipped.tensors()
            self._shipped = self._shipped.light()  # they are mapped now
        return open_dataset(
            self._shipped, self._constants, worker, batch_size, seed, drop_last, self._dealt, self._what
        )


def open_dataset(
    shipped: Shipped,
    constants: dict[str, Any],
    worker: Worker,
    batch_size: int,
    seed: int,
    drop_last: bool,
    dealt: str,
    what: str,
) -> DatasetSource:
    """This rank's view of a dataset.

    Args:
        constants: the dataset's large ones, by name.
        batch_size: the rows of a global batch, if the dataset does not say itself.
        dealt: RECORDS, FILES (where there are enough; else by record) or OWN.
    """
    graph, spec = shipped.graph(), shipped.element()
    batched = is_batched(graph)
    records = without_batch(graph) if batched and dealt != OWN else None
    if records is not None:
        batched, spec = False, _rows(spec)
        graph, (batch_size, drops) = records
        drop_last = drop_last or drops

    def pipeline(graph: DatasetGraph, holds: str = ALL) -> Pipeline:
        return Pipeline(graph, spec, constants, seed, worker.rank, worker.world_size, holds)

    if dealt == OWN:
        size = None if batched else len(deal(batch_size, worker.world_size)[worker.rank])
        return OwnSource(pipeline(graph, OWN), worker, what, size, batched)
    if dealt == FILES and count_files(graph) >= worker.world_size > 1:
        mine = with_files_of(graph, worker.rank, worker.world_size)
        size = len(deal(batch_size, worker.world_size)[worker.rank])
        return OwnSource(pipeline(mine, OF_FILES), worker, what, size, batched, pipeline(graph))
    if batched:
        return BatchesSource(pipeline(graph), worker, what)
    return RecordsSource(pipeline(graph), worker, batch_size, drop_last, what)


def _rows(spec: Any) -> Any:
    """What a row of a batch is."""
    tf = tensorflow()
    return tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape[1:], each.dtype), spec)


def _feed_from_driver(shipped: Shipped, engine: Engine, what: str) -> Feed:
    """Run a dataset here, once, and lay its elements down: as rows, or as the batches that they are."""
    if shipped.is_infinite():
        raise InvalidArgumentError(
            f"{what} calls a Python function (py_function, numpy_function or from_generator), or uses something else "
            "that is here only, so that it is gone through once on the driver, but it has no end. Leave out .repeat(), "
            "or say .take(n)."
        )
    logger.info("%s uses what is on the driver only (a Python function): it is run here, and its rows are sent.", what)
    graph, spec = shipped.graph(), shipped.element()
    batched = is_batched(graph)
    records = without_batch(graph) if batched else None
    size, drops = (None, False) if records is None else records[1]
    if records is not None:
        graph, spec = records[0], _rows(spec)
    labelled, shuffles = is_labelled(spec), graph.has(SHUFFLES)
    with closing(Pipeline(graph, spec, shipped.tensors(), seed=0)) as pipeline:
        with eagerly():
            dataset = pipeline.whole(0)
        if batched and records is None:
            return BatchesFeed(((rows_of(each), each) for each in read(dataset)), engine, labelled, shuffles, what)
        with eagerly():
            elements = read(dataset.batch(_LAID_AT_ONCE))
        feed = _feed_of_elements(elements, engine, what)
    return ElementsFeed(feed, labelled, batched, size, shuffles, drops)


def _feed_of_elements(elements: Iterator[Any], engine: Engine, what: str) -> Feed:
    if not engine.one_machine:
        return SharedFeed([list(elements)], read_element, engine, what)
    folder = Folder()
    return RowsFeed(engine, [lay(folder.path, 0, elements, read_element)], folder, what)
