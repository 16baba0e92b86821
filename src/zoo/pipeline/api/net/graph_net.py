"""GraphNet: a graph of layers, of which parts can be taken and frozen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bigdl.nn.graph import Model
from zoo.orca.errors import NotOfferedError


class GraphNet(Model):
    """The layers between some nodes, for transfer learning: cut it at a layer, freeze what is before one.

    Example:
        net = GraphNet(model.inputs, model.outputs)
        net.new_graph(["pool5"]).freeze_up_to(["pool3"])
    """

    def __init__(self, input: Any, output: Any, bigdl_type: str = "float"):
        super().__init__(input, output)

    def new_graph(self, outputs: Iterable[str] | str) -> GraphNet:
        """The part of the graph that ends in the named layers; layers and weights are the same ones."""
        part = self.cut(outputs)
        return GraphNet(part.inputs, part.outputs)

    def freeze_up_to(self, names: Iterable[str] | str) -> GraphNet:
        """Keep the weights of the named layers, and of all that lead to them, as they are."""
        self.cut(names).freeze()
        return self

    def to_keras(self) -> Any:
        raise NotOfferedError(
            "A graph of layers cannot become a Keras model. Train it as it is: Estimator.from_bigdl(model=net), or "
            "NNEstimator(net, criterion)."
        )
