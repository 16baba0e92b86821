"""A trained model on its way to where rows are predicted."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import torch

from zoo.orca.learn.pytorch.devices import find_device
from zoo.orca.learn.pytorch.numerics import compute_in
from zoo.orca.learn.pytorch.recipe import TorchRecipe, is_creator
from zoo.orca.learn.pytorch.tensors import float_type, in_full, to_arrays, to_device, to_tensors
from zoo.orca.learn.pytorch.training_operator import TrainingOperator


class TorchPredictor:
    """The model for prediction, as it travels to the workers; loaded once in each process."""

    def __init__(self, key: str, recipe: TorchRecipe, state: dict[str, Any]):
        self.key = key
        self._recipe = recipe
        self._state = state
        self._made_in = os.getpid()

    def load(self) -> Callable[[tuple[Any, ...]], Any]:
        """A function from a tuple of features to an array, or a list of them for several outputs."""
        recipe = self._own_recipe()
        device = find_device(recipe.numerics.device, os.getpid())
        with torch.random.fork_rng(devices=[]):
            models = [model.to(device) for model in recipe.build_models()]
        for model, weights in zip(models, self._state.get("models", []), strict=False):
            model.load_state_dict(weights)
        # An operator of the user's own may look for its optimizers when it is made.
        optimizers = [] if recipe.optimizer is None else recipe.build_optimizers(models)
        operator = recipe.build_operator(models, optimizers, recipe.build_schedulers(optimizers), rank=0)
        load_operator(operator, self._state)
        dtype = float_type(models)
        compute_in(recipe.numerics, models, operator.criterion, device)

        def predict(features: tuple[Any, ...]) -> Any:
            tensors = tuple(to_device(to_tensors(each, dtype), device) for each in features)
            (output,) = operator.predict([tensors])
            return to_arrays(output if recipe.numerics.precision == "fp32" else in_full(output))

        return predict

    def _own_recipe(self) -> TorchRecipe:
        """A recipe whose model may be changed and moved; where it was made it may be the user's own."""
        is_own = is_creator(self._recipe.model) or os.getpid() != self._made_in
        return self._recipe if is_own else copy.deepcopy(self._recipe)


def load_operator(operator: TrainingOperator, state: dict[str, Any]) -> None:
    """Give an operator what it said of itself; one that said nothing is not asked to take it."""
    known = state.get("operator") or {}
    operator.global_step = known.get("global_step", 0)
    if known.get("own"):
        operator.load_state_dict(known["own"])
