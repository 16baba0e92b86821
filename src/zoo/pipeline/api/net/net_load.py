"""Net: models that other libraries wrote, read as what trains and predicts here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zoo.orca.errors import InvalidArgumentError, NotOfferedError, PathNotFoundError
from zoo.orca.optional import require

FROZEN = "frozen_inference_graph.pb"


class Net:
    """Readers of models. Files of torch modules are pickles, which can run code: read only what you trust.

    Example:
        torch.save(module, "model.pt", pickle_module=zoo_pickle_module)
        Net.load_torch("model.pt").forward(images)
    """

    @staticmethod
    def load_bigdl(model_path: str, weight_path: str | None = None, bigdl_type: str = "float") -> Any:
        """The layer that `saveModel` (or `save`) of one wrote."""
        require("torch", "A BigDL layer")
        from bigdl.nn.graph import Model

        return Model.loadModel(model_path, weight_path)

    @staticmethod
    def load(model_path: str, weight_path: str | None = None, bigdl_type: str = "float") -> Any:
        """The same as `load_bigdl`: there is one format of layers."""
        return Net.load_bigdl(model_path, weight_path)

    @staticmethod
    def load_torch(path: str, bigdl_type: str = "float") -> Any:
        """A TorchModel of a module that `torch.save(module, path, pickle_module=zoo_pickle_module)` wrote."""
        require("torch", "A torch module")
        from zoo.pipeline.api.torch import TorchModel

        return TorchModel.from_pytorch(read_module(path))

    @staticmethod
    def load_tf(path: str, inputs: Any = None, outputs: Any = None, **options: Any) -> Any:
        """A TFNet of a folder: of `zoo.util.tf.export_tf`, or a SavedModel."""
        from zoo.tfpark import TFNet

        if (Path(path) / FROZEN).exists():
            return TFNet.from_export_folder(path)
        return TFNet.from_saved_model(path, inputs=inputs, outputs=outputs)

    @staticmethod
    def load_keras(
        json_path: str | None = None, hdf5_path: str | None = None, by_name: bool = False, bigdl_type: str = "float"
    ) -> Any:
        """A Keras model: of its JSON, with weights if they are given, or of a file that holds all of it.

        It is Keras's own, for `zoo.orca.learn.tf.estimator.Estimator.from_keras` and `zoo.tfpark.KerasModel`.
        """
        if json_path is None and hdf5_path is None:
            raise InvalidArgumentError("load_keras needs json_path (with hdf5_path for weights), or hdf5_path alone.")
        models = _keras().models
        if json_path is None:
            return models.load_model(_existing(hdf5_path))
        model = models.model_from_json(Path(_existing(json_path)).read_text())
        if hdf5_path is not None:
            model.load_weights(_existing(hdf5_path), **({"by_name": True} if by_name else {}))
        return model

    @staticmethod
    def load_caffe(def_path: str, model_path: str, bigdl_type: str = "float") -> Any:
        raise NotOfferedError(
            "Caffe's files are not read. Convert the model (to ONNX and then to PyTorch, or with OpenVINO's "
            "converter), and load that: Net.load_torch(path)."
        )


def read_module(path: str) -> Any:
    """The module in a file of torch.save; a typed error for what holds none."""
    torch = require("torch", "A torch module")
    from zoo.pipeline.api.torch import zoo_pickle_module

    found = torch.load(_existing(path), map_location="cpu", pickle_module=zoo_pickle_module, weights_only=False)
    if not isinstance(found, torch.nn.Module):
        raise InvalidArgumentError(
            f"{path} holds a {type(found).__name__}, and no module. Save the whole module, not its state_dict: "
            "torch.save(module, path, pickle_module=zoo_pickle_module)."
        )
    return found


def _existing(path: Any) -> str:
    if not Path(path).exists():
        raise PathNotFoundError(f"No such file: {path}")
    return str(path)


def _keras() -> Any:
    from zoo.orca.learn.tf2.quiet import start_here

    start_here()
    return require("keras", "A Keras model")
