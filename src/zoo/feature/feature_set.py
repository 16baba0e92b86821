"""FeatureSet: what `zoo.pipeline.estimator.Estimator` trains on."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from bigdl.dataset.dataset import DataSet
from bigdl.dataset.records import as_samples
from bigdl.transform.vision.transformer import FeatureTransformer
from zoo.feature.loader_batches import FEATURES, LABELS, LoaderCreator, chosen_loader
from zoo.feature.preprocessing import Preprocessing
from zoo.orca.engine.base import Placement
from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.bigdl.samples import sample_data
from zoo.orca.learn.records import as_records, placement_of
from zoo.orca.optional import is_instance_of

MEMORY_TYPES = re.compile(r"DRAM|PMEM|DIRECT|DISK_[1-9]\d*")


class FeatureSet:
    """Records to train or validate on; made by one of the class methods.

    Attributes:
        memory_type: as it was given. Where records are kept is the engine's business: in memory, and in files where
            that is not enough.
        shuffle: whether training may take records in another order.

    Example:
        train_set = FeatureSet.sample_rdd(sc.parallelize(samples))
        Estimator(model, SGD(0.1)).train(train_set, criterion, MaxEpoch(2), batch_size=64)
    """

    def __init__(
        self,
        records: Placement | None = None,
        loader: Any = None,
        memory_type: str = "DRAM",
        sequential_order: bool = False,
        shuffle: bool = True,
    ):
        if not isinstance(memory_type, str) or not MEMORY_TYPES.fullmatch(memory_type.upper()):
            raise InvalidArgumentError(
                'memory_type must be "DRAM", "PMEM", "DIRECT" or "DISK_n" with a number of slices, such as "DISK_2", '
                f"but is {memory_type!r}."
            )
        self._records = records
        self._loader = loader
        self.memory_type = memory_type.upper()
        self.shuffle = bool(shuffle and not sequential_order)

    def __repr__(self) -> str:
        records = type(self._loader).__name__ if self._records is None else f"{self._records.num_partitions} partitions"
        return f"FeatureSet({records}, memory_type={self.memory_type!r}, shuffle={self.shuffle})"

    @classmethod
    def sample_rdd(
        cls,
        rdd: Any,
        memory_type: str = "DRAM",
        sequential_order: bool = False,
        shuffle: bool = True,
        bigdl_type: str = "float",
    ) -> FeatureSet:
        """Samples of an RDD, of XShards of a Sample each, or of a list."""
        return cls(placement_of(rdd), None, memory_type, sequential_order, shuffle)

    @classmethod
    def rdd(
        cls,
        rdd: Any,
        memory_type: str = "DRAM",
        sequential_order: bool = False,
        shuffle: bool = True,
        bigdl_type: str = "float",
    ) -> FeatureSet:
        """Records of an RDD: Samples, ImageFeatures, (features, labels), or what a later `transform` makes these of."""
        return cls(placement_of(rdd), None, memory_type, sequential_order, shuffle)

    @classmethod
    def image_frame(
        cls,
        image_frame: Any,
        memory_type: str = "DRAM",
        sequential_order: bool = False,
        shuffle: bool = True,
        bigdl_type: str = "float",
    ) -> FeatureSet:
        """Images of an ImageFrame, with samples, or with tensors and labels."""
        return cls(_images(image_frame, "image_frame"), None, memory_type, sequential_order, shuffle)

    @classmethod
    def image_set(
        cls,
        imageset: Any,
        memory_type: str = "DRAM",
        sequential_order: bool = False,
        shuffle: bool = True,
        bigdl_type: str = "float",
    ) -> FeatureSet:
        """Images of an ImageSet, with samples, or with tensors and labels."""
        return cls(_images(imageset, "imageset"), None, memory_type, sequential_order, shuffle)

    @classmethod
    def pytorch_dataloader(
        cls, dataloader: Any, features: str = FEATURES, labels: str = LABELS, bigdl_type: str = "float"
    ) -> FeatureSet:
        """Batches of a torch DataLoader, or of a function without arguments that returns one, called on each worker.

        Args:
            features, labels: which parts of a batch are which, such as "_data[0], _data[1]" and "_data[2]".
        """
        if is_instance_of(dataloader, "torch.utils.data", "DataLoader"):
            return cls(loader=chosen_loader(dataloader, features, labels))
        if callable(dataloader):
            return cls(loader=LoaderCreator(dataloader, features, labels))
        raise InvalidArgumentError(
            "dataloader must be a torch.utils.data.DataLoader, or a function without arguments that returns one, but "
            f"is a {type(dataloader).__name__}."
        )

    @classmethod
    def tf_dataset(cls, func: Callable[[], Any], total_size: int, bigdl_type: str = "float") -> FeatureSet:
        """Rows of a tf.data.Dataset that a function without arguments returns, called on each worker.

        Args:
            total_size: accepted as published; the rows are counted where they are read.
        """
        if not callable(func):
            raise InvalidArgumentError(
                f"func must be a function without arguments that returns a tf.data.Dataset, but is a "
                f"{type(func).__name__}."
            )
        return cls(loader=_DatasetCreator(func))

    def transform(self, transformer: Any) -> FeatureSet:
        """A new FeatureSet of what a Preprocessing, or a transformer of images, makes of each record."""
        function: Callable[[Any], Any]
        if isinstance(transformer, Preprocessing):
            function = transformer.transform
        elif isinstance(transformer, FeatureTransformer):
            function = transformer
        else:
            raise InvalidArgumentError(
                "transformer must be a Preprocessing of zoo.feature or a FeatureTransformer of "
                f"bigdl.transform.vision.image, but is a {type(transformer).__name__}."
            )
        records = self._need_records("transform")
        made = records.map(lambda index, rows: (function(row) for row in rows), changes=False)
        return FeatureSet(made, None, self.memory_type, not self.shuffle, self.shuffle)

    def to_dataset(self) -> DataSet:
        """The records as a DataSet of BigDL."""
        return DataSet(self._need_records("to_dataset"))

    def samples(self) -> Placement:
        """The records as Samples, where they lie."""
        return as_samples(self._need_records("samples"))

    def estimator_data(self) -> tuple[Any, Columns]:
        """What an estimator takes, and its columns."""
        return (self._loader, Columns()) if self._records is None else sample_data(as_records(self.samples()))

    def _need_records(self, what: str) -> Placement:
        if self._records is None:
            raise NotOfferedError(
                f"A FeatureSet of a loader has no records for {what}: change them in the loader's own dataset."
            )
        return self._records


class _DatasetCreator:
    """A function without arguments, as estimators call it."""

    def __init__(self, function: Callable[[], Any]):
        self.function = function

    def __call__(self, config: dict[str, Any], batch_size: int) -> Any:
        return self.function()


def _images(images: Any, what: str) -> Placement:
    if not callable(getattr(images, "placement", None)):
        raise InvalidArgumentError(
            f"{what} must hold images: ImageFrame.read(path) or ImageSet.read(path), but is a {type(images).__name__}."
        )
    return images.placement()
