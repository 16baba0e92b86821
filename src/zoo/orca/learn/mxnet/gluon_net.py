"""A gluon Block as a learner trains it."""

from __future__ import annotations

import inspect
from typing import Any

from zoo.orca import mxnet_library as library
from zoo.orca.errors import BatchError, CheckpointError, InvalidArgumentError, OrcaError
from zoo.orca.learn.mxnet.arrays import describe, in_order, label_type, to_nd
from zoo.orca.learn.mxnet.net import Net, dtype_of, explained, graph_draws, mxnet_errors, need_dense
from zoo.orca.learn.mxnet.recipe import MXNetRecipe, seeded

# MXNet's own blocks that run a function of the user's.
_FUNCTIONS = ("Lambda", "HybridLambda")


class GluonNet(Net):
    """A Block, its loss, and a `gluon.Trainer` without a kvstore: gradients are summed before it is asked to update."""

    def __init__(self, block: Any, recipe: MXNetRecipe):
        self._mx = library.load()
        self._block = block
        self._recipe = recipe
        self._loss = recipe.build_loss()
        self._names = argument_names(block)
        self._sums: list[tuple[Any, Any]] = []
        self._dtype: Any = None
        self._trainer: Any = None
        self.draws = draws(block)
        self._auxiliary = auxiliary_names(block)
        need_dense({name: each._stype for name, each in self._named().items()})
        self._initialize()

    @property
    def native(self) -> Any:
        return self._block

    def _initialize(self) -> None:
        """Give first weights to parameters that the creator left without."""
        missing = [each for each in self._named().values() if each._data is None and not each._deferred_init]
        with seeded(self._recipe.seed, part=1):
            for parameter in missing:
                parameter.initialize(default_init=self._mx.init.Uniform())

    def _named(self) -> dict[str, Any]:
        return named_parameters(self._block)

    def build(self, features: tuple[Any, ...], target: Any) -> None:
        if self._trainer is not None:
            return
        self._dtype = dtype_of(list(self._named().values()))
        if any(each._data is None for each in self._named().values()):
            with seeded(self._recipe.seed, part=2):
                self._call(self._arguments(features))  # shapes follow from a batch
        unknown = [name for name, each in self._named().items() if each._data is None]
        if unknown:
            raise InvalidArgumentError(
                f"the model's forward never came to {', '.join(unknown)}, so that nobody knows their shapes. Use these "
                "layers, or leave them out of the model."
            )
        trained = list({id(each): each for each in self._named().values()}.values())
        # A list keeps its order; of a dict the Trainer sorts names, which count the blocks of a process.
        self._trainer = self._mx.gluon.Trainer(trained, self._recipe.build_optimizer(), kvstore=None)
        self.optimizer = self._trainer.optimizer
        (self.updater,) = self._trainer._updaters

    def train(self, features: tuple[Any, ...], target: Any, rows: int) -> tuple[list[Any], list[Any], Any]:
        arguments, labels = self._arguments(features), self._labels(target)
        with self._mx.autograd.record():
            output = self._call(arguments)
            losses = self._losses(output, labels, rows)
        self._mx.autograd.backward(losses)
        return in_order(output), labels, self._added(losses, rows)

    def forward(self, features: tuple[Any, ...], target: Any, rows: int) -> tuple[list[Any], list[Any], Any]:
        output = self._call(self._arguments(features))
        if target is None:
            return in_order(output), [], None
        labels = self._labels(target)
        return in_order(output), labels, self._added(self._losses(output, labels, rows), rows)

    def _call(self, arguments: list[Any]) -> Any:
        try:
            return self._block(*arguments)
        except OrcaError:
            raise
        except mxnet_errors() as error:
            raise explained(error, describe(arguments), f"the model {type(self._block).__name__}") from error

    def _losses(self, output: Any, labels: list[Any], rows: int) -> list[Any]:
        """The losses to go backward from. One number for a whole batch is a mean, so it counts for its rows."""
        if not labels:
            raise BatchError('the data has no labels, which the loss needs. Give them as "y", or name label_cols.')
        try:
            loss = self._loss(output, labels[0] if len(labels) == 1 else labels)
        except mxnet_errors() as error:
            shapes = describe([*in_order(output), *labels])
            raise explained(error, f"outputs and labels {shapes}", f"the loss {type(self._loss).__name__}") from error
        losses = in_order(loss)
        if not losses or not all(isinstance(each, self._mx.nd.NDArray) for each in losses):
            raise InvalidArgumentError(f"the loss must give an array of MXNet's, or a list of them, but gave {loss!r}.")
        return [each * rows if each.size == 1 and rows > 1 else each for each in losses]

    def _added(self, losses: list[Any], rows: int) -> Any:
        """The mean loss of a row, times the rows."""
        sums = []
        for each in losses:
            added = each.detach().astype("float32", copy=False).sum()
            sums.append(added if each.size in (1, rows) else added * (rows / each.size))
        return sums[0] if len(sums) == 1 else self._mx.nd.add_n(*sums)

    def _arguments(self, features: tuple[Any, ...]) -> list[Any]:
        return [to_nd(each, self._dtype) for each in in_order(features, self._names)]

    def _labels(self, target: Any) -> list[Any]:
        return [to_nd(each, label_type(each, self._dtype), "labels") for each in in_order(target)]

    def contributions(self, rows: int, total: int) -> list[Any]:
        self._sums = []
        for parameter in self._trained():
            gradient = parameter.list_grad()[0]
            dense = gradient if gradient.stype == "default" else gradient.tostype("default")
            if rows == 0:
                dense[:] = 0
            self._sums.append((gradient, dense))
        return [dense for _, dense in self._sums]

    def take_sums(self) -> None:
        for gradient, dense in self._sums:
            if gradient is not dense:
                gradient[:] = dense.tostype(gradient.stype)
        self._sums = []

    def update(self, total: int) -> None:
        try:
            self._trainer.update(total)
        except UserWarning as error:  # raised, not warned: a gradient that this batch did not make
            raise InvalidArgumentError(
                f"{str(error).split('. ')[0]}. Does the model use all of its layers? For one that is not to be trained "
                'say layer.collect_params().setattr("grad_req", "null") in model_creator.'
            ) from error
        for parameter in self._trained():
            if parameter.grad_req == "add":
                parameter.zero_grad()  # a step's gradient is that of its batch alone

    def _trained(self) -> list[Any]:
        return [each for each in self._trainer._params if each.grad_req != "null"]

    def parameters(self) -> dict[str, Any]:
        return {name: each.list_data()[0] for name, each in self._named().items()}

    def buffers(self) -> list[Any]:
        unique = {id(each): each for each in self._named().values()}.values()
        return [each.list_data()[0] for each in unique if not each._differentiable or each.name in self._auxiliary]

    def load(self, weights: dict[str, Any], path: str = "the state") -> None:
        check_weights(self._named(), weights, path)
        with self._mx.autograd.pause():
            for name, parameter in self._named().items():
                parameter._load_init(weights[name], None)


def named_parameters(block: Any) -> dict[str, Any]:
    """The parameters by their place in the block, which does not count the blocks of a process as their names do."""
    named = dict(block._collect_params_with_prefix())
    known = {id(each) for each in named.values()}
    rest = [each for each in block.collect_params().values() if id(each) not in known]
    return named | {f"params.{number}": each for number, each in enumerate(rest)}


def check_weights(named: dict[str, Any], weights: dict[str, Any], path: str) -> None:
    """Raise a `CheckpointError` if weights are not a model's; a 0 in a shape stands for what is not known yet."""
    if set(named) != set(weights):
        differ = sorted(set(named) ^ set(weights))[:3]
        raise CheckpointError(f"{path} was written for another model: only one of them has {', '.join(differ)}.")
    for name, parameter in named.items():
        here, there = parameter.shape, tuple(weights[name].shape)
        if here and (
            len(here) != len(there) or any(mine not in (0, -1, its) for mine, its in zip(here, there, strict=True))
        ):
            raise CheckpointError(
                f"{path} was written for another model: {name} has the shape {tuple(here)} here and {there} there."
            )


def argument_names(block: Any) -> list[str] | None:
    """What the block's forward calls its inputs, so that a dict of features can be handed over in that order."""
    mx = library.load()
    own = type(block).forward
    is_hybrid = own is mx.gluon.HybridBlock.forward
    try:
        taken = inspect.signature(block.hybrid_forward if is_hybrid else block.forward).parameters.values()
    except (TypeError, ValueError):
        return None
    names = [each.name for each in taken if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    known = {*block._reg_params} if is_hybrid else set()  # handed over by MXNet itself
    return [name for name in names[1 if is_hybrid else 0 :] if name not in known]


def draws(block: Any) -> bool:
    """Whether a block may draw random numbers in training; of a class of the user's nobody knows."""
    mx = library.load()
    if isinstance(block, mx.gluon.SymbolBlock):
        return graph_draws(block._cached_graph[1])
    if not type(block).__module__.startswith("mxnet.") or type(block).__name__ in _FUNCTIONS:
        return True
    rates = (getattr(block, "_rate", 0), getattr(block, "_dropout", 0))
    own = any(isinstance(rate, int | float) and rate > 0 for rate in rates)
    return own or any(draws(child) for child in block._children.values())


def auxiliary_names(block: Any) -> set[str]:
    """The names of statistics in graphs that were loaded as blocks."""
    mx = library.load()
    own = set(block._cached_graph[1].list_auxiliary_states()) if isinstance(block, mx.gluon.SymbolBlock) else set()
    return own.union(*(auxiliary_names(child) for child in block._children.values()))
