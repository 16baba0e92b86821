"""A process in which Keras runs on torch: it builds the model of a task again, and writes it with torch.

`KERAS_BACKEND=torch python -m zoo.orca.learn.tf2.by_torch task`
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

from zoo.orca.learn.export.original import reason_of


def main(task: str) -> str:
    """Write what a task asks for; says by what means."""
    # The task is that of the process which started this one, in a folder of its own.
    name, shipped, rows, format, path, half = pickle.loads(Path(task).read_bytes()).load()
    from zoo.orca.learn.export.quiet import quietly
    from zoo.orca.learn.pytorch.exported import Flat, follow, write_module

    with quietly():
        model = shipped.build(compile=False).cpu().eval()
    flat = Flat(model, rows, call)
    by = write_module(name, flat, format, path, rows, half)
    if by != "torch.export":
        follow(flat, rows)
    return by.partition(",")[0]  # what Keras decides in Python hangs on shapes alone


def call(model: Any, *features: Any) -> list[Any]:
    """The outputs of a Keras model in the order in which est.predict has them."""
    import keras

    return keras.tree.flatten(model(features[0] if len(features) == 1 else features, training=False))


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{main(sys.argv[1])}\n")
    except Exception as error:
        sys.exit(reason_of(error.__cause__ or error))  # the last line, which the other process tells
