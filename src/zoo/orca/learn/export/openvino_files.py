"""The end of every way to OpenVINO's format: inputs and outputs get their names and shapes, and files are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.orca.errors import NotOfferedError
from zoo.orca.learn.export.rows import Rows
from zoo.orca.optional import require


def convert(source: Any, **options: Any) -> Any:
    """A model of OpenVINO's, of anything that its converter takes."""
    return require("openvino", "Exporting to openvino").convert_model(source, **options)


def save(model: Any, path: Path, rows: Rows, half: bool) -> None:
    """Write a model whose inputs, in order, are like rows: of any number of them, and else of their shapes."""
    openvino = require("openvino", "Exporting to openvino")
    if len(model.inputs) != len(rows.leaves):
        known = {name for each in model.inputs for name in each.get_names()}
        raise NotOfferedError(
            f"the model has {len(rows.leaves)} inputs, but its result depends on {len(model.inputs)} of them only "
            f"({sorted(known)}). Leave out the feature that it does not use."
        )
    shapes = {
        port: openvino.PartialShape([-1, *leaf.shape[1:]]) for port, leaf in zip(model.inputs, rows.leaves, strict=True)
    }
    model.reshape(shapes)
    for port, name in zip(model.inputs, rows.names, strict=True):
        port.get_tensor().set_names({name})
        port.get_node().set_friendly_name(name)
    for port, name in zip(model.outputs, output_names(len(model.outputs), rows.names), strict=True):
        port.get_tensor().set_names({name})
    openvino.save_model(model, path, compress_to_fp16=half)


def output_names(count: int, inputs: Sequence[str]) -> list[str]:
    """What the outputs of a written model are called: like none of its inputs.

    >>> output_names(1, ["x"]), output_names(2, ["x", "output_1"])
    (['output'], ['output__0', 'output__1'])
    """
    stem = "output"
    while any(name.startswith(stem) for name in inputs):
        stem += "_"
    return [stem] if count == 1 else [f"{stem}_{number}" for number in range(count)]
