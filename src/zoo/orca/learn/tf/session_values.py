"""The values in a user's session, read and set through operations that the graph has already, where it has any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.tf.walk import writers


@dataclass(frozen=True)
class _Access:
    """How a variable is read and set: `assign` sets it to what `given` is, which may be fed."""

    value: Any
    assign: Any
    given: Any


class SessionValues:
    """The variables of a session's graph, given as the operations that hold them."""

    def __init__(self, sess: Any):
        self._sess = sess
        self._known: dict[str, _Access] = {}

    def read(self, variables: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The values by name; variables that have none yet are initialised."""
        self.initialize(variables)
        return dict(zip(variables, self._sess.run(self._values(variables)), strict=True))

    def write(self, variables: Mapping[str, Any], values: Mapping[str, np.ndarray]) -> None:
        """Set variables to values."""
        left = {name: self._access(variables[name]) for name in values if name in variables}
        while left:
            # Two variables may begin with one tensor, which can be fed one value at a time.
            now: dict[str, str] = {}
            for name, access in left.items():
                now.setdefault(access.given.name, name)
            chosen = [(left.pop(name), values[name]) for name in now.values()]
            self._sess.run([each.assign for each, _ in chosen], {each.given.name: value for each, value in chosen})

    def initialize(self, variables: Mapping[str, Any]) -> None:
        """Give variables that have no value yet what they are to begin with."""
        unset = self._unset(variables)
        if unset:
            self.begin(unset)

    def begin(self, variables: Mapping[str, Any]) -> None:
        """Give variables what they are to begin with, whatever they have."""
        assigns = [self._access(each).assign for each in variables.values()]
        try:
            self._sess.run(assigns)
        except tf.errors.FailedPreconditionError:  # one begins with what another has
            for each in sorted(assigns, key=lambda one: one._id):
                self._sess.run(each)

    def _unset(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Those that have no value yet."""
        asked = {name: each for name, each in variables.items() if _question(each) is not None}
        answers = dict(zip(asked, self._sess.run([_question(each) for each in asked.values()]), strict=True))
        return {name: each for name, each in variables.items() if not answers.get(name, self._can_be_read(each))}

    def _can_be_read(self, variable: Any) -> bool:
        try:
            self._sess.run(self._access(variable).value.op)
        except tf.errors.FailedPreconditionError:
            return False
        return True

    def _values(self, variables: Mapping[str, Any]) -> list[Any]:
        return [self._access(each).value for each in variables.values()]

    def _access(self, variable: Any) -> _Access:
        if variable.name not in self._known:
            self._known[variable.name] = _find(variable) or _add(variable)
        return self._known[variable.name]


def _question(variable: Any) -> Any:
    """The tensor that tells whether a variable has a value; None where the graph has none."""
    consumers = variable.outputs[0].consumers()
    return next((each.outputs[0] for each in consumers if each.type == "VarIsInitializedOp"), None)


def _find(variable: Any) -> _Access | None:
    """What the graph has already: the first operations on a variable read it, and let it begin with a value."""
    consumers = sorted(variable.outputs[0].consumers(), key=lambda each: each._id)
    changes = writers(variable)
    assigns = [each for each in consumers if each in changes and each.type in ("Assign", "AssignVariableOp")]
    reads = [each for each in consumers if each.type in ("ReadVariableOp", "Identity")]
    if not assigns or not reads or assigns[0].control_inputs or reads[0].control_inputs:
        return None
    return _Access(reads[0].outputs[0], assigns[0], assigns[0].inputs[1])


def _add(variable: Any) -> _Access:
    graph = variable.graph
    if graph.finalized:
        raise InvalidArgumentError(
            f"the graph is finalized, and has no operation that sets the variable {variable.name!r}. Make the "
            "estimator before the graph is finalized."
        )
    handle, dtype = variable.outputs[0], variable.get_attr("dtype")
    with graph.as_default(), tf.name_scope("zoo_values"):
        given = tf.compat.v1.placeholder(dtype)
        if variable.type == "VarHandleOp":
            value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
            return _Access(value, tf.raw_ops.AssignVariableOp(resource=handle, value=given), given)
        return _Access(tf.identity(handle), tf.raw_ops.Assign(ref=handle, value=given, validate_shape=False).op, given)
