"""Keras's part of `est.export`: to OpenVINO by TensorFlow itself, to all else by the same model on torch."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.engine.pickling import pack
from zoo.orca.errors import NotOfferedError, OrcaError
from zoo.orca.learn.export import openvino_files
from zoo.orca.learn.export.original import ROUGH, Original, cannot_write
from zoo.orca.learn.export.quiet import quietly
from zoo.orca.learn.export.rows import Rows
from zoo.orca.learn.tf2.quiet import import_tensorflow
from zoo.orca.learn.tf2.recipe import Shipped
from zoo.orca.optional import require

if TYPE_CHECKING:
    import keras

    from zoo.orca.learn.predict.model import Predictor


class KerasOriginal(Original):
    """A trained Keras 3 model."""

    def __init__(self, model: keras.Model, predictor: Predictor):
        super().__init__(predictor)
        self.name = f"the model {model.name!r}"
        self._model = model
        if any(each.compute_dtype in ("float16", "bfloat16") for each in (model, *model.layers)):
            self.tolerance = ROUGH

    def cast(self, rows: Rows) -> Rows:
        floats = require("keras", "A Keras model").config.floatx()
        leaves = tuple(leaf.astype(floats) if leaf.dtype == np.float64 else leaf for leaf in rows.leaves)
        return Rows(leaves, rows.spec, rows.names)

    def input_names(self) -> list[str]:
        """The names of its Input layers, unless Keras made them up."""
        names = [each.name for each in getattr(self._model, "inputs", None) or []]
        return [] if any(name.startswith("keras_tensor") for name in names) else names

    def write(self, format: str, path: Path, rows: Rows, half: bool) -> str:
        self._build(rows)
        if format != "openvino":
            return self._write_by_torch(format, path, rows)
        try:
            return self._write_openvino(path, rows, half)
        except NotOfferedError:  # such as recurrent layers, whose loops OpenVINO does not read from TensorFlow
            try:
                return self._write_by_torch(format, path, rows, half)
            except (OrcaError, ImportError):
                pass
            raise

    def _build(self, rows: Rows) -> None:
        """A model that was never called has no weights yet; prediction has them from the same seed."""
        from zoo.orca.learn.tf2.batches import features_of

        if not self._model.built:
            self._model(features_of(rows.features))

    def _write_openvino(self, path: Path, rows: Rows, half: bool) -> str:
        tf = import_tensorflow()
        model, arguments = self._model, rows.arguments

        def forward(*leaves: Any) -> Any:
            features = arguments(leaves)
            return tf.nest.flatten(model(features[0] if len(features) == 1 else features, training=False))

        kinds = [
            tf.TensorSpec((None, *leaf.shape[1:]), leaf.dtype, name=f"input_{number}")
            for number, leaf in enumerate(rows.leaves)
        ]
        with quietly():
            try:
                graph = tf.function(forward, input_signature=kinds).get_concrete_function()
                openvino_files.save(_in_order(openvino_files.convert(graph), len(graph.outputs)), path, rows, half)
            except Exception as error:
                instead = "Layers of Keras, or made of keras.ops, can be written."
                raise cannot_write(self.name, "openvino", error, instead) from error
        return "TensorFlow"

    def _write_by_torch(self, format: str, path: Path, rows: Rows, half: bool = False) -> str:
        """Keras models run on torch as well, in a process of their own, and torch can write them."""
        require("torch", f"Exporting a Keras model to {format}")
        with tempfile.TemporaryDirectory(prefix="orca-export-") as folder:
            task = Path(folder) / "task"
            shipped = Shipped.of(self._model)
            task.write_bytes(pickle.dumps(pack((self.name, shipped, rows, format, path, half), self.name)))
            done = subprocess.run(
                [sys.executable, "-m", "zoo.orca.learn.tf2.by_torch", str(task)],
                env=os.environ | {"KERAS_BACKEND": "torch", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            reason = said[-1] if said else f"the process that writes it ended with {done.returncode}."
            instead = (
                f"To write {format} the model is built again on torch, so its layers must be those of Keras, or made "
                'of keras.ops. format="openvino" takes TensorFlow, too.'
            )
            raise cannot_write(self.name, format, reason, instead)
        return f"Keras on torch, {done.stdout.strip().splitlines()[-1]}"


def _in_order(model: Any, outputs: int) -> Any:
    """A converted model whose inputs are in the order of their numbers, and whose outputs are so many.

    An input that nothing depends on comes as an output, too, after the others.
    """
    openvino = require("openvino", "Exporting to openvino")
    numbers = {_number(parameter): parameter for parameter in model.get_parameters()}
    return openvino.Model(model.get_results()[:outputs], [numbers[number] for number in sorted(numbers)], "model")


def _number(parameter: Any) -> int:
    names = {*parameter.output(0).get_names(), parameter.get_friendly_name()}
    found = [name.partition(":")[0].removeprefix("input_") for name in names if name.startswith("input_")]
    return int(found[0])
