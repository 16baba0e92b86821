"""The conventions of `Estimator.from_keras`, for models of Keras 3 and of tf_keras: the model itself is trained."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zoo.orca.errors import InvalidArgumentError, PathExistsError, PathNotFoundError, PreconditionError
from zoo.orca.learn.estimator import as_columns, check_path
from zoo.orca.learn.tf.conventions import check_disk_trigger, need_columns
from zoo.orca.learn.tf.estimator import Estimator

ACCURACIES = ("acc", "accuracy", "binary_accuracy", "categorical_accuracy", "sparse_categorical_accuracy")
_SUFFIXES = dict.fromkeys(ACCURACIES, "Top1Accuracy") | {
    "mae": "MAE",
    "mean_absolute_error": "MAE",
    "top_k_categorical_accuracy": "Top5Accuracy",
    "sparse_top_k_categorical_accuracy": "Top5Accuracy",
}


def result_name(metric: str) -> str:
    """What `evaluate` calls a metric of Keras: its name, and that of the metric in BigDL where there is one.

    >>> [result_name(each) for each in ("accuracy", "mae", "auc")]
    ['acc Top1Accuracy', 'mae MAE', 'auc']
    """
    if metric not in _SUFFIXES:
        return metric
    return f"{'acc' if metric == 'accuracy' else metric} {_SUFFIXES[metric]}"


class KerasEstimator(Estimator):
    """An estimator of a Keras model; `Estimator.from_keras` makes one. Fits change the model that was given."""

    _model: Any

    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int = 32,
        feature_cols: Any = None,
        label_cols: Any = None,
        validation_data: Any = None,
        session_config: Any = None,
        checkpoint_trigger: Any = None,
        auto_shard_files: bool = True,
        *,
        labels_cols: Any = None,
        callbacks: Any = None,
        resume: str | None = None,
    ) -> KerasEstimator:
        """Train the model `epochs` more epochs.

        Args:
            data: an XShards, a Spark DataFrame, a `tf.data.Dataset` of single records (features, label), a
                `zoo.orca.data.tf.data` Dataset, a Ray Dataset, arrays, or a pandas frame.
            batch_size: rows of a step over all workers.
            validation_data: of the same kind; measured when checkpoint_trigger fires, or after every epoch.
            session_config: a `tf.compat.v1.ConfigProto` for the sessions of a tf_keras model; accepted for others.
            checkpoint_trigger: when to write a checkpoint into model_dir, such as EveryEpoch().
            auto_shard_files: whether each worker reads some of the files of a `tf.data.Dataset`, where it is made of
                files, instead of some of its records.
            labels_cols: another spelling of label_cols.
            callbacks: a list of `zoo.orca.learn.callbacks.Callback`; for a Keras 3 model Keras callbacks, too.
            resume: "auto" goes on from the newest checkpoint of this fit in model_dir, if there is one.
        """
        columns = as_columns(feature_cols, labels_cols if label_cols is None else label_cols)
        need_columns(data, columns, "training")
        check_disk_trigger(checkpoint_trigger)
        missing = self._epochs(epochs)
        options = {"callbacks": callbacks, "resume": resume}
        with self._sharding(auto_shard_files):
            if missing:
                self._fit_model(
                    data, missing, batch_size, columns, validation_data, checkpoint_trigger, session_config, **options
                )
        return self

    def _fit_model(self, *args: Any, **options: Any) -> None:
        """Train, and give the model what was learnt."""
        raise NotImplementedError

    def _evaluate_model(self, data: Any, batch_size: int, columns: Any) -> dict[str, Any]:
        """Figures by the names of Keras, the loss as "val_loss"."""
        raise NotImplementedError

    def evaluate(
        self,
        data: Any,
        batch_size: int = 32,
        feature_cols: Any = None,
        label_cols: Any = None,
        auto_shard_files: bool = False,
        *,
        labels_cols: Any = None,
    ) -> dict[str, float]:
        """{"loss": ..., "acc Top1Accuracy": ...} over all rows; batch_size is the rows of a step over all workers."""
        columns = as_columns(feature_cols, labels_cols if label_cols is None else label_cols)
        need_columns(data, columns, "evaluation")
        with self._sharding(auto_shard_files):
            figures = self._evaluate_model(data, batch_size, columns)
        loss = {"loss": figures["val_loss"]} if "val_loss" in figures else {}
        others = {name: value for name, value in figures.items() if name not in ("val_loss", "num_samples")}
        return loss | {result_name(name): value for name, value in others.items()}

    def get_model(self) -> Any:
        """The model itself."""
        return self._model

    def save(self, model_path: str, overwrite: bool = True) -> str:
        """Write the model to a file; the same as `save_keras_model`."""
        return self.save_keras_model(model_path, overwrite)

    def load(self, model_path: str) -> KerasEstimator:
        """Give the model the weights of a file that `save` or `save_keras_weights` wrote."""
        return self.load_keras_weights(model_path)

    def save_keras_model(self, path: str, overwrite: bool = True) -> str:
        """Write the model, with its optimizer, to a file: HDF5, or the format of Keras 3 if it ends in ".keras"."""
        path = _free(check_path(path, "path"), overwrite)
        self._write(self._model.save, path)
        return path

    def save_keras_weights(self, filepath: str, overwrite: bool = True, save_format: str | None = None) -> str:
        """Write the model's weights to a file, HDF5 by default.

        Args:
            save_format: "h5"; other formats are chosen by the ending of the path.
        """
        if save_format not in (None, "h5", "hdf5", "keras"):
            raise InvalidArgumentError(f'save_format must be "h5" or None, but is {save_format!r}.')
        path = _free(check_path(filepath, "filepath"), overwrite)
        self._write(self._model.save_weights, path, weights=True)
        return path

    def load_keras_weights(self, filepath: str, by_name: bool = False) -> KerasEstimator:
        """Give the model the weights of a file; by_name takes those of layers that have the same names."""
        self._load_weights(existing(check_path(filepath, "filepath")), by_name)
        return self

    def _load_weights(self, path: str, by_name: bool) -> None:
        raise NotImplementedError

    def _write(self, save: Any, path: str, weights: bool = False) -> None:
        """Let Keras write a file; it chooses the format by the ending, which paths of old code may not have."""
        known = (".weights.h5",) if weights else (".h5", ".hdf5", ".keras")
        if path.endswith(known):
            save(path)
            return
        aside = f"{path}{known[0]}"
        save(aside)
        os.replace(aside, path)

    def clear_gradient_clipping(self) -> None:
        """Use gradients as they are."""
        self._set_clip(None)

    def set_constant_gradient_clipping(self, min: float, max: float) -> None:
        """Clip every element of the gradient, over all workers, to a range."""
        if not (_is_number(min) and _is_number(max) and min < max):
            raise PreconditionError(f"expected numbers, min below max, but they are {min!r} and {max!r}.")
        self._set_clip(("value", float(min), float(max)))

    def set_l2_norm_gradient_clipping(self, clip_norm: float) -> None:
        """Scale the gradient, over all workers, down to an L2 norm of at most clip_norm."""
        if not (_is_number(clip_norm) and clip_norm > 0):
            raise PreconditionError(f"clip_norm must be a number above 0, but is {clip_norm!r}.")
        self._set_clip(("norm", float(clip_norm)))

    def _set_clip(self, clip: tuple[Any, ...] | None) -> None:
        raise NotImplementedError

    def _metric_names(self) -> Iterable[str]:
        """What Keras calls the metrics of validation data."""
        raise NotImplementedError

    def _stored_tag(self, tag: str) -> str:
        """Figures are stored under Keras's names, or those of `evaluate`; BigDL's names stand for them."""
        if tag == "Loss":
            return super()._stored_tag(tag)
        for name in self._metric_names():
            if tag in (name, result_name(name), result_name(name).rpartition(" ")[2]):
                return self._tag_of(name)
        return super()._stored_tag(tag)

    def _tag_of(self, metric: str) -> str:
        return metric


def existing(path: str) -> str:
    if not os.path.exists(path):
        raise PathNotFoundError(f"there is no file {path}. Expected one that save() or save_keras_weights() wrote.")
    return path


def _free(path: str, overwrite: bool) -> str:
    if not overwrite and os.path.exists(path):
        raise PathExistsError(f"{path} exists already. Pass overwrite=True, or another path.")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return path


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
