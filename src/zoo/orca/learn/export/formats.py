"""What a model can be written as: the file's ending, and the runtime that reads it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.optional import require

#: A written model: from an array for each input to one for each output.
Runtime = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


@dataclass(frozen=True)
class Format:
    """One way to write a model.

    Attributes:
        name: what users call it.
        endings: those of its files, the one that is opened first.
        packages: what writing and checking it needs.
        open: makes the runtime of a file; gives it, and its name and version.
    """

    name: str
    endings: tuple[str, ...]
    packages: tuple[str, ...]
    open: Callable[[Path], tuple[Runtime, str]]

    def paths(self, path: str) -> list[str]:
        """The files that export to a path writes; the ending may be left out."""
        stem = path.removesuffix(self.endings[0])
        name = stem.replace("\\", "/").rpartition("/")[2]
        if not name:
            raise InvalidArgumentError(f"path must name a file, like 'model{self.endings[0]}', but is {path!r}.")
        other = next((each for each in _ENDINGS if name.lower().endswith(each)), None)
        if other is not None:
            raise InvalidArgumentError(
                f"format {self.name!r} writes {self.endings[0]}, but path is {path!r}. Give the path that ending, or "
                f"leave {other} out."
            )
        return [f"{stem}{ending}" for ending in self.endings]

    def check_installed(self) -> None:
        for package in self.packages:
            require(package, f"Exporting to {self.name}")


def open_openvino(path: Path) -> tuple[Runtime, str]:
    """In full precision: on many CPUs OpenVINO computes in bfloat16 unless told otherwise."""
    openvino = require("openvino", "A model in OpenVINO's format")
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def run(leaves: Sequence[np.ndarray]) -> list[np.ndarray]:
        found = compiled(list(leaves))
        return [np.array(found[output]) for output in compiled.outputs]

    return run, f"OpenVINO {_short(openvino.__version__)}"


def open_onnx(path: Path) -> tuple[Runtime, str]:
    """By ONNX Runtime, or by OpenVINO where that is not installed."""
    try:
        runtime = require("onnxruntime", "An ONNX model")
    except ImportError:
        return open_openvino(path)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def run(leaves: Sequence[np.ndarray]) -> list[np.ndarray]:
        return session.run(None, dict(zip(names, leaves, strict=True)))

    return run, f"ONNX Runtime {runtime.__version__}"


def open_torchscript(path: Path) -> tuple[Runtime, str]:
    torch = require("torch", "A TorchScript model")
    return _torch_runtime(torch, torch.jit.load(path)), f"torch.jit {torch.__version__}"


def open_torch_export(path: Path) -> tuple[Runtime, str]:
    torch = require("torch", "A torch.export program")
    return _torch_runtime(torch, torch.export.load(path).module()), f"torch.export {torch.__version__}"


def _torch_runtime(torch: Any, model: Any) -> Runtime:
    def run(leaves: Sequence[np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            found = model(*(torch.from_numpy(np.ascontiguousarray(leaf)) for leaf in leaves))
        return [each.numpy() for each in (found if isinstance(found, list | tuple) else (found,))]

    return run


def _short(version: str) -> str:
    return version.partition("-")[0]


FORMATS = {
    each.name: each
    for each in (
        Format("openvino", (".xml", ".bin"), ("openvino",), open_openvino),
        Format("onnx", (".onnx",), ("onnx", "onnxscript"), open_onnx),
        Format("torchscript", (".pt",), ("torch",), open_torchscript),
        Format("torch.export", (".pt2",), ("torch",), open_torch_export),
    )
}
_ENDINGS = [ending for each in FORMATS.values() for ending in each.endings]
_SPELLINGS = {"torch_export": "torch.export", "ir": "openvino", "torch_script": "torchscript"}


def find_format(name: Any) -> Format:
    """The format that a user named."""
    spelt = str(name).lower()
    spelt = _SPELLINGS.get(spelt, spelt)
    if spelt not in FORMATS:
        raise InvalidArgumentError(f"format must be one of {', '.join(map(repr, FORMATS))}, but is {name!r}.")
    return FORMATS[spelt]
