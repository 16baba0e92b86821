"""`Estimator.from_openvino`: predict with a model file, on data of any kind, on every engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.feed import engine_of, kind_of
from zoo.orca.learn.base_estimator import BaseEstimator
from zoo.orca.learn.estimator import as_columns, check_dict, check_path
from zoo.orca.learn.openvino.model_file import ModelFile, describe
from zoo.orca.learn.openvino.predictor import OpenVINOPredictor
from zoo.orca.learn.openvino.signature import Signature
from zoo.orca.learn.predict import OutputType, predict, predict_arrays, predict_spark, spark_sample
from zoo.orca.learn.predict.model import as_outputs

TABLES = ("Spark DataFrame", "Ray Dataset", "pandas DataFrame")


class OpenVINOEstimator(BaseEstimator):
    """A model file of OpenVINO, or one that OpenVINO reads, which predicts; made by `Estimator.from_openvino`.

    Args:
        model_path: an .xml with its .bin beside it, an .onnx, or another file that OpenVINO reads.
        batch_size: the rows that the model takes at once: 0 leaves what the file says, -1 makes it any.
        device: where it runs, in OpenVINO's words: "CPU", "GPU", "AUTO".
        config: properties for OpenVINO, such as {"INFERENCE_PRECISION_HINT": "bf16"}.
    """

    def __init__(
        self,
        *,
        model_path: str,
        batch_size: int = 0,
        device: str = "CPU",
        config: Mapping[str, Any] | None = None,
    ):
        if not isinstance(device, str) or not device:
            raise InvalidArgumentError(f'device must be a name that OpenVINO knows, such as "CPU", but is {device!r}.')
        self._batch_size = batch_size
        self._device = device
        self._config = check_dict(config, "config")
        self.load(model_path)

    def __repr__(self) -> str:
        ports = "; ".join(map(str, self._signature.inputs))
        return f"OpenVINOEstimator(inputs: {ports}, device={self._device!r})"

    def load(self, model_path: str) -> OpenVINOEstimator:
        """Take another model file, for the same device; the estimator keeps the one it has if that fails."""
        file = ModelFile.read(check_path(model_path, "model_path"), self._batch_size)
        self._signature: Signature = describe(file.open())
        self._file = file
        return self

    def predict(  # type: ignore[override]  # the published order of arguments
        self, data: Any, feature_cols: str | Sequence[str] | None = None, batch_size: int = 4
    ) -> Any:
        """The model's outputs for every row, in order, as the kind of data that came in.

        Args:
            data: an ndarray; a list of them in the order of the model's inputs; a dict of them by the inputs' names;
                an XShards of {"x": any of these}; or a pandas, Spark (also streaming) or Ray table with feature_cols.
                Arrays with one dimension more than the model's input come in batches, and so does the result.
            feature_cols: the columns that are the model's inputs, in order.
            batch_size: the rows given to the model at once; a model of one fixed batch size gets that.

        Returns:
            An ndarray, or a list of them for a model of several outputs; an XShards with "prediction" in each shard;
            or the table with a column "prediction".
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise InvalidArgumentError(f"batch_size must be a whole number of at least 1, but is {batch_size!r}.")
        columns = as_columns(feature_cols, None).features
        kind = kind_of(data)
        if columns and kind in TABLES:
            self._signature.check_count(len(columns))
        is_table = kind in TABLES or (kind == "XShards" and bool(columns))
        predictor = OpenVINOPredictor(self._file, self._device, self._config, flat_rows=is_table)
        if kind == "Spark DataFrame":
            # Rows go to the model in these batches, and one that it has to fill up is work for nothing.
            return self._predict_spark(data, predictor, columns, self._signature.piece(batch_size))
        if kind == "arrays":
            arranged = self._signature.arrange(self._arguments(data))
            result = predict_arrays(arranged.arrays, predictor, batch_size, engine_of(data))
            return _in_batches(result, arranged.leading)
        return predict(data, predictor, batch_size, columns)

    def _arguments(self, data: Any) -> tuple[Any, ...]:
        """The user's arrays: a dict is either by the inputs' names, or holds them as "x", as a shard does."""
        is_shard = isinstance(data, Mapping) and "x" in data and set(data) <= {"x", "y"}
        if is_shard and not self._signature.has_names(data):
            data = data["x"]
        is_several = isinstance(data, list | tuple) and len(self._signature.inputs) > 1
        return tuple(data) if is_several else (data,)

    def _predict_spark(self, df: Any, predictor: OpenVINOPredictor, columns: tuple[Any, ...], batch_size: int) -> Any:
        """No job is run, and no model compiled here: the file says what goes in and what comes out."""
        shapes = [port.some_row for port in self._signature.inputs]
        known = dict(zip(columns, shapes, strict=False))  # no columns are told below
        self._signature.arrange(spark_sample(df, list(columns), known), flat_rows=True)
        ranks = tuple(len(port.dimensions) - 1 for port in self._signature.outputs if port.dimensions)
        if len(ranks) < len(self._signature.outputs):
            return predict(df, predictor, batch_size, columns)
        return predict_spark(df, predictor, batch_size, columns, OutputType(ranks, several=len(ranks) > 1))

    def get_model(self) -> Any:
        """A new `openvino.Model` of the file, with the batch size asked for."""
        return self._file.open()

    def fit(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not offered: a model file holds no training."""
        _refuse("fit", "Train with another estimator, and write the model with est.export('openvino', path).")

    def evaluate(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not offered: a model file holds no metrics."""
        _refuse("evaluate", "Compare what est.predict gives with the labels.")

    def save(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not offered: the file is there already."""
        _refuse("save", "Copy the file, or write est.get_model() with openvino.save_model.")

    def set_tensorboard(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not offered: nothing is trained."""
        _refuse("set_tensorboard", "There is nothing to show: nothing is trained.")

    def get_train_summary(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not offered: nothing is trained."""
        _refuse("get_train_summary", "There is nothing to show: nothing is trained.")

    def get_validation_summary(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not offered: nothing is trained."""
        _refuse("get_validation_summary", "There is nothing to show: nothing is trained.")

    def load_orca_checkpoint(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not offered: there are no checkpoints of a model file."""
        _refuse("load_orca_checkpoint", "Load another model file: est.load(model_path).")

    def clear_gradient_clipping(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not offered: nothing is trained."""
        _refuse("clear_gradient_clipping", "Nothing is trained, so there are no gradients.")

    def set_constant_gradient_clipping(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not offered: nothing is trained."""
        _refuse("set_constant_gradient_clipping", "Nothing is trained, so there are no gradients.")

    def set_l2_norm_gradient_clipping(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not offered: nothing is trained."""
        _refuse("set_l2_norm_gradient_clipping", "Nothing is trained, so there are no gradients.")

    def shutdown(self) -> None:
        """Nothing is held that would have to be given back; the estimator can be used again."""


class Estimator:
    """Makes estimators of model files.

    Example:
        est = Estimator.from_openvino(model_path="model.xml")
        est.predict(np.random.random([20, 3, 224, 224]))
    """

    @staticmethod
    def from_openvino(
        *, model_path: str, batch_size: int = 0, device: str = "CPU", config: Mapping[str, Any] | None = None
    ) -> OpenVINOEstimator:
        """An estimator of an IR: an .xml with its .bin beside it, on this machine or remote.

        Args:
            batch_size: the rows that the model takes at once: 0 leaves what the file says, -1 makes it any.
            device: where it runs, in OpenVINO's words: "CPU", "GPU", "AUTO".
            config: properties for OpenVINO, such as {"INFERENCE_PRECISION_HINT": "bf16"}.
        """
        return OpenVINOEstimator(model_path=model_path, batch_size=batch_size, device=device, config=config)

    @staticmethod
    def from_onnx(
        *, model_path: str, batch_size: int = 0, device: str = "CPU", config: Mapping[str, Any] | None = None
    ) -> OpenVINOEstimator:
        """An estimator of an ONNX file, which OpenVINO reads and runs; the arguments are those of `from_openvino`."""
        return OpenVINOEstimator(model_path=model_path, batch_size=batch_size, device=device, config=config)


def _refuse(name: str, instead: str) -> NoReturn:
    raise NotOfferedError(f"the OpenVINO estimator predicts, and has no {name}. {instead}")


def _in_batches(result: Any, leading: tuple[int, int] | None) -> Any:
    if leading is None:
        return result
    outputs = [output.reshape(*leading, *output.shape[1:]) for output in as_outputs(result)]
    return outputs if isinstance(result, list) else outputs[0]
