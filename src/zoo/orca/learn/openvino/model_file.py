"""Model files: read once by the driver, sent to workers as OpenVINO's own two files, in memory."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.orca.data.file import filesystem_of, is_local, open_file
from zoo.orca.errors import InvalidArgumentError, ModelFileError, ModelFileMissingError, NotOfferedError
from zoo.orca.learn.openvino.signature import Dimension, Port, Signature
from zoo.orca.optional import require

IR = ".xml"
# What OpenVINO's other readers take, by the end of the name.
OTHERS = (".onnx", ".pdmodel", ".tflite", ".pb")
# Their numbers are not numpy's; OpenVINO converts them on the way in and out.
CONVERTED = ("bf16",)
KNOWN = ("f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "boolean")


def library() -> Any:
    """The package openvino, or an error with the line that installs it."""
    return require("openvino", "The OpenVINO estimator")


@functools.cache
def core() -> Any:
    """The one Core of this process."""
    return library().Core()


@dataclass(frozen=True)
class ModelFile:
    """A model as it travels: the text and the weights of its IR, and the batch size that it is to have.

    Args:
        batch_size: 0 for what the file says, -1 for any, or the only one.
        path: where it was read from, for messages.
    """

    xml: bytes
    weights: bytes
    batch_size: int = 0
    path: str = field(default="the model", compare=False)

    @staticmethod
    def read(path: str, batch_size: int = 0, weights: str | None = None) -> ModelFile:
        """The model at a path, local or remote: an .xml with its .bin beside it, or a file of another library.

        Args:
            weights: where the .bin of an .xml lies, if not beside it.
        """
        library()
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < -1:
            raise InvalidArgumentError(
                "batch_size must be 0 (what the file says), -1 (any) or the rows that the model is to take at once, "
                f"but is {batch_size!r}."
            )
        suffix = Path(path).suffix.lower()
        if suffix == IR:
            return ModelFile(_contents(path), _contents(weights or weights_of(path), path), batch_size, path)
        if suffix in OTHERS:
            return _converted(path, batch_size)
        known = ", ".join((IR, *OTHERS))
        raise ModelFileError(f"expected a model file whose name ends in one of {known}, but got {path}.")

    @functools.cached_property
    def key(self) -> str:
        """Names these contents, and no others."""
        digest = hashlib.sha256(self.xml)
        digest.update(self.weights)
        digest.update(str(self.batch_size).encode())
        return digest.hexdigest()

    def open(self) -> Any:
        """An openvino.Model of its own."""
        with _readable(self.path):
            model = core().read_model(self.xml, self.weights)
        _check_ranks(model)
        if self.batch_size:
            self._resize(model)
        return _plain_types(model)

    def _resize(self, model: Any) -> None:
        try:
            shapes = {port: [self.batch_size, *list(port.partial_shape)[1:]] for port in model.inputs}
            model.reshape({port: library().PartialShape(shape) for port, shape in shapes.items()})
        except (RuntimeError, ValueError) as error:
            wanted = "any batch size" if self.batch_size < 0 else f"a batch size of {self.batch_size}"
            raise ModelFileError(
                f"{self.path} cannot be given {wanted}: a layer has the one it was written with fixed inside. "
                f"Leave batch_size out, or export the model anew. OpenVINO says: {told(error)}"
            ) from error


def weights_of(path: str) -> str:
    """Where the weights of an .xml lie."""
    return path[: -len(IR)] + ".bin"


def describe(model: Any) -> Signature:
    """What an openvino.Model takes and gives."""
    if not model.inputs or not model.outputs:
        raise ModelFileError("the model has no input or no output, so there is nothing to predict.")
    signature = Signature(tuple(map(_port, model.inputs)), tuple(map(_port, model.outputs)))
    signature.check_rows()
    return signature


def _check_ranks(model: Any) -> None:
    for port in model.inputs:
        if port.partial_shape.rank.is_dynamic:
            raise ModelFileError(
                f"input {_names(port)[0]!r} of the model does not say how many dimensions it has. "
                "Give it a shape when the model is exported, or with openvino's model.reshape, and save it anew."
            )


def _port(port: Any) -> Port:
    kind = port.element_type.get_type_name()
    if kind not in KNOWN:
        raise NotOfferedError(
            f"an input or output of the model, {_names(port)[0]!r}, holds {kind}, which numpy has no arrays for. "
            "Offered are floats, integers and truth values: convert it inside the model."
        )
    shape = port.partial_shape
    dimensions = None if shape.rank.is_dynamic else tuple(map(_dimension, shape))
    return Port(_names(port), port.element_type.to_dtype().name, dimensions)


def _names(port: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*sorted(port.names), port.node.friendly_name]))


def _dimension(dimension: Any) -> Dimension:
    most = dimension.max_length
    return dimension.min_length, None if most < 0 else most


def _plain_types(model: Any) -> Any:
    """The model with inputs and outputs of types that numpy has."""
    ports = (("input", model.inputs), ("output", model.outputs))
    wanted = [
        (side, number)
        for side, found in ports
        for number, port in enumerate(found)
        if port.element_type.get_type_name() in CONVERTED
    ]
    if not wanted:
        return model
    changes = require("openvino.preprocess", "The OpenVINO estimator").PrePostProcessor(model)
    for side, number in wanted:
        getattr(changes, side)(number).tensor().set_element_type(library().Type.f32)
    return changes.build()


def _contents(path: str, beside: str | None = None) -> bytes:
    try:
        with open_file(path) as file:
            return bytes(file.read())
    except FileNotFoundError as error:
        if beside is None:
            raise ModelFileMissingError(f"there is no model file {path}. Check the path.") from error
        raise ModelFileMissingError(
            f"there is no {path}, where the weights of {beside} belong. An OpenVINO model is two files of one name, "
            ".xml and .bin: copy both into one folder."
        ) from error
    except IsADirectoryError as error:
        raise ModelFileError(f"expected a model file, but {path} is a folder. Name the file in it.") from error


def _converted(path: str, batch_size: int) -> ModelFile:
    """A file of another library as IR: its weights may lie in more files, which workers do not have."""
    with tempfile.TemporaryDirectory(prefix="orca-openvino-") as folder:
        source = filesystem_of(path)[1] if is_local(path) else str(Path(folder) / Path(path).name)
        if not is_local(path):
            Path(source).write_bytes(_contents(path))
        elif not Path(source).exists():
            raise ModelFileMissingError(f"there is no model file {path}. Check the path.")
        target = str(Path(folder) / f"converted{IR}")
        with _readable(path):
            library().save_model(core().read_model(source), target, compress_to_fp16=False)
        return ModelFile(_contents(target), _contents(weights_of(target)), batch_size, path)


@contextlib.contextmanager
def _readable(what: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise ModelFileError(
            f"{what} cannot be read: it is no model that this OpenVINO ({library().__version__.split('-')[0]}) knows, "
            "or it is damaged, or (an .xml) its .bin belongs to another. Export or copy it anew (IR of 2022 or later). "
            f"OpenVINO says: {told(error)}"
        ) from error


def told(error: Exception) -> str:
    """The last line of what OpenVINO says; those before name its own source files."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
