"""Where the graph of a dataset can be cut, so that each rank does its part: of records, of batches, of files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from zoo.orca.feed.tf_graph import CACHES, MAPS, PYTHON, DatasetGraph, plain, set_constant

READERS = {"TextLineDataset", "TFRecordDataset", "TFRecordDatasetV2", "FixedLengthRecordDataset",
           "FixedLengthRecordDatasetV2"}  # fmt: skip
SOURCES = READERS | {"TensorSliceDataset", "TensorDataset", "RangeDataset"}
BATCHERS = {"BatchDataset", "BatchDatasetV2", "ParallelBatchDataset"}
#: Whose batches cannot be put together from parts: what a row becomes depends on the others.
PADDERS = {"PaddedBatchDataset", "PaddedBatchDatasetV2", "MapAndBatchDataset", "RebatchDataset", "RebatchDatasetV2",
           "DenseToSparseBatchDataset"}  # fmt: skip
SHUFFLES = {"ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3", "ShuffleAndRepeatDataset",
            "ShuffleAndRepeatDatasetV2"}  # fmt: skip
#: They hand elements on as they are, one by one.
PASSES = {"PrefetchDataset", "OptionsDataset", "ModelDataset", "PrivateThreadPoolDataset",
          "MaxIntraOpParallelismDataset"}  # fmt: skip
#: They look at the number or the order of elements, and never into them: a map may as well come after them.
BLIND = SHUFFLES | {"TakeDataset", "SkipDataset", "RepeatDataset", "ShardDataset", "AssertCardinalityDataset"}


#: They do with an element what they would do without the others, or put elements together that are used in any case:
#: the elements of all files are those of some files and those of the others.
EVEN = MAPS | CACHES | BATCHERS | PADDERS | SHUFFLES | PASSES | {
    "FilterDataset", "ParallelFilterDataset", "FlatMapDataset", "InterleaveDataset", "ParallelInterleaveDataset",
    "ParallelInterleaveDatasetV2", "ParallelInterleaveDatasetV3", "ParallelInterleaveDatasetV4",
    "LegacyParallelInterleaveDatasetV2", "RepeatDataset", "UnbatchDataset", "ParseExampleDataset",
    "ParseExampleDatasetV2", "IgnoreErrorsDataset", "GroupByWindowDataset"}  # fmt: skip


class Batch(NamedTuple):
    """How the records of a dataset are put into batches."""

    size: int
    drops: bool


def without_batch(graph: DatasetGraph) -> tuple[DatasetGraph, Batch] | None:
    """The dataset of single records, and their batches, where putting records together is the last that is done."""
    passed = _run(graph, graph.sink, lambda name: graph.op(name) in PASSES)
    name = graph.below(passed[-1])[0] if passed else graph.sink
    if graph.op(name) not in BATCHERS:
        return None
    inputs, records = graph.nodes[name].input, graph.below(name)[0]
    size = graph.value(inputs[1])
    drops = False if graph.op(name) == "BatchDataset" else graph.value(inputs[-1])
    types = graph.types(records)
    if size is None or drops is None or types is None:
        return None
    return graph.chained([records, *reversed(passed)], passed, types), Batch(int(size), bool(drops))


def with_maps_last(graph: DatasetGraph) -> tuple[DatasetGraph, str]:
    """The same dataset with maps after what looks at order alone, and the node after which there are only maps.

    Ranks must go through everything up to that node together; after it each has work with its own elements only.
    """
    top = _run(graph, graph.sink, lambda name: _is_map(graph, name) or graph.op(name) in PASSES | CACHES)
    first = graph.below(top[-1])[0] if top else graph.sink
    middle = _run(graph, first, lambda name: _is_map(graph, name) or graph.op(name) in PASSES | BLIND)
    maps = [name for name in middle if _is_map(graph, name)]
    if not maps:
        return graph, first
    bottom = graph.below(middle[-1])[0]
    # A reader of files does not tell its types, but who hands its elements on does.
    types = graph.types(bottom) or (None if middle[-1] in maps else graph.types(middle[-1]))
    if types is None:
        return graph, first
    others = [name for name in middle if name not in maps]
    order = [bottom, *reversed(others), *reversed(maps), *reversed(top)]
    return graph.chained(order, others, types), others[0]


def topmost_caches(graph: DatasetGraph, sink: str) -> list[str]:
    """The caches below a node that are below no other cache."""
    found, waiting = [], [sink]
    while waiting:
        name = waiting.pop()
        if graph.op(name) in CACHES:
            found.append(name)
        else:
            waiting += graph.below(name)
    return found


def count_files(graph: DatasetGraph) -> int:
    """The files from which everything is read; 0 when they cannot be dealt.

    Something else is read, too, or it matters how many there are: of files, or of records (`take`, `zip`, `scan`)."""
    name = _file_list(graph)
    return 0 if name is None else len(graph.value(graph.nodes[name].input[0]))


def with_files_of(graph: DatasetGraph, rank: int, world_size: int) -> DatasetGraph:
    """The dataset that reads every `world_size`-th file, from this rank's first one on."""
    name = _file_list(graph)
    graph = graph.part(graph.sink)
    if name is None:
        return graph
    mine = graph.proto.node.add(name=f"{name}/mine", op="ShardDataset", input=[name])
    for what, value in (("count", world_size), ("index", rank)):
        constant = graph.proto.node.add(name=f"{name}/{what}")
        set_constant(constant, value)
        mine.input.append(constant.name)
    for attribute, value in zip(("output_types", "output_shapes"), graph.types(name) or (), strict=False):
        mine.attr[attribute].CopyFrom(value)
    for user in graph.proto.node:
        if user.name != mine.name:
            user.input[:] = [mine.name if each == name else each for each in user.input]
    return DatasetGraph(graph.proto)


def is_batched(graph: DatasetGraph) -> bool:
    """Whether an element is a batch of records and not a record."""
    return _gives_batches(graph, graph.nodes, graph.sink)


def _run(graph: DatasetGraph, name: str, belongs: Callable[[str], bool]) -> list[str]:
    """The datasets from this one downwards, as long as they belong together."""
    found = []
    while belongs(name):
        found.append(name)
        name = graph.below(name)[0]
    return found


def _is_map(graph: DatasetGraph, name: str) -> bool:
    """Whether a node changes elements one by one, and nothing but elements."""
    if graph.op(name) not in MAPS or not graph.nodes[name].attr["preserve_cardinality"].b:
        return False
    inner = [each.op for function in graph.functions_of([graph.nodes[name]]) for each in function.node_def]
    assigns = any(op.startswith("Assign") for op in inner)
    # What it changes is then the state of a generator of random numbers.
    draws = any(op.startswith("StatelessRandom") for op in inner)
    return (draws or not assigns) and not any(op in PYTHON for op in inner)


def _file_list(graph: DatasetGraph) -> str | None:
    """The dataset of file names from which everything is read; None when files cannot be dealt."""
    name, reads = graph.sink, False
    while graph.op(name) != "TensorSliceDataset":
        below = graph.below(name)
        if graph.op(name) not in EVEN or len(below) != 1:
            return None
        reads = reads or _reads_files(graph, name)
        name = below[0]
    inputs = graph.nodes[name].input
    names = graph.value(inputs[0]) if reads and len(inputs) == 1 else None
    return name if isinstance(names, np.ndarray) and names.dtype == object and names.ndim == 1 else None


def _reads_files(graph: DatasetGraph, name: str) -> bool:
    functions = [] if graph.op(name) in MAPS else graph.functions_of([graph.nodes[name]])
    return any(node.op in READERS for function in functions for node in function.node_def)


def _gives_batches(graph: DatasetGraph, scope: dict[str, Any], name: str) -> bool:
    """Whether a dataset of the graph, or of a function's body, gives batches."""
    node = scope.get(plain(name))
    if node is None or node.op == "UnbatchDataset" or node.op in SOURCES or not node.input:
        return False
    if node.op in BATCHERS | PADDERS:
        return True
    if node.op == "GroupByWindowDataset":
        return _returns_batches(graph, node.attr["reduce_func"].func.name, of_argument=True)
    if "f" in node.attr and node.op not in MAPS | {"ScanDataset"}:
        return _returns_batches(graph, node.attr["f"].func.name, of_argument=False)
    return _gives_batches(graph, scope, node.input[1 if node.op == "DirectedInterleaveDataset" else 0])


def _returns_batches(graph: DatasetGraph, function: str, of_argument: bool) -> bool:
    """Whether a function gives a dataset of batches.

    Args:
        of_argument: whether batches of a dataset that the function was given count. Where they are flattened they are
            windows, each of them one record.
    """
    body = graph.functions.get(function)
    if body is None or not body.ret:
        return False
    scope = {node.name: node for node in body.node_def}
    result = next(iter(body.ret.values()))
    return _gives_batches(graph, scope, result) and (of_argument or not _begins_with_argument(scope, result))


def _begins_with_argument(scope: dict[str, Any], name: str) -> bool:
    """Whether a dataset in the body of a function is made from one that the function was given."""
    node = scope.get(plain(name))
    if node is None:
        return True
    return node.op not in SOURCES and bool(node.input) and _begins_with_argument(scope, node.input[0])
