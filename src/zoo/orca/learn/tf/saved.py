"""TensorFlow checkpoints of a session: written by TensorFlow's own Saver, read so that what is not in them stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.orca.errors import CheckpointError, PathNotFoundError

v1 = tf.compat.v1


def read_checkpoint(path: str) -> dict[str, np.ndarray]:
    """The values in a TensorFlow checkpoint, by the variables' names; of a folder its latest checkpoint."""
    if os.path.isdir(path):
        latest = tf.train.latest_checkpoint(path)
        if latest is None:
            raise PathNotFoundError(
                f"there is no TensorFlow checkpoint in the folder {path}. "
                "Expected what save_tf_checkpoint() or tf.compat.v1.train.Saver wrote."
            )
        path = latest
    if not tf.io.gfile.exists(f"{path}.index"):
        raise PathNotFoundError(
            f"there is no TensorFlow checkpoint {path}. Expected files {Path(path).name}.index and "
            f"{Path(path).name}.data-..., as save_tf_checkpoint() or tf.compat.v1.train.Saver writes them."
        )
    try:
        reader = tf.train.load_checkpoint(path)
        return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    except (tf.errors.OpError, ValueError) as error:
        raise CheckpointError(f"the TensorFlow checkpoint {path} cannot be read: {error}") from error


def values_for(graph: Any, found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a checkpoint has for the variables of a graph, parts of larger ones included."""
    values = dict(found)
    known = graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
    with graph.as_default():
        parts = [each.to_proto().save_slice_info_def for each in known]
    for variable, part in zip(known, parts, strict=True):
        if part.full_name in found:
            cut = tuple(slice(start, start + size) for start, size in zip(part.var_offset, part.var_shape, strict=True))
            values[variable.op.name] = found[part.full_name][cut]
    return values
