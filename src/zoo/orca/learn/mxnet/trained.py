"""Trained models on the driver: MXNet's own Block or Module with the weights that training left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.errors import CheckpointError
from zoo.orca.learn.mxnet.arrays import to_array
from zoo.orca.learn.mxnet.gluon_net import GluonNet, check_weights, named_parameters
from zoo.orca.learn.mxnet.module_net import ModuleNet, check_names
from zoo.orca.learn.mxnet.recipe import MXNetRecipe, is_block

if TYPE_CHECKING:
    from zoo.orca.learn.mxnet.net import Net


def net_of(recipe: MXNetRecipe) -> Net:
    """The model as the recipe builds it, not yet built for a batch."""
    model = recipe.build_model()
    return GluonNet(model, recipe) if is_block(model) else ModuleNet(model, recipe)


def take_weights(net: Net, weights: dict[str, Any] | None) -> None:
    if weights is not None:
        net.load({name: to_array(tensor) for name, tensor in weights.items()})


def trained_model(recipe: MXNetRecipe, state: dict[str, Any] | None) -> Any:
    """MXNet's own model: a Block with its weights, or a Module bound to one row of what it was trained on."""
    net = net_of(recipe)
    if state is None:
        return net.native
    if isinstance(net, ModuleNet):
        inputs = (state.get("operator") or {}).get("inputs") or {}
        net.build(_blank(inputs["features"]), _blank(inputs["target"]))
    take_weights(net, state["models"][0])
    return net.native


def check_state(recipe: MXNetRecipe, state: dict[str, Any], path: str) -> None:
    """Raise a `CheckpointError` if a state is not this model's."""
    models = state.get("models")
    if not isinstance(models, list) or len(models) != 1 or not isinstance(models[0], dict):
        raise CheckpointError(
            f"{path} does not hold the weights of one model of MXNet. Expected what save() or a checkpoint of this "
            "estimator wrote; for a file of gluon's own use get_model().load_parameters(path)."
        )
    model = recipe.build_model()
    if is_block(model):
        check_weights(named_parameters(model), models[0], path)
    else:
        check_names(model, models[0], path)


def _blank(shapes: Any) -> Any:
    """One row of zeros for what a model was built for."""
    if isinstance(shapes, dict):
        return {key: _blank(each) for key, each in shapes.items()}
    if shapes is None:
        return None
    if any(isinstance(each, list | dict) for each in shapes):
        return tuple(_blank(each) for each in shapes)
    return np.zeros((1, *shapes), np.float32)
