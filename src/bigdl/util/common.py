"""Samples, tensors and helpers of the BigDL interface, and the names that its star imports have always brought."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.errors import ContextError, InvalidArgumentError
from zoo.orca.names import public_names

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

INTMAX = 2147483647
INTMIN = -2147483648
DOUBLEMAX = 1.7976931348623157e308

# Existing code counts on `from bigdl.util.common import *` for these; they are loaded when first asked for.
LEAKED = {
    "np": "numpy",
    "os": "os",
    "sys": "sys",
    "six": "six",
    "tempfile": "tempfile",
    "threading": "threading",
    "warnings": "warnings",
    "multiprocessing": "multiprocessing",
    "RDD": "pyspark:RDD",
    "SparkContext": "pyspark:SparkContext",
    "SparkConf": "pyspark:SparkConf",
    "SparkFiles": "pyspark:SparkFiles",
    "DataFrame": "pyspark.sql:DataFrame",
    "SQLContext": "pyspark.sql:SQLContext",
}


def leaked_names() -> list[str]:
    """The leaked names whose packages are installed, so that a star import works without Spark."""
    roots = {target.partition(":")[0].partition(".")[0] for target in LEAKED.values()}
    installed = {root for root in roots if root in sys.modules or importlib.util.find_spec(root) is not None}
    return [name for name, target in LEAKED.items() if target.partition(":")[0].partition(".")[0] in installed]


def load_leaked(name: str) -> Any:
    """Load one leaked name, for the `__getattr__` of modules that leak the same set."""
    module, _, attribute = LEAKED[name].partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


__all__ = [
    "DOUBLEMAX",
    "INTMAX",
    "INTMIN",
    "RNG",
    "EvaluatedResult",
    "JTensor",
    "JavaCreator",
    "JavaValue",
    "Sample",
    "create_spark_conf",
    "create_tmp_path",
    "get_node_and_core_number",
    "get_spark_context",
    "init_engine",
    "redire_spark_logs",
    "show_bigdl_info_logs",
    "to_list",
]
__all__ += leaked_names()


def __getattr__(name: str) -> Any:
    if name in LEAKED:
        return load_leaked(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def brought_along(module: str) -> Callable[[str], Any]:
    """A module's `__getattr__`, for one whose `__all__` has this one's names, too: they are loaded when asked for.

    Example: ``__getattr__ = brought_along(__name__)``
    """

    def load(name: str) -> Any:
        if name in __all__:
            return getattr(sys.modules[__name__], name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return load


class JTensor:
    """An array as BigDL stored it: flat float32 values and a shape, or values at indices when sparse.

    Example:
        JTensor.from_ndarray(np.ones((2, 3))).to_ndarray()
    """

    def __init__(
        self,
        storage: Any,
        shape: Any,
        indices: Any = None,
        bigdl_type: str = "float",
    ):
        self.storage = np.asarray(storage, dtype=np.float32).reshape(-1)
        self.shape = np.asarray(shape, dtype=np.int32).reshape(-1)
        self.bigdl_type = bigdl_type
        self.indices = None if indices is None else np.asarray(indices, dtype=np.int32)

    @classmethod
    def from_ndarray(cls, a_ndarray: Any, bigdl_type: str = "float") -> JTensor | None:
        """A dense tensor with the values of an array; None stays None."""
        if a_ndarray is None:
            return None
        if not isinstance(a_ndarray, np.ndarray | np.generic):
            raise InvalidArgumentError(f"A numpy.ndarray was expected, but a {type(a_ndarray).__name__} came.")
        return cls(a_ndarray, a_ndarray.shape or (1,), bigdl_type=bigdl_type)

    @classmethod
    def sparse(cls, a_ndarray: Any, i_ndarray: Any, shape: Any, bigdl_type: str = "float") -> JTensor:
        """A sparse tensor: values, one row of indices a dimension (counted from 0), and the full shape."""
        values, indices = np.asarray(a_ndarray).reshape(-1), np.asarray(i_ndarray)
        expected = len(np.reshape(shape, -1)) * values.size
        if indices.size != expected:
            raise InvalidArgumentError(
                f"indices must have one entry for each of {values.size} values and each dimension of shape"
                f" {tuple(np.reshape(shape, -1))}, {expected} in all, but has {indices.size}."
            )
        return cls(values, shape, indices, bigdl_type)

    def to_ndarray(self) -> np.ndarray:
        """The values as a float32 array; a sparse tensor has no such form."""
        if self.indices is not None:
            raise InvalidArgumentError("A sparse JTensor has no ndarray form: read storage, indices and shape instead.")
        return self.storage.reshape(tuple(self.shape))

    def __repr__(self) -> str:
        indices = "" if self.indices is None else f" ,indices {self.indices}"
        return f"JTensor: storage: {self.storage}, shape: {self.shape}{indices}, {self.bigdl_type}"


class Sample:
    """One record: feature tensors and label tensors.

    Example:
        Sample.from_ndarray(np.ones(3), np.array([1.0]))
    """

    def __init__(self, features: Sequence[JTensor], labels: Sequence[JTensor], bigdl_type: str = "float"):
        self.features = list(features)
        self.labels = list(labels)
        self.bigdl_type = bigdl_type

    @property
    def feature(self) -> JTensor:
        return self.features[0]

    @property
    def label(self) -> JTensor:
        return self.labels[0]

    @classmethod
    def from_ndarray(cls, features: Any, labels: Any, bigdl_type: str = "float") -> Sample:
        """A sample of arrays: each side an ndarray, a scalar, or a list of them."""
        return cls(_tensors(features, bigdl_type), _tensors(labels, bigdl_type), bigdl_type)

    @classmethod
    def from_jtensor(cls, features: Any, labels: Any, bigdl_type: str = "float") -> Sample:
        """A sample of tensors: each side a JTensor or a list of them."""
        sides = [to_list(features), to_list(labels)]
        for tensor in [*sides[0], *sides[1]]:
            if not isinstance(tensor, JTensor):
                raise InvalidArgumentError(f"A JTensor was expected, but a {type(tensor).__name__} came.")
        return cls(*sides, bigdl_type)

    def __repr__(self) -> str:
        return f"Sample: features: {self.features}, labels: {self.labels}"


class EvaluatedResult:
    """What one metric came to: the result, over how many records, and the metric's name."""

    def __init__(self, result: float, total_num: int, method: str):
        self.result = result
        self.total_num = total_num
        self.method = method

    def __repr__(self) -> str:
        return f"Evaluated result: {self.result}, total_num: {self.total_num}, method: {self.method}"


class RNG:
    """Random numbers from a seed.

    Example:
        rng = RNG()
        rng.set_seed(1)
        rng.uniform(0.0, 1.0, [2, 2])
    """

    def __init__(self, bigdl_type: str = "float"):
        self._generator = np.random.default_rng()

    def __repr__(self) -> str:
        return "RNG()"

    def set_seed(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def uniform(self, a: float, b: float, size: Any) -> np.ndarray:
        """A float32 array of `size` with values in [a, b)."""
        return self._generator.uniform(a, b, size).astype(np.float32)


class JavaValue:
    """The base of what used to be a handle on a JVM object; there is none here, so `value` is what was given."""

    def __init__(self, jvalue: Any = None, bigdl_type: str = "float", *args: Any):
        self.value = jvalue
        self.bigdl_type = bigdl_type

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"

    def jvm_class_constructor(self) -> str:
        """The name that the JVM library gave to this class's constructor."""
        return "create" + type(self).__name__

    def __str__(self) -> str:
        return type(self).__name__


class JavaCreator:
    """Held the names of the JVM classes that made objects; kept so that code which reads or sets them still runs."""

    _lock = threading.Lock()
    _creator_class: list[str] = []

    @classmethod
    def add_creator_class(cls, jinvoker: str) -> None:
        with cls._lock:
            cls._creator_class.append(jinvoker)

    @classmethod
    def get_creator_class(cls) -> list[str]:
        with cls._lock:
            return list(cls._creator_class)

    @classmethod
    def set_creator_class(cls, cclass: str | Iterable[str]) -> None:
        with cls._lock:
            cls._creator_class = [cclass] if isinstance(cclass, str) else list(cclass)


def to_list(a: Any) -> list[Any]:
    """A list or tuple as a list, anything else as a list of one."""
    return list(a) if isinstance(a, list | tuple) else [a]


def create_tmp_path() -> str:
    """A fresh path in the temporary folder, at which nothing exists."""
    return os.path.join(tempfile.gettempdir(), f"bigdl{uuid.uuid4().hex}")


def init_engine(bigdl_type: str = "float") -> None:
    """Make sure that there is an engine to run on: the one of the current context, or the embedded one."""
    from zoo.orca.context import current_engine

    current_engine()


def get_node_and_core_number(bigdl_type: str = "float") -> tuple[int, int]:
    """How many nodes the current engine has, and how many cores each of them."""
    from zoo.orca.context import current_engine

    engine = current_engine()
    return engine.nodes, max(1, engine.cores // engine.nodes)


def create_spark_conf() -> SparkConf:
    """A SparkConf with the settings that training on Spark wants."""
    from zoo.common.nncontext import init_spark_conf

    return init_spark_conf()


def get_spark_context(conf: SparkConf | None = None) -> SparkContext:
    """The active SparkContext, or a new one made from conf."""
    from zoo.common.nncontext import getOrCreateSparkContext

    return getOrCreateSparkContext(conf)


def redire_spark_logs(bigdl_type: str = "float", log_path: str = "") -> None:
    """Spark's log is redirected when Spark starts; a log file of your own is a setting of that start."""
    if log_path:
        raise ContextError(
            "The file of Spark's log cannot be changed once Spark runs. To see the log on the console, type:"
            ' init_orca_context(..., redirect_spark_log=False, spark_log_level="INFO")'
        )


def show_bigdl_info_logs(bigdl_type: str = "float") -> None:
    """Show this library's own messages of level INFO."""
    import logging

    logging.getLogger("zoo").setLevel(logging.INFO)


def _tensors(values: Any, bigdl_type: str) -> list[JTensor]:
    tensors = []
    for value in values if isinstance(values, list | tuple) else [values]:
        if not isinstance(value, np.ndarray | np.generic | int | float):
            raise InvalidArgumentError(
                f"A numpy.ndarray, a number or a list of them was expected, but a {type(value).__name__} came."
            )
        tensors.append(JTensor.from_ndarray(np.asarray(value), bigdl_type))
    return tensors


__dir__ = public_names(globals(), LEAKED)
