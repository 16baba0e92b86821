"""Many images: in a list on the driver, or spread over the workers of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import starmap, zip_longest
from typing import Any

import numpy as np

from bigdl.transform.vision.feature import ImageFeature, as_label
from bigdl.transform.vision.opencv import image_files, read_bytes
from bigdl.transform.vision.stored import read_stored, write_stored
from bigdl.transform.vision.transformer import FeatureTransformer, check_transformer
from zoo.orca.context import current_engine, engine_of_spark
from zoo.orca.engine.base import Engine, Placement
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.records import as_records, place, placement_of
from zoo.orca.optional import is_instance_of


class ImageFrame(ABC):
    """Images with labels, predictions and samples; `read` makes one.

    What is asked of the images comes as a list from a local frame and as an RDD from a distributed one (as
    `zoo.orca.learn.records.Records`, which has collect(), on the other engines).

    Example:
        frame = ImageFrame.read("photos/*.jpg").transform(Resize(224, 224))
        pixels = frame.get_image()
    """

    @staticmethod
    def read(path: Any, sc: Any = None, min_partitions: int = 1, bigdl_type: str = "float") -> ImageFrame:
        """The images of a file, a folder and its subfolders, a pattern, or several of these between commas.

        Args:
            sc: the SparkContext, or any context of `init_orca_context`, for images that the workers read; None reads
                them here.
            min_partitions: how many parts a distributed frame has at least.
        """
        return read_files(image_files(path), sc, min_partitions)

    @staticmethod
    def read_parquet(path: Any, sc: Any = None, bigdl_type: str = "float") -> ImageFrame:
        """What `write_parquet` wrote."""
        if sc is None:
            return LocalImageFrame(read_stored(path))
        return DistributedImageFrame(as_records(read_stored(path, engine_of_context(sc))))

    @staticmethod
    def write_parquet(
        path: Any, output: str, sc: Any = None, partition_num: int = 1, bigdl_type: str = "float"
    ) -> None:
        """Write the images of a path, as they are encoded, to a new folder of Parquet files."""
        engine = current_engine() if sc is None else engine_of_context(sc)
        write_stored(place(image_files(path), engine, partition_num), output)

    def is_local(self) -> bool:
        """Whether the images lie on the driver."""
        return isinstance(self, LocalImageFrame)

    def is_distributed(self) -> bool:
        """Whether the images lie on the workers."""
        return isinstance(self, DistributedImageFrame)

    def transform(self, transformer: FeatureTransformer, bigdl_type: str = "float") -> ImageFrame:
        """A new frame of transformed images; a distributed one computes them when something is asked of it."""
        check_transformer(transformer, "transform")
        return self.map_features(lambda features: (transformer.apply(feature.copy()) for feature in features))

    def get_image(self, key: str = "floats", to_chw: bool = True) -> Any:
        """Each image as float32, channels first unless `to_chw` is false; or what lies under another key."""
        return self.each(lambda feature: feature.get_image(key, to_chw))

    def get_label(self) -> Any:
        """Each image's label; None where there is none."""
        return self.each(ImageFeature.get_label)

    def get_predict(self, key: str = "predict") -> Any:
        """(uri, prediction) of each image; the prediction is None where nothing was predicted."""
        return self.each(lambda feature: (feature.get("uri"), feature.get(key)))

    def get_sample(self, key: str = "sample") -> Any:
        """Each image's Sample, which ImageFrameToSample makes."""
        return self.each(lambda feature: feature.need(key))

    def get_uri(self) -> Any:
        """Each image's path."""
        return self.each(lambda feature: feature.get("uri"))

    def set_label(self, labels: Mapping[str, Any], bigdl_type: str = "float") -> ImageFrame:
        """A new frame, whose images have the labels that a dict gives to their uris; others keep theirs."""

        def labelled(feature: ImageFeature) -> ImageFeature:
            changed = feature.copy()
            if changed.get("uri") in labels:
                changed["label"] = as_label(labels[changed["uri"]])
            return changed

        return self.map_features(lambda features: map(labelled, features))

    def random_split(self, weights: Sequence[float], seed: int | None = None) -> list[ImageFrame]:
        """Frames with a part of the images each, at random, in about the ratio of the weights."""
        shares = np.asarray(weights, np.float64)
        if shares.ndim != 1 or not len(shares) or (shares < 0).any() or shares.sum() <= 0:
            raise InvalidArgumentError(f"weights must be numbers of 0 and more, such as [0.8, 0.2], but is {weights}.")
        bounds = np.concatenate([[0.0], np.cumsum(shares / shares.sum())])
        base = int(np.random.SeedSequence(seed).generate_state(1)[0])

        def part(number: int) -> Callable[[Iterator[ImageFeature]], Iterator[ImageFeature]]:
            last = number == len(shares) - 1

            def chosen(features: Iterator[ImageFeature]) -> Iterator[ImageFeature]:
                for feature in features:
                    drawn = np.random.default_rng([base, *(feature.record or ())]).random()
                    if bounds[number] <= drawn and (last or drawn < bounds[number + 1]):
                        yield feature

            return chosen

        return [self.map_features(part(number)) for number in range(len(shares))]

    @abstractmethod
    def map_features(self, function: Callable[[Iterator[ImageFeature]], Iterable[ImageFeature]]) -> ImageFrame:
        """A new frame of what a function gives for the images, or for those of each partition."""

    @abstractmethod
    def each(self, function: Callable[[ImageFeature], Any]) -> Any:
        """What a function gives for each image, as a list or as an RDD."""

    @abstractmethod
    def placement(self) -> Placement:
        """The images on an engine: where they lie, or on the current one."""


class LocalImageFrame(ImageFrame):
    """Images on the driver.

    Args:
        image_list: arrays of rows, columns and channels, bytes of encoded images, or ImageFeatures.
        label_list: a label for each.

    Example: ``LocalImageFrame([np.zeros((4, 4, 3))], [np.array([1.0])]).get_label()``
    """

    def __init__(
        self, image_list: Iterable[Any], label_list: Iterable[Any] | None = None, bigdl_type: str = "float"
    ) -> None:
        images = list(image_list)
        labels = [None] * len(images) if label_list is None else list(label_list)
        if len(labels) != len(images):
            raise InvalidArgumentError(
                f"There must be a label for each of {len(images)} images, but there are {len(labels)}."
            )
        self.features = list(numbered((0,), map(as_feature, images, labels)))

    def __repr__(self) -> str:
        return f"LocalImageFrame({len(self)} images)"

    def map_features(self, function: Callable[[Iterator[ImageFeature]], Iterable[ImageFeature]]) -> LocalImageFrame:
        made = LocalImageFrame([])
        made.features = list(function(iter(self.features)))
        return made

    def each(self, function: Callable[[ImageFeature], Any]) -> list[Any]:
        return [function(feature) for feature in self.features]

    def placement(self) -> Placement:
        return place([_without_sources(feature) for feature in self.features], current_engine())

    def __len__(self) -> int:
        return len(self.features)


class DistributedImageFrame(ImageFrame):
    """Images on the workers.

    Args:
        image_rdd: an RDD (or XShards of a record each) of arrays, of bytes, or of ImageFeatures.
        label_rdd: a label for each, in the same partitions.

    Example: ``DistributedImageFrame(sc.parallelize(arrays), sc.parallelize(labels)).get_image()``
    """

    def __init__(self, image_rdd: Any, label_rdd: Any = None, bigdl_type: str = "float") -> None:
        images = placement_of(image_rdd, "image_rdd")
        if label_rdd is None:
            features = images.map(lambda index, rows: map(as_feature, rows), changes=False)
        else:
            features = _labelled(images, placement_of(label_rdd, "label_rdd"))
        self._placement = features.map(lambda index, rows: numbered((index,), rows), changes=False)

    def __repr__(self) -> str:
        return f"DistributedImageFrame({self._placement.num_partitions} partitions on {self._placement.engine.name})"

    @classmethod
    def of(cls, placement: Placement) -> DistributedImageFrame:
        """A frame of features that lie somewhere already, and have what tells them apart."""
        made = cls.__new__(cls)
        made._placement = placement
        return made

    @property
    def rdd(self) -> Any:
        """The ImageFeatures as an RDD, or as Records."""
        return as_records(self._placement)

    def map_features(
        self, function: Callable[[Iterator[ImageFeature]], Iterable[ImageFeature]]
    ) -> DistributedImageFrame:
        mapped = self._placement.map(lambda index, features: function(iter(features)), changes=False)
        return DistributedImageFrame.of(mapped)

    def each(self, function: Callable[[ImageFeature], Any]) -> Any:
        return as_records(self._placement.map(lambda index, features: map(function, features), changes=False))

    def placement(self) -> Placement:
        return self._placement


def read_files(files: Sequence[str], sc: Any = None, min_partitions: int = 1) -> ImageFrame:
    """The images of files, read here, or by the workers where a context is given."""
    if sc is None:
        return LocalImageFrame(map(_read, files))
    engine = engine_of_context(sc)
    placed = place(list(enumerate(files)), engine, max(min_partitions, engine.cores))
    return DistributedImageFrame.of(placed.map(lambda index, names: starmap(_read_numbered, names), changes=False))


def as_feature(image: Any, label: Any = None) -> ImageFeature:
    """An image of any form, with a label where one is given."""
    if not isinstance(image, ImageFeature):
        return ImageFeature(image, label)
    if label is not None:
        image = image.copy()
        image["label"] = as_label(label)
    return image


def numbered(start: tuple[int, ...], features: Iterable[ImageFeature]) -> Iterator[ImageFeature]:
    """The features, each with what tells it from the others."""
    for number, feature in enumerate(features):
        named = feature.copy()
        named.record = (*start, number)
        yield named


def engine_of_context(sc: Any) -> Engine:
    """The engine of what `init_orca_context` gave: a SparkContext, Ray's addresses, or the engine itself."""
    if is_instance_of(sc, "pyspark", "SparkContext"):
        return engine_of_spark()
    if isinstance(sc, Engine | Mapping):
        return current_engine()
    raise InvalidArgumentError(
        "sc must be the SparkContext, what init_orca_context(...) returned, or None to read the images here, but is a "
        f"{type(sc).__name__}."
    )


def _without_sources(feature: ImageFeature) -> ImageFeature:
    """A feature on its way to a worker, without what its pixels or its sample were made of."""
    made_of = ("bytes", "mat", "floats", "imageTensor") if "sample" in feature else ("bytes",)
    if "mat" not in feature or not any(key in feature for key in made_of):
        return feature
    sent = feature.copy()
    for key in made_of:
        sent.pop(key, None)
    return sent


def _read(path: str) -> ImageFeature:
    return ImageFeature(read_bytes(path), path=path)


def _read_numbered(number: int, path: str) -> ImageFeature:
    """An image that random steps draw for as they do in a local frame, whatever partition it lies in."""
    feature = _read(path)
    feature.record = (0, number)
    return feature


def _labelled(images: Placement, labels: Placement) -> Placement:
    """Images with a label each."""
    if images.num_partitions != labels.num_partitions:
        raise InvalidArgumentError(
            f"image_rdd and label_rdd must have their records in the same partitions, but have {images.num_partitions} "
            f"and {labels.num_partitions} of them. Make the labels of the images' own RDD, or repartition neither."
        )
    rdds = [getattr(each, "rdd", None) for each in (images, labels)]
    if None in rdds:
        return images.zip(labels, _with_labels)
    # An engine's zip holds a partition's records at once; an RDD's own hands them on one by one.
    return placement_of(rdds[0].zip(rdds[1])).map(lambda index, pairs: starmap(as_feature, pairs), changes=False)


def _with_labels(images: Iterator[Any], labels: Iterator[Any]) -> Iterator[ImageFeature]:
    missing = object()
    for image, label in zip_longest(images, labels, fillvalue=missing):
        if image is missing or label is missing:
            raise InvalidArgumentError(
                "image_rdd and label_rdd must have as many records in each partition: a label for each image."
            )
        yield as_feature(image, label)
