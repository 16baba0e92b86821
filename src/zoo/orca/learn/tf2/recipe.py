"""A Keras model as it travels: made by a creator on each worker, or taken apart here and put together there."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError, NotOfferedError, NotPicklableError, PreconditionError, sentence
from zoo.orca.learn.tf2.keras_state import fresh_keras, settings_here
from zoo.orca.learn.tf2.quiet import import_tensorflow, start_here
from zoo.orca.optional import is_instance_of, require

if TYPE_CHECKING:
    import keras

#: Packages whose classes are there on every worker.
_KNOWN = ("keras", "tensorflow", "tf_keras", "builtins")


def is_keras3(model: Any) -> bool:
    """Whether this is a model of Keras 3; keras is not imported to find out."""
    return is_instance_of(model, "keras", "Model")


def is_legacy_keras(model: Any) -> bool:
    """Whether this is a model of tf_keras, the Keras of TensorFlow 2.15 and before."""
    return is_instance_of(model, "tf_keras", "Model")


def is_creator(model: Any) -> bool:
    return callable(model) and not is_keras3(model) and not is_legacy_keras(model)


@dataclass
class KerasRecipe:
    """What `from_keras` was given, and what was set on the estimator since. It pickles.

    Attributes:
        model: a Keras 3 model, or a function `model(config)` that returns one.
        compile_args: a function `compile_args(config)` that returns what `model.compile` is called with.
        optimizer: an orca optimizer, instead of the one that the model was compiled with.
        clip: ("value", low, high) or ("norm", most), applied to the gradient over all workers.
        class_weight: a weight for the rows of each class.
        settings: what the driver has set for all its Keras models.
    """

    model: Any
    config: dict[str, Any] = field(default_factory=dict)
    compile_args: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    seed: int = 0
    optimizer: Any = None
    clip: tuple[Any, ...] | None = None
    class_weight: dict[int, float] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raise a typed error for what is no model of Keras 3 on TensorFlow."""
        if is_legacy_keras(self.model):
            raise InvalidArgumentError(
                "the model is one of tf_keras (Keras 2), which zoo.orca.learn.tf2 does not train. Build it with "
                "Keras 3 (import keras), or give it to zoo.orca.learn.tf.estimator.Estimator.from_keras in graph mode."
            )
        if is_keras3(self.model):
            _check_backend()
        elif not callable(self.model):
            raise InvalidArgumentError(
                f"model_creator must be a function model_creator(config) that returns a Keras model, or a compiled "
                f"Keras model, but is a {type(self.model).__module__}.{type(self.model).__qualname__}."
            )

    def check_trainable(self) -> None:
        """Raise a typed error if a model that is there already cannot be trained."""
        if is_keras3(self.model) and self.compile_args is None:
            need_compiled(self.model)

    def build(self) -> keras.Model:
        """A model of one's own: from the creator, seeded, or a copy of the instance."""
        start_here()
        _check_backend()
        shipped = Shipped.of(self.model) if is_keras3(self.model) else self.model
        with fresh_keras(self.settings):
            model = shipped.build() if isinstance(shipped, Shipped) else self._create()
            if self.compile_args is not None:
                model.compile(**self.compile_args(dict(self.config)))
        return model

    def _create(self) -> keras.Model:
        keras = require("keras", "A Keras model")
        with _own_randomness():
            keras.utils.set_random_seed(self.seed)
            model = self.model(dict(self.config))
        if is_legacy_keras(model):
            dataclasses.replace(self, model=model).check()
        if not is_keras3(model):
            raise InvalidArgumentError(
                f"model_creator must return a keras.Model, but returned a "
                f"{type(model).__module__}.{type(model).__qualname__}."
            )
        return model

    def __getstate__(self) -> dict[str, Any]:
        state = vars(self) | {"settings": self.settings or settings_here()}
        if is_keras3(self.model):
            state["model"] = Shipped.of(self.model)
        return state


@dataclass(frozen=True)
class Shipped:
    """A Keras model taken apart: its archive, and the classes and functions of the user's in it.

    Classes of `__main__` and of modules beside the script are pickled by value where cloudpickle does so.
    """

    archive: bytes
    custom_objects: dict[str, Any]

    @staticmethod
    def of(model: keras.Model) -> Shipped:
        custom_objects = custom_objects_of(model)
        with tempfile.TemporaryDirectory(prefix="orca-keras-") as folder:
            path = Path(folder) / "model.keras"
            try:
                with _without_warnings():
                    model.save(path)
            except Exception as error:
                raise NotPicklableError(
                    f"the model {model.name!r} cannot be sent to the workers: {sentence(error)} Give "
                    "its layers get_config(), or pass a function model_creator(config) that makes the model."
                ) from error
            archive = path.read_bytes()
        return Shipped(archive, custom_objects)

    def build(self, compile: bool = True) -> keras.Model:
        keras = require("keras", "A Keras model")
        with tempfile.TemporaryDirectory(prefix="orca-keras-") as folder:
            path = Path(folder) / "model.keras"
            path.write_bytes(self.archive)
            with _without_warnings():
                try:
                    # What is in it is the user's own model, sent by the user's own process.
                    model = keras.saving.load_model(path, self.custom_objects, compile, safe_mode=False)
                except Exception as error:
                    raise NotPicklableError(
                        f"the model cannot be put together from its configuration: {sentence(error)} "
                        "Give its class get_config() and from_config(), or pass a function model_creator(config)."
                    ) from error
        return model


def custom_objects_of(model: keras.Model) -> dict[str, Any]:
    """The classes and functions of the user's that a model is made of, by the names that Keras looks for."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    optimizer = getattr(model, "optimizer", None)
    roots = [model, *model._flatten_layers(), optimizer, getattr(optimizer, "_learning_rate", None)]
    compiled = getattr(model, "_compile_config", None)
    roots.append(getattr(compiled, "config", None))
    stack = [each for each in roots if each is not None]
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            stack.extend(value.values())
            continue
        if isinstance(value, list | tuple | set):
            stack.extend(value)
            continue
        kind = value if isinstance(value, type) or _is_function(value) else type(value)
        if _is_the_users(kind):
            if kind.__name__ == "<lambda>":
                raise NotPicklableError(
                    f"the model {model.name!r} holds a lambda, which Keras cannot put together elsewhere. Make it a "
                    "function (def ...), or pass a function model_creator(config) that makes the model."
                )
            found |= {kind.__name__: kind, _registered_name(kind): kind}
        if _is_keras_part(value):
            stack.extend(_parts(value))
    return found


def _parts(value: Any) -> Iterator[Any]:
    """The attributes of a part of a model that may be the user's."""
    for name, each in vars(value).items():
        if name.startswith("__") or isinstance(each, np.ndarray | str | int | float | bytes):
            continue
        if isinstance(each, list | tuple | dict | set) or callable(each) or _is_keras_part(each):
            yield each


def _is_keras_part(value: Any) -> bool:
    """Whether attributes of it are worth a look: layers, losses, metrics, initializers, regularizers, schedules."""
    if isinstance(value, type) or not hasattr(value, "__dict__"):
        return False
    return any(base.__module__.startswith("keras.") for base in type(value).__mro__)


def _is_function(value: Any) -> bool:
    return callable(value) and hasattr(value, "__code__") and hasattr(value, "__name__")


def _is_the_users(kind: Any) -> bool:
    module = getattr(kind, "__module__", None) or "builtins"
    return module.partition(".")[0] not in _KNOWN and hasattr(kind, "__name__")


def _registered_name(kind: Any) -> str:
    keras = require("keras", "A Keras model")
    return keras.saving.get_registered_name(kind)


def need_compiled(model: keras.Model) -> None:
    if not getattr(model, "compiled", False):
        raise PreconditionError(
            f"the model {model.name!r} is not compiled, so it has no optimizer and no loss to train with. Type "
            'model.compile(optimizer="adam", loss="mse"), or pass compile_args_creator=lambda config: {...}.'
        )
    if model.optimizer is None:
        raise PreconditionError(
            f"the model {model.name!r} was compiled without an optimizer. Type model.compile(optimizer=..., loss=...)."
        )


def _check_backend() -> None:
    keras = require("keras", "A Keras model")
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise NotOfferedError(
            f"Keras runs on {backend} here, and only models on TensorFlow can be trained by this estimator. Set "
            "KERAS_BACKEND=tensorflow before keras is imported, or use zoo.orca.learn.pytorch with a torch module."
        )


@contextlib.contextmanager
def _own_randomness() -> Iterator[None]:
    """Leave the caller's generators as they were: Keras seeds those of Python, numpy and TensorFlow."""
    tf = import_tensorflow()
    from tensorflow.python.eager.context import global_seed

    before = random.getstate(), np.random.get_state(), global_seed()
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        tf.random.set_seed(before[2])


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Keras warns of what does not matter to a model on its way: it was not compiled, an optimizer not built."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
