"""Layers in files: what they are made of as plain data, and their weights as tensors.

A file is read without running code, unless there is a torch module in it that is not ours.
"""

from __future__ import annotations

import importlib
import io
import pickle
import zipfile
from typing import Any

import cloudpickle
import numpy as np
import torch

from bigdl.nn import initialization_method, quantization
from bigdl.nn.base import Layer
from bigdl.nn.parts import Part
from zoo.orca.data.file import exists, open_file
from zoo.orca.errors import CheckpointError, NotPicklableError, PathExistsError
from zoo.orca.learn.checkpoint import check_whole, is_folder, write_file

FORMAT = "bigdl.nn.layer"
OURS = ("bigdl", "zoo")
PLAIN = (int, float, str, bool, type(None))
#: What reading a file raises that is damaged, or something else.
UNREADABLE = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    RuntimeError,
    EOFError,
    ValueError,
    KeyError,
    OverflowError,
    NotImplementedError,
)


class Pen:
    """Writes layers down, each once however often it is used.

    Attributes:
        forms: what was written.
        pickles: whether there is a pickle in it.
    """

    def __init__(self) -> None:
        self.forms: list[dict[str, Any]] = []
        self.pickles = False
        self._numbers: dict[int, int] = {}

    def number(self, layer: Layer) -> int:
        """The number that a layer is written under."""
        if id(layer) not in self._numbers:
            kind = type(layer)
            head = {"class": f"{kind.__module__}:{kind.__qualname__}", "name": layer.name()}
            form = {**head, **layer.saved_form(self), "rates": _rates(layer), "training": layer.is_training()}
            self._numbers[id(layer)] = len(self.forms)
            self.forms.append(form)
        return self._numbers[id(layer)]

    def encoded(self, value: Any) -> Any:
        """An argument as plain data and tensors."""
        if isinstance(value, Layer):
            return {"layer": self.number(value)}
        if isinstance(value, list):
            return [self.encoded(each) for each in value]
        if isinstance(value, tuple):
            return {"tuple": [self.encoded(each) for each in value]}
        if isinstance(value, dict):
            return {"dict": {name: self.encoded(each) for name, each in value.items()}}
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray):
            return {"array": torch.from_numpy(value.copy())}
        if isinstance(value, initialization_method.InitializationMethod):
            return {"init": type(value).__name__, "options": self.encoded(vars(value))}
        if hasattr(value, "l1") and hasattr(value, "l2"):
            return None  # a regularizer: its rates are written with the layer
        return value if isinstance(value, PLAIN) else self.pickled(value)

    def pickled(self, value: Any) -> dict[str, Any]:
        """Any object, as a pickle."""
        self.pickles = True
        try:
            data = cloudpickle.dumps(value)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise NotPicklableError(f"{type(value).__name__} cannot be saved with the layer: {error}") from error
        return {"pickle": torch.frombuffer(bytearray(data), dtype=torch.uint8)}


class Reader:
    """Makes layers again from what a Pen wrote."""

    def __init__(self, forms: list[dict[str, Any]], allow_pickle: bool):
        self._forms = forms
        self._allow_pickle = allow_pickle
        self._layers: dict[int, Layer] = {}

    def layer(self, number: int) -> Layer:
        """The layer of a number; the same one each time."""
        if number not in self._layers:
            form = self._forms[number]
            layer = self._class(form["class"]).from_saved(form, self).set_name(form["name"])
            if isinstance(layer.module, Part):
                layer.module.regularizers = {role: tuple(rates) for role, rates in form["rates"].items()}
            layer.module.training = form["training"]
            self._layers[number] = layer
        return self._layers[number]

    def decoded(self, value: Any) -> Any:
        """An argument again."""
        if isinstance(value, list):
            return [self.decoded(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "layer" in value:
            return self.layer(value["layer"])
        if "tuple" in value:
            return tuple(self.decoded(value["tuple"]))
        if "array" in value:
            return value["array"].numpy()
        if "init" in value:
            return getattr(initialization_method, value["init"])(**self.decoded(value["options"]))
        if "pickle" in value:
            return self.unpickled(value)
        return {name: self.decoded(each) for name, each in value["dict"].items()}

    def unpickled(self, value: dict[str, Any]) -> Any:
        """An object that was pickled, if that is allowed."""
        self._check_trust("a pickled object")
        return pickle.loads(value["pickle"].numpy().tobytes())

    def _class(self, path: str) -> type[Layer]:
        module, _, name = path.partition(":")
        if module.partition(".")[0] not in OURS:
            self._check_trust(f"the layer {name} of {module}")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise CheckpointError(f"The file holds a layer {path}, which cannot be imported: {error}") from error
        if not isinstance(found, type) or not issubclass(found, Layer):
            raise CheckpointError(f"The file names {path} as a layer, which it is not.")
        return found

    def _check_trust(self, what: str) -> None:
        if not self._allow_pickle:
            raise CheckpointError(
                f"The file holds {what}, which can run code when it is read. If you trust it, type: allow_pickle=True"
            )


def save(layer: Layer, path: str, weight_path: str | None, over_write: bool) -> None:
    """Write a layer to a file, or its weights to another."""
    for target in filter(None, (path, weight_path)):
        if not over_write and exists(target):
            raise PathExistsError(f"{target} exists. To write over it, type: over_write=True")
    head, state = described(layer, Pen()), layer.module.state_dict()
    if weight_path is not None:  # first, for a model without its weights cannot be read
        _write(weight_path, {"format": FORMAT, "state": state})
    _write(path, {**head, "state": state if weight_path is None else None})


def described(layer: Layer, pen: Pen) -> dict[str, Any]:
    """What a file says of a layer, beside its weights."""
    root = pen.number(layer)
    frozen = [name for name, weight in layer.module.named_parameters() if not weight.requires_grad]
    quantized = quantization.is_quantized(layer)
    return {"format": FORMAT, "root": root, "layers": pen.forms, "frozen": frozen, "quantized": quantized}


def load(path: str, weight_path: str | None, allow_pickle: bool) -> Layer:
    """Read a layer from a file (or a checkpoint's `model.<n>`), or its weights from another."""
    held = _read(path)
    if "layers" not in held:
        raise CheckpointError(f"{path} holds weights alone. Type: Model.loadModel(modelPath, weightPath='{path}')")
    state = _weights(held, path) if weight_path is None else _weights(_read(weight_path), weight_path)
    layer = Reader(held["layers"], allow_pickle).layer(held["root"])
    if held["quantized"]:
        layer = quantization.quantized(layer)
    try:
        layer.module.load_state_dict(state)
    except RuntimeError as error:
        raise CheckpointError(
            f"{weight_path or path} holds the weights of another layer: {_one_line(error)}"
        ) from error
    frozen = set(held["frozen"])
    for name, weight in layer.module.named_parameters():
        weight.requires_grad_(name not in frozen)
    return layer


def _weights(held: dict[str, Any], path: str) -> dict[str, Any]:
    """The weights in a file."""
    if "models" in held:  # of a checkpoint, which has the estimator's module around that of the layer
        return {name.removeprefix("module."): weight for name, weight in held["models"][0].items()}
    if held["state"] is None:
        raise CheckpointError(f"{path} holds no weights: name the file that does, Model.loadModel(path, weightPath)")
    return held["state"]


def _rates(layer: Layer) -> dict[str, list[float]]:
    rates = layer.module.regularizers if isinstance(layer.module, Part) else {}
    return {role: list(pair) for role, pair in rates.items()}


def _write(path: str, content: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    with quantization.quiet():
        torch.save(content, buffer)
    write_file(path, lambda file: file.write(buffer.getvalue()))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _read(path: str) -> dict[str, Any]:
    if is_folder(path):
        raise CheckpointError(f"{path} is a folder. Name the file in it: that of a checkpoint is model.<n>, or model.")
    with open_file(path) as file:
        data = io.BytesIO(file.read())
    try:
        check_whole(data)
        with quantization.quiet():
            held = torch.load(data, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        raise CheckpointError(
            f"{path} is not a file that Layer.save wrote, or is damaged: {_one_line(error)}"
        ) from error
    if isinstance(held, dict) and "models" in held and "format" not in held:
        raise CheckpointError(
            f"{path} is a checkpoint of a model with parts that are no layers of ours, and holds its weights alone. "
            "Make the model again, and its estimator, and type: estimator.load_orca_checkpoint(folder)"
        )
    if not isinstance(held, dict) or held.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a file that Layer.save wrote.")
    return held
