"""A compiled model at work: batches go through several requests at once, and come back in order."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zoo.orca.errors import BatchError, InvalidArgumentError
from zoo.orca.learn.openvino.casting import cast_into
from zoo.orca.learn.openvino.model_file import library, told
from zoo.orca.learn.openvino.signature import Arranged, Port, Signature
from zoo.orca.learn.predict.model import Result, join_results


@dataclass
class Request:
    """One of OpenVINO's requests, with memory of its own for what cannot be handed over as it lies."""

    infer: Any
    buffers: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)

    def buffer(self, port: tuple[str, int], shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """An array of the request's own for an input or output; the one it had, if that is of this shape."""
        kept = self.buffers.get(port)
        if kept is None or kept.shape != shape:
            kept = self.buffers[port] = np.empty(shape, dtype)
        return kept


@dataclass(frozen=True)
class Compiled:
    """A model made ready for a device; it is shared by all who predict with it in this process."""

    model: Any
    signature: Signature
    has_state: bool


class Runner:
    """A compiled model that predicts: a batch when called, any number of rows with `rows`, ahead with `start`.

    Several threads may use it at once. No Python runs when a request is done: a callback could wait for the GIL while
    whoever holds it waits for OpenVINO's thread.

    Args:
        flat_rows: see `Signature.arrange`.

    Attributes:
        ahead: how many batches keep the device busy.
    """

    def __init__(self, compiled: Compiled, flat_rows: bool = False):
        self._compiled = compiled
        self._signature = compiled.signature
        self._flat_rows = flat_rows
        # One more than run at once, so that a stream has its next batch while Python sees to the last one.
        self.ahead = 1 + max(1, int(compiled.model.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")))
        self._free: deque[Request] = deque()  # appended to and popped from by one operation each, so by any thread

    def __call__(self, features: tuple[Any, ...]) -> Result:
        """The outputs for one batch."""
        return self.start(features).result()

    def rows(self, features: tuple[Any, ...], batch_size: int) -> Result:
        """The outputs for all rows, batch by batch."""
        return self.start(features, batch_size).result()

    def start(self, features: tuple[Any, ...], batch_size: int | None = None) -> Job:
        """Begin with rows, in one batch or in several; the last of them are under way when this returns."""
        arranged = self._signature.arrange(features, self._flat_rows)
        return Job(self, self._signature, arranged, self._signature.piece(batch_size or arranged.rows))

    def take(self) -> Request:
        """A request that is not under way."""
        try:
            request = self._free.pop()
        except IndexError:
            return Request(self._compiled.model.create_infer_request())
        if self._compiled.has_state:
            request.infer.reset_state()
        return request

    def give_back(self, request: Request) -> None:
        self._free.append(request)


@dataclass
class Piece:
    """A batch under way. What its request reads and writes is held here until it is done."""

    request: Request
    start: int
    stop: int
    held: list[Any]


class Job:
    """Rows on their way through a model, `Runner.ahead` batches at a time."""

    def __init__(self, runner: Runner, signature: Signature, arranged: Arranged, size: int):
        self._runner = runner
        self._signature = signature
        self._arranged = arranged
        self._size = size
        self._under_way: deque[Piece] = deque()
        self._parts: list[list[np.ndarray]] = []  # outputs batch by batch, where their shape is not known before
        self._whole = self._space()
        try:
            for start in range(0, arranged.rows, size):
                while len(self._under_way) >= runner.ahead:
                    self._finish()
                self._under_way.append(self._begin(start, min(start + size, arranged.rows)))
        except BaseException:
            self.close()
            raise

    def result(self) -> Result:
        """Wait for all rows: an array, or a list of them for a model of several outputs."""
        try:
            while self._under_way:
                self._finish()
        finally:
            self.close()
        outputs = self._outputs()
        if self._arranged.leading is not None:
            outputs = [output.reshape(*self._arranged.leading, *output.shape[1:]) for output in outputs]
        return outputs if len(outputs) > 1 else outputs[0]

    def close(self) -> None:
        """Wait until no request reads or writes arrays any more, whatever becomes of the rows."""
        while self._under_way:
            piece = self._under_way.popleft()
            try:
                piece.request.infer.wait()
            except RuntimeError:
                continue  # the first error is on its way already; a request that failed is not used again
            self._runner.give_back(piece.request)

    def _space(self) -> list[np.ndarray] | None:
        """Arrays for all outputs, if the shape of a row is known: requests write straight into them."""
        shapes = [port.row_shape for port in self._signature.outputs]
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes):
            return None
        return [
            np.empty((self._arranged.rows, *shape), port.dtype)
            for port, shape in zip(self._signature.outputs, known, strict=True)
        ]

    def _outputs(self) -> list[np.ndarray]:
        if self._whole is not None:
            return self._whole
        if not self._parts:
            return self._empty()
        joined = join_results(self._parts)
        return joined if isinstance(joined, list) else [joined]

    def _empty(self) -> list[np.ndarray]:
        """Outputs of no rows, when only the model itself knows the shape of a row."""
        blank = [np.zeros((1, *array.shape[1:]), array.dtype) for array in self._arranged.arrays]
        outputs = Job(self._runner, self._signature, Arranged(blank), self._signature.fewest_rows).result()
        return [output[:0] for output in (outputs if isinstance(outputs, list) else [outputs])]

    def _begin(self, start: int, stop: int) -> Piece:
        piece = Piece(self._runner.take(), start, stop, [])
        infer = piece.request.infer
        inputs = [self._input(piece, number, port) for number, port in enumerate(self._signature.inputs)]
        outputs = [self._output(piece, number, whole) for number, whole in enumerate(self._whole or ())]
        with self._running(piece):
            for number, tensor in enumerate(inputs):
                infer.set_input_tensor(number, tensor)
            for number, tensor in enumerate(outputs):
                infer.set_output_tensor(number, tensor)
            infer.start_async()
        return piece

    @contextlib.contextmanager
    def _running(self, piece: Piece) -> Iterator[None]:
        """Say of which rows OpenVINO complains."""
        try:
            yield
        except RuntimeError as error:
            shapes = ", ".join(f"{array.dtype} {list(array.shape[1:])}" for array in self._arranged.arrays)
            raise BatchError(
                f"OpenVINO could not run the model on {piece.stop - piece.start} rows of {shapes}. A model must take "
                f"rows as its inputs say, and give a row for each of theirs. OpenVINO says: {told(error)}"
            ) from error

    def _input(self, piece: Piece, number: int, port: Port) -> Any:
        rows = self._arranged.arrays[number][piece.start : piece.stop]
        count = self._rows_given(piece)
        if rows.dtype == port.dtype and rows.flags.c_contiguous and len(rows) == count:
            return _tensor(_writable(rows), piece)
        buffer = piece.request.buffer(("input", number), (count, *rows.shape[1:]), port.dtype)
        cast_into(buffer[: len(rows)], rows, port.name)
        buffer[len(rows) :] = buffer[len(rows) - 1]  # a row that the model can take; its outputs are cut off
        return _tensor(buffer, piece)

    def _output(self, piece: Piece, number: int, whole: np.ndarray) -> Any:
        if self._is_padded(piece):
            shape = (self._rows_given(piece), *whole.shape[1:])
            return _tensor(piece.request.buffer(("output", number), shape, whole.dtype.name), piece)
        return _tensor(whole[piece.start : piece.stop], piece)

    def _rows_given(self, piece: Piece) -> int:
        return max(piece.stop - piece.start, self._signature.fewest_rows)

    def _is_padded(self, piece: Piece) -> bool:
        return piece.stop - piece.start < self._signature.fewest_rows

    def _finish(self) -> None:
        """Wait for the batch that began first, and put its outputs where they belong."""
        piece = self._under_way[0]
        with self._running(piece):
            piece.request.infer.wait()
        self._put(piece)
        self._under_way.popleft()
        self._runner.give_back(piece.request)

    def _put(self, piece: Piece) -> None:
        count = piece.stop - piece.start
        outputs = [piece.request.infer.get_output_tensor(number) for number in range(len(self._signature.outputs))]
        size = self._rows_given(piece)
        for output, port in zip(outputs, self._signature.outputs, strict=True):
            shape = tuple(output.shape)
            if not shape or shape[0] != size:
                raise InvalidArgumentError(
                    f"a model must give a row for each of the {size} rows of a batch, but output {port.name!r} is "
                    f"{list(shape)}. Keep the first dimension when the model is made."
                )
        if self._whole is None:
            self._parts.append([output.data[:count].copy() for output in outputs])
        elif self._is_padded(piece):
            for whole, output in zip(self._whole, outputs, strict=True):
                whole[piece.start : piece.stop] = output.data[:count]


def _tensor(array: np.ndarray, piece: Piece) -> Any:
    """OpenVINO's view of an array, which is kept as long as the batch is under way."""
    piece.held.append(array)
    return library().Tensor(array, shared_memory=True)


class _Lent:
    """The memory of an array that may only be read, offered as if it could be written."""

    def __init__(self, array: np.ndarray):
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def _writable(array: np.ndarray) -> np.ndarray:
    """The same memory, for OpenVINO insists on arrays that can be written, though it only reads inputs."""
    return array if array.flags.writeable else np.asarray(_Lent(array))
