"""MXNet as it runs today: 1.9.1 was written for NumPy 1, and for processes without TensorFlow.

`load()` is the one way by which our code imports it. Users import `zoo.orca.learn.mxnet` first, and `mxnet` as ever
after that.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from zoo.orca import optional

WHAT_FOR = "the MXNet estimator"
# What NumPy 2 has no more, and what stands for it.
_VALUES = {"bool": bool, "PZERO": 0.0, "NZERO": -0.0, "PINF": np.inf, "Inf": np.inf, "NINF": -np.inf}
_VALUES |= {"NAN": np.nan, "NaN": np.nan}
_FUNCTIONS = {"alltrue": "all", "sometrue": "any", "product": "prod", "round_": "round", "in1d": "isin"}
_FUNCTIONS |= {"trapz": "trapezoid", "msort": "sort"}
_FINANCIAL = ("mirr", "npv", "pmt", "ppmt", "pv", "rate")


def load() -> ModuleType:
    """The module `mxnet`, imported in a way that works; a typed error with the line to type where there is none."""
    check()
    ready_for_import()
    return optional.require("mxnet", WHAT_FOR)


def check() -> None:
    """Raise a `MissingPackageError` with the line to type if MXNet is not installed; it is not imported here."""
    optional.check_installed("mxnet", WHAT_FOR)


def ready_for_import() -> None:
    """From now on whoever writes `import mxnet` gets one that works; nothing is imported or changed before that."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path) and importlib.util.find_spec("mxnet") is not None:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds `mxnet` where it is, and lets its import run as it must; does nothing for any other module."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "mxnet":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """MXNet's own loader, with what must come before and after it."""

    def __init__(self, loader: Any):
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        _supply_numpy()
        _bind_own_symbols()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says what it would rather import, and of texts with strange escapes
            self._loader.exec_module(module)
        _plain_numbers_in_texts()


def _supply_numpy() -> None:
    """Give numpy back the names that MXNet asks for when it is imported."""
    for name, value in _VALUES.items():
        _supply(np, name, value)
    for name, today in _FUNCTIONS.items():
        _supply(np, name, getattr(np, today))
    for name in _FINANCIAL:
        _supply(np, name, _gone(name))
    if not hasattr(np, "compat"):
        np.compat = ModuleType("numpy.compat")  # type: ignore[attr-defined]
    _supply(np.compat, "basestring", str)  # type: ignore[attr-defined]


def _supply(module: Any, name: str, value: Any) -> None:
    if name not in vars(module):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            setattr(module, name, value)


def _gone(name: str) -> Any:
    def financial(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"numpy.{name} is gone from NumPy. Use the package numpy-financial.")

    return financial


def _bind_own_symbols() -> None:
    """If TensorFlow is there, MXNet's library would find its protobuf, not its own, and break in a kvstore."""
    spec = importlib.util.find_spec("mxnet")
    if "tensorflow" not in sys.modules or spec is None or spec.origin is None:
        return
    library = Path(spec.origin).parent / "libmxnet.so"
    if library.exists() and hasattr(os, "RTLD_DEEPBIND"):
        ctypes.CDLL(str(library), os.RTLD_LAZY | os.RTLD_LOCAL | os.RTLD_DEEPBIND)


def _plain_numbers_in_texts() -> None:
    """Attributes travel to MXNet's library as texts, where NumPy 2 would write `np.float64(1.0)`."""
    for name in ("mxnet._ctypes.ndarray", "mxnet._ctypes.symbol"):
        module = sys.modules.get(name)
        if module is not None:
            module.str = _text  # type: ignore[attr-defined]


def _text(value: Any = "", *rest: Any) -> str:
    return str(_plain(value), *rest)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return type(value)(map(_plain, value)) if type(value) in (tuple, list) else value
