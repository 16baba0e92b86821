"""Predictions on the images of a frame, where they lie."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bigdl.transform.vision.feature import ImageFeature
from bigdl.transform.vision.frame import DistributedImageFrame, ImageFrame
from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.learn.predict.model import Model, Predictor, as_outputs, load_here
from zoo.orca.learn.records import batches, map_with_model, stack

if TYPE_CHECKING:
    import torch


def predict_frame(
    module: torch.nn.Module,
    frame: ImageFrame,
    output_layer: str | None = None,
    batch_per_partition: int = 4,
    predict_key: str = "predict",
) -> ImageFrame:
    """A new frame whose images have what a torch module gives for them under `predict_key`.

    The images need a sample or a tensor (`ImageFrameToSample`, `MatToTensor`). A distributed frame predicts when
    something is asked of it; the module is sent to each worker once.

    Args:
        output_layer: the layer to take the output of; only a layer's own `predict_image` knows it by name.
        batch_per_partition: how many images the module is given at once.

    Example: ``predict_frame(network, frame.transform(MatToTensor())).get_predict()``
    """
    if output_layer is not None:
        raise NotOfferedError(
            f"A torch module has no layer {output_layer!r} to stop at. Give the part of it that ends there, or call "
            "predict_image(frame, output_layer=...) of a bigdl layer."
        )
    return predict_with(_predictor(module), frame, batch_per_partition, predict_key)


def predict_with(predictor: Predictor, frame: ImageFrame, batch_size: int, predict_key: str = "predict") -> ImageFrame:
    """A new frame whose images have what a predictor's model gives for them."""
    if batch_size < 1:
        raise InvalidArgumentError(f"batch_per_partition must be 1 image or more, but is {batch_size!r}.")

    def predict(model: Model, features: Iterator[ImageFeature]) -> Iterator[ImageFeature]:
        for batch in batches(features, batch_size):
            yield from _with_predictions(model, batch, predict_key)

    if not isinstance(frame, DistributedImageFrame):
        model = load_here(predictor)
        return frame.map_features(lambda features: predict(model, features))
    return DistributedImageFrame.of(map_with_model(frame.placement(), predictor, predict))


def _with_predictions(model: Model, batch: list[ImageFeature], key: str) -> Iterator[ImageFeature]:
    result = model(stack([inputs_of(feature) for feature in batch]))
    outputs = as_outputs(result)
    for number, feature in enumerate(batch):
        predicted = feature.copy()
        rows = [np.asarray(output[number]) for output in outputs]
        predicted[key] = rows if isinstance(result, list) else rows[0]
        yield predicted


def inputs_of(feature: ImageFeature) -> list[np.ndarray]:
    """What a model takes of an image: the arrays of its sample, or its tensor."""
    if "sample" in feature:
        return [tensor.to_ndarray() for tensor in feature["sample"].features]
    if "imageTensor" in feature:
        return [np.asarray(feature["imageTensor"], np.float32)]
    raise InvalidArgumentError(
        f"The image {feature.get('uri', '')} has neither a sample nor a tensor for a model, only {sorted(feature)}. "
        "Transform the images with MatToTensor() first."
    )


def _predictor(module: Any) -> Predictor:
    from zoo.orca.learn.bigdl.sized import Network
    from zoo.orca.learn.bigdl.training import module_of
    from zoo.orca.learn.pytorch.predictor import TorchPredictor
    from zoo.orca.learn.pytorch.recipe import TorchRecipe

    module = module_of(module)
    # BigDL's layers take several inputs as one list; they say by their penalty that they are layers.
    network = Network(module, as_table=hasattr(module, "penalty"))
    return TorchPredictor(uuid.uuid4().hex, TorchRecipe(model=network), {})
