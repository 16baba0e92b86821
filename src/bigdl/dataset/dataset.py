"""DataSet: records to train on, with what happens to them first."""

from __future__ import annotations

from typing import Any

from bigdl.dataset.records import as_sample, shards_of
from bigdl.transform.vision.frame import ImageFrame
from zoo.orca.engine.base import Placement
from zoo.orca.errors import NotOfferedError
from zoo.orca.feed.shards import Columns


class DataSet:
    """Images, or records of another kind, to train on.

    Example: ``DataSet.image_frame(ImageFrame.read(folder)).transform(Pipeline([...]))``
    """

    def __init__(self, records: Placement, frame: ImageFrame | None = None):
        self._records = records
        self._frame = frame

    @classmethod
    def image_frame(cls, image_frame: ImageFrame, bigdl_type: str = "float") -> DataSet:
        """The images of a frame."""
        return cls(image_frame.placement(), image_frame)

    def transform(self, transformer: Any) -> DataSet:
        """A new DataSet of transformed images."""
        return DataSet.image_frame(self.get_image_frame().transform(transformer))

    def get_image_frame(self) -> ImageFrame:
        """The images as a frame."""
        if self._frame is None:
            raise NotOfferedError("This DataSet holds no images, so there is no frame of them.")
        return self._frame

    def samples(self) -> Placement:
        """The records as Samples, where they lie."""
        return self._records.map(lambda index, records: map(as_sample, records), changes=False)

    def estimator_data(self) -> tuple[Any, Columns]:
        """What an estimator takes, and its columns."""
        return shards_of(self._records), Columns()
