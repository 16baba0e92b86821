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

from zoo.orca.engine.bar import SILENT, Bar
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

    One that takes text, as arrays of `str` or `bytes`, says so in a `takes_text` that is true. One whose `load` takes
    the number of threads it may use says so in `takes_threads`, and one that is at its best with all cores of a machine
    in one process in `uses_all_cores`.

    What it loads may have more than a call for a batch: `rows(features, batch_size)`, which predicts any number of
    rows, and `start(features)`, which begins with a batch and gives an object with `result()` and `close()`, of which
    `ahead` keep it busy.

    Attributes:
        key: names this model with these weights, and nothing else: a process loads each key once.
    """

    key: str

    def load(self) -> PredictFunction:
        """A function from the tuple of forward's arguments for a batch to an array, or a list of them."""


class Started(Protocol):
    """A batch that a model has begun with."""

    def result(self) -> Any:
        """Wait for what the model gives."""

    def close(self) -> None:
        """Wait until the batch is no longer needed, without asking what came of it."""


class _Done:
    """A batch of a model that gives its result at once."""

    def __init__(self, result: Any):
        self._result = result

    def result(self) -> Any:
        return self._result

    def close(self) -> None:
        """There is nothing to wait for."""


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
        with _told_batch(features):
            result = self._predict(features)
        return self._all_checked(result, features)

    @property
    def ahead(self) -> int:
        """How many batches may be begun with before the result of the first is asked for."""
        return int(getattr(self._predict, "ahead", 1))

    def start(self, features: tuple[Any, ...]) -> Started:
        """Begin with a batch; `finish` gives what `__call__` would."""
        start = getattr(self._predict, "start", None)
        with _told_batch(features):
            started: Started = _Done(self._predict(features)) if start is None else start(features)
        return started

    def finish(self, started: Started, features: tuple[Any, ...]) -> Result:
        """The prediction for a batch that was begun with."""
        with _told_batch(features):
            result = started.result()
        return self._all_checked(result, features)

    def rows(self, features: tuple[Any, ...], batch_size: int) -> Result | None:
        """The prediction for any number of rows, if the model itself sees to batches; else None."""
        rows = getattr(self._predict, "rows", None)
        return None if rows is None else self._all_checked(rows(features, batch_size), features)

    def _all_checked(self, result: Any, features: tuple[Any, ...]) -> Result:
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
        engine.expect(packed.slow_imports)
        self._key = predictor.key
        self._takes_threads = _takes_threads(predictor)
        self._squeeze = squeeze
        # As an array it is mapped from a file, or lies in shared memory, instead of in each process's own.
        self._shared = engine.share(np.frombuffer(packed.body, np.uint8))
        self._packed = dataclasses.replace(packed, body=b"")
        self._tasks_on_host = -(-min(engine.cores, tasks or engine.cores) // max(1, engine.nodes))

    def model(self) -> Model:
        """The model, on a worker; threads are divided between the tasks that run at once on the machine."""
        threads = _threads(self._tasks_on_host)
        key = f"{self._key}, {threads} threads" if self._takes_threads else self._key
        with _tensorflow_threads(threads):
            predict = load_once(key, lambda: _load(self._unpack(), threads))
        _limit_threads(threads)
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


def load_here(predictor: Predictor, squeeze: bool = False, cores: int | None = None) -> Model:
    """The model in this process, the driver, for so many cores; for all that it has by default."""
    return Model(function_here(predictor, cores), squeeze)


def function_here(predictor: Predictor, cores: int | None = None) -> PredictFunction:
    """What a predictor loads, in this process, the driver."""
    threads = min(cores or _threads(1), _threads(1))
    key = f"{predictor.key}, {threads} threads" if _takes_threads(predictor) else predictor.key
    return load_once(key, lambda: _load(predictor, threads))


def _takes_threads(predictor: Predictor) -> bool:
    return bool(getattr(predictor, "takes_threads", False))


def _load(predictor: Predictor, threads: int) -> PredictFunction:
    load: Callable[..., PredictFunction] = predictor.load
    return load(threads) if _takes_threads(predictor) else load()


def predict_rows(model: Model, features: tuple[Any, ...], batch_size: int, bar: Bar = SILENT) -> Result:
    """The prediction for all rows of arrays, batch by batch; the bar is told how many rows are done.

    The arrays stay as they are: a model that may write into its input has to copy what it is given.
    """
    whole = model.rows(features, batch_size)
    if whole is not None:
        return whole
    leaves, spec = flatten(features)
    rows = count_rows(leaves)
    results = []
    for start in range(0, rows, batch_size):
        bar.to(start)
        batch = [_unwritable(leaf[start : start + batch_size]) for leaf in leaves]
        results.append(model(unflatten(batch, spec)))
    return join_results(results) if results else _empty_result(model, leaves, spec)


def _unwritable(part: np.ndarray) -> np.ndarray:
    part.flags.writeable = False
    return part


def count_rows(leaves: Sequence[np.ndarray]) -> int:
    """The one length of arrays."""
    lengths = {len(leaf) for leaf in leaves}
    if len(lengths) > 1:
        raise InvalidArgumentError(
            f"features must all have as many rows, but they have {', '.join(map(str, sorted(lengths)))}. "
            "Give arrays of one length."
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


@contextlib.contextmanager
def _told_batch(features: tuple[Any, ...]) -> Iterator[None]:
    """Say in what the model raises what it was given."""
    try:
        yield
    except Exception as error:
        leaves, _ = flatten(features)
        error.add_note(f"The model raised this for a batch of {', '.join(map(_words, leaves))}.")
        raise


def _limit_threads(threads: int) -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def _tensorflow_threads(threads: int) -> Iterator[None]:
    """TensorFlow asks once, when it starts, how many threads it may have; who has set that is left alone."""
    name = "TF_NUM_INTRAOP_THREADS"
    if name in os.environ:
        yield
        return
    os.environ[name] = str(threads)
    try:
        yield
    finally:
        del os.environ[name]


def _threads(tasks: int) -> int:
    return max(1, len(os.sched_getaffinity(0)) // tasks)


def _words(array: np.ndarray) -> str:
    return f"{array.dtype} {array.shape}"
