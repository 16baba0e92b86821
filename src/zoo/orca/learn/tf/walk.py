"""What depends on what in a TensorFlow graph. Nothing is added to it here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

VARIABLES = frozenset({"VarHandleOp", "VariableV2", "Variable"})
PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})
# What a variable's handle goes through on its way into a loop or a branch.
_PASSES = frozenset({"Identity", "Enter", "RefEnter", "Switch", "RefSwitch", "RefIdentity"})
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"})
_REF_WRITES = ("Assign", "Scatter", "Apply", "SparseApply", "CountUpTo")


def ancestors(targets: Iterable[Any], fed: Collection[Any] = (), done: Collection[Any] = ()) -> dict[Any, None]:
    """The operations that must run for tensors or operations, themselves included, in the order they were found.

    What is fed need not run, nor what it depends on; nobody waits for what is done.
    """
    fed_names = {tensor.name for tensor in fed}
    found: dict[Any, None] = {}
    waiting = [_operation(target) for target in targets if getattr(target, "name", None) not in fed_names]
    while waiting:
        operation = waiting.pop()
        if operation in found:
            continue
        found[operation] = None
        waiting += [each.op for each in operation.inputs if each.name not in fed_names]
        waiting += [each for each in waits_for(operation, done) if not _is_fed(each, fed_names)]
    return found


def waits_for(operation: Any, done: Collection[Any] = ()) -> list[Any]:
    """The operations that one must wait for without taking anything from them, but for those that are done before."""
    # In a loop or a branch such an edge may be what makes an operation part of it.
    if operation in done or operation._get_control_flow_context() is not None:
        return list(operation.control_inputs)
    return [each for each in operation.control_inputs if each not in done]


def holder_of(variable: Any) -> Any:
    """The operation that holds a variable."""
    handle = getattr(variable, "handle", None)
    return variable.op if handle is None else handle.op


def placeholders(operations: Iterable[Any]) -> list[Any]:
    """The placeholders among operations, which somebody must feed."""
    return [each.outputs[0] for each in operations if each.type in PLACEHOLDERS]


def variables(operations: Iterable[Any]) -> dict[str, Any]:
    """The variables among operations, by the name that a checkpoint has for them."""
    return {each.name: each for each in sorted(operations, key=lambda one: one.name) if each.type in VARIABLES}


def written(operations: Iterable[Any]) -> set[str]:
    """The names of the variables that operations may change."""
    return {variable for operation in operations for variable in _written_by(operation)}


def depends_on(operations: Collection[Any], tensors: Iterable[Any]) -> bool:
    """Whether any of the tensors is used by operations that were found without feeding it."""
    return any(tensor.op in operations for tensor in tensors)


def writers(variable: Any) -> list[Any]:
    """The operations of the graph that change a variable."""
    return [each for each in variable.outputs[0].consumers() if variable.name in _written_by(each)]


def _is_fed(operation: Any, fed: Collection[str]) -> bool:
    return bool(operation.outputs) and all(each.name in fed for each in operation.outputs)


def _written_by(operation: Any) -> Iterator[str]:
    if operation.type in VARIABLES or operation.type in _READS or operation.type in _PASSES:
        return
    for tensor in operation.inputs:
        variable = _origin(tensor)
        if variable is None:
            continue
        # A function or a loop that is given a handle may do anything with it.
        if variable.type == "VarHandleOp" or operation.type.startswith(_REF_WRITES):
            yield variable.name


def _origin(tensor: Any) -> Any:
    """The variable whose handle a tensor is; None for others."""
    is_handle = tensor.dtype.name in ("resource",) or tensor.dtype._is_ref_dtype
    operation = tensor.op
    while is_handle and operation.type in _PASSES:
        operation = operation.inputs[0].op
    return operation if is_handle and operation.type in VARIABLES else None


def _operation(target: Any) -> Any:
    return target.op if hasattr(target, "op") else target
