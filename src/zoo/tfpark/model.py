"""KerasModel: a Keras model, trained, evaluated and run in this process or over all workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.orca.context import current_engine
from zoo.orca.errors import InvalidArgumentError, NotOfferedError, PreconditionError
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.records import predict_records, take_columns
from zoo.orca.learn.tf.estimator import Estimator
from zoo.orca.learn.tf2.recipe import is_keras3, is_legacy_keras
from zoo.orca.learn.trigger import EveryEpoch
from zoo.tfpark.tf_dataset import TFDataset
from zoo.util import nest


class KerasModel:
    """A model of Keras 3, or of tf_keras in graph mode, with Keras's own names; the model itself is trained.

    Args:
        model: a compiled model; uncompiled it can only predict.
        model_dir: where checkpoints and summaries of distributed training go.
        optimizer: an orca or bigdl optimizer for distributed training, instead of the one it was compiled with.

    Example:
        model = KerasModel(keras_model)
        model.fit(TFDataset.from_ndarrays((x, y), batch_size=64), epochs=5)
        model.predict(x)
    """

    def __init__(self, model: Any, model_dir: str | None = None, optimizer: Any = None):
        if not (is_keras3(model) or is_legacy_keras(model)):
            raise InvalidArgumentError(f"Expected a model of Keras 3 or of tf_keras, got a {type(model).__name__}.")
        self.model = model
        self._model_dir = model_dir
        self._optimizer = optimizer
        self._metrics: dict[str, Any] = {}
        self._estimator: Any = None

    def __repr__(self) -> str:
        return f"KerasModel({self.model!r})"

    @property
    def metrics_names(self) -> list[str]:
        """What `evaluate` measures in this process, "loss" first."""
        if is_keras3(self.model):
            return _names_of_metrics(self.model)
        return list(self.model.metrics_names)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        validation_data: Any = None,
        distributed: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Train the model.

        Args:
            x: a TFDataset of (features, labels), which is trained on over all workers; or an array, a list or a dict of
                them.
            y: the labels of arrays.
            batch_size: rows of a step of arrays; a TFDataset has its own.
            validation_data: (x, y) of arrays; or, for a TFDataset that has none of its own, another TFDataset.
            distributed: whether arrays are trained on over all workers.
            kwargs: what else Keras's `fit` takes, for training in this process; over all workers `shuffle`,
                `callbacks`, `session_config` and `checkpoint_trigger`.

        Returns what Keras's `fit` does, or, over all workers, nothing.
        """
        if isinstance(x, TFDataset):
            return self._fit_dataset(x, epochs, validation_data, kwargs)
        if not distributed:
            return self.model.fit(x, y, batch_size=batch_size, epochs=epochs, validation_data=validation_data, **kwargs)
        data = self._shard(x, y)
        checked = None if validation_data is None else self._shard(*validation_data[:2])
        estimator = self._estimator_now()
        estimator._config |= {"shuffle": kwargs.pop("shuffle", True), "drop_last": False}
        estimator.fit(data, epochs, batch_size or 32, validation_data=checked, **self._triggered(kwargs))
        return None

    def evaluate(
        self, x: Any = None, y: Any = None, batch_per_thread: int | None = None, distributed: bool = False
    ) -> dict[str, float]:
        """The loss and the metrics: by Keras's names, over all workers with those of BigDL ("acc Top1Accuracy").

        Args:
            x, y: as in `fit`.
            batch_per_thread: rows of a step of arrays; a TFDataset has its own.
        """
        if isinstance(x, TFDataset):
            engine = x.rows.engine
            size = x.need_batch_per_thread("in KerasModel evaluate")
            size *= engine.nodes if x.hard_code_batch_size else engine.cores  # there is one worker on each node
            data, columns = x.rows.data(*self.columns(x))
            return self._estimator_now().evaluate(
                data, size, columns.features or None, columns.labels or None, x.auto_shard_files
            )
        if distributed:
            size = (batch_per_thread or 4) * current_engine().cores
            return self._estimator_now().evaluate(self._shard(x, y), size)
        found = self.model.evaluate(x, y, batch_size=batch_per_thread, verbose=0, **_as_dict(self.model))
        if isinstance(found, dict):
            return found
        values = found if isinstance(found, list | tuple) else [found]
        return dict(zip(self.metrics_names, values, strict=True))

    def predict(self, x: Any, batch_per_thread: int | None = None, distributed: bool = False) -> Any:
        """The model's output for every record: an array (a list for several outputs) for arrays.

        For a TFDataset it is an RDD with an array, or a list of them, for each record on Spark, and
        `zoo.orca.learn.records.Records`, which has collect(), on other engines; for one of an ImageSet, an ImageSet.

        Args:
            x: a TFDataset, or an array, a list or a dict of them.
            batch_per_thread: rows that are computed at once; a TFDataset has its own.
            distributed: whether arrays are sent to the workers, if they are large.
        """
        if isinstance(x, TFDataset):
            return self.predict_records(x, x.need_batch_per_thread("in KerasModel predict"))
        if distributed:
            return self._estimator_now().predict(self._features(x), batch_per_thread or 4)
        return self.model.predict(x, batch_size=batch_per_thread, verbose=0)

    def predict_records(self, dataset: TFDataset, size: int) -> Any:
        """As `predict` of a TFDataset, so many records at a time."""
        records = take_columns(dataset.rows.records(), self.columns(dataset, with_labels=False)[0])
        predictor = self._estimator_now()._predictor()
        return dataset.predicted(predict_records(records, predictor, size, dataset.hard_code_batch_size))

    def get_weights(self) -> list[np.ndarray]:
        """The model's weights."""
        return self.model.get_weights()

    def set_weights(self, weights: Sequence[np.ndarray]) -> None:
        """Set the model's weights."""
        self.model.set_weights(weights)

    def save_weights(self, filepath: str, overwrite: bool = True, save_format: str | None = None) -> None:
        """Write the model's weights to a file, HDF5 by default."""
        self._estimator_now().save_keras_weights(filepath, overwrite, save_format)

    def load_weights(self, filepath: str, by_name: bool = False) -> None:
        """Give the model the weights of a file; by_name takes those of layers that have the same names."""
        self._estimator_now().load_keras_weights(filepath, by_name)

    def save_model(self, path: str, overwrite: bool = True) -> None:
        """Write the model, with its optimizer, to a file: HDF5, or the format of Keras 3 if it ends in ".keras"."""
        self._estimator_now().save_keras_model(path, overwrite)

    @staticmethod
    def load_model(path: str) -> KerasModel:
        """The model in a file that `save_model` or Keras wrote."""
        return KerasModel(Estimator.load_keras_model(path).get_model())

    def train_on_batch(self, x: Any, y: Any = None, **kwargs: Any) -> Any:
        """Keras's own: one step in this process."""
        return self.model.train_on_batch(x, y, **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, **kwargs: Any) -> Any:
        """Keras's own: the loss and metrics of a batch, in this process."""
        return self.model.test_on_batch(x, y, **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        """Keras's own: the outputs for a batch, in this process."""
        return self.model.predict_on_batch(x)

    def add_metric(self, tensor: Any, name: str) -> None:
        """Measure a scalar tensor of a tf_keras model's graph, too, over all workers."""
        if is_keras3(self.model):
            raise NotOfferedError("Tensors are no metrics of a Keras 3 model. Type model.compile(..., metrics=[...]).")
        self._metrics[name] = tensor
        self._estimator = None

    def _fit_dataset(self, dataset: TFDataset, epochs: int, validation_data: Any, options: dict[str, Any]) -> None:
        size = dataset.need_batch_size("in KerasModel fit")
        sides = self.columns(dataset)
        data, columns = dataset.rows.data(*sides)
        validation = None if dataset.validation is None else dataset.validation.data(*sides)[0]
        if validation_data is not None:
            validation = self._validation(dataset, validation_data, columns)
        estimator = self._estimator_now()
        estimator._config |= {"shuffle": dataset.shuffle, "drop_last": dataset.hard_code_batch_size}
        estimator.fit(
            data,
            epochs,
            size,
            columns.features or None,
            columns.labels or None,
            validation_data=validation,
            auto_shard_files=dataset.auto_shard_files,
            **self._triggered(options),
        )

    def _validation(self, dataset: TFDataset, given: Any, columns: Any) -> Any:
        """The validation data that was given beside a TFDataset."""
        if dataset.validation is not None:
            raise InvalidArgumentError("The TFDataset has validation data of its own: leave validation_data out.")
        if isinstance(given, TFDataset):
            data, theirs = given.rows.data(*self.columns(given))
        elif isinstance(given, list | tuple) and len(given) == 2:
            data, theirs = self._shard(*given), Columns()
        else:
            raise InvalidArgumentError(
                f"Expected validation_data to be a TFDataset or arrays (x, y), got a {type(given).__name__}."
            )
        if theirs != columns:
            raise InvalidArgumentError(
                "Expected validation_data of the same kind and columns as the data. Type: "
                "TFDataset.from_dataframe(df, ..., validation_df=...)"
            )
        return data

    def _triggered(self, options: dict[str, Any]) -> dict[str, Any]:
        """With a model_dir there are checkpoints after every epoch, unless the user says otherwise."""
        return ({} if self._model_dir is None else {"checkpoint_trigger": EveryEpoch()}) | options

    def _shard(self, x: Any, y: Any) -> dict[str, Any]:
        """Arrays in the order of the model's inputs and outputs."""
        labels = _standardized(y, self._output_names(), "model_target")
        return {"x": self._features(x), "y": labels[0] if len(labels) == 1 else tuple(labels)}

    def _features(self, x: Any) -> Any:
        """Arrays in the order of the model's inputs; a dict for a model of Keras 3 that takes one."""
        names = self._input_names()
        arrays = _standardized(x, names, "model_input")
        takes_dict = is_keras3(self.model) and isinstance(getattr(self.model, "input", None), dict)
        return dict(zip(names or (), arrays, strict=True)) if takes_dict else tuple(arrays)

    def _input_names(self) -> list[str] | None:
        """What the model calls its inputs; None for one that was not built yet, or has none that it knows of."""
        if is_legacy_keras(self.model):
            return list(self.model.input_names)
        taken = getattr(self.model, "input", None)
        return list(taken) if isinstance(taken, dict) else _names(getattr(self.model, "inputs", None))

    def _output_names(self) -> list[str] | None:
        names = getattr(self.model, "output_names", None)
        return list(names) if names else _names(getattr(self.model, "outputs", None))

    def columns(self, dataset: TFDataset, with_labels: bool = True) -> tuple[list[int], list[int]]:
        """Which of a dataset's tensors are the model's inputs, and which its targets, in the model's order."""
        if not with_labels:
            names, structure = self._input_names(), dataset.tensor_structure
            # Two tensors alone may be two inputs as well as an input and a label: the model knows.
            if dataset.has_labels and not (len(names or ()) == 2 and list(structure) == dataset.metas):
                structure = structure[0]
            return _columns_by_name(structure, names, "model_input"), []
        if not dataset.has_labels:
            raise InvalidArgumentError(
                f"Expected a TFDataset of (features, labels), but its elements are {dataset.tensor_structure!r}."
            )
        features, labels = dataset.tensor_structure
        targets = _columns_by_name(labels, self._output_names(), "model_target")
        first = len(nest.flatten(features))
        return _columns_by_name(features, self._input_names(), "model_input"), [first + each for each in targets]

    def _estimator_now(self) -> Any:
        if self._estimator is None:
            self._estimator = Estimator.from_keras(
                self.model, metrics=self._metrics or None, model_dir=self._model_dir, optimizer=self._optimizer
            )
        return self._estimator


def _names_of_metrics(model: Any) -> list[str]:
    """What a model of Keras 3 measures; those compiled metrics that no batch has built yet are asked of a copy."""
    compiled = getattr(model, "_compile_metrics", None)
    names: list[str] = []
    for metric in model.metrics:
        if metric is compiled and not compiled.built:
            metric = type(compiled)(
                compiled._user_metrics, compiled._user_weighted_metrics, output_names=compiled.output_names
            )
            # Only the number of outputs has to do with names.
            outputs = [np.zeros((1, 1), np.float32)] * len(model.outputs or [None])
            metric.build(outputs, outputs)
        found = metric.result()
        names += list(found) if isinstance(found, dict) else [metric.name]
    return names


def _names(tensors: Any) -> list[str] | None:
    return [each.name for each in tensors] if tensors else None


def _columns_by_name(structure: Any, names: Sequence[str] | None, what: str) -> list[int]:
    """The numbers of the tensors of a structure that a model's names stand for."""
    keys = sorted(structure) if isinstance(structure, Mapping) else None
    numbers = list(range(len(nest.flatten(structure))))
    return _standardized(numbers if keys is None else dict(zip(keys, numbers, strict=True)), names, what)


def _standardized(data: Any, names: Sequence[str] | None, what: str) -> list[Any]:
    """Arrays, or what stands for them, in the order of the model's names for them."""
    if isinstance(data, Mapping):
        missing = [name for name in names or () if name not in data]
        if missing:
            raise PreconditionError(
                f"all {what} names should exist in data, but {', '.join(missing)} is not among {', '.join(data)}."
            )
        return [data[name] for name in (sorted(data) if names is None else names)]
    arrays = list(data) if isinstance(data, list | tuple) else [] if data is None else [data]
    if names is not None and len(arrays) != len(names):
        raise PreconditionError(
            f"{what} number does not match data number: the model has {len(names)} ({', '.join(names)}), but there are "
            f"{len(arrays)} arrays."
        )
    return arrays


def _as_dict(model: Any) -> dict[str, bool]:
    """Keras 3 says by itself what its figures are called."""
    return {"return_dict": True} if is_keras3(model) else {}
