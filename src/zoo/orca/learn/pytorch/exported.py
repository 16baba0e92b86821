"""PyTorch's part of `est.export`: a trained module, taken over by torch.export or traced, and written."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoo.orca.errors import NotOfferedError
from zoo.orca.learn.export import openvino_files
from zoo.orca.learn.export.original import ROUGH, Original, cannot_write
from zoo.orca.learn.export.quiet import quietly
from zoo.orca.learn.export.rows import Rows
from zoo.orca.learn.predict.model import Predictor
from zoo.orca.learn.pytorch.tensors import float_type, to_tensors

_TORCH = str(Path(torch.__file__).parent)


class TorchOriginal(Original):
    """A trained module.

    Args:
        metrics: makes the estimator's metrics, fresh ones.
        full: whether the estimator predicts in full precision.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        predictor: Predictor,
        metrics: Callable[[], dict[str, Any]],
        full: bool = True,
    ):
        super().__init__(predictor)
        self.name = f"the model {type(module).__name__}"
        self.tolerance = Original.tolerance if full else ROUGH
        self._module = module.cpu().eval()
        self._metrics = metrics

    def cast(self, rows: Rows) -> Rows:
        floats = float_type([self._module])
        leaves = tuple(to_tensors(np.ascontiguousarray(leaf), floats).numpy() for leaf in rows.leaves)
        return Rows(leaves, rows.spec, rows.names)

    def input_names(self) -> list[str]:
        parameters = inspect.signature(self._module.forward).parameters.values()
        if any(each.kind not in (each.POSITIONAL_OR_KEYWORD, each.POSITIONAL_ONLY) for each in parameters):
            return []
        return [each.name for each in parameters if each.default is each.empty]

    def write(self, format: str, path: Path, rows: Rows, half: bool) -> str:
        return write_module(self.name, Flat(self._module, rows), format, path, rows, half)

    def measure(self, outputs: list[np.ndarray], labels: Any) -> dict[str, float]:
        metrics = self._metrics()
        if not metrics:
            return super().measure(outputs, labels)
        tensors = [torch.from_numpy(each) for each in outputs]
        target = to_tensors(labels, float_type([self._module]))
        for metric in metrics.values():
            metric(tensors[0] if len(tensors) == 1 else tensors, target)
        return {name: float(metric.value()) for name, metric in metrics.items()}


class Flat(torch.nn.Module):
    """A model whose inputs are tensors, one argument each, and whose outputs are a tensor or a tuple of them.

    Args:
        call: what `call(model, *arguments)` the model is used by.
    """

    def __init__(self, model: torch.nn.Module, rows: Rows, call: Callable[..., Any] = torch.nn.Module.__call__):
        super().__init__()
        self.model = model
        self._arguments = rows.arguments
        self._call = call

    def forward(self, *leaves: Tensor) -> Any:
        outputs = flat_outputs(self._call(self.model, *self._arguments(leaves)))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def flat_outputs(output: Any) -> list[Tensor]:
    """The tensors of an output, in the order in which est.predict has them."""
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, list | tuple):
        return [tensor for each in output for tensor in flat_outputs(each)]
    return [output]


def write_module(name: str, module: torch.nn.Module, format: str, path: Path, rows: Rows, half: bool = False) -> str:
    """Write a module of flat tensors; says by what means. What it cannot be written as is a typed error."""
    others = '"openvino" and "torchscript"' if format == "torch.export" else '"openvino"'
    with quietly(), torch.no_grad():
        try:
            return _WRITERS[format](module, _tensors(rows), path, rows, half)
        except NotOfferedError:
            raise
        except Exception as error:
            instead = (
                f"Look for Python code in forward() that depends on the values of tensors; format={others} may do."
            )
            raise cannot_write(name, format, error, instead) from error


def follow(module: torch.nn.Module, rows: Rows) -> None:
    """Raise what torch raises if it cannot follow all that a module does; a trace would take the rest for constant."""
    with quietly(), torch.no_grad():
        _program(module, _tensors(rows))


def _tensors(rows: Rows) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(np.array(leaf)) for leaf in rows.leaves)


def _write_openvino(module: torch.nn.Module, tensors: tuple[Tensor, ...], path: Path, rows: Rows, half: bool) -> str:
    try:
        model, by = openvino_files.convert(_program(module, tensors)), "torch.export"
    except Exception:  # Python in forward() that torch.export cannot follow; what a trace makes of it is checked
        traced, by = _traced(module, tensors)
        model = openvino_files.convert(traced, example_input=tensors)
    openvino_files.save(model, path, rows, half)
    return by


def _write_onnx(module: torch.nn.Module, tensors: tuple[Tensor, ...], path: Path, rows: Rows, half: bool) -> str:
    outputs = openvino_files.output_names(len(flat_outputs(module(*tensors))), rows.names)
    names = {"input_names": list(rows.names), "output_names": outputs}
    try:
        found = torch.onnx.export(_program(module, tensors), (), dynamo=True, verbose=False, **names)
        _free(found.model.graph, {*rows.names, *outputs})
        found.save(path, external_data=False)
        return "torch.export"
    except Exception:  # as above
        traced, by = _traced(module, tensors)
        rows_free = {name: {0: "rows"} for name in (*rows.names, *outputs)}
        torch.onnx.export(traced, tensors, path, dynamo=False, dynamic_axes=rows_free, **names)
        return by


def _free(graph: Any, names: set[str]) -> None:
    """Rename what is called like an input or an output by chance: torch calls results after operations, like "mean"."""
    for node in graph:
        for value in node.outputs:
            if value.name in names and not value.is_graph_output():
                value.name = f"{value.name}/{node.name}"


def _write_torchscript(module: torch.nn.Module, tensors: tuple[Tensor, ...], path: Path, rows: Rows, half: bool) -> str:
    traced, by = _traced(module, tensors)
    traced.save(str(path))
    return by


def _write_torch_export(
    module: torch.nn.Module, tensors: tuple[Tensor, ...], path: Path, rows: Rows, half: bool
) -> str:
    torch.export.save(_program(module, tensors), path)
    return "torch.export"


def _program(module: torch.nn.Module, tensors: tuple[Tensor, ...]) -> Any:
    """The module as torch.export sees it, for any number of rows."""
    rows = torch.export.Dim.DYNAMIC
    return torch.export.export(module, tensors, dynamic_shapes=(tuple({0: rows} for _ in tensors),), strict=False)


def _traced(module: torch.nn.Module, tensors: tuple[Tensor, ...]) -> tuple[Any, str]:
    """What the module did with these tensors, and how to say so."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        traced = torch.jit.trace(module, tensors, check_trace=False)
    # torch's own layers choose by shapes alone.
    chose = any(
        issubclass(each.category, torch.jit.TracerWarning) and not each.filename.startswith(_TORCH) for each in warned
    )
    return traced, f"torch.jit.trace{', with the branches of forward() that the rows took' if chose else ''}"


_WRITERS: dict[str, Callable[[torch.nn.Module, tuple[Tensor, ...], Path, Rows, bool], str]] = {
    "openvino": _write_openvino,
    "onnx": _write_onnx,
    "torchscript": _write_torchscript,
    "torch.export": _write_torch_export,
}
