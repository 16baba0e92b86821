"""A graph that has come to a worker: a session of its own, with the values it was sent."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.orca.learn.tf.parcel import Parcel, Variable
from zoo.orca.learn.tf.random_ops import SEED, seed_the_rest

v1 = tf.compat.v1


class OpenGraph:
    """A parcel's graph in a session. Names are those of the driver's graph.

    Args:
        values: what variables begin with, by name.
        rank: among workers; random operations differ between them.
        threads: how many may work on one operation; as many as the machine has cores by default.
    """

    def __init__(self, parcel: Parcel, values: Mapping[str, np.ndarray], rank: int = 0, threads: int | None = None):
        self.parcel = parcel
        definition = v1.GraphDef()
        definition.ParseFromString(parcel.graph)
        seed_the_rest(definition, parcel.seed, rank)
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.import_graph_def(definition, name="")
            known = (*parcel.variables, *(each for metric in parcel.metrics for each in metric.variables))
            self._variables = {each.name: _Access(self.graph, each) for each in known}
        self.sess = v1.Session(graph=self.graph, config=_config(parcel.config, threads))
        self.write({name: value for name, value in values.items() if name in self._variables})
        if parcel.tables:
            self.run(list(parcel.tables), {})

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Any], seed: int = 0) -> list[Any]:
        """What tensors are and what operations do for some feeds; random operations draw as the seed says."""
        seeded = {f"{SEED}:0": seed} if self.parcel.is_seeded else {}
        try:
            return self.sess.run(list(fetches), {**feeds, **seeded})
        except tf.errors.OpError as error:
            # Its operation belongs to this process: without it the error can be sent to the driver.
            raise type(error)(None, None, error.message) from None

    def read(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """The values of variables."""
        names = list(names)
        return dict(zip(names, self.sess.run([self._variables[name].value for name in names]), strict=True))

    def write(self, values: Mapping[str, np.ndarray]) -> None:
        """Set variables."""
        chosen = [(self._variables[name], value) for name, value in values.items()]
        self.sess.run([each.assign for each, _ in chosen], {each.given.name: value for each, value in chosen})

    def close(self) -> None:
        self.sess.close()


class _Access:
    """How one variable is read and set."""

    def __init__(self, graph: tf.Graph, variable: Variable):
        handle = graph.get_tensor_by_name(f"{variable.name}:0")
        dtype = tf.as_dtype(variable.dtype)
        self.given = v1.placeholder(dtype)
        if variable.is_resource:
            self.value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
            self.assign = tf.raw_ops.AssignVariableOp(resource=handle, value=self.given)
        else:
            self.value = handle
            self.assign = tf.raw_ops.Assign(ref=handle, value=self.given, validate_shape=False).op


def _config(serialised: bytes, threads: int | None) -> Any:
    config = v1.ConfigProto()
    config.ParseFromString(serialised)
    cores = len(os.sched_getaffinity(0))
    if not config.intra_op_parallelism_threads:
        config.intra_op_parallelism_threads = threads or cores
    if not config.inter_op_parallelism_threads:
        config.inter_op_parallelism_threads = 1
    config.gpu_options.allow_growth = True  # several workers may share one
    return config
