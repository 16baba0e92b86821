"""`Estimator.from_keras` for Keras 3: the learner of `zoo.orca.learn.tf2` with the conventions of TensorFlow 1."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from zoo.orca.errors import PreconditionError
from zoo.orca.feed import kind_of
from zoo.orca.learn.estimator import Gang, as_columns, check_path
from zoo.orca.learn.predict import predict
from zoo.orca.learn.tf.conventions import need_columns
from zoo.orca.learn.tf.estimator import need_predictable, records_of
from zoo.orca.learn.tf.keras_flavour import KerasEstimator, existing
from zoo.orca.learn.tf2.callbacks import adapt
from zoo.orca.learn.tf2.estimator import KerasEstimator as SharedKerasEstimator
from zoo.orca.optional import require

if TYPE_CHECKING:
    from zoo.orca.feed.base import Feed
    from zoo.orca.learn.tf2.recipe import KerasRecipe
    from zoo.orca.learn.worker import Outcome


class Keras3Estimator(KerasEstimator, SharedKerasEstimator):
    """An estimator of a Keras 3 model, which holds the weights between calls."""

    def __init__(self, recipe: KerasRecipe, gang: Gang, model_dir: str | None):
        super().__init__(recipe, gang, model_dir)
        self._model = recipe.model
        self._update: dict[str, Any] = {}
        # The metrics that were measured on validation data: Keras knows its own only after it has used them itself.
        self._measured: dict[str, None] = {}

    def _fit_model(
        self,
        data: Any,
        epochs: range,
        batch_size: int,
        columns: Any,
        validation_data: Any,
        checkpoint_trigger: Any,
        session_config: Any,
        callbacks: Any = None,
        resume: str | None = None,
        **options: Any,
    ) -> None:
        self._begin()
        called = adapt(callbacks, 0)
        self._run_fit(data, epochs, batch_size, columns, validation_data, checkpoint_trigger, called, resume, **options)

    def _evaluate_model(self, data: Any, batch_size: int, columns: Any) -> dict[str, Any]:
        self._check_trainable()
        self._begin()
        return self._run_evaluate(data, batch_size, columns)

    def predict(self, data: Any, batch_size: int = 4, feature_cols: Any = None, auto_shard_files: bool = False) -> Any:
        """The model's output for every row, in the data's order and of the data's kind.

        Args:
            data: an XShards, a Spark DataFrame, a Ray Dataset, arrays, a pandas frame, or a `zoo.orca.data.tf.data`
                Dataset, which gives an RDD of one element a record.
            batch_size: rows that are computed at once.
        """
        need_predictable(data)
        columns = as_columns(feature_cols, None)
        need_columns(data, columns, "prediction", needs_labels=False)
        size = self._check_batch_size((), batch_size, 1)
        self._state = None  # the model has its weights, which the user may have changed
        if kind_of(data) == "orca.data.tf.Dataset":
            return records_of(predict(data.as_xshards(), self._predictor(), size))
        return predict(data, self._predictor(), size, columns.features, None, self._known_shapes)

    def _check_batch(self, feed: Feed, what: str = "data") -> None:
        if not self._model.built:
            self._build(feed.sample())
        super()._check_batch(feed, what)

    def _build(self, sample: Any) -> None:
        """Let the user's model have weights, which training will change; workers build theirs by themselves."""
        from zoo.orca.learn.tf2.batches import features_of

        if sample is None:
            raise PreconditionError(
                f"the model {self._model.name!r} has no weights yet, and no row of the data is at hand to build it "
                "with. Give its first layer a shape (keras.Input), or type model.build(...)."
            )
        self._model(features_of(tuple(sample[:-1]) or tuple(sample)))

    def _begin(self) -> None:
        """Go on from the model as it is now; what an orca optimizer remembers is not in it."""
        from zoo.orca.learn.tf2.state import state_of

        self._state = None
        if self._update and self._recipe.optimizer is not None:
            self._state = state_of(self._model) | {"optimizers": [], "operator": self._update}

    def _take(self, outcomes: list[Outcome]) -> None:
        super()._take(outcomes)
        figures = [name for epoch in outcomes[0].history for name in epoch if name.startswith("val_")]
        self._measured |= dict.fromkeys(name.removeprefix("val_") for name in figures)
        if self._state is not None:
            self._keep(self._state)
        self._goes_on = False

    def _adopt(self, state: dict[str, Any], path: str) -> None:
        super()._adopt(state, path)
        self._keep(state)

    def _keep(self, state: dict[str, Any]) -> None:
        """Give the model what was learnt."""
        from zoo.orca.learn.tf2.state import load_state, load_weights

        if self._recipe.optimizer is not None:
            load_weights(self._model, state)
            self._update = state.get("operator") or {}
        else:
            load_state(self._model, state)
        self._state = None

    def load(self, model_path: str) -> Keras3Estimator:
        """Give the model the weights of a file that `save` wrote, and its optimizer the state if the file has it.

        An HDF5 file of Keras 3 does not; one that ends in ".keras" does."""
        from zoo.orca.learn.tf2.recipe import custom_objects_of
        from zoo.orca.learn.tf2.state import load_state, load_weights, state_of

        loaded = load_model(existing(check_path(model_path, "model_path")), custom_objects_of(self._model))
        state = state_of(loaded)
        load_weights(self._model, state, model_path)
        optimizer = getattr(self._model, "optimizer", None)
        if optimizer is not None and not optimizer.built:
            optimizer.build(self._model.trainable_variables)
        if optimizer is not None and state["optimizers"] and len(state["optimizers"][0]) == len(optimizer.variables):
            load_state(self._model, state, model_path)
        return self

    def _write(self, save: Any, path: str, weights: bool = False) -> None:
        if not weights or path.endswith(".weights.h5"):
            config = getattr(self._model, "_compile_config", None)
            before = {} if config is None else dict(config.config)
            super()._write(save, path, weights)
            if config is not None:
                config.config.update(before)  # Keras takes the optimizer out of it as it writes HDF5
            return
        # Files of old code: Keras 3 reads them, by the names of layers, too, but no longer writes them by itself.
        from keras.src.legacy.saving import legacy_h5_format

        with require("h5py", "Writing Keras weights").File(path, "w") as file:
            legacy_h5_format.save_weights_to_hdf5_group(file, self._model)

    def _load_weights(self, path: str, by_name: bool) -> None:
        with with_ending(path) as named:
            self._model.load_weights(named, **({"by_name": True} if by_name else {}))

    def _set_clip(self, clip: tuple[Any, ...] | None) -> None:
        self._recipe.clip = clip

    def _metric_names(self) -> Iterable[str]:
        return self._measured


def load_model(path: str, custom_objects: dict[str, Any] | None = None) -> Any:
    """A Keras 3 model from a file: HDF5, or the format of Keras 3, whatever it is called."""
    import keras

    with with_ending(path) as named:
        return keras.saving.load_model(named, custom_objects=custom_objects)


@contextlib.contextmanager
def with_ending(path: str) -> Iterator[str]:
    """A file by a name that ends as Keras wants it to."""
    if path.endswith((".h5", ".hdf5", ".keras")):
        yield path
        return
    ending = ".keras" if zipfile.is_zipfile(path) else ".h5"
    with tempfile.TemporaryDirectory(prefix="orca-keras-") as folder:
        named = os.path.join(folder, f"model{ending}")
        os.symlink(os.path.abspath(path), named)
        yield named
