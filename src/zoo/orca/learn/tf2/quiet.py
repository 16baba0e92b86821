"""TensorFlow as our modules start it: without its chatter, and with no more threads than a worker has cores."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zoo.orca.engine.garbage import paused
from zoo.orca.optional import require

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker

# What TensorFlow's libraries write to the file of errors while they are loaded, whatever the log level says.
_CHATTER = re.compile(
    rb"^(WARNING: All log messages before absl::InitializeLog\(\).*|To enable the following instructions:.*"
    rb"|[IWE]\d{4} \d\d:\d\d:\d+\.\d+ .*)\n",
    re.MULTILINE,
)


def import_tensorflow(what_for: str = "A TensorFlow model") -> Any:
    """The package tensorflow, which says nothing on being loaded; a typed error where it is not installed."""
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    with _without_chatter(), paused():
        return require("tensorflow", what_for)


@functools.cache
def start_here() -> Any:
    """TensorFlow in this process, its devices found, with the threads that it takes by itself."""
    tf = import_tensorflow()
    with _without_chatter():
        tf.config.list_logical_devices()
        _run_once(tf)
    return tf


def start_tensorflow(worker: Worker, inter_op: int | None = None, intra_op: int | None = None) -> Any:
    """TensorFlow on a worker, where a machine's cores are divided between its workers.

    A process in which it was started before keeps the threads that it has."""
    tf = import_tensorflow()
    cores = max(1, len(os.sched_getaffinity(0)) // worker.local_size)
    with _without_chatter(), contextlib.suppress(RuntimeError):
        tf.config.threading.set_inter_op_parallelism_threads(inter_op or 1)
        tf.config.threading.set_intra_op_parallelism_threads(intra_op or cores)
        tf.config.list_logical_devices()
    with _without_chatter():
        _run_once(tf)
    return tf


def _run_once(tf: Any) -> None:
    """The first session of a process has something to say, too."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(tf.constant(0))


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep TensorFlow's remarks back from the file of errors; all else that is written there is passed on."""
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # there is none
        yield
        return
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            aside.seek(0)
            os.write(2, _CHATTER.sub(b"", aside.read()))
