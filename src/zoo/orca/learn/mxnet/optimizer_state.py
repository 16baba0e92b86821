"""What an optimizer of MXNet remembers, as tensors and plain data, and back; MXNet itself would pickle it."""

from __future__ import annotations

from typing import Any

from zoo.orca import mxnet_library as library
from zoo.orca.errors import CheckpointError
from zoo.orca.learn.mxnet.arrays import to_array, to_tensor
from zoo.orca.learn.mxnet.net import Net
from zoo.orca.learn.mxnet.recipe import MXNetRecipe

_PLAIN = (int, float, bool, str, type(None))


def pack_optimizer(net: Net) -> dict[str, Any]:
    """States by the number of a parameter, how often each was updated, and the optimizer's own numbers."""
    return {
        "kind": type(net.optimizer).__name__,
        "states": {number: _pack(state) for number, state in net.updater.states.items()},
        "counts": dict(net.optimizer._index_update_count),
        "numbers": _numbers(net.optimizer),
    }


def load_optimizer(net: Net, packed: dict[str, Any]) -> None:
    """Go on from what `pack_optimizer` gave; a `CheckpointError` where it was another kind of optimizer's."""
    kind = type(net.optimizer).__name__
    if packed["kind"] != kind:
        raise CheckpointError(
            f"the weights were trained with MXNet's {packed['kind']}, but config's optimizer is {kind}, which cannot "
            "go on from its state. Use the same optimizer, or start from the weights alone: a model_creator that calls "
            "load_parameters of what get_model().save_parameters wrote."
        )
    net.updater.states = {number: _unpack(state) for number, state in packed["states"].items()}
    net.updater.states_synced = dict.fromkeys(net.updater.states, True)
    net.optimizer._index_update_count.update(packed["counts"])
    _take(net.optimizer, packed["numbers"])


def pack_scheduler(net: Net) -> dict[str, Any]:
    """The numbers of the learning rate's scheduler; some count as they are asked."""
    scheduler = net.optimizer.lr_scheduler
    return {} if scheduler is None else _numbers(scheduler)


def load_scheduler(net: Net, numbers: dict[str, Any]) -> None:
    if net.optimizer.lr_scheduler is not None:
        _take(net.optimizer.lr_scheduler, numbers)


def rate_of(optimizer: Any) -> float:
    """The learning rate of the next step, found without moving a scheduler that counts."""
    scheduler = optimizer.lr_scheduler
    if scheduler is None:
        return float(optimizer.lr)
    before = dict(vars(scheduler))
    try:
        return float(scheduler(optimizer.num_update))
    finally:
        vars(scheduler).update(before)


def first_rate(recipe: MXNetRecipe, state: dict[str, Any] | None) -> float:
    """The learning rate of the first step, before a batch has told what the optimizer is for."""
    optimizer = recipe.build_optimizer()
    for packed in (state or {}).get("optimizers") or []:
        _take(optimizer, packed["numbers"])
    for numbers in (state or {}).get("schedulers") or []:
        if optimizer.lr_scheduler is not None:
            _take(optimizer.lr_scheduler, numbers)
    return rate_of(optimizer)


def _numbers(owner: Any) -> dict[str, Any]:
    found = {name: value for name, value in vars(owner).items() if _is_plain(value)}
    found.pop("rescale_grad", None)  # follows from each batch
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN


def _take(owner: Any, numbers: dict[str, Any]) -> None:
    for name, value in numbers.items():
        if hasattr(owner, name):
            setattr(owner, name, value)


def _pack(state: Any) -> Any:
    """A state is an array, None, or several of them in a tuple or a list."""
    mx = library.load()
    if isinstance(state, mx.nd.NDArray):
        return to_tensor(state)
    if isinstance(state, tuple | list):
        return {"kind": type(state).__name__, "parts": [_pack(each) for each in state]}
    return state


def _unpack(packed: Any) -> Any:
    if isinstance(packed, dict):
        parts = [_unpack(each) for each in packed["parts"]]
        return tuple(parts) if packed["kind"] == "tuple" else parts
    return to_array(packed) if hasattr(packed, "numpy") else packed
