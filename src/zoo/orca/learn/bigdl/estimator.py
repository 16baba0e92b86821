"""`Estimator.from_bigdl`: BigDL layers on every engine, with the conventions of the published estimator."""

# ruff: noqa: E402 - what is missing is said first
from __future__ import annotations

from zoo.orca.optional import require

require("torch", "The BigDL estimator")

from typing import Any

from zoo.orca.errors import InvalidArgumentError, PreconditionError, UnknownArgumentError
from zoo.orca.feed import kind_of
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.bigdl.preprocessing import prepare, without_prepared
from zoo.orca.learn.bigdl.sized import as_sizes
from zoo.orca.learn.bigdl.training import LayerEstimator
from zoo.orca.learn.checkpoint import read_checkpoint
from zoo.orca.learn.estimator import as_columns, check_epochs, check_path
from zoo.orca.learn.optimizers import Optimizer
from zoo.orca.learn.optimizers.saved import made
from zoo.orca.learn.predict.output import PREDICTION, OutputType
from zoo.orca.learn.trigger import MaxEpoch

SPARK_FRAME = "Spark DataFrame"
_KINDS = ("XShards", SPARK_FRAME, "Ray Dataset", "pandas DataFrame", "arrays")
_SUMMARIES = ("Loss", "LearningRate", "Throughput")
# What `flat_rows` gives for a row: an array of float.
_ROW_OF_VALUES = OutputType((1,), arrays=True)


class Estimator:
    """The factory of estimators of BigDL layers."""

    @staticmethod
    def from_bigdl(
        *,
        model: Any,
        loss: Any = None,
        optimizer: Any = None,
        metrics: Any = None,
        feature_preprocessing: Any = None,
        label_preprocessing: Any = None,
        model_dir: str | None = None,
    ) -> BigDLEstimator:
        """An estimator of a BigDL layer.

        Args:
            model: a layer, which is trained in place: estimators that are given one object share its weights.
            loss: a criterion of bigdl.nn.criterion.
            optimizer: a method of bigdl.optim.optimizer (None: SGD), which keeps the count of epochs.
            metrics: one or several of zoo.orca.learn.metrics, or BigDL's validation methods.
            feature_preprocessing, label_preprocessing: for DataFrames: the size of a row's tensor, a list of sizes, or
                a Preprocessing of zoo.feature.common.
            model_dir: where checkpoints and summaries go.

        Example:
            >>> import numpy as np
            >>> from bigdl.nn.criterion import MSECriterion
            >>> from bigdl.nn.layer import Linear, Sequential
            >>> from bigdl.optim.optimizer import Adam
            >>> from zoo.orca.data import XShards
            >>> x = np.random.default_rng(0).random((64, 3))
            >>> shards = XShards.partition({"x": x, "y": x.sum(axis=1, keepdims=True)})
            >>> net = Sequential().add(Linear(3, 1))
            >>> est = Estimator.from_bigdl(model=net, loss=MSECriterion(), optimizer=Adam(0.1))
            >>> est.fit(shards, 3).predict(shards).collect()[0]["prediction"].shape[1]
            1
        """
        return BigDLEstimator(model, loss, optimizer, metrics, feature_preprocessing, label_preprocessing, model_dir)


class BigDLEstimator(LayerEstimator):
    """The conventions of the published estimator of BigDL layers."""

    def __init__(
        self,
        model: Any,
        loss: Any = None,
        optimizer: Any = None,
        metrics: Any = None,
        feature_preprocessing: Any = None,
        label_preprocessing: Any = None,
        model_dir: str | None = None,
    ):
        super().__init__(model, loss, optimizer, metrics, model_dir=model_dir)
        self._loss = loss
        self._preprocessing = (feature_preprocessing, label_preprocessing)

    def fit(  # type: ignore[override]
        self,
        data: Any,
        epochs: int,
        batch_size: int = 32,
        feature_cols: Any = "features",
        label_cols: Any = "label",
        caching_sample: bool = True,
        validation_data: Any = None,
        validation_trigger: Any = None,
        checkpoint_trigger: Any = None,
        *,
        callbacks: Any = None,
    ) -> BigDLEstimator:
        """Train until `epochs` epochs are done, counted over the optimizer's life and its checkpoints.

        Args:
            data: an XShards of {"x", "y"}, or a DataFrame.
            batch_size: rows of a step over all workers.
            feature_cols, label_cols: the names of columns; several are assembled into one vector.
            caching_sample: accepted as published: columns are laid down once for all epochs anyway.
            validation_data: measured with the metrics when validation_trigger fires, or every epoch.
            checkpoint_trigger: when to write a checkpoint into model_dir, such as EveryEpoch().
        """
        if validation_data is not None and not self._recipe.metrics:
            raise PreconditionError("validation_data needs metrics: pass metrics=[Accuracy()] to from_bigdl.")
        prepared, columns = self._prepared(data, feature_cols, label_cols)
        checked = None if validation_data is None else self._prepared(validation_data, feature_cols, label_cols)[0]
        self.train_until(
            prepared,
            MaxEpoch(check_epochs(epochs)),
            batch_size,
            columns,
            checked,
            None,
            validation_trigger,
            checkpoint_trigger,
            callbacks,
        )
        return self

    def predict(  # type: ignore[override]
        self, data: Any, batch_size: int = 4, feature_cols: Any = "features", sample_preprocessing: Any = None
    ) -> Any:
        """The model's output for every row: an XShards with "prediction", or a DataFrame with a column of arrays."""
        before = self._preprocessing
        try:
            if sample_preprocessing is not None:
                self._preprocessing = (sample_preprocessing, before[1])
            prepared, columns = self._prepared(data, feature_cols, None)
        finally:
            self._preprocessing = before
        if kind_of(data) != SPARK_FRAME:
            return super().predict(prepared, batch_size, columns.features)
        found = super().predict(prepared, batch_size, columns.features, flat_rows, PREDICTION, _ROW_OF_VALUES)
        return without_prepared(found)

    def evaluate(  # type: ignore[override]
        self, data: Any, batch_size: int = 32, feature_cols: Any = "features", label_cols: Any = "label"
    ) -> dict[str, float]:
        """The metrics over all rows, by BigDL's names: {"Top1Accuracy": 0.97}."""
        if not self._recipe.metrics:
            raise PreconditionError("evaluate needs metrics: pass metrics=[Accuracy()] to from_bigdl.")
        prepared, columns = self._prepared(data, feature_cols, label_cols)
        return {name: value for name, value, _ in self.measure(prepared, None, batch_size, columns)}

    def save(self, model_path: str) -> None:  # type: ignore[override]
        """Write the model to `<model_path>.bigdl` and its weights to `<model_path>.bin`."""
        path = check_path(model_path, "model_path")
        if not hasattr(self.model, "saveModel"):
            raise InvalidArgumentError(
                f"save writes BigDL layers, but the model is a {type(self.model).__name__}. Type "
                "torch.save(est.get_model().state_dict(), path)."
            )
        self.model.saveModel(f"{path}.bigdl", f"{path}.bin", True)

    def load(  # type: ignore[override]
        self,
        checkpoint: str,
        optimizer: Any = None,
        loss: Any = None,
        feature_preprocessing: Any = None,
        label_preprocessing: Any = None,
        model_dir: str | None = None,
        is_checkpoint: bool = False,
    ) -> BigDLEstimator:
        """Take the model that `save` wrote, or, with is_checkpoint, the newest checkpoint below a folder.

        What else is given replaces what the estimator was made with; a checkpoint brings its counters along.
        """
        path = check_path(checkpoint, "checkpoint")
        model, metrics = self.model, self._recipe.metrics
        if not is_checkpoint:
            from bigdl.nn.layer import Model

            model = Model.loadModel(f"{path}.bigdl", f"{path}.bin")
        self._loss = self._loss if loss is None else loss
        method = self._brought(path, is_checkpoint) if optimizer is None else optimizer
        self._recipe = self._recipe_of(model, self._loss, method, metrics)
        features, labels = self._preprocessing
        self._preprocessing = (feature_preprocessing or features, label_preprocessing or labels)
        self._model_dir = self._model_dir if model_dir is None else check_path(model_dir, "model_dir")
        if is_checkpoint:
            self.load_orca_checkpoint(path)
        return self

    def _brought(self, path: str, is_checkpoint: bool) -> Any:
        """The optimizer that a checkpoint was written with, where that is another than the estimator's."""
        state = read_checkpoint(path) if is_checkpoint else {}
        if "class" not in state:
            return self._method
        method = made(state, path, Optimizer)
        return self._method if type(method) is type(self._method) else method

    def get_train_summary(self, tag: str | None = None) -> list[list[float]] | None:
        """[iteration, value, time] of "Loss", "LearningRate" or "Throughput"; None when no summary is written."""
        if tag is not None and tag not in _SUMMARIES:
            known = ", ".join(map(repr, _SUMMARIES))
            raise UnknownArgumentError(f"expected one of the summaries of training, {known}, but {tag!r} came.")
        return super().get_train_summary(tag)

    def _prepared(self, data: Any, feature_cols: Any, label_cols: Any) -> tuple[Any, Columns]:
        """Data as it is trained with, and which of its columns; from now on rows have the sizes that it needs."""
        kind = kind_of(data)
        if kind not in _KINDS:
            raise InvalidArgumentError(
                f"Data should be XShards or Spark DataFrame, but it is a {kind}. Type XShards.partition(...) to make "
                "shards of arrays."
            )
        columns = as_columns(feature_cols, label_cols) if _has_columns(data, kind) else Columns()
        sizes: list[Any] = [None, None]
        if kind == SPARK_FRAME:
            data, columns, sizes = self._preprocessed(data, columns)
        self._network.sizes = as_sizes(sizes[0], "feature_preprocessing")
        if self._recipe.loss is not None and columns.labels:
            self._recipe.loss.sizes = as_sizes(sizes[1], "label_preprocessing")
        return data, columns

    def _preprocessed(self, df: Any, columns: Columns) -> tuple[Any, Columns, list[Any]]:
        used: list[tuple[str, ...]] = []
        sizes: list[Any] = []
        kinds = ("feature_preprocessing", "label_preprocessing")
        for names, preprocessing, what in zip(
            (columns.features, columns.labels), self._preprocessing, kinds, strict=True
        ):
            size = preprocessing if isinstance(preprocessing, list | tuple) else getattr(preprocessing, "sizes", None)
            if len(names) == 1:
                df, name, size = prepare(df, names[0], preprocessing, what)
                names = (name,)
            elif names and preprocessing is not None and size is None:
                raise InvalidArgumentError(
                    f"{what} computes from one column, but there are several: {list(names)}. "
                    "Name one, or make one of them first (VectorAssembler)."
                )
            used.append(tuple(names))
            sizes.append(size)
        return df, Columns(used[0], used[1]), sizes


def flat_rows(output: Any) -> Any:
    """The outputs of a batch, a row of values each; several outputs one after the other."""
    import torch

    several = output if isinstance(output, list | tuple) else [output]
    return torch.cat([each.reshape(len(each), -1) for each in several], dim=1)


def _has_columns(data: Any, kind: str) -> bool:
    if kind == "XShards":
        return data._get_class_name() == "pandas.core.frame.DataFrame"
    return kind != "arrays"
