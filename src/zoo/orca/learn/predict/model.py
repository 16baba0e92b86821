"""A model on its way to the workers: sent there once, loaded once in each process, run batch by batch."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from zoo.orca.engine.pickling import pack
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed import structure
from zoo.orca.feed.structure import as_arguments, flatten, unflatten

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine

PredictFunction = Callable[[tuple[Any, ...]], Any]
Result = np.ndarray | list[np.ndarray]

KEPT_MODELS = 2
_models: OrderedDict[str, PredictFunction] = OrderedDict()
_loading = threading.Lock()


class Predictor(Protocol):
    """What a learner gives for prediction. It pickles.

    One that takes text, as arrays of `str` or `bytes`, says so in a `takes_text` that is true.

    Attributes:
        key: names this model with these weights, and nothing else: a process loads each key once.
    """

    key: str

    def load(self) -> PredictFunction:
        """A function from the tuple of forward's arguments for a batch to an array, or a list of them."""


def takes_text(predictor: Predictor) -> bool:
    """Whether a predictor's model can be given text."""
    return bool(getattr(predictor, "takes_text", False))


class Model:
    """A loaded model, whose results are checked: arrays with a row for each row of the batch."""

    def __init__(self, predict: PredictFunction, squeeze: bool = False):
        self._predict = predict
        self._squeeze = squeeze

    def __call__(self, features: tuple[Any, ...]) -> Result:
        """The prediction for a batch: an array, or a list of them for a model of several outputs."""
        try:
            result = self._predict(features)
        except Exception as error:
            leaves, _ = flatten(features)
            error.add_note(f"The model raised this for a batch of {', '.join(map(_words, leaves))}.")
            raise
        rows = structure.count_rows(features)
        outputs = [self._checked(output, rows) for output in as_outputs(result)]
        return outputs if isinstance(result, list | tuple) else outputs[0]

    def _checked(self, output: Any, rows: int) -> np.ndarray:
        array = np.asarray(output)
        if array.dtype.kind not in "biuf":
            raise InvalidArgumentError(
                "a model must give an array of numbers for a batch, or a list of such arrays, but there is "
                f"a {type(output).__name__} ({array.dtype})."
            )
        if array.ndim == 0 or len(array) != rows:
            raise InvalidArgumentError(
                f"a model must give a row for each of the {rows} rows of a batch, but it gave {_words(array)}. "
                "Does forward() sum, or squeeze, over the first dimension?"
            )
        return squeeze_trailing(array) if self._squeeze else array


class Shipment:
    """A predictor shared with all workers of an engine; tasks carry only a reference to it.

    Args:
        tasks: how many tasks of the engine may run at once; its cores by default.
    """

    def __init__(self, engine: Engine, predictor: Predictor, squeeze: bool = False, tasks: int | None = None):
        packed = pack(predictor, "the model")
        self._key = predictor.key
        self._squeeze = squeeze
        # As an array it is mapped from a file, or lies in shared memory, instead of in each process's own.
        self._shared = engine.share(np.frombuffer(packed.body, np.uint8))
        self._packed = dataclasses.replace(packed, body=b"")
        self._tasks_on_host = -(-min(engine.cores, tasks or engine.cores) // max(1, engine.nodes))

    def model(self) -> Model:
        """The model, on a worker; threads are divided between the tasks that run at once on the machine."""
        with _tensorflow_threads(self._tasks_on_host):
            predict = load_once(self._key, lambda: self._unpack().load())
        _limit_threads(self._tasks_on_host)
        return Model(predict, self._squeeze)

    def release(self) -> None:
        """Free what was shared; nothing may need the model any more."""
        self._shared.unpersist()

    def _unpack(self) -> Predictor:
        return dataclasses.replace(self._packed, body=self._shared.value.tobytes()).load()


def load_once(key: str, load: Callable[[], PredictFunction]) -> PredictFunction:
    """What `load` gave for this key in this process; a few are kept."""
    with _loading:
        if key not in _models:
            while len(_models) >= KEPT_MODELS:
                _models.popitem(last=False)
            _models[key] = load()
        _models.move_to_end(key)
        return _models[key]


def load_here(predictor: Predictor, squeeze: bool = False) -> Model:
    """The model in this process, the driver."""
    return Model(load_once(predictor.key, predictor.load), squeeze)


def predict_rows(model: Model, features: tuple[Any, ...], batch_size: int) -> Result:
    """The prediction for all rows of arrays, batch by batch."""
    leaves, spec = flatten(features)
    rows = count_rows(leaves)
    batches = ([leaf[start : start + batch_size] for leaf in leaves] for start in range(0, rows, batch_size))
    results = [model(unflatten(batch, spec)) for batch in batches]
    return join_results(results) if results else _empty_result(model, leaves, spec)


def count_rows(leaves: Sequence[np.ndarray]) -> int:
    """The one length of arrays."""
    lengths = {len(leaf) for leaf in leaves}
    if len(lengths) > 1:
        raise InvalidArgumentError(
            f"features must all have as many rows, but they have {', '.join(map(str, sorted(lengths)))}."
        )
    return lengths.pop()


def read_arguments(x: Any) -> tuple[Any, ...]:
    """Features of a user's as forward's arguments, all of them arrays."""
    return as_arguments(unflatten(*flatten(x)))


def as_outputs(result: Any) -> list[Any]:
    """The outputs of a model, which gives one as it is and several in a list."""
    if isinstance(result, list | tuple) and not result:
        raise InvalidArgumentError("the model gave an empty list. Expected an array, or a list of arrays.")
    return list(result) if isinstance(result, list | tuple) else [result]


def join_results(results: Sequence[Result]) -> Result:
    """The results of batches that follow each other as one."""
    if len(results) == 1:
        return results[0]
    try:
        joined = [np.concatenate(pieces) for pieces in zip(*map(as_outputs, results), strict=True)]
    except ValueError as error:
        shapes = sorted({tuple(output.shape[1:] for output in as_outputs(result)) for result in results})
        raise InvalidArgumentError(
            f"the model gave outputs of different shapes for different batches: {shapes[:3]} a row. "
            "Expected one shape: pad or pool them in forward()."
        ) from error
    return joined if isinstance(results[0], list) else joined[0]


def squeeze_trailing(array: np.ndarray) -> np.ndarray:
    """Without the last dimensions as long as they are of size 1; the first dimension stays.

    >>> squeeze_trailing(np.zeros((1, 3, 1, 1))).shape
    (1, 3)
    """
    while array.ndim > 1 and array.shape[-1] == 1:
        array = array[..., 0]
    return array


def blank_rows(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Two rows of zeros, or of empty texts."""
    return np.full((2, *shape), b"" if dtype.kind == "O" else 0, dtype)


def _empty_result(model: Model, leaves: Sequence[np.ndarray], spec: Any) -> Result:
    """What no rows give: arrays of no rows, of the shape that the model has for zeros where it takes them."""
    blank = unflatten([blank_rows(leaf.shape[1:], leaf.dtype) for leaf in leaves], spec)
    try:
        result = model(blank)
    except Exception:  # the width of the features may be unknown too
        return np.empty(0, np.float32)
    empty = [output[:0] for output in as_outputs(result)]
    return empty if isinstance(result, list) else empty[0]


def _limit_threads(tasks: int) -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(_threads(tasks))


@contextlib.contextmanager
def _tensorflow_threads(tasks: int) -> Iterator[None]:
    """TensorFlow asks once, when it starts, how many threads it may have; who has set that is left alone."""
    name = "TF_NUM_INTRAOP_THREADS"
    if name in os.environ:
        yield
        return
    os.environ[name] = str(_threads(tasks))
    try:
        yield
    finally:
        del os.environ[name]


def _threads(tasks: int) -> int:
    return max(1, len(os.sched_getaffinity(0)) // tasks)


def _words(array: np.ndarray) -> str:
    return f"{array.dtype} {array.shape}"
