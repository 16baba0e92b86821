"""Files as a DataFrame's rows of images; this runs in Spark's workers, so it loads neither Spark nor torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bigdl.transform.vision.opencv import decode, is_image_name, resize
from zoo.orca.errors import InvalidArgumentError

ARROW_IMAGE = pa.struct([("origin", pa.string()), ("height", pa.int32()), ("width", pa.int32()),
                         ("nChannels", pa.int32()), ("mode", pa.int32()), ("data", pa.binary())])  # fmt: skip
NAMES = [field.name for field in ARROW_IMAGE]
#: OpenCV's numbers for what a value is; each further channel adds 8.
DEPTHS = {"uint8": 0, "int8": 1, "uint16": 2, "int16": 3, "int32": 4, "float32": 5, "float64": 6}
# Decoded images are large: so many bytes of them are handed to Spark at once.
BATCH_BYTES = 32 << 20


class ReadImages:
    """Files to images, batch by batch.

    A file that cannot be read as an image is an error if it was named, or is one by its suffix; others, such as a list
    of labels in the same folder, are left out.
    """

    def __init__(self, paths: list[str], size: tuple[int, int] | None, image_codec: int):
        self.named = [path for path in paths if not any(sign in path for sign in "*?[{")]
        self.size = size
        self.image_codec = image_codec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        images: list[dict[str, Any]] = []
        held = 0
        for batch in batches:
            for path, content in zip(batch["path"], batch["content"], strict=True):
                image = self._image(path.as_py(), content.as_py())
                if image is None:
                    continue
                images.append(image)
                held += len(image["data"])
                if held >= BATCH_BYTES:
                    yield _record_batch(images)
                    images, held = [], 0
        if images:
            yield _record_batch(images)

    def _image(self, path: str, content: bytes) -> dict[str, Any] | None:
        try:
            mat = decode(content, path, self.image_codec)
        except InvalidArgumentError:
            if is_image_name(path) or any(path.endswith(name.rpartition("://")[2]) for name in self.named):
                raise
            return None
        if self.size is not None:
            mat = resize(mat, *self.size)
        height, width, channels = mat.shape
        mode = DEPTHS[mat.dtype.name] + 8 * (channels - 1)
        data = np.ascontiguousarray(mat).tobytes()
        return dict(zip(NAMES, (path, height, width, channels, mode, data), strict=True))


def _record_batch(images: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(images, ARROW_IMAGE)], names=["image"])
