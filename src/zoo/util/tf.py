"""TensorFlow graphs and checkpoints as files: frozen exports for TFNet, and checkpoints on any filesystem."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from zoo.orca.data.file import filesystem_of, is_local
from zoo.orca.errors import InvalidArgumentError, PathNotFoundError
from zoo.orca.learn.tf.frozen import freeze, graph_mode, quiet
from zoo.orca.names import public_names


def export_tf(
    sess: Any,
    folder: str,
    inputs: Any,
    outputs: Any,
    generate_backward: bool = False,
    allow_non_differentiable_input: bool = True,
) -> None:
    """Write the graph between some tensors to a folder, its variables as constants, for `TFNet.from_export_folder`.

    Args:
        inputs, outputs: tensors, one or a list; what the outputs do not need is left out.
        generate_backward: also the gradients of the inputs, for `TFNet.backward`.
        allow_non_differentiable_input: whether an input may have no gradient; it is zero then.

    Example: ``export_tf(sess, "/tmp/lenet", inputs=[images], outputs=[logits])``
    """
    freeze(sess, inputs, outputs, generate_backward, allow_non_differentiable_input).save(folder)


def save_tf_checkpoint(sess: Any, checkpoint_path: str, saver: Any = None) -> None:
    """Write the session's variables as `tf.train.Saver` does, to any filesystem, with the state file beside them.

    Example: ``save_tf_checkpoint(sess, "hdfs://namenode:8020/lenet/model")``
    """
    saver = _saver(sess, saver)
    if is_local(checkpoint_path):
        local = filesystem_of(checkpoint_path)[1]
        os.makedirs(os.path.dirname(local) or ".", exist_ok=True)
        with quiet():
            saver.save(sess, local)
        return
    folder, _, name = checkpoint_path.rpartition("/")
    fs, root = filesystem_of(folder)
    with tempfile.TemporaryDirectory(prefix="orca-tf-") as scratch, quiet():
        saver.save(sess, os.path.join(scratch, name))
        graph_mode().train.update_checkpoint_state(scratch, name, [name])  # paths that do not name the scratch folder
        fs.makedirs(root, exist_ok=True)
        fs.put(scratch + "/", root + "/", recursive=True)


def load_tf_checkpoint(sess: Any, checkpoint_path: str, saver: Any = None) -> None:
    """Give the session's variables the values of a checkpoint, from any filesystem.

    Example: ``load_tf_checkpoint(sess, get_checkpoint_state("/tmp/lenet").model_checkpoint_path)``
    """
    saver = _saver(sess, saver)
    with _local_copy(checkpoint_path) as local:
        saver.restore(sess, local)


def load_known_variables(sess: Any, checkpoint_path: str) -> None:
    """Give those of the session's variables that a checkpoint has its values; the others stay as they are."""
    tf = graph_mode()
    with _local_copy(checkpoint_path) as local, sess.graph.as_default():
        saved = tf.train.load_checkpoint(local).get_variable_to_shape_map()
        variables = tf.global_variables()
        known = [each for each in variables if each.op.name in saved]
        if not known:
            raise InvalidArgumentError(
                f"Expected {checkpoint_path} to have some of the variables "
                f"{', '.join(each.op.name for each in variables)}, got {', '.join(sorted(saved))}."
            )
        tf.train.Saver(known).restore(sess, local)


@contextlib.contextmanager
def _local_copy(checkpoint_path: str) -> Iterator[str]:
    """A checkpoint's path on this machine, where it is brought while the block lasts."""
    fs, path = filesystem_of(checkpoint_path)
    files = [name for name in fs.glob(f"{path}*") if name.removeprefix(path).startswith((".index", ".data-"))]
    if not files:
        raise PathNotFoundError(f"No such checkpoint: {checkpoint_path} (there is no {checkpoint_path}.index)")
    if is_local(checkpoint_path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="orca-tf-") as scratch:
        fs.get(files, scratch + "/")
        yield os.path.join(scratch, os.path.basename(path))


@dataclass(frozen=True)
class CheckpointState:
    """The checkpoints of a folder, as full paths: the newest one, and all, the oldest first."""

    model_checkpoint_path: str
    all_model_checkpoint_paths: list[str]


def get_checkpoint_state(checkpoint_dir: str) -> CheckpointState | None:
    """What the file "checkpoint" of a folder says; None where there is none.

    Example: ``get_checkpoint_state("hdfs://namenode:8020/lenet").model_checkpoint_path``
    """
    fs, root = filesystem_of(checkpoint_dir)
    if not fs.exists(f"{root}/checkpoint"):
        return None
    with tempfile.TemporaryDirectory(prefix="orca-tf-") as scratch:
        fs.get_file(f"{root}/checkpoint", os.path.join(scratch, "checkpoint"))
        state = graph_mode().train.get_checkpoint_state(scratch)
        paths = [state.model_checkpoint_path, *state.all_model_checkpoint_paths]
    # A saver may have written whole paths; those that were relative lie in the folder that was asked for.
    base = root if is_local(checkpoint_dir) else checkpoint_dir.rstrip("/")
    newest, *all_paths = (path.replace(scratch, base, 1) if path.startswith(scratch) else path for path in paths)
    return CheckpointState(newest, all_paths)


def _saver(sess: Any, saver: Any) -> Any:
    """A saver of the session's variables; made in its graph, whichever is the default one."""
    if saver is not None:
        return saver
    with sess.graph.as_default():
        return graph_mode().train.Saver()


__dir__ = public_names(globals())
