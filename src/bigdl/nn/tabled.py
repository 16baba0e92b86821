"""From a row of the catalogue to a class: signature, docstring, and a module made from the arguments."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from bigdl.nn import weights
from bigdl.nn.base import INITIAL, Layer
from bigdl.nn.parts import Apply, Part
from bigdl.util.common import DOUBLEMAX, INTMAX, INTMIN
from zoo.orca.errors import InvalidArgumentError

#: What stands for several arguments in a signature.
GROUPS = {
    "regularizers": "wRegularizer=None, bRegularizer=None",
    "initial": "init_weight=None, init_bias=None, init_grad_weight=None, init_grad_bias=None",
    "weights": "wRegularizer=None, bRegularizer=None, init_weight=None, init_bias=None, init_grad_weight=None, "
    "init_grad_bias=None",
    "recurrent": "wRegularizer=None, uRegularizer=None, bRegularizer=None",
}
CONSTANTS = {"DOUBLEMAX": DOUBLEMAX, "INTMAX": INTMAX, "INTMIN": INTMIN}
#: Arguments that are not the module's: which weights they are for, by role.
REGULARIZERS = {
    "wRegularizer": "w", "weight_regularizer": "w", "w_regularizer": "w",
    "bRegularizer": "b", "bias_regularizer": "b", "b_regularizer": "b",
    "uRegularizer": "u", "cRegularizer": "c", "p_regularizer": "p",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One layer of the catalogue.

    Attributes:
        name: of the class.
        signature: BigDL's arguments and defaults.
        make: a function of (tensor or table, **arguments), or a Part made from arguments. Each takes those arguments
            that it names; the others have nothing to say to torch. A function that names `training` gets the mode.
        says: what the layer does.
    """

    name: str
    signature: inspect.Signature
    make: Callable[..., Any]
    says: str
    takes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = list(inspect.signature(self.make).parameters)
        object.__setattr__(self, "takes", tuple(name for name in names if name in self.signature.parameters))
        object.__setattr__(self, "wants_mode", "training" in names)
        object.__setattr__(self, "wants_table", getattr(self.make, "__annotations__", {}).get("x") == "Table")

    def __reduce__(self) -> Any:
        from bigdl.nn.catalogue import row_named

        return row_named, (self.name,)

    def module(self, arguments: dict[str, Any]) -> Part:
        """The module for some arguments."""
        taken = {name: arguments[name] for name in self.takes}
        return self.make(**taken) if isinstance(self.make, type) else Apply(self, taken)


def row(heading: str, make: Callable[..., Any], says: str) -> Row:
    """A row from a signature as a user would type it; `*weights` and the like stand for GROUPS.

    >>> row("Threshold(th=1e-6, v=0.0)", lambda x, th, v: x, "").signature
    <Signature (th=1e-06, v=0.0, bigdl_type='float')>
    """
    name, _, arguments = heading.partition("(")
    for group, meaning in GROUPS.items():
        arguments = arguments.replace(f"*{group}", meaning)
    parsed = ast.parse(f"def f({arguments}: ...").body[0].args  # type: ignore[attr-defined]
    defaults = [inspect.Parameter.empty] * (len(parsed.args) - len(parsed.defaults))
    values = [*defaults, *(_value(each) for each in parsed.defaults), "float"]
    names = [*(each.arg for each in parsed.args), "bigdl_type"]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    pairs = zip(names, values, strict=True)
    signature = inspect.Signature([inspect.Parameter(each, kind, default=value) for each, value in pairs])
    return Row(name, signature, make, says)


def _value(node: ast.expr) -> Any:
    return CONSTANTS[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)


def layer_class(row: Row, base: type[Layer] = Layer) -> type[Layer]:
    """The class of a row: it looks as if it had been written out."""
    parameters = row.signature.parameters.values()
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)

    def construct(self: Layer, *args: Any, **kwargs: Any) -> None:
        bound = row.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        base.__init__(self, row.module(bound.arguments))
        _finish(self, bound.arguments)

    construct.__signature__ = inspect.Signature([own, *parameters])  # type: ignore[attr-defined]
    construct.__name__, construct.__qualname__ = "__init__", f"{row.name}.__init__"
    body = {"__init__": construct, "__doc__": row.says, "__module__": "bigdl.nn.layer", "row": row}
    return type(row.name, (base,), body)


def _finish(layer: Layer, arguments: dict[str, Any]) -> None:
    """Do what the arguments say that are alike for all layers: regularizers, and values to begin with."""
    for name, role in REGULARIZERS.items():
        if arguments.get(name) is not None:
            layer._regularize(role, arguments[name])
    for name in INITIAL:
        if arguments.get(name) is not None:
            _begin(layer, name, arguments[name])


def _begin(layer: Layer, argument: str, value: Any) -> None:
    target = argument.rpartition("_")[2]
    weight = getattr(layer.module, target, None)
    if weight is None:
        raise InvalidArgumentError(f"{argument} was given, but {type(layer).__name__} has no {target} here.")
    array = weights.fitting(argument, layer.module, target, value)
    if "grad" in argument:
        weight.grad = array
    else:
        with torch.no_grad():
            weight.copy_(array)
