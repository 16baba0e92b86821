"""ImageSet: images with labels, on the driver or on the workers, for models of zoo."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bigdl.dataset.records import as_samples
from bigdl.transform.vision.feature import ImageFeature, as_label
from bigdl.transform.vision.frame import DistributedImageFrame, ImageFrame, LocalImageFrame, read_files
from bigdl.transform.vision.opencv import given_paths, image_files, resize
from bigdl.transform.vision.predicted import predict_with
from bigdl.transform.vision.transformer import FeatureTransformer
from zoo.feature.preprocessing import Preprocessing
from zoo.orca.data.file import filesystem_of, url_of
from zoo.orca.engine.base import Placement
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.predict.model import Predictor


class ImageSet:
    """Images with labels, samples and predictions; `read` makes one.

    What is asked of the images comes as a list from a local set and as an RDD from a distributed one (as
    `zoo.orca.learn.records.Records`, which has collect(), on the other engines).

    Attributes:
        label_map: the number of each class, where labels were read from folders.

    Example:
        images = ImageSet.read("flowers", with_label=True).transform(ImageResize(224, 224))
        images.label_map
    """

    label_map: dict[str, int] | None = None

    def __init__(self, frame: ImageFrame):
        self._frame = frame

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._frame!r})"

    @staticmethod
    def read(
        path: Any,
        sc: Any = None,
        min_partitions: int = 1,
        resize_height: int = -1,
        resize_width: int = -1,
        image_codec: int = -1,
        with_label: bool = False,
        one_based_label: bool = True,
        bigdl_type: str = "float",
    ) -> ImageSet:
        """The images of a file, a folder and its subfolders, a pattern, or several of these between commas.

        Args:
            sc: the SparkContext, or any context of `init_orca_context`, for images that the workers read; None reads
                them here.
            min_partitions: how many parts a distributed set has at least.
            resize_height, resize_width: the size of the images; both, or none.
            image_codec: above 0 for colour, 0 for grey, below 0 for the images as they are.
            with_label: whether images lie in a folder for each class (path/class/image); the folders, sorted, number
                the classes.
            one_based_label: whether classes count from 1, or from 0.
        """
        files = image_files(path)
        frame = read_files(files, sc, min_partitions)
        label_map = None
        if with_label:
            classes = _Classes(path)
            label_map = classes.numbers(files, one_based_label)
            frame = frame.map_features(lambda features: (_labelled(each, classes, label_map) for each in features))
        if image_codec >= 0 or resize_height > 0 or resize_width > 0:
            frame = frame.map_features(_Decoding(resize_height, resize_width, image_codec))
        made = ImageSet.from_image_frame(frame)
        made.label_map = label_map
        return made

    @classmethod
    def from_image_frame(cls, image_frame: ImageFrame, bigdl_type: str = "float") -> ImageSet:
        """The images of a frame of BigDL."""
        made = object.__new__(LocalImageSet if image_frame.is_local() else DistributedImageSet)
        made._frame = image_frame
        return made

    @classmethod
    def from_rdds(cls, image_rdd: Any, label_rdd: Any = None, bigdl_type: str = "float") -> ImageSet:
        """Arrays of an RDD (rows, columns, channels), and a label for each."""
        return DistributedImageSet(image_rdd, label_rdd)

    def transform(self, transformer: Any) -> ImageSet:
        """A new set of transformed images; a distributed one computes them when something is asked of it."""
        if isinstance(transformer, Preprocessing):
            transformer = _Step(transformer)
        elif not isinstance(transformer, FeatureTransformer):
            raise InvalidArgumentError(
                "transformer must be a Preprocessing, such as ImageResize(256, 256) or ChainedPreprocessing([...]), "
                f"but is a {type(transformer).__name__}."
            )
        return self._follow(self._frame.transform(transformer))

    def get_image(self, key: str = "floats", to_chw: bool = True) -> Any:
        """Each image as float32, channels first unless `to_chw` is false; or what lies under another key."""
        return self._frame.get_image(key, to_chw)

    def get_label(self) -> Any:
        """Each image's label."""
        return self._frame.get_label()

    def get_predict(self, key: str = "predict") -> Any:
        """(uri, prediction) of each image."""
        return self._frame.get_predict(key)

    def get_sample(self) -> Any:
        """Each image's Sample, which ImageSetToSample makes."""
        return self._frame.get_sample()

    def get_uri(self) -> Any:
        """Each image's path."""
        return self._frame.get_uri()

    def random_split(self, weights: Any, seed: int | None = None) -> list[ImageSet]:
        """Sets with a part of the images each, at random, in about the ratio of the weights."""
        return [self._follow(part) for part in self._frame.random_split(weights, seed)]

    def is_local(self) -> bool:
        """Whether the images lie on the driver."""
        return self._frame.is_local()

    def is_distributed(self) -> bool:
        """Whether the images lie on the workers."""
        return self._frame.is_distributed()

    def to_image_frame(self, bigdl_type: str = "float") -> ImageFrame:
        """The images as a frame of BigDL."""
        return self._frame

    def placement(self) -> Placement:
        """The images on an engine: where they lie, or on the current one."""
        return self._frame.placement()

    def samples(self) -> Placement:
        """The images as Samples, where they lie."""
        return as_samples(self.placement())

    def predict_with(self, predictor: Predictor, batch_size: int = 4, key: str = "predict") -> ImageSet:
        """A new set whose images have what a predictor's model gives for their samples or tensors."""
        return self._follow(predict_with(predictor, self._frame, batch_size, key))

    def with_predictions(self, predictions: Placement, key: str = "predict") -> ImageSet:
        """A new set whose images have predictions that were made of `samples()`, in the same order."""
        if isinstance(self._frame, DistributedImageFrame):
            paired = self.placement().zip(predictions, lambda images, made: _predicted(images, made, key))
            return self._follow(DistributedImageFrame.of(paired))
        made = [each for partition in predictions.fetch() for each in partition]
        return self._follow(self._frame.map_features(lambda images: _predicted(images, made, key)))

    def map_predict(self, function: Callable[[Any], Any], key: str = "predict") -> ImageSet:
        """A new set whose predictions are what a function makes of this one's."""

        def changed(images: Iterator[ImageFeature]) -> Iterator[ImageFeature]:
            for image in images:
                yield from _predicted([image], [function(image[key])], key)

        return self._follow(self._frame.map_features(changed))

    def _follow(self, frame: ImageFrame) -> ImageSet:
        made = ImageSet.from_image_frame(frame)
        made.label_map = self.label_map
        return made


class LocalImageSet(ImageSet):
    """Images on the driver.

    Args:
        image_list: arrays of rows, columns and channels.
        label_list: a label for each.
    """

    def __init__(self, image_list: Any, label_list: Any = None, bigdl_type: str = "float"):
        super().__init__(LocalImageFrame(image_list, label_list))


class DistributedImageSet(ImageSet):
    """Images on the workers.

    Args:
        image_rdd: an RDD of arrays of rows, columns and channels.
        label_rdd: a label for each, in the same partitions.
    """

    def __init__(self, image_rdd: Any, label_rdd: Any = None, bigdl_type: str = "float"):
        super().__init__(DistributedImageFrame(image_rdd, label_rdd))


class _Step(FeatureTransformer):
    """A Preprocessing as a transformer of frames."""

    preprocessing: Any

    def apply(self, feature: ImageFeature) -> ImageFeature:
        made = self.preprocessing.transform(feature)
        if not isinstance(made, ImageFeature):
            raise InvalidArgumentError(
                f"{self.preprocessing!r} makes a {type(made).__name__} of an image. An ImageSet takes what gives an "
                "ImageFeature back; a FeatureSet, and NNEstimator, take the others, too."
            )
        return made


class _Classes:
    """Classes by the folders that images lie in: path/class/image.

    A path that is a folder has one for each class, whatever is in it; of other paths, patterns and files, the folder
    of an image is its class.
    """

    def __init__(self, path: Any):
        self.roots: list[str] = []
        self.names: set[str] = set()
        for each in given_paths(path):
            fs, root = filesystem_of(each)
            if fs.isdir(root):
                self.roots.append(url_of(each, root, root).rstrip("/") + "/")
                folders = [found["name"] for found in fs.ls(root, detail=True) if found["type"] == "directory"]
                self.names |= {name.rstrip("/").rpartition("/")[2] for name in folders}

    def numbers(self, files: Sequence[str], one_based: bool) -> dict[str, int]:
        """The number of each class; a folder without images counts, so that another path's numbers are the same."""
        visible = {name for name in self.names if not name.startswith(("_", "."))}
        names = sorted(visible | {self.class_of(file) for file in files})
        return {name: number for number, name in enumerate(names, 1 if one_based else 0)}

    def class_of(self, uri: str) -> str:
        """The class of an image."""
        for root in self.roots:
            if uri.startswith(root):
                name, slash, _ = uri[len(root) :].partition("/")
                if not slash:
                    raise InvalidArgumentError(
                        f"with_label=True needs a folder for each class, path/class/image, but {uri} lies in {root} "
                        "itself."
                    )
                return name
        return uri.split("/")[-2]


def _labelled(feature: ImageFeature, classes: _Classes, numbers: dict[str, int]) -> ImageFeature:
    labelled = feature.copy()
    labelled["label"] = as_label(numbers[classes.class_of(feature["uri"])])
    return labelled


class _Decoding:
    """Decodes images, and brings them to a size where one is given."""

    def __init__(self, height: int, width: int, image_codec: int):
        if (height > 0) != (width > 0):
            raise InvalidArgumentError(
                f"resize_height and resize_width must be given both, or none, but are {height} and {width}."
            )
        self.size = (height, width) if height > 0 else None
        self.image_codec = image_codec

    def __call__(self, features: Iterator[ImageFeature]) -> Iterator[ImageFeature]:
        for feature in features:
            decoded = feature.copy()
            decoded.decode(image_codec=self.image_codec)
            # Else a later ImageBytesToMat would begin with them again.
            del decoded["bytes"]
            if self.size is not None:
                decoded.put_mat(resize(decoded["mat"], *self.size))
            yield decoded


def _predicted(images: Iterable[ImageFeature], predictions: Iterable[Any], key: str) -> Iterator[ImageFeature]:
    """Images with predictions in them."""
    for image, prediction in zip(images, predictions, strict=True):
        predicted = image.copy()
        predicted[key] = prediction
        yield predicted
