"""The user's Keras callbacks in a fit of ours: they run once, on rank 0, and what they change reaches every rank."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zoo.orca.engine.pickling import Packed, pack
from zoo.orca.errors import InvalidArgumentError, NotOfferedError, NotPicklableError
from zoo.orca.learn.callbacks import Callback, Run
from zoo.orca.learn.callbacks.base import is_measure, numbers_of
from zoo.orca.learn.tf2.callback_memory import Memory, recall
from zoo.orca.learn.tf2.model_changes import Changes, apply
from zoo.orca.optional import is_instance_of, require

logger = logging.getLogger("zoo.orca")

# Our hooks, and those of Keras that are called in them.
_HOOKS = {
    "on_fit_start": ("on_train_begin",),
    "on_epoch_start": ("on_epoch_begin",),
    "on_step_start": ("on_train_batch_begin", "on_batch_begin"),
    "on_step_end": ("on_train_batch_end", "on_batch_end"),
    "on_validation_start": ("on_test_begin",),
    "on_validation_end": ("on_test_end",),
    "on_epoch_end": ("on_epoch_end",),
    "on_fit_end": ("on_train_end",),
}
_DONE_ANYWAY = ("BroadcastGlobalVariablesCallback", "MetricAverageCallback")
_NEVER_CALLED = ("on_test_batch_begin", "on_test_batch_end")


class KerasCallbacks(Callback):
    """Keras callbacks, called as `keras.Model.fit` calls them.

    They are called on rank 0 alone. What they assign to the model's weights or the optimizer's variables, the learning
    rate among them, is handed to all ranks after each hook. `model.stop_training = True` ends the fit on all ranks.
    Figures are those of all ranks together. Hooks that no callback has cost nothing.

    When the fit is over, what the callbacks remember (`early.best`, a list of losses) is in the user's own objects.

    Args:
        callbacks: callbacks of Keras 3; they must pickle.
        verbose: what callbacks find in `self.params["verbose"]`.

    Example:
        >>> import keras
        >>> stopping = keras.callbacks.EarlyStopping(monitor="loss", patience=2)
        >>> ours = KerasCallbacks([stopping])
        >>> est.fit(data, epochs=10, callbacks=[ours])  # the same as callbacks=[stopping]  # doctest: +SKIP
    """

    def __init__(self, callbacks: Sequence[Any], verbose: int | str = 0):
        self._given = [_checked(each) for each in callbacks]
        self._packed = _pack(self._given)
        self._verbose = verbose
        self._hooks = [hook for hook in _HOOKS if any(_has_to_do(each, hook) for each in self._given)]
        self._hooks += [hook for hook in ("on_fit_start", "on_epoch_end") if hook not in self._hooks]
        self._running: list[Any] = []
        self._memories: list[Memory] = []
        self._remembered: list[dict[str, Any]] | None = None
        self._last_logs: dict[str, float] = {}
        self._bind()

    def _bind(self) -> None:
        """Have those hooks only that a callback needs: a hook that is there costs all ranks an exchange."""
        for hook in self._hooks:
            setattr(self, hook, getattr(self, f"_{hook}"))

    def __getstate__(self) -> dict[str, Any]:
        bound = dict.fromkeys(self._hooks)
        return {name: value for name, value in vars(self).items() if name not in bound and name != "_given"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _given=[])
        self._bind()

    def state_dict(self) -> dict[str, Any]:
        remembered = [memory.take() for memory in self._memories]
        return {"callbacks": remembered, "logs": dict(self._last_logs)} if remembered else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._remembered = state["callbacks"]
        self._last_logs = state["logs"]

    def come_home(self, state: dict[str, Any]) -> None:
        for callback, taken in zip(self._given, state["callbacks"], strict=False):  # the last one may be ours
            recall(callback, taken)

    def _on_fit_start(self, run: Run) -> None:
        if run.rank == 0:
            self._load(run)
            if self._remembered is not None:
                for memory, taken in zip(self._memories, self._remembered, strict=False):
                    memory.before_beginning(taken)
        self._call(run, lambda each: each.on_train_begin({}), again=self._remembered is not None)

    def _load(self, run: Run) -> None:
        keras = require("keras", "A Keras callback")
        self._running = self._packed.load()
        if not any(isinstance(each, keras.callbacks.History) for each in self._running):
            self._running.append(keras.callbacks.History())  # as fit does, so that there is a model.history
        self._memories = [Memory(each) for each in self._running]
        for each in self._running:
            each.set_model(run.model)
        for each in self._running:
            each.set_params({"verbose": self._verbose, "epochs": run.last_epoch, "steps": run.steps})
        run.model.history = next(each for each in self._running if isinstance(each, keras.callbacks.History))
        run.model.stop_training = False

    def _on_epoch_start(self, run: Run) -> None:
        again = self._remembered is not None and run.batch > 0
        self._call(run, lambda each: each.on_epoch_begin(run.epoch - 1, {}), again)
        self._remembered = None

    def _on_step_start(self, run: Run) -> None:
        self._call(run, lambda each: each.on_train_batch_begin(run.batch, logs={}))

    def _on_step_end(self, run: Run) -> None:
        figures = {} if run.so_far is None else run.so_far()
        logs = _logs(figures)
        self._call(run, lambda each: each.on_train_batch_end(run.batch - 1, logs=logs))

    def _on_validation_start(self, run: Run) -> None:
        self._call(run, lambda each: each.on_test_begin({}))

    def _on_validation_end(self, run: Run) -> None:
        logs = {name.removeprefix("val_"): value for name, value in _logs(run.figures).items()}
        self._call(run, lambda each: each.on_test_end(logs))

    def _on_epoch_end(self, run: Run) -> None:
        logs = _logs(run.figures)
        self._last_logs = dict(logs)
        self._call(run, lambda each: each.on_epoch_end(run.epoch - 1, logs))
        added = {name: value for name, value in numbers_of(logs).items() if self._last_logs.get(name) != value}
        run.figures |= {name if name.startswith("val_") else f"train_{name}": value for name, value in added.items()}

    def _on_fit_end(self, run: Run) -> None:
        self._call(run, lambda each: each.on_train_end(self._last_logs))

    def _call(self, run: Run, hook: Callable[[Any], None], again: bool = False) -> None:
        """Call a hook of the callbacks on rank 0, and let all ranks have what it did to the model.

        Args:
            again: whether it had been called before the gang was started again. Then it is only called so that files
                are opened; what the callbacks remember and the model are put back to what they were.
        """
        changes = self._call_here(run, hook, again) if run.rank == 0 else {}
        if run.world_size > 1 and run.gather is not None:
            changes = run.gather(changes)[0]
            if run.rank != 0:
                apply(run.model, changes)

    def _call_here(self, run: Run, hook: Callable[[Any], None], again: bool) -> dict[int, Any]:
        changes = Changes(run.model)
        for each in self._running:
            hook(each)
            if not again and run.model.stop_training and run.stopped is None:
                run.stop(f"the Keras callback {type(each).__name__} set model.stop_training in epoch {run.epoch}")
        if not again:
            return changes.found()
        changes.undo()
        run.model.stop_training = False
        for memory, taken in zip(self._memories, self._remembered or [], strict=False):
            memory.give_back(taken)
        return {}


def adapt(callbacks: Any, verbose: int | str = 0) -> Any:
    """The user's callbacks with those of Keras made ours, in the user's order; neighbours become one.

    What is no list is given back as it is, and so are objects that are no callbacks: whoever takes them says so.
    """
    given = _as_list(callbacks)
    if not isinstance(given, list):
        return given
    ours: list[Any] = []
    group: list[Any] = []
    for each in given:
        if _is_done_anyway(each):
            logger.info("%s is left out: what it does is done for every fit.", type(each).__name__)
        elif _is_keras(each):
            group.append(each)
        else:
            ours += [KerasCallbacks(group, verbose), each] if group else [each]
            group = []
    return [*ours, KerasCallbacks(group, verbose)] if group else ours


@contextlib.contextmanager
def calling(callbacks: Any, stage: str, make_model: Callable[[], Any]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Call the hooks of Keras callbacks around an evaluate ("test") or a predict, in this process.

    Gives a function that is to be called at the end, with the figures. The model is made if there is a callback.
    """
    called = [each for each in _as_list(callbacks) or [] if _is_keras(each)]
    for each in called:
        _check_is_keras3(each)
    model = make_model() if called else None
    for each in called:
        each.set_model(model)
        each.set_params({"verbose": 0, "epochs": 1, "steps": None})

    def end(figures: dict[str, Any]) -> None:
        for each in called:
            getattr(each, f"on_{stage}_end")(dict(sorted(numbers_of(figures).items())))

    for each in called:
        getattr(each, f"on_{stage}_begin")({})
    yield end


def _as_list(callbacks: Any) -> Any:
    """A list of callbacks as Keras takes one, where a callback by itself is one."""
    if isinstance(callbacks, tuple):
        return list(callbacks)
    return [callbacks] if _is_keras(callbacks) else callbacks


def _is_keras(callback: Any) -> bool:
    """Whether this is for Keras, of whatever version; keras is not imported to find out."""
    kind = callback if isinstance(callback, type) else type(callback)
    bases = {(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__}
    return ("keras", "Callback") in bases or ("tf_keras", "Callback") in bases


def _checked(callback: Any) -> Any:
    _check_is_keras3(callback)
    if is_instance_of(callback, "keras.callbacks", "CallbackList"):
        raise InvalidArgumentError("Expected a list of callbacks, got a CallbackList. Type callbacks=[...].")
    if is_instance_of(callback, "keras.callbacks", "BackupAndRestore"):
        raise NotOfferedError(
            "BackupAndRestore is not offered: fits recover from lost workers by themselves. To go on after the driver "
            'was lost too, pass model_dir=... to the estimator and resume="auto" to fit.'
        )
    if is_instance_of(callback, "keras.callbacks", "TensorBoard"):
        require("tensorboard", "keras.callbacks.TensorBoard")
    _warn_of_what_is_never_called(callback)
    return callback


def _is_done_anyway(callback: Any) -> bool:
    """Whether this is one of Horovod's by which ranks come to the same weights or figures. All ranks would have to call
    it, and here it would be called on one."""
    kind = type(callback)
    return kind.__module__.partition(".")[0] == "horovod" and kind.__name__ in _DONE_ANYWAY


def _check_is_keras3(callback: Any) -> None:
    name = callback.__name__ if isinstance(callback, type) else type(callback).__name__
    if isinstance(callback, type):
        raise InvalidArgumentError(f"Expected a list of callbacks, but {name} is a class. Type {name}().")
    if not is_instance_of(callback, "keras.callbacks", "Callback"):
        raise InvalidArgumentError(
            f"{name} is a callback of tf_keras (Keras 2), but the model is one of Keras 3, which would call it with "
            "what it does not know. Take it from keras.callbacks instead."
        )


def _warn_of_what_is_never_called(callback: Any) -> None:
    hooks = [hook for hook in _NEVER_CALLED if _is_overridden(callback, hook) and _owner(callback, hook) != "keras"]
    if hooks:
        logger.warning(
            "%s of %s will not be called: validation data is measured as a whole. on_test_begin and on_test_end are.",
            " and ".join(hooks),
            type(callback).__name__,
        )


def _has_to_do(callback: Any, hook: str) -> bool:
    """Whether a callback has something to do in one of our hooks."""
    return any(_is_overridden(callback, each) and not _is_idle(callback, each) for each in _HOOKS[hook])


def _is_overridden(callback: Any, hook: str) -> bool:
    keras = require("keras", "A Keras callback")
    return getattr(getattr(callback, hook), "__func__", None) is not getattr(keras.callbacks.Callback, hook)


def _is_idle(callback: Any, hook: str) -> bool:
    """Whether Keras' own callbacks leave at once a hook of batches that they have."""
    if "batch" not in hook or _owner(callback, hook) != "keras":
        return False
    if is_instance_of(callback, "keras.callbacks", "ModelCheckpoint"):
        return callback.save_freq == "epoch"
    if is_instance_of(callback, "keras.callbacks", "TensorBoard"):
        return (
            callback.update_freq == "epoch"
            and not callback.write_steps_per_second
            and not getattr(callback, "_should_trace", True)
        )
    return False


def _owner(callback: Any, hook: str) -> str:
    """The package that a callback has a hook from."""
    return (getattr(getattr(callback, hook), "__module__", None) or "").partition(".")[0]


def _logs(figures: dict[str, Any]) -> dict[str, float]:
    """Figures as Keras gives them to callbacks: numbers, by the names of Keras, sorted."""
    measured = {name.removeprefix("train_"): value for name, value in figures.items() if is_measure(name)}
    return dict(sorted(numbers_of(measured).items()))


def _pack(callbacks: list[Any]) -> Packed:
    with _without_models(callbacks):
        try:
            return pack(callbacks, "the Keras callbacks")
        except NotPicklableError:
            for each in callbacks:
                pack(each, f"the Keras callback {type(each).__name__}")
            raise


@contextlib.contextmanager
def _without_models(callbacks: list[Any]) -> Iterator[None]:
    """A callback that was in a fit before has that model, which is not to be sent along."""
    models = [(each, vars(each)["_model"]) for each in callbacks if "_model" in vars(each)]
    for each, _ in models:
        each._model = None
    try:
        yield
    finally:
        for each, model in models:
            each._model = model
