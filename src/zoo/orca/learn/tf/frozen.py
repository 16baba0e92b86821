"""A part of a TensorFlow graph, from some tensors to others, with its variables as constants: it pickles and runs."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.orca.data.file import filesystem_of
from zoo.orca.errors import BatchError, InvalidArgumentError, NotOfferedError, PathNotFoundError
from zoo.orca.learn.tf.walk import ancestors, placeholders
from zoo.orca.learn.tf2.quiet import import_tensorflow, start_here

GRAPH_FILE = "frozen_inference_graph.pb"
META_FILE = "graph_meta.json"
PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
_UNINITIALIZED = re.compile(r"(?:find variable|uninitialized value) ([\w/-]+)")


@dataclass(frozen=True)
class Names:
    """The tensors of a frozen graph by name, and what must be run before them.

    Attributes:
        grad_input_names: placeholders for the gradients of the outputs; None without a backward part.
        grad_output_names: the gradients of the inputs, None for one that has none.
        init_op_names: operations that fill the graph's lookup tables.
    """

    input_names: list[str]
    output_names: list[str]
    grad_input_names: list[str] | None = None
    grad_output_names: list[str | None] | None = None
    init_op_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class FrozenGraph:
    """A graph without variables, as bytes; `open` makes it run."""

    graph_def: bytes
    names: Names
    session_config: bytes | None = None

    def open(self) -> OpenGraph:
        return OpenGraph(self)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the graph and its names to a folder, on any filesystem."""
        fs, root = filesystem_of(os.fspath(folder))
        fs.makedirs(root, exist_ok=True)
        fs.pipe_file(f"{root}/{GRAPH_FILE}", self.graph_def)
        known = {name: value for name, value in asdict(self.names).items() if value}
        fs.pipe_file(f"{root}/{META_FILE}", json.dumps(known, indent=2).encode())

    @staticmethod
    def read(folder: str | os.PathLike[str], session_config: bytes | None = None) -> FrozenGraph:
        """What `save` wrote."""
        fs, root = filesystem_of(os.fspath(folder))
        for name in (GRAPH_FILE, META_FILE):
            if not fs.exists(f"{root}/{name}"):
                raise PathNotFoundError(
                    f"No such file: {Path(os.fspath(folder)) / name}. Expected a folder that export_tf wrote, with "
                    f"{GRAPH_FILE} and {META_FILE}"
                )
        known = json.loads(fs.cat_file(f"{root}/{META_FILE}"))
        known = {name: value for name, value in known.items() if name in Names.__annotations__}
        return FrozenGraph(fs.cat_file(f"{root}/{GRAPH_FILE}"), Names(**known), session_config)


class OpenGraph:
    """A frozen graph in a session of its own."""

    def __init__(self, frozen: FrozenGraph):
        self._names = names = frozen.names
        tf = start_here().compat.v1
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(tf.GraphDef.FromString(frozen.graph_def), name="")
        config = tf.ConfigProto.FromString(frozen.session_config) if frozen.session_config else None
        self._session = tf.Session(graph=graph, config=config)
        if names.init_op_names:
            self._session.run(list(names.init_op_names))
        self.inputs = [graph.get_tensor_by_name(name) for name in names.input_names]
        self.outputs = [graph.get_tensor_by_name(name) for name in names.output_names]

    def run(self, values: Sequence[Any]) -> list[np.ndarray]:
        """The outputs for these inputs."""
        return self._session.run(self.outputs, self._feed(self.inputs, values, "input"))

    def gradients(self, values: Sequence[Any], grads: Sequence[Any]) -> list[np.ndarray]:
        """The gradients of the inputs, where those of the outputs are `grads`."""
        names = self._names
        if names.grad_input_names is None or names.grad_output_names is None:
            raise InvalidArgumentError(
                "backward needs a graph that was made for it. Type: TFNet.from_session(..., generate_backward=True)"
            )
        given = [self._session.graph.get_tensor_by_name(name) for name in names.grad_input_names]
        feed = self._feed(self.inputs, values, "input") | self._feed(given, grads, "gradient of an output")
        known = [name for name in names.grad_output_names if name is not None]
        found = iter(self._session.run(known, feed) if known else [])
        return [
            np.zeros(np.shape(value), np.float32) if name is None else next(found)
            for name, value in zip(names.grad_output_names, values, strict=True)
        ]

    def close(self) -> None:
        self._session.close()

    def _feed(self, tensors: list[Any], values: Sequence[Any], what: str) -> dict[Any, np.ndarray]:
        if len(values) != len(tensors):
            raise BatchError(
                f"Expected {len(tensors)} arrays, one for each {what} ({', '.join(each.name for each in tensors)}), "
                f"got {len(values)}"
            )
        return {tensor: _as_fed(value, tensor) for tensor, value in zip(tensors, values, strict=True)}


def graph_mode() -> Any:
    """`tensorflow.compat.v1`, in which graphs are built and run."""
    return import_tensorflow("A TensorFlow graph").compat.v1


def freeze(
    sess: Any,
    inputs: Any,
    outputs: Any,
    generate_backward: bool = False,
    allow_non_differentiable_input: bool = True,
    session_config: Any = None,
) -> FrozenGraph:
    """The part of a session's graph between some tensors, with the values that the variables have now.

    The session's graph is left as it is, and the session may be closed afterwards.
    """
    sources, results = as_tensors(inputs, "inputs"), as_tensors(outputs, "outputs")
    for tensor in [*sources, *results]:
        if tensor.graph is not sess.graph:
            raise InvalidArgumentError(f"The tensor {tensor.name} is not in the session's graph.")
    _check_dependence(sources, results)
    tf = graph_mode()
    config = None if session_config is None else session_config.SerializeToString()
    with quiet():
        tables = _table_initializers(tf, sess.graph, results)
        constant = _with_constants(tf, sess, sorted({tensor.op.name for tensor in results} | set(tables)))
        part = _Part(tf, constant, sources, results)
        if generate_backward:
            part.add_gradients(allow_non_differentiable_input)
        return FrozenGraph(part.graph_def(tables), part.names(tables), config)


def as_tensors(given: Any, what: str) -> list[Any]:
    """One tensor or several as a list."""
    tensors = list(given) if isinstance(given, list | tuple) else [given]
    for each in tensors:
        if not hasattr(each, "op") or not hasattr(each, "graph"):
            raise InvalidArgumentError(
                f"Expected {what} to be tensors of a graph, got {type(each).__name__}: {each!r}. "
                "Take them from the graph: graph.get_tensor_by_name('x:0')"
            )
    if not tensors:
        raise InvalidArgumentError(f"Expected {what} to be one tensor or several, got none.")
    return tensors


def placeholders_of(tensors: Sequence[Any], given: Sequence[Any] = ()) -> list[Any]:
    """The placeholders that must be fed to compute tensors when some are given, by name."""
    return sorted(placeholders(ancestors(tensors, given)), key=lambda each: each.name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without TensorFlow's remarks that what graphs need is of its first generation."""
    logger = import_tensorflow().get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _check_dependence(inputs: list[Any], outputs: list[Any]) -> None:
    """Raise a typed error for an input that is of no use, for one that is missing, and for what cannot be frozen."""
    needed = ancestors(outputs)
    for tensor in inputs:
        if tensor.op not in needed:
            raise InvalidArgumentError(
                f"The outputs do not depend on the input {tensor.op.name} ({tensor.name}). Leave it out of inputs, or "
                "look at how the outputs are computed."
            )
    python = next((op for op in needed if op.type in PYTHON), None)
    if python is not None:
        raise NotOfferedError(
            f"The graph calls a Python function ({python.name}), which cannot leave this process with it. Use "
            "operations of TensorFlow."
        )
    missing = placeholders_of(outputs, inputs)
    if missing:
        raise InvalidArgumentError(
            f"The outputs depend on {', '.join(each.name for each in missing)} too, which is not among inputs. Add it, "
            "or make it a tf.compat.v1.placeholder_with_default."
        )


def _table_initializers(tf: Any, graph: Any, outputs: list[Any]) -> tuple[str, ...]:
    """What fills the lookup tables that the outputs use."""
    needed = ancestors(outputs)
    fillers = graph.get_collection(tf.GraphKeys.TABLE_INITIALIZERS)
    return tuple(op.name for op in fillers if any(tensor.op in needed for tensor in op.inputs))


def _with_constants(tf: Any, sess: Any, kept: list[str]) -> Any:
    """The session's graph as far as some operations need it, with constants for variables."""
    graph_def = sess.graph.as_graph_def()
    try:
        return tf.graph_util.convert_variables_to_constants(sess, graph_def, kept)
    except tf.errors.FailedPreconditionError as error:
        named = _UNINITIALIZED.search(error.message)
        raise InvalidArgumentError(
            f"The session has no value for the variable {named[1] if named else '(one of them)'}. Type "
            "sess.run(tf.compat.v1.global_variables_initializer()), or restore a checkpoint, first."
        ) from error


class _Part:
    """A graph of its own that begins at its inputs, which are placeholders, and ends at its outputs."""

    def __init__(self, tf: Any, constant: Any, inputs: list[Any], outputs: list[Any]):
        self._tf = tf
        self._graph = tf.Graph()
        with self._graph.as_default():
            replaced = {
                tensor.name: tf.placeholder(tensor.dtype, tensor.shape, f"{tensor.op.name}_given")
                for tensor in inputs
                if tensor.op.type not in ("Placeholder", "PlaceholderWithDefault")
            }
            self._outputs = tf.import_graph_def(constant, replaced, [tensor.name for tensor in outputs], name="")
        self._inputs = [
            replaced[tensor.name] if tensor.name in replaced else self._graph.get_tensor_by_name(tensor.name)
            for tensor in inputs
        ]
        self._given: list[Any] | None = None
        self._found: list[Any] | None = None

    def add_gradients(self, allow_non_differentiable: bool) -> None:
        """Add the gradients of the inputs, where those of the outputs are given."""
        tf = self._tf
        with self._graph.as_default():
            self._given = [tf.placeholder(each.dtype, each.shape, "zoo_grad_output") for each in self._outputs]
            pairs = [pair for pair in zip(self._outputs, self._given, strict=True) if pair[0].dtype.is_floating]
            if not pairs:
                raise InvalidArgumentError("generate_backward needs an output of floating numbers, but there is none.")
            found = tf.gradients([pair[0] for pair in pairs], self._inputs, [pair[1] for pair in pairs])
            self._found = [None if each is None else tf.identity(each, "zoo_grad_input") for each in found]
        constant = [each.name for each, grad in zip(self._inputs, self._found, strict=True) if grad is None]
        if constant and not allow_non_differentiable:
            raise InvalidArgumentError(
                f"The outputs have no gradient for {', '.join(constant)}, and allow_non_differentiable_input is False. "
                "Make it True to have zeros there."
            )

    def graph_def(self, others: Sequence[str]) -> bytes:
        """The graph as far as the outputs, the gradients and some other operations need it."""
        kept = [each.op.name for each in [*self._outputs, *(self._found or [])] if each is not None]
        kept += [each.op.name for each in self._given or []]  # also those of outputs that are no floating numbers
        whole = self._graph.as_graph_def()
        return self._tf.graph_util.extract_sub_graph(whole, [*kept, *others]).SerializeToString(deterministic=True)

    def names(self, tables: tuple[str, ...]) -> Names:
        return Names(
            [each.name for each in self._inputs],
            [each.name for each in self._outputs],
            None if self._given is None else [each.name for each in self._given],
            None if self._found is None else [None if each is None else each.name for each in self._found],
            tables,
        )


def _as_fed(value: Any, tensor: Any) -> np.ndarray:
    """A value as an array that a tensor takes."""
    dtype = tensor.dtype.as_numpy_dtype
    try:
        array = np.asarray(value) if dtype is object else np.asarray(value, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise BatchError(f"Expected {tensor.name} to be given {tensor.dtype.name}, got {value!r:.200}") from error
    if not tensor.shape.is_compatible_with(array.shape):
        raise BatchError(f"Expected {tensor.name} to be given an array of shape {tensor.shape}, got {array.shape}")
    return array
