"""Graphs of layers: nodes, and the model between some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from bigdl.nn.base import Layer
from bigdl.nn.container import Container, ContainerPart
from bigdl.nn.parts import Part, call, map_table
from bigdl.nn.weights import no_such_layer
from bigdl.util.common import to_list
from zoo.orca.errors import InvalidArgumentError


class Node:
    """A layer in a graph, over the outputs of other nodes.

    Example: ``hidden = Linear(10, 5)(Input())``
    """

    def __init__(self, layer: Layer, before: Any = ()):
        nodes = list(before) if isinstance(before, list | tuple) else [before]
        strangers = [each for each in nodes if not isinstance(each, Node)]
        if strangers:
            raise InvalidArgumentError(
                f"Expected a node, or a list of nodes, got {type(strangers[0]).__name__}. Nodes come from Input() and "
                "from calling layers on nodes; for arrays there is layer.forward(x)."
            )
        self.layer = layer
        self.before: list[Node] = nodes

    def element(self) -> Layer:
        """The layer of the node."""
        return self.layer

    def name(self) -> str:
        """The name of the node's layer."""
        return self.layer.name()

    def __repr__(self) -> str:
        return f"Node({self.layer!r})"


class PassPart(Part):
    def forward(self, x: Any) -> Any:
        return x


class InputLayer(Layer):
    """The place of an input in a graph."""

    def __init__(self, bigdl_type: str = "float"):
        super().__init__(PassPart())


def Input(name: str | None = None, bigdl_type: str = "float") -> Node:
    """A node for an input of a Model."""
    layer = InputLayer()
    return Node(layer if name is None else layer.set_name(name))


class GraphPart(ContainerPart):
    """Modules, and for each run of one the numbers of the runs whose outputs it takes.

    Attributes:
        runs: (number of the module, numbers of the runs before), in an order in which they can be run.
        stopped: the numbers of the runs through which no gradient goes back.
    """

    def __init__(self, modules: Iterable[nn.Module], runs: Sequence[tuple[int, list[int]]], sources: Sequence[int],
                 results: Sequence[int]):  # fmt: skip
        super().__init__()
        for module in modules:
            self.append(module)
        self.runs = list(runs)
        self.sources = list(sources)
        self.results = list(results)
        self.stopped: set[int] = set()

    def forward(self, x: Any) -> Any:
        modules, inputs = self.held(), self._inputs(x)
        values: list[Any] = []
        for number, (module, before) in enumerate(self.runs):
            given = [inputs[number]] if number in inputs else [values[each] for each in before]
            given = map_table(torch.Tensor.detach, given) if number in self.stopped else given
            values.append(call(modules[module], given[0] if len(given) == 1 else given))
        outputs = [values[each] for each in self.results]
        return outputs[0] if len(outputs) == 1 else outputs

    def _inputs(self, x: Any) -> dict[int, Any]:
        """What each run that begins the graph takes."""
        if len(self.sources) == 1:
            return {self.sources[0]: x}
        if not isinstance(x, list | tuple) or len(x) != len(self.sources):
            came = f"{len(x)}" if isinstance(x, list | tuple) else "one"
            raise InvalidArgumentError(f"Expected a list of {len(self.sources)} inputs, got {came}")
        return dict(zip(self.sources, x, strict=True))


class Model(Container):
    """The layers between some nodes of a graph.

    A layer that was called several times is there once, with one set of weights. A graph begins with `Input()`, or with
    any layer that was called on nothing, `Linear(3, 2)()`, which is given the input.

    Example:
        first, second = Input(), Input()
        joined = CAddTable()([Linear(3, 2)(first), Linear(4, 2)(second)])
        Model([first, second], [joined]).forward([np.ones((5, 3)), np.ones((5, 4))])
    """

    module: GraphPart

    def __init__(self, inputs: Any, outputs: Any, bigdl_type: str = "float"):
        self.inputs, self.outputs = _nodes("inputs", inputs), _nodes("outputs", outputs)
        self.nodes = _in_order(self.inputs, self.outputs)
        layers = list(dict.fromkeys(node.layer for node in self.nodes))
        at = {node: number for number, node in enumerate(self.nodes)}
        runs = [
            (layers.index(node.layer), [] if node in self.inputs else [at[each] for each in node.before])
            for node in self.nodes
        ]
        sources, results = [at[node] for node in self.inputs], [at[node] for node in self.outputs]
        super().__init__(GraphPart([layer.module for layer in layers], runs, sources, results))
        self._layers = layers
        self.arguments = {}

    def add(self, model: Layer) -> Container:
        """Graphs grow by nodes: call the layer on a node of this one, and make a new Model."""
        raise InvalidArgumentError("A graph takes no layer by add(). Type: Model(inputs, layer(model.outputs[0]))")

    def node(self, name: str) -> Node:
        """The node whose layer has that name, to go on from."""
        found = [node for node in self.nodes if node.name() == name]
        if not found:
            raise InvalidArgumentError(no_such_layer(self.name(), name, [node.name() for node in self.nodes]))
        if len(found) > 1:
            raise InvalidArgumentError(f"Layer '{name}' was called {len(found)} times, so its name is no node's name.")
        return found[0]

    def cut(self, names: Iterable[str] | str) -> Model:
        """The part of the graph that ends in the named layers, with the same layers, weights included."""
        ends = [self.node(name) for name in to_list(names)]
        needed = set(_reached(ends))
        return Model([node for node in self.inputs if node in needed], ends).training(self.is_training())  # type: ignore[return-value]

    def _up_to(self, name: str) -> Layer:
        return self.cut(name)

    def stop_gradient(self, stop_layers: Iterable[str] | str) -> Model:
        """Let no gradient go back beyond the named layers: what is before them does not learn from them."""
        self.module.stopped |= {self.nodes.index(self.node(name)) for name in to_list(stop_layers)}
        return self

    def __getstate__(self) -> dict[str, Any]:
        # Nodes hold those before them: a long chain of them would be too deep to be pickled.
        return {k: v for k, v in super().__getstate__().items() if k not in ("inputs", "outputs", "nodes")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.nodes = []
        for layer, before in self.module.runs:
            self.nodes.append(Node(self._layers[layer], [self.nodes[each] for each in before]))
        self.inputs = [self.nodes[each] for each in self.module.sources]
        self.outputs = [self.nodes[each] for each in self.module.results]

    def saved_form(self, pen: Any) -> dict[str, Any]:
        graph = self.module
        return {
            "layers": [pen.number(layer) for layer in self._layers],
            "runs": [[layer, list(before)] for layer, before in graph.runs],
            "inputs": graph.sources,
            "outputs": graph.results,
            "stopped": sorted(graph.stopped),
        }

    @classmethod
    def from_saved(cls, form: dict[str, Any], reader: Any) -> Layer:
        layers = [reader.layer(number) for number in form["layers"]]
        nodes: list[Node] = []
        for layer, before in form["runs"]:
            nodes.append(Node(layers[layer], [nodes[each] for each in before]))
        made = cls([nodes[each] for each in form["inputs"]], [nodes[each] for each in form["outputs"]])
        made.module.stopped = {made.nodes.index(nodes[each]) for each in form["stopped"]}
        return made

    @staticmethod
    def load(path: str, bigdl_type: str = "float", allow_pickle: bool = True) -> Layer:
        """Read what `Layer.save` wrote.

        Args:
            allow_pickle: read files with a torch module or a layer of another library in them, which can run code;
                False for a file from somebody you do not trust.
        """
        from bigdl.nn import saving

        return saving.load(path, None, allow_pickle)

    @staticmethod
    def loadModel(
        modelPath: str, weightPath: str | None = None, bigdl_type: str = "float", allow_pickle: bool = True
    ) -> Layer:
        """Read what `Layer.saveModel` wrote, to one file or to two."""
        from bigdl.nn import saving

        return saving.load(modelPath, weightPath, allow_pickle)


def _nodes(what: str, given: Any) -> list[Node]:
    nodes = to_list(given)
    if not nodes or not all(isinstance(each, Node) for each in nodes):
        raise InvalidArgumentError(f"Expected {what} to be a node or a list of nodes, got {given!r}")
    return nodes


def _reached(ends: Iterable[Node], stops: Iterable[Node] = ()) -> list[Node]:
    """The nodes that lead to some nodes, each after those before it."""
    order: list[Node] = []
    done: set[Node] = set()
    waiting = [(node, False) for node in reversed(list(ends))]
    while waiting:
        node, ready = waiting.pop()
        if ready:
            order.append(node)
        elif node not in done:
            done.add(node)
            waiting.append((node, True))
            if node not in stops:
                waiting += [(each, False) for each in reversed(node.before) if each not in done]
    return order


def _in_order(inputs: list[Node], outputs: list[Node]) -> list[Node]:
    """The nodes between inputs and outputs; a graph that needs other inputs, or not all of these, is refused."""
    order = _reached(outputs, inputs)
    unused = [node.name() for node in inputs if node not in order]
    if unused:
        raise InvalidArgumentError(f"The outputs do not depend on the inputs {unused}: leave them out of Model(inputs)")
    missing = [node.name() for node in order if not node.before and node not in inputs]
    if missing:
        raise InvalidArgumentError(f"The outputs depend on {missing} too: name them among Model(inputs)")
    return order
