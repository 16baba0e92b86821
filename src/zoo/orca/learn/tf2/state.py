"""The state of a Keras model as checkpoints hold it: tensors and plain data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import torch

from zoo.orca.errors import CheckpointError

if TYPE_CHECKING:
    import keras


def optimizers_of(model: keras.Model) -> list[Any]:
    """The optimizer that a model was compiled with, and those that it keeps for a `train_step` of its own."""
    from keras.optimizers import Optimizer

    own = [each for each in vars(model).values() if isinstance(each, Optimizer)]
    first = getattr(model, "optimizer", None)
    return [each for each in dict.fromkeys([first, *own]) if each is not None]


def state_of(model: keras.Model) -> dict[str, Any]:
    """The weights of a model and the variables of its optimizers, in memory of their own."""
    optimizers = optimizers_of(model)
    trained = [[each.path for each in getattr(one, "_trainable_variables", [])] for one in optimizers]
    return {
        "models": [pack_values(model.weights)],
        "optimizers": [pack_values(each.variables) for each in optimizers],
        "schedulers": [],
        "operator": {"trained": trained},
    }


def load_state(model: keras.Model, state: dict[str, Any], path: str = "the state") -> None:
    """Give a model the weights, and its optimizers the variables, of a state; raises if they are another model's."""
    load_weights(model, state, path)
    trained = (state.get("operator") or {}).get("trained") or []
    paths = {each.path: each for each in model.trainable_variables}
    for number, (optimizer, values) in enumerate(
        zip(optimizers_of(model), state.get("optimizers") or [], strict=False)
    ):
        names = trained[number] if number < len(trained) else []
        if values and not optimizer.built and (names or number == 0):
            known = [paths[name] for name in names if name in paths]
            optimizer.build(known or model.trainable_variables)
        if values and (optimizer.built or number == 0):
            load_values(optimizer.variables, values, f"{path} holds the state of another optimizer")


def check_state(model: keras.Model, state: dict[str, Any], path: str) -> None:
    """Raise a `CheckpointError` if a state is not this model's, which may be changed by it."""
    if not isinstance(state.get("models"), list) or len(state["models"]) != 1:
        raise CheckpointError(
            f"{path} does not hold the weights of a Keras model. Expected what save() or a checkpoint of this "
            "estimator wrote."
        )
    load_state(model, state, path)


def load_weights(model: keras.Model, state: dict[str, Any], path: str = "the state") -> None:
    """Give a model the weights of a state alone; one that was not built is built for the rows it was trained on."""
    (weights,) = state["models"]
    if not model.built and (inputs := (state.get("operator") or {}).get("inputs")):
        model(_blank(inputs))
    load_values(model.weights, weights, f"{path} was written for another model")


def describe_inputs(x: Any) -> Any:
    """What a model was called with, as plain data."""
    if isinstance(x, dict):
        return {key: describe_inputs(each) for key, each in x.items()}
    if isinstance(x, list | tuple):
        return [describe_inputs(each) for each in x]
    return f"{x.dtype.name}:{','.join(str(size) for size in x.shape[1:])}"


def _blank(inputs: Any) -> Any:
    """A row of zeros for what `describe_inputs` described."""
    if isinstance(inputs, dict):
        return {key: _blank(each) for key, each in inputs.items()}
    if isinstance(inputs, list):
        return tuple(_blank(each) for each in inputs)
    dtype, _, shape = inputs.partition(":")
    shape = (1, *(int(size) for size in shape.split(",") if size))
    return np.full(shape, b"", object) if dtype == "string" else np.zeros(shape, dtype)


def pack_values(variables: Iterable[Any]) -> list[torch.Tensor]:
    """The values of variables as tensors in memory of their own."""
    return [to_tensor(value_of(each)) for each in variables]


def value_of(variable: Any) -> np.ndarray:
    """The value of a Keras variable, in memory of its own."""
    return np.asarray(variable.value.numpy())


def load_values(variables: Sequence[Any], values: Sequence[torch.Tensor], what: str) -> None:
    """Assign values to variables; a `CheckpointError` where they do not fit."""
    if len(variables) != len(values):
        raise CheckpointError(f"{what}: it has {len(values)} arrays, but this one has {len(variables)}.")
    for variable, value in zip(variables, values, strict=True):
        if tuple(variable.shape) != tuple(value.shape):
            raise CheckpointError(
                f"{what}: {variable.path} has the shape {tuple(variable.shape)} here and {tuple(value.shape)} there."
            )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(to_array(value))


def to_tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_array(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()
