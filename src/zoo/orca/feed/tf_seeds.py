"""The random numbers of a dataset: what is drawn in an epoch follows from a seed and the epoch, wherever it is run.

TensorFlow takes the seeds 0 and 0 for "any", so that ranks would shuffle differently and lose rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.orca.feed.tf_graph import DatasetGraph, set_constant

# Where operations are given their seeds, among their inputs; others have them as attributes.
_INPUTS = {
    "ShuffleDataset": (2, 3),
    "ShuffleDatasetV3": (2, 3),
    "ShuffleAndRepeatDataset": (2, 3),
    "ShuffleAndRepeatDatasetV2": (2, 3),
    "SamplingDataset": (2, 3),
    "RandomDataset": (0, 1),
    "RandomDatasetV2": (0, 1),
    "AnonymousSeedGenerator": (0, 1),
    "AnonymousRandomSeedGenerator": (0, 1),
}
# Whether they draw anew each time that the dataset is gone through, when the user gave them a seed.
_AGAIN: dict[str, bool | str] = {
    "RandomDataset": False,
    "RandomDatasetV2": "rerandomize_each_iteration",
    "SamplingDataset": False,
}
# They draw from a tf.random.Generator, whose state is a variable. Keras layers have such variables, and assign to them.
_GENERATORS = {"RngReadAndSkip", "RngSkip", "StatefulUniform", "StatefulUniformInt", "StatefulUniformFullInt",
               "StatefulStandardNormalV2", "StatefulTruncatedNormal", "StatefulRandomBinomial"}  # fmt: skip
_SEQUENTIAL = {
    "ParallelMapDataset": "MapDataset",
    "ParallelMapDatasetV2": "MapDataset",
    "ParallelFilterDataset": "FilterDataset",
}
_OF_PARALLEL = ("sloppy", "deterministic", "use_unbounded_threadpool")
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Seeds:
    """Seeds for one epoch, on one rank if what draws them has rows of its own."""

    seed: int
    epoch: int = 0
    rank: int = 0

    def of(self, given: tuple[int, int], place: int, again: bool = True) -> tuple[int, int]:
        """The seeds of an operation.

        Args:
            given: what the user set; (0, 0) is nothing.
            place: which operation of the dataset it is.
            again: whether it draws something else in every epoch.
        """
        when = (self.epoch if again else 0, self.rank)
        if given == (0, 0):
            return _two((self.seed, place, *when))
        return given if when == (0, 0) else _two((*given, *when))


def _two(of: tuple[int, ...]) -> tuple[int, int]:
    drawn = np.random.SeedSequence([each % 2**64 for each in of]).generate_state(2, np.uint64)
    return int(drawn[0] % _LARGEST) + 1, int(drawn[1] % _LARGEST)


def places(graph: DatasetGraph) -> dict[tuple[str, str], int]:
    """A number for every operation that draws. Names of functions are others in every process; their order is not."""
    return {key: number for number, (key, _) in enumerate(_drawing(graph))}


def seeded(graph: DatasetGraph, seeds: Seeds, places: dict[tuple[str, str], int]) -> None:
    """Set the seeds of all operations of a graph. What draws runs one after the other, so that it draws the same."""
    for key, node in list(_drawing(graph)):
        scope = _scope(graph, key[0])
        if node.op in _INPUTS:
            _seed_inputs(graph, scope, key[0], node, seeds, places[key])
        else:
            given = node.attr["seed"].i, node.attr["seed2"].i
            node.attr["seed"].i, node.attr["seed2"].i = seeds.of(given, places[key])
    for name, node in list(graph.operations()):
        if node.op in _SEQUENTIAL and draws(graph, node):
            _make_sequential(node)
        if not name and node.op in ("MapDataset", "FilterDataset"):
            _seed_generators(graph, node, seeds)


def draws(graph: DatasetGraph, *nodes: Any) -> bool:
    """Whether functions that nodes call draw random numbers, one after the other."""
    return any(
        _has_seeds(node) or _draws_from_state(node, each)
        for each in graph.functions_of(nodes)
        for node in each.node_def
    )


def _drawing(graph: DatasetGraph) -> Iterator[tuple[tuple[str, str], Any]]:
    for function, node in graph.operations():
        if node.op in _INPUTS or _has_seeds(node):
            yield (function, node.name), node


def _has_seeds(node: Any) -> bool:
    return "seed" in node.attr and "seed2" in node.attr and node.attr["seed"].HasField("i")


def _draws_from_state(node: Any, function: Any) -> bool:
    """Whether a node of a function reads or sets the state of a generator."""
    if node.op == "AssignVariableOp":
        return any(each.op.startswith("StatelessRandom") for each in function.node_def)
    return node.op in _GENERATORS


def _scope(graph: DatasetGraph, function: str) -> dict[str, Any]:
    return {node.name: node for node in graph.functions[function].node_def} if function else graph.nodes


def _seed_inputs(
    graph: DatasetGraph, scope: dict[str, Any], function: str, node: Any, seeds: Seeds, place: int
) -> None:
    at = _INPUTS[node.op]
    given = [scope.get(node.input[each].split(":")[0]) for each in at]
    if any(each is None or each.op != "Const" for each in given):
        return  # they are computed, and so the user's own business
    values = [_number(each) for each in given]
    again = _draws_again(node) or (node.op in _AGAIN and values == [0, 0])
    for each, value in zip(at, seeds.of((values[0], values[1]), place, again), strict=True):
        nodes = graph.functions[function].node_def if function else graph.proto.node
        constant = nodes.add(name=f"{node.name}/seed{each}")
        set_constant(constant, value)
        node.input[each] = f"{constant.name}:output:0" if function else constant.name


def _draws_again(node: Any) -> bool:
    """Whether an operation whose seed is the user's draws something else when the dataset is gone through again."""
    how = _AGAIN.get(node.op, "reshuffle_each_iteration")
    if isinstance(how, bool):
        return how
    return node.attr[how].b if how in node.attr else True


def _number(node: Any) -> int:
    tensor = node.attr["value"].tensor
    if tensor.tensor_content:
        return int(np.frombuffer(tensor.tensor_content, np.int64)[0])
    return int(tensor.int64_val[0]) if tensor.int64_val else 0


def _make_sequential(node: Any) -> None:
    node.op = _SEQUENTIAL[node.op]
    data = [each for each in node.input if not each.startswith("^")]
    node.input[:] = [*data[:-1], *(each for each in node.input if each.startswith("^"))]  # not num_parallel_calls
    for name in _OF_PARALLEL:
        node.attr.pop(name, None)
    if node.op == "FilterDataset":
        node.attr.pop("num_parallel_calls", None)


def _seed_generators(graph: DatasetGraph, node: Any, seeds: Seeds) -> None:
    """Set the state of every generator that the function of a dataset draws from."""
    if (seeds.epoch, seeds.rank) == (0, 0):
        return
    function = graph.functions[node.attr["f" if "f" in node.attr else "predicate"].func.name]
    arguments = [each.name for each in function.signature.input_arg]
    captured = [each for each in node.input[1:] if not each.startswith("^")]
    states = {inner.input[0] for inner in function.node_def if _draws_from_state(inner, function)}
    for place, argument in enumerate(arguments, start=-len(arguments)):
        if argument in states and -place <= len(captured):
            _seed_variable(graph, captured[place], seeds)


def _seed_variable(graph: DatasetGraph, name: str, seeds: Seeds) -> None:
    """Change the last number in the state of a generator: its key, or how often it was drawn from."""
    while graph.nodes[name].op == "Identity":
        name = graph.nodes[name].input[0]
    for node in graph.proto.node:
        if node.op == "AssignVariableOp" and node.input[0] == name:
            state = graph.value(node.input[1])
            if state is not None and state.dtype == np.int64 and state.ndim == 1:
                key, _ = _two((int(state[-1]), seeds.epoch, seeds.rank))
                tensor = graph.nodes[node.input[1]].attr["value"].tensor
                tensor.ClearField("int64_val")
                tensor.tensor_content = np.array([*state[:-1], key], np.int64).tobytes()
