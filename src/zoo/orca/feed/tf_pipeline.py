"""A shipped dataset as one rank runs it: rebuilt for every epoch, whole or only with this rank's elements."""

from __future__ import annotations

import os
import re
import uuid
import weakref
from collections.abc import Mapping
from typing import Any

from zoo.orca.feed.tf_cuts import topmost_caches, with_maps_last
from zoo.orca.feed.tf_graph import CACHES, DatasetGraph, eagerly, set_constant, tensorflow
from zoo.orca.feed.tf_seeds import Seeds, draws, places, seeded

#: Constants of more bytes than this are spared TensorFlow's optimizer, which would make room for another copy of them.
HUGE = 32 << 20
#: What of a dataset a pipeline has: all of it, what this rank's files hold, or a dataset that is this rank's alone.
ALL, OF_FILES, OWN = "all", "files", "own"
_PART = "part"


class Pipeline:
    """A dataset of records or batches, epoch by epoch.

    What lies below a `cache()` is built once, so that what was cached in the first epoch is there in the next.

    Args:
        spec: the structure of an element.
        constants: the large constants of the graph, by name.
        seed: what all that is drawn follows from, beside the epoch.
        rank, world_size: who runs it: files that a cache writes must be one rank's own.
        holds: ALL, OF_FILES or OWN; None where no gang runs it: files of caches are then left as they are.
    """

    #: Those of this process, whose files are nobody else's business.
    _alive: weakref.WeakSet[Pipeline] = weakref.WeakSet()

    def __init__(
        self,
        graph: DatasetGraph,
        spec: Any,
        constants: Mapping[str, Any],
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        holds: str | None = None,
    ):
        self._places = places(graph)
        self._graph, self._cut = with_maps_last(graph)
        self._spec = spec
        self._constants = dict(constants)
        self._seed = seed
        self._rank = rank
        self._world_size = world_size
        self._holds = holds
        self._files: set[str] = set()
        self._cached: dict[Any, Any] = {}
        self._variables: set[str] = set()
        self._name = uuid.uuid4().hex
        self._alive.add(self)

    def close(self) -> None:
        """Let go of what was cached, and of variables that the dataset has taken along."""
        tf = tensorflow()
        self._cached.clear()
        self._files.clear()
        with eagerly():
            for name in self._variables:
                handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=None, shared_name=name)
                tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)

    @property
    def cardinality(self) -> int:
        """The elements of an epoch; -1 without an end, -2 when it is not known."""
        return int(tensorflow().data.experimental.cardinality(self.whole(0)))

    def whole(self, epoch: int) -> Any:
        """All elements, in the order that they have on every rank."""
        sink = self._graph.sink
        return self._dataset(self._build(sink, self._held(sink, Seeds(self._seed)), Seeds(self._seed, epoch)))

    def part(self, epoch: int, ranks: int, rank: int, skip: int = 0) -> Any:
        """Every `ranks`-th element, from this rank's first one on, the first `skip` of these left out."""
        once, now = Seeds(self._seed), Seeds(self._seed, epoch)
        mine, my_once = Seeds(self._seed, epoch, rank), Seeds(self._seed, 0, rank)
        sink, cut = self._graph.sink, self._cut
        caches = [] if sink == cut else self._caches_above(cut)
        if caches:
            cache = caches[0]
            if (cache, ranks, rank) not in self._cached:
                every = self._shard(cut, self._build(cut, self._held(cut, once), once), ranks, rank)
                holds = f"{_PART}-{rank}-of-{ranks}"
                self._cached[cache, ranks, rank] = self._build(cache, {cut: every}, my_once, holds)
            start, found = cache, self._cached[cache, ranks, rank]
        else:
            start = cut
            found = self._shard(cut, self._build(cut, self._held(cut, once), now), ranks, rank)
        if skip and not self._draws_above(start):
            return self._dataset(self._build(sink, {start: self._skip(start, found, skip)}, mine))
        # Who goes on in the middle of an epoch must draw what was drawn before it, too.
        dataset = self._dataset(self._build(sink, {start: found}, mine))
        return dataset.skip(skip) if skip else dataset

    def _caches_above(self, cut: str) -> list[str]:
        """The caches between the end of the dataset and a node, the last one first."""
        found, name = [], self._graph.sink
        while name != cut:
            if self._graph.nodes[name].op in CACHES:
                found.append(name)
            name = self._graph.below(name)[0]
        return found

    def _draws_above(self, start: str) -> bool:
        return draws(self._graph, *self._graph.reached_from(self._graph.sink, {start}))

    def _held(self, sink: str, seeds: Seeds) -> dict[str, Any]:
        """The datasets up to caches that a node needs, which outlive an epoch."""
        held = {}
        for cache in topmost_caches(self._graph, sink):
            if cache not in self._cached:
                self._cached[cache] = self._build(cache, {}, seeds)
            held[cache] = self._cached[cache]
        return held

    def _build(self, sink: str, held: Mapping[str, Any], seeds: Seeds, holds: str | None = None) -> Any:
        """The dataset that a node is, as a variant; datasets that are held take the place of nodes.

        Args:
            holds: what its caches hold, for the names of their files, if that is not what the pipeline has.
        """
        if sink in held:
            return held[sink]
        part = self._graph.part(sink, held)
        seeded(part, seeds, self._places)
        self._own_cache_files(part, holds or f"{self._holds}-{self._rank}-of-{self._world_size}")
        self._own_variables(part, sink)
        needed = {name for node in part.proto.node for name in node.input}
        constants = {name: value for name, value in self._constants.items() if name in needed}
        return _from_graph(part, constants | dict(held))

    def _own_cache_files(self, part: DatasetGraph, holds: str) -> None:
        """Files with other rows in them have other names, for the same cache may be used by another dataset, too."""
        if self._holds is None:
            return
        for node in list(part.proto.node):
            path = part.value(node.input[1]) if node.op in CACHES else None
            if not path:
                continue
            name = path.decode() if self._world_size == 1 else f"{path.decode()}-{holds}"
            constant = part.proto.node.add(name=f"{node.name}/file")
            set_constant(constant, name)
            node.input[1] = constant.name
            if not any(name in each._files for each in list(self._alive)):
                _remove_unfinished(name)
            self._files.add(name)

    def _own_variables(self, part: DatasetGraph, sink: str) -> None:
        """Another dataset of this process may use the same variable with another value, and so may a part of this one.

        A generator of random numbers, say: what all ranks draw alike must not hang on what this one draws."""
        for node in part.proto.node:
            if node.op == "VarHandleOp":
                name = f"{self._name}-{sink}-{node.name}"
                node.attr["shared_name"].s = name.encode()
                self._variables.add(name)

    def _shard(self, name: str, variant: Any, ranks: int, rank: int) -> Any:
        if ranks == 1:
            return variant
        return self._raw("ShardDataset", name, variant, num_shards=ranks, index=rank)

    def _skip(self, name: str, variant: Any, count: int) -> Any:
        return self._raw("SkipDataset", name, variant, count=count)

    def _raw(self, op: str, name: str, variant: Any, **inputs: int) -> Any:
        """An operation on a dataset whose elements have the types of a node's."""
        tf = tensorflow()
        types = self._graph.types(name)
        # Where a node does not tell: files of text and records, whose elements are single texts.
        dtypes = [tf.as_dtype(each) for each in types[0].list.type] if types else [tf.string]
        shapes = [tf.TensorShape(each) for each in types[1].list.shape] if types else [tf.TensorShape([])]
        numbers = {key: tf.constant(value, tf.int64) for key, value in inputs.items()}
        return getattr(tf.raw_ops, op)(input_dataset=variant, output_types=dtypes, output_shapes=shapes, **numbers)

    def _dataset(self, variant: Any) -> Any:
        tf = tensorflow()
        options = tf.data.Options()
        options.deterministic = True
        if sum(each.dtype.size * each.shape.num_elements() for each in self._constants.values()) > HUGE:
            options.experimental_optimization.apply_default_optimizations = False
        return tf.data.experimental.from_variant(variant, self._spec).with_options(options)


def _remove_unfinished(cache: str) -> None:
    """Remove what a worker that was killed has left of a cache: its lock, which keeps others out, and its rows."""
    tf = tensorflow()
    folder, name = os.path.split(cache)
    found = tf.io.gfile.listdir(folder or ".") if tf.io.gfile.isdir(folder or ".") else []
    locks = [each for each in found if re.fullmatch(rf"{re.escape(name)}_\d+\.lockfile", each)]
    if locks:
        begins = tuple(f"{each}." for each in (name, *(lock.removesuffix(".lockfile") for lock in locks)))
        # The locks go last, so that who is interrupted here can be helped, too.
        for each in sorted((each for each in found if each.startswith(begins)), key=locks.__contains__):
            tf.io.gfile.remove(os.path.join(folder, each))


def _from_graph(graph: DatasetGraph, held: Mapping[str, Any]) -> Any:
    """Run a graph that makes a dataset. What is held is handed to it in variables, for a graph has no arguments."""
    tf = tensorflow()
    handles = []
    try:
        for name, value in held.items():
            shared = f"orca-{uuid.uuid4().hex}"
            handle = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=None, shared_name=shared)
            handles.append(handle)
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)
            _read_variable(graph, name, value.dtype.as_datatype_enum, shared)
        return tf.raw_ops.DatasetFromGraph(graph_def=graph.proto.SerializeToString())
    finally:
        for handle in handles:
            tf.raw_ops.DestroyResourceOp(resource=handle)


def _read_variable(graph: DatasetGraph, name: str, dtype: int, shared: str) -> None:
    """Put the value of a variable where a node of this name was."""
    variable = graph.proto.node.add(name=f"{name}/held", op="VarHandleOp")
    variable.attr["dtype"].type = dtype
    variable.attr["shape"].shape.unknown_rank = True
    variable.attr["shared_name"].s = shared.encode()
    value = graph.proto.node.add(name=name, op="ReadVariableOp", input=[variable.name])
    value.attr["dtype"].type = dtype
