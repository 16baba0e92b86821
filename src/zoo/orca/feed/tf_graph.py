"""The graph of a serialised tf.data.Dataset: its operations, what they need, and the functions that they call."""

from __future__ import annotations

import contextlib
import itertools
import re
import zlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from zoo.orca.optional import require

MAPS = {"MapDataset", "ParallelMapDataset", "ParallelMapDatasetV2"}
CACHES = {"CacheDataset", "CacheDatasetV2"}
#: Operations that call back into the Python that made them.
PYTHON = {"EagerPyFunc", "PyFunc", "PyFuncStateless", "GeneratorDataset"}

# What takes the place of handles that these are given: they then make what they need themselves.
_DUMMIES = dict.fromkeys(
    ["ShuffleDatasetV2", "ShuffleDatasetV3", "ShuffleAndRepeatDatasetV2", "RandomDatasetV2"], "DummySeedGenerator"
) | dict.fromkeys(CACHES, "DummyMemoryCache")
_DATASET = re.compile(r"Dataset(V\d+)?$")
_TYPES = ("output_types", "Toutput_types")
# They name things of the process that made the graph.
_OF_PROCESS = {"metadata", "token", "shared_name", "debug_name", "container"}


def tensorflow() -> Any:
    """The package, where something of it is needed."""
    return require("tensorflow", "A tf.data.Dataset")


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Run TensorFlow operations at once, also where the user's modules or a graph around us say otherwise."""
    tensorflow()
    from tensorflow.python.eager import context

    with context.eager_mode():
        yield


@contextlib.contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Draw as after `tf.random.set_seed(seed)`, and let training go on afterwards where it was."""
    tf = tensorflow()
    from tensorflow.python.eager import context

    own = context.context()
    before = own._seed, getattr(own, "_rng", None)
    tf.random.set_seed(seed)
    try:
        yield
    finally:
        own._seed, own._rng = before


class DatasetGraph:
    """A dataset as a graph: operations by name, the functions that they call, and which of them is the dataset.

    Large constants may be missing: they are known by their name alone.
    """

    def __init__(self, proto: Any):
        self.proto = proto
        self.nodes = {node.name: node for node in proto.node}
        self.functions = {each.signature.name: each for each in proto.library.function}
        self._end = next(node for node in proto.node if node.op == "_Retval")

    @staticmethod
    def of(body: bytes) -> DatasetGraph:
        """Read a graph, and make it one that other processes can use and that gives one order only."""
        graph = DatasetGraph(tensorflow().compat.v1.GraphDef.FromString(body))
        graph._forget_resources()
        graph._decide_order()
        graph._count_on_maps()
        return graph

    @property
    def sink(self) -> str:
        """The node that is the dataset."""
        return self._end.input[0]

    def op(self, name: str) -> str:
        """The operation that a node is; nothing for a large constant."""
        return self.nodes[name].op if name in self.nodes else ""

    def value(self, name: str) -> Any:
        """The value of a small constant; None where it is something else."""
        if self.op(name) != "Const":
            return None
        attributes = self.nodes[name].attr
        with eagerly():
            tensor = tensorflow().io.parse_tensor(
                attributes["value"].tensor.SerializeToString(), attributes["dtype"].type
            )
            return tensor.numpy()

    def types(self, name: str) -> tuple[Any, Any] | None:
        """The attributes that tell the types and shapes of a dataset's elements, where it has them."""
        attributes = self.nodes[name].attr
        found = [attributes[key] for key in _TYPES if key in attributes]
        return (found[0], attributes["output_shapes"]) if found and "output_shapes" in attributes else None

    def below(self, name: str) -> list[str]:
        """The datasets that a dataset is made from."""
        found = map(plain, self.nodes[name].input)
        return [each for each in found if _DATASET.search(self.op(each))]

    def reached_from(self, sink: str, held: Collection[str] = ()) -> list[Any]:
        """The nodes that the sink needs, in the graph's order; not those that are held, nor what only they need."""
        seen, waiting = set(held), [sink]
        while waiting:
            name = waiting.pop()
            if name not in seen and name in self.nodes:
                seen.add(name)
                waiting += map(plain, self.nodes[name].input)
        return [node for node in self.proto.node if node.name in seen and node.name not in held]

    def functions_of(self, nodes: Iterable[Any]) -> list[Any]:
        """The functions that nodes call, and those that these call, in the order in which they are met."""
        found: dict[str, Any] = {}

        def meet(node: Any) -> None:
            for name in _called(node):
                if name in self.functions and name not in found:
                    found[name] = self.functions[name]
                    for inner in self.functions[name].node_def:
                        meet(inner)

        for node in nodes:
            meet(node)
        return list(found.values())

    def operations(self) -> Iterator[tuple[str, Any]]:
        """All nodes of the dataset with the function that they are in; the first ones are in none."""
        nodes = self.reached_from(self.sink)
        yield from (("", node) for node in nodes)
        for function in self.functions_of(nodes):
            yield from ((function.signature.name, node) for node in function.node_def)

    def has(self, ops: Collection[str]) -> bool:
        return any(node.op in ops for _, node in self.operations())

    def is_bound(self) -> bool:
        """Whether the dataset works in the process that made it only: it calls Python, or uses what cannot be sent."""
        return any(node.op in PYTHON or _is_handle(node) for _, node in self.operations())

    def part(self, sink: str, held: Collection[str] = ()) -> DatasetGraph:
        """A copy of what a node needs, with that node as the dataset; what is held is left out."""
        nodes = self.reached_from(sink, held)
        proto = type(self.proto)()
        proto.versions.CopyFrom(self.proto.versions)
        proto.node.extend(nodes)
        proto.library.function.extend(self.functions_of(nodes))
        proto.node.add().CopyFrom(self._end)
        graph = DatasetGraph(proto)
        graph._end.input[0] = sink
        return graph

    def chained(self, names: list[str], retyped: Collection[str] = (), types: Any = None) -> DatasetGraph:
        """A copy in which datasets follow each other in this order, the last one being the dataset.

        Args:
            retyped: those that get elements of other types than before, which they hand on.
        """
        proto = type(self.proto)()
        proto.CopyFrom(self.proto)
        graph = DatasetGraph(proto)
        for lower, upper in itertools.pairwise(names):
            graph.nodes[upper].input[0] = lower
        for name in retyped:
            graph.nodes[name].attr["output_types"].CopyFrom(types[0])
            graph.nodes[name].attr["output_shapes"].CopyFrom(types[1])
        graph._end.input[0] = names[-1]
        return graph

    def fingerprint(self) -> int:
        """A number that two graphs have in common when they make the same dataset, in whatever process."""
        nodes = self.reached_from(self.sink)
        functions = self.functions_of(nodes)
        named = {each.signature.name: f"function {number}" for number, each in enumerate(functions)}
        mark = 0
        for scope in (nodes, *(each.node_def for each in functions)):
            numbers = {node.name: str(number) for number, node in enumerate(scope)}
            for node in scope:
                inputs = [numbers.get(plain(each), "?") for each in node.input]
                texts = [named.get(node.op, node.op), *inputs, *_attributes(node, named)]
                mark = zlib.crc32("\n".join(texts).encode(), mark)
        return mark

    def _forget_resources(self) -> None:
        """Handles of the process that made the dataset mean nothing elsewhere, or, worse, something else."""
        users = {plain(name): node.op for node in self.proto.node for name in node.input}
        for node in self.proto.node:
            node.ClearField("experimental_type")
            if _is_handle(node) and users.get(node.name) in _DUMMIES:
                node.attr.clear()
                node.op = _DUMMIES[users[node.name]]

    def _decide_order(self) -> None:
        """What runs in parallel hands its results on in the order of its inputs."""
        for _, node in self.operations():
            if "deterministic" in node.attr and node.attr["deterministic"].s == b"false":
                node.attr["deterministic"].s = b"true"
            if "sloppy" in node.attr:
                node.attr["sloppy"].b = False

    def _count_on_maps(self) -> None:
        """Maps of the older interface might end a dataset, from a queue that is empty; others give as many elements."""
        for _, node in list(self.operations()):
            if node.op in MAPS and not node.attr["preserve_cardinality"].b:
                inner = (each.op for function in self.functions_of([node]) for each in function.node_def)
                node.attr["preserve_cardinality"].b = not any(
                    op in PYTHON or "Dequeue" in op or "GetNext" in op or op.startswith("Reader") for op in inner
                )


def set_constant(node: Any, value: int | str) -> None:
    """Make a node the constant of a whole number or a text."""
    tf = tensorflow()
    dtype = tf.string if isinstance(value, str) else tf.int64
    node.op = "Const"
    node.attr["dtype"].type = dtype.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype))


def _is_handle(node: Any) -> bool:
    """Whether a node is the handle of something in the process that made the graph."""
    return node.op == "Const" and node.attr["dtype"].type == tensorflow().resource.as_datatype_enum


def plain(name: str) -> str:
    """The node that an input names."""
    return name.lstrip("^").split(":")[0]


def _called(node: Any) -> Iterator[str]:
    """The functions that a node names; a call may be an operation of the function's name, too."""
    yield node.op
    for key in sorted(node.attr):
        value = node.attr[key]
        if value.HasField("func"):
            yield value.func.name
        elif value.HasField("list"):
            yield from (each.name for each in value.list.func)


def _attributes(node: Any, named: dict[str, str]) -> Iterator[str]:
    for key in sorted(node.attr):
        value = node.attr[key]
        if key in _OF_PROCESS or key.startswith("_"):
            continue
        if value.HasField("func"):
            yield f"{key} {named.get(value.func.name)}"
        elif not (value.HasField("list") and value.list.func):
            yield f"{key} {zlib.crc32(value.SerializeToString(deterministic=True))}"
