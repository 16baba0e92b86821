"""A symbolic Module as a learner trains it; its graph holds the loss."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from zoo.orca import mxnet_library as library
from zoo.orca.errors import BatchError, CheckpointError, NotOfferedError, OrcaError
from zoo.orca.learn.mxnet.arrays import describe, in_order, label_type, to_nd
from zoo.orca.learn.mxnet.net import Net, dtype_of, explained, graph_draws, mxnet_errors, need_dense
from zoo.orca.learn.mxnet.recipe import MXNetRecipe, seeded
from zoo.orca.learn.sync.network import environment


class ModuleNet(Net):
    """A Module that is bound to the first batch; batches of other lengths bind it again, to the same weights."""

    def __init__(self, module: Any, recipe: MXNetRecipe, world_size: int = 1):
        self._mx = library.load()
        self._module = module
        self._recipe = recipe
        self._dtype: Any = np.float32
        self._labels: list[Any] = []
        self._weights: Any = None
        self._normalization = normalization_of(module.symbol) if world_size > 1 else None
        self.draws = graph_draws(module.symbol)

    @property
    def native(self) -> Any:
        return self._module

    def build(self, features: tuple[Any, ...], target: Any) -> None:
        module = self._module
        if not module.binded:
            data = self._data(features)
            labels = self._label_arrays(target) or self._blank_labels(data)
            bind(module, _named(module.data_names, data), _named(module.label_names, labels))
        if not module.params_initialized:
            with seeded(self._recipe.seed, part=1):
                module.init_params(self._mx.init.Uniform(0.01))
        need_dense({name: each.stype for name, each in self.parameters().items()})
        self._dtype = dtype_of(list(self.parameters().values()))
        self._make_optimizer()

    def _make_optimizer(self) -> None:
        self._rescale = self._recipe.optimizer_params.get("rescale_grad")
        numbered = dict(enumerate(self._module._exec_group.param_names))
        self.optimizer = self._recipe.build_optimizer(sym=self._module.symbol, param_idx2name=numbered)
        self.optimizer.idx2name = self.optimizer.idx2name or numbered
        self.updater = self._mx.optimizer.get_updater(self.optimizer)

    def train(self, features: tuple[Any, ...], target: Any, rows: int) -> tuple[list[Any], list[Any], Any]:
        outputs, labels, _ = self._run(features, target, True)
        self._module.backward()
        return outputs, labels, None

    def forward(self, features: tuple[Any, ...], target: Any, rows: int) -> tuple[list[Any], list[Any], Any]:
        return self._run(features, target, False)

    def _run(self, features: tuple[Any, ...], target: Any, training: bool) -> tuple[list[Any], list[Any], Any]:
        data, labels = self._data(features), self._label_arrays(target)
        if training and self._module.label_names and not labels:
            raise BatchError('the data has no labels, which the graph needs. Give them as "y", or name label_cols.')
        self._labels = labels
        batch = self._mx.io.DataBatch(data, labels or self._blank_labels(data))
        try:
            with environment({"MXNET_SUBGRAPH_VERBOSE": "0"}):
                self._module.forward(batch, is_train=training)
        except OrcaError:
            raise
        except mxnet_errors() as error:
            raise explained(error, describe([*data, *labels]), "the symbolic Module") from error
        return self._module.get_outputs(), labels, None

    def _data(self, features: tuple[Any, ...]) -> list[Any]:
        names = self._module.data_names
        arrays = [to_nd(each, self._dtype) for each in in_order(features, names)]
        if len(arrays) != len(names):
            raise BatchError(
                f"the graph has the inputs {', '.join(names)}, but a batch has {len(arrays)} features. Give as many, "
                "in a list in that order or in a dict by those names; Module(..., data_names=...) says what they are."
            )
        return arrays

    def _label_arrays(self, target: Any) -> list[Any]:
        names = self._module.label_names
        arrays = [to_nd(each, label_type(each, self._dtype), "labels") for each in in_order(target, names)]
        if arrays and len(arrays) != len(names):
            raise BatchError(
                f"the graph has the labels {', '.join(names) or '(none)'}, but a batch has {len(arrays)}. Give as "
                "many, in a list in that order or in a dict by those names; Module(..., label_names=...) names them."
            )
        return arrays

    def _blank_labels(self, data: list[Any]) -> list[Any]:
        """Labels that count for nothing, where there are none: the graph has an input for them all the same."""
        symbol, names = self._module.symbol, self._module.label_names
        if not names:
            return []
        shapes, _, _ = symbol.infer_shape(**{name: each.shape for name, each in _named(self._module.data_names, data)})
        known = dict(zip(symbol.list_arguments(), shapes, strict=True))
        return [self._mx.nd.zeros(known[name], dtype=self._dtype) for name in names]

    def contributions(self, rows: int, total: int) -> list[Any]:
        gradients = self._gradients()
        if rows == 0:
            for each in gradients:
                each[:] = 0
        elif self._normalization == "batch":
            for each in gradients:
                each *= rows / total
        if self._normalization != "valid":
            return gradients
        count = self._valid() if rows else 0.0
        for each in gradients if rows else []:
            each *= count
        self._weights = self._mx.nd.array([count])
        return [*gradients, self._weights]

    def _valid(self) -> float:
        """The labels that the graph divided by."""
        ignored = ignored_label(self._module.symbol)
        counted = [each.asnumpy() for each in self._labels]
        valid = sum(float(each.size if ignored is None else (each != ignored).sum()) for each in counted)
        return max(valid, 1.0)

    def take_sums(self) -> None:
        if self._normalization == "valid":
            weight = float(self._weights.asscalar())
            for each in self._gradients():
                each /= weight

    def update(self, total: int) -> None:
        group = self._module._exec_group
        self.optimizer.rescale_grad = 1.0 / total if self._rescale is None else self._rescale
        numbered = [
            (number, gradient[0], weight[0])
            for number, (weight, gradient) in enumerate(zip(group.param_arrays, group.grad_arrays, strict=True))
            if gradient[0] is not None
        ]
        if numbered:
            numbers, gradients, weights = (list(each) for each in zip(*numbered, strict=True))
            self.updater(numbers, gradients, weights)
        self._module._params_dirty = True

    def _gradients(self) -> list[Any]:
        return [each[0] for each in self._module._exec_group.grad_arrays if each[0] is not None]

    def parameters(self) -> dict[str, Any]:
        group = self._module._exec_group
        trained = {name: each[0] for name, each in zip(group.param_names, group.param_arrays, strict=True)}
        return trained | {name: each[0] for name, each in zip(group.aux_names, group.aux_arrays, strict=True)}

    def buffers(self) -> list[Any]:
        return [each[0] for each in self._module._exec_group.aux_arrays]

    def load(self, weights: dict[str, Any], path: str = "the state") -> None:
        mine = self.parameters()
        check_names(self._module, weights, path)
        for name, array in mine.items():
            if array.shape != weights[name].shape:
                raise CheckpointError(
                    f"{path} was written for another model: {name} has the shape {array.shape} here and "
                    f"{weights[name].shape} there."
                )
            array[:] = weights[name]
        self._module._params_dirty = True


def _named(names: list[str], arrays: list[Any]) -> list[tuple[str, Any]]:
    return list(zip(names, arrays, strict=True))


def bind(module: Any, data: list[tuple[str, Any]], labels: list[tuple[str, Any]]) -> None:
    """Bind a module to arrays like these, without the line that MXNet writes on it."""
    mx = library.load()
    described = [mx.io.DataDesc(name, each.shape, each.dtype) for name, each in data]
    targets = [mx.io.DataDesc(name, each.shape, each.dtype) for name, each in labels] or None
    try:
        with environment({"MXNET_SUBGRAPH_VERBOSE": "0"}):
            module.bind(described, targets, for_training=True)
    except mxnet_errors() as error:
        shapes = describe([each for _, each in [*data, *labels]])
        raise explained(error, shapes, "the symbolic Module") from error


def check_names(module: Any, weights: dict[str, Any], path: str) -> None:
    """Raise a `CheckpointError` if weights are not those of a module's graph."""
    inputs = {*module.data_names, *module.label_names, *getattr(module, "_state_names", [])}
    named = ({*module.symbol.list_arguments()} - inputs) | {*module.symbol.list_auxiliary_states()}
    if named != set(weights):
        differ = sorted(named ^ set(weights))[:3]
        raise CheckpointError(f"{path} was written for another model: only one of them has {', '.join(differ)}.")


def _nodes(symbol: Any) -> list[dict[str, Any]]:
    return json.loads(symbol.tojson())["nodes"]


def normalization_of(symbol: Any) -> str:
    """By what the graph's losses divide: "null" nothing, "batch" the rows, "valid" the labels that count.

    Ranks have different numbers of them, so several losses of one graph must agree.
    """
    losses = [node for node in _nodes(symbol) if node["op"] in ("SoftmaxOutput", "Softmax", "MakeLoss")]
    found = {node.get("attrs", {}).get("normalization", "null") for node in losses}
    plain = {"LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput", "SVMOutput", "make_loss"}
    if any(node["op"] in plain for node in _nodes(symbol)):
        found.add("null")
    if len(found) > 1 or ("valid" in found and any(node["op"] == "MakeLoss" for node in losses)):
        raise NotOfferedError(
            f"the losses of the graph are normalised by {', '.join(sorted(found))}, which several workers cannot add "
            "up: each has its own share of the rows. Give them all normalization='null', or use one worker."
        )
    return found.pop() if found else "null"


def ignored_label(symbol: Any) -> float | None:
    """The label that a graph's softmax leaves out; None where it counts all."""
    for node in _nodes(symbol):
        attributes = node.get("attrs", {})
        if node["op"] in ("SoftmaxOutput", "Softmax") and attributes.get("use_ignore") in ("True", "1", "true"):
            return float(attributes.get("ignore_label", -1))
    return None
