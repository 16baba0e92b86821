"""InferenceModel: a loaded model that several threads may ask at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from zoo.orca.errors import InvalidArgumentError, NotOfferedError, PreconditionError
from zoo.pipeline.inference.predictors import GraphPredictor, ModulePredictor, OpenVINOPredictor

FRAMES = {"frozenModel": "from_export_folder", "savedModel": "from_saved_model"}


class InferenceModel:
    """A model of any library, for prediction.

    Args:
        supported_concurrent_num: how many threads may be in `predict` at once; others wait.

    Example:
        model = InferenceModel(supported_concurrent_num=4)
        model.load_torch("model.pt")
        model.predict(np.zeros((1, 3, 224, 224)))
    """

    def __init__(self, supported_concurrent_num: int = 1, bigdl_type: str = "float"):
        if isinstance(supported_concurrent_num, bool) or not isinstance(supported_concurrent_num, int):
            raise InvalidArgumentError(
                f"supported_concurrent_num must be a whole number, but is {supported_concurrent_num!r}."
            )
        if supported_concurrent_num < 1:
            raise InvalidArgumentError(
                f"supported_concurrent_num must be at least 1, but is {supported_concurrent_num}."
            )
        self.supported_concurrent_num = supported_concurrent_num
        self._turn = threading.Semaphore(supported_concurrent_num)
        self._loaded: tuple[Any, Callable[[tuple[Any, ...]], Any]] | None = None

    def __repr__(self) -> str:
        loaded = "no model yet" if self._loaded is None else type(self._loaded[0]).__name__.removesuffix("Predictor")
        return f"InferenceModel({loaded}, supported_concurrent_num={self.supported_concurrent_num})"

    def load_torch(self, path: str) -> InferenceModel:
        """Take a module that `torch.save(module, path, pickle_module=zoo_pickle_module)` wrote."""
        from zoo.pipeline.api.net.net_load import read_module

        return self._take(ModulePredictor(read_module(path), as_table=False))

    def load_bigdl(self, model_path: str, weight_path: str | None = None) -> InferenceModel:
        """Take a layer that its `saveModel` or `save` wrote."""
        from zoo.pipeline.api.net.net_load import Net

        return self._take(ModulePredictor(Net.load_bigdl(model_path, weight_path).module, as_table=True))

    def load(self, model_path: str, weight_path: str | None = None) -> InferenceModel:
        """The same as `load_bigdl`."""
        return self.load_bigdl(model_path, weight_path)

    def load_tensorflow(
        self,
        model_path: str,
        model_type: str = "frozenModel",
        intra_op_parallelism_threads: int = 1,
        inter_op_parallelism_threads: int = 1,
        use_per_session_threads: bool = True,
    ) -> InferenceModel:
        """Take a folder: of `zoo.util.tf.export_tf` ("frozenModel"), or a SavedModel ("savedModel")."""
        if model_type not in FRAMES:
            raise InvalidArgumentError(
                f"model_type must be one of {', '.join(map(repr, FRAMES))}, but is {model_type!r}."
            )
        from zoo.orca.learn.tf2.quiet import start_here
        from zoo.tfpark import TFNet

        config = start_here().compat.v1.ConfigProto(
            intra_op_parallelism_threads=intra_op_parallelism_threads,
            inter_op_parallelism_threads=inter_op_parallelism_threads,
            use_per_session_threads=use_per_session_threads,
        )
        return self._take(GraphPredictor(getattr(TFNet, FRAMES[model_type])(model_path, tf_session_config=config)))

    def load_openvino(self, model_path: str, weight_path: str, batch_size: int = 0) -> InferenceModel:
        """Take a model of OpenVINO: its .xml and its .bin; a batch_size above 0 is made its only one."""
        return self._take(OpenVINOPredictor(model_path, weight_path, batch_size))

    def load_caffe(self, model_path: str, weight_path: str) -> InferenceModel:
        from zoo.pipeline.api.net.net_load import Net

        return Net.load_caffe(model_path, weight_path)

    def predict(self, inputs: Any) -> Any:
        """The outputs for a batch: of an array, or of a list of arrays for a model of several inputs."""
        run = self._need_model()[1]
        with self._turn:
            return run(_arguments(inputs))

    def distributed_predict(self, inputs: Any, sc: Any = None) -> Any:
        """The outputs for each batch of an RDD (or XShards, or list) of arrays or lists of arrays, where they lie."""
        from zoo.orca.learn.records import as_records, placement_of, predict_batches

        predictor = self._need_model()[0]
        batches = placement_of(inputs, "inputs").map(_as_arguments, changes=False)
        return as_records(predict_batches(batches, predictor))

    def _take(self, predictor: Any) -> InferenceModel:
        self._loaded = (predictor, predictor.load())
        return self

    def _need_model(self) -> tuple[Any, Callable[[tuple[Any, ...]], Any]]:
        if self._loaded is None:
            raise PreconditionError("there is no model yet. Load one first: model.load_torch(path), load_bigdl, ...")
        return self._loaded

    def __getstate__(self) -> dict[str, Any]:
        raise NotOfferedError(
            "An InferenceModel is not sent to other processes: use distributed_predict, or load the model there."
        )


def _arguments(inputs: Any) -> tuple[np.ndarray, ...]:
    """The inputs as float32, which models of all libraries take; whole numbers stay what they are."""
    given = inputs if isinstance(inputs, list | tuple) else [inputs]
    arrays = [np.asarray(each) for each in given]
    return tuple(each.astype(np.float32) if each.dtype == np.float64 else each for each in arrays)


def _as_arguments(index: int, batches: Any) -> Any:
    return map(_arguments, batches)
