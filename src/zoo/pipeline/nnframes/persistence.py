"""How NNFrames' stages keep their models: in the files that the models' own `save` writes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from zoo.pipeline.api.torch import TorchModel


def model_to_bytes(model: Any) -> bytes:
    """A model as its own `save` writes it; a plain torch module as a TorchModel."""
    layer = TorchModel.from_pytorch(model) if isinstance(model, torch.nn.Module) else model
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        layer.save(str(path), True)
        return path.read_bytes()


def model_from_bytes(body: bytes, is_plain: bool) -> Any:
    """What `model_to_bytes` wrote; `is_plain` for a torch module that was not wrapped."""
    from bigdl.nn.layer import Model

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(body)
        layer = Model.load(str(path))
    return layer.to_pytorch() if is_plain else layer
