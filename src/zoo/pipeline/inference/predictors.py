"""Models of each library on their way to where rows are predicted: each says how it is loaded there."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from zoo.orca.learn.openvino import predictor
from zoo.orca.learn.openvino.model_file import ModelFile
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


class OpenVINOPredictor(predictor.OpenVINOPredictor):
    """A model of OpenVINO, by its two files."""

    def __init__(self, model_path: str, weight_path: str, batch_size: int):
        super().__init__(ModelFile.read(model_path, batch_size, weight_path))
