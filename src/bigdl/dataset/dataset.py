"""DataSet: records to train on, with what happens to them first."""

from __future__ import annotations

from typing import Any

from bigdl.dataset.records import as_samples
from bigdl.transform.vision.frame import ImageFrame
from zoo.orca.engine.base import Placement
from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.bigdl.samples import sample_data
from zoo.orca.learn.records import as_records
from zoo.orca.names import public_names


class DataSet:
    """Images, or records of another kind, to train on.

    Example: ``DataSet.image_frame(ImageFrame.read(folder)).transform(Pipeline([...]))``
    """

    def __init__(self, records: Placement | ImageFrame):
        self._records = records

    def __repr__(self) -> str:
        records = self._records
        return (
            f"DataSet({records!r})"
            if isinstance(records, ImageFrame)
            else f"DataSet({records.num_partitions} partitions)"
        )

    @classmethod
    def image_frame(cls, image_frame: ImageFrame, bigdl_type: str = "float") -> DataSet:
        """The images of a frame."""
        if not isinstance(image_frame, ImageFrame):
            raise InvalidArgumentError(
                f"image_frame must be an ImageFrame, such as ImageFrame.read(path), but is a "
                f"{type(image_frame).__name__}. An ImageSet gives one: to_image_frame()."
            )
        return cls(image_frame)

    def transform(self, transformer: Any) -> DataSet:
        """A new DataSet of transformed images."""
        return DataSet(self.get_image_frame().transform(transformer))

    def get_image_frame(self) -> ImageFrame:
        """The images as a frame."""
        if not isinstance(self._records, ImageFrame):
            raise NotOfferedError("This DataSet holds no images, so there is no frame of them.")
        return self._records

    def samples(self) -> Placement:
        """The records as Samples, where they lie."""
        return as_samples(self._records.placement() if isinstance(self._records, ImageFrame) else self._records)

    def estimator_data(self) -> tuple[Any, Columns]:
        """What an estimator takes, and its columns."""
        return sample_data(as_records(self.samples()))


__dir__ = public_names(globals())
