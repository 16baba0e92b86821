"""How images are brought to a model, and its outputs to a user."""

from __future__ import annotations

from typing import Any

from zoo.orca.errors import InvalidArgumentError


class ImageConfigure:
    """What happens to images before a model sees them, and to predictions afterwards.

    Args:
        pre_processor: a Preprocessing for the images.
        post_processor: a Preprocessing for images with predictions.
        batch_per_partition: how many images a model is given at once.
        label_map: the names of classes, by their numbers.
        feature_padding_param: accepted as published.

    Example: ``ImageConfigure(pre_processor=ChainedPreprocessing([ImageResize(224, 224), ImageMatToTensor()]))``
    """

    def __init__(
        self,
        pre_processor: Any = None,
        post_processor: Any = None,
        batch_per_partition: int = 4,
        label_map: dict[int, str] | None = None,
        feature_padding_param: Any = None,
        jvalue: Any = None,
        bigdl_type: str = "float",
    ):
        for name, given in (("pre_processor", pre_processor), ("post_processor", post_processor)):
            if given is not None and not callable(given):
                raise InvalidArgumentError(
                    f"{name} must be a Preprocessing, such as ImageResize(224, 224), but is a {type(given).__name__}."
                )
        self.pre_processor = pre_processor
        self.post_processor = post_processor
        self.batch_per_partition = batch_per_partition
        self.label_map = label_map
        self.feature_padding_param = feature_padding_param

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if value is not None)
        return f"ImageConfigure({facts})"

    def predict(self, model: Any, image_set: Any) -> Any:
        """The images with the predictions of a layer or a torch module, before and after which the processors are run.

        Example: ``configure.predict(model, ImageSet.read("photos")).get_predict()``
        """
        from bigdl.transform.vision.predicted import predict_frame
        from zoo.feature.image.imageset import ImageSet

        images = image_set if self.pre_processor is None else self.pre_processor(image_set)
        frame = predict_frame(model, images.to_image_frame(), batch_per_partition=self.batch_per_partition)
        predicted = ImageSet.from_image_frame(frame)
        return predicted if self.post_processor is None else self.post_processor(predicted)
