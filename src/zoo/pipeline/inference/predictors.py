"""Models of each library on their way to where rows are predicted: each says how it is loaded there."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zoo.orca.errors import PathNotFoundError
from zoo.orca.optional import require

Run = Callable[[tuple[Any, ...]], Any]


class ModulePredictor:
    """A torch module, which takes several inputs as arguments, or as a list if it is a layer's."""

    def __init__(self, module: Any, as_table: bool):
        self.key = uuid.uuid4().hex
        self._module = module.eval()
        self._as_table = as_table

    def load(self) -> Run:
        torch = require("torch", "A torch module")
        module, as_table = self._module, self._as_table

        def run(features: tuple[Any, ...]) -> Any:
            tensors = [torch.from_numpy(each) for each in features]
            with torch.no_grad():
                output = module(tensors) if as_table and len(tensors) > 1 else module(*tensors)
            several = isinstance(output, list | tuple)
            return [each.numpy() for each in output] if several else output.numpy()

        return run


class GraphPredictor:
    """A graph of TensorFlow."""

    def __init__(self, net: Any):
        self.key = uuid.uuid4().hex
        self._net = net

    def load(self) -> Run:
        return lambda features: self._net.forward(list(features))


class OpenVINOPredictor:
    """A model of OpenVINO, by its two files."""

    def __init__(self, model_path: str, weight_path: str, batch_size: int):
        require("openvino", "An OpenVINO model")
        for path in (model_path, weight_path):
            if not Path(path).exists():
                raise PathNotFoundError(f"No such file: {path}")
        self._model, self._weights = Path(model_path).read_bytes(), Path(weight_path).read_bytes()
        self._batch_size = batch_size
        self.key = hashlib.sha256(self._model + self._weights + str(batch_size).encode()).hexdigest()

    def load(self) -> Run:
        openvino = require("openvino", "An OpenVINO model")
        core = openvino.Core()
        model = core.read_model(self._model, self._weights)
        if self._batch_size > 0:
            openvino.set_batch(model, self._batch_size)
        compiled = core.compile_model(model, "CPU")

        def run(features: tuple[Any, ...]) -> Any:
            # A request of its own for each call, so that threads do not meet in one.
            results = compiled.create_infer_request().infer(list(features))
            outputs = [results[each].copy() for each in compiled.outputs]
            return outputs if len(outputs) > 1 else outputs[0]

        return run
