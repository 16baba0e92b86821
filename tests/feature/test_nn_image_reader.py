"""NNImageReader: images of files as rows of a Spark DataFrame, and chains over them."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from tests.feature.images import write_images

from zoo.feature.common import ChainedPreprocessing, TensorToSample
from zoo.feature.image import (
    ImageCenterCrop,
    ImageChannelNormalize,
    ImageFeatureToTensor,
    ImageMatToTensor,
    ImageResize,
    RowToImageFeature,
)
from zoo.orca.errors import InvalidArgumentError, PathNotFoundError
from zoo.orca.learn.bigdl.preprocessing import prepare

pytestmark = pytest.mark.engines("spark")


def pixels_of(image) -> np.ndarray:
    return np.frombuffer(image.data, np.uint8).reshape(image.height, image.width, image.nChannels)


def test_images_are_rows(engine, tmp_path):
    from zoo.pipeline.nnframes import NNImageReader, with_origin_column

    written = write_images(tmp_path)
    df = NNImageReader.readImages(str(tmp_path), engine.sc, minPartitions=3)
    assert df.schema.simpleString() == (
        "struct<image:struct<origin:string,height:int,width:int,nChannels:int,mode:int,data:binary>>"
    )
    assert df.rdd.getNumPartitions() >= 3
    images = {row.image.origin: row.image for row in df.collect()}
    assert len(images) == 6  # the lists beside the images are none
    for origin, image in images.items():
        (path,) = [path for path in written if origin.endswith(path)]
        np.testing.assert_array_equal(pixels_of(image), written[path])
        assert image.mode == 16
    named = with_origin_column(df)
    assert named.columns == ["image", "origin"]
    assert {row.origin for row in named.select("origin").collect()} == images.keys()

    chain = ChainedPreprocessing(
        [
            RowToImageFeature(),
            ImageResize(8, 8),
            ImageCenterCrop(4, 4),
            ImageChannelNormalize(123.0, 117.0, 104.0),
            ImageMatToTensor(),
            ImageFeatureToTensor(),
        ]
    )
    path, pixels = next(iter(written.items()))
    expected = (cv2.resize(pixels, (8, 8))[2:6, 2:6] - np.array([104, 117, 123], np.float32)).transpose(2, 0, 1)
    (found,) = [image for origin, image in images.items() if origin.endswith(path)]
    np.testing.assert_array_equal(chain.transform(found), expected)
    # A chain may end in a sample, too; the column that NNEstimator gets holds its numbers.
    prepared, column, sizes = prepare(df.where(df.image.origin == found.origin), "image", chain.chain(TensorToSample()))
    assert sizes == [[3, 4, 4]]
    np.testing.assert_array_equal(prepared.select(column).first()[0], expected.reshape(-1))


def test_paths_sizes_and_codecs(engine, tmp_path):
    from zoo.pipeline.nnframes import NNImageReader

    written = list(write_images(tmp_path))
    some = NNImageReader.readImages(f"{tmp_path}/*/1.png, {written[2]}", resizeH=5, resizeW=4, image_codec=0).collect()
    assert sorted(row.image.origin[-10:] for row in some) == ["cats/1.png", "cats/2.png", "dogs/1.png"]
    assert {(row.image.height, row.image.width, row.image.nChannels, row.image.mode) for row in some} == {(5, 4, 1, 0)}
    (row,) = NNImageReader.readImages(written[2], resizeH=5, resizeW=4).collect()
    np.testing.assert_array_equal(pixels_of(row.image), cv2.resize(cv2.imread(written[2]), (4, 5)))
    deep = np.arange(24, dtype=np.uint16).reshape(4, 6) * 1000
    cv2.imwrite(str(tmp_path / "deep.png"), deep)
    (row,) = NNImageReader.readImages(str(tmp_path / "deep.png")).collect()
    assert (row.image.nChannels, row.image.mode) == (1, 2)
    np.testing.assert_array_equal(RowToImageFeature().transform(row.image)["mat"][..., 0], deep)


def test_bad_paths_and_images(engine, tmp_path):
    from zoo.pipeline.nnframes import NNImageReader

    write_images(tmp_path)
    with pytest.raises(PathNotFoundError, match="none"):
        NNImageReader.readImages(str(tmp_path / "none"))
    with pytest.raises(InvalidArgumentError, match=r"sc must be the SparkContext, .* but is a str"):
        NNImageReader.readImages(str(tmp_path), "local[2]")
    with pytest.raises(InvalidArgumentError, match="both, or none, but are 3 and -1"):
        NNImageReader.readImages(str(tmp_path), resizeH=3)
    with pytest.raises(Exception, match=r"list\.txt cannot be read as an image"):
        NNImageReader.readImages(str(tmp_path / "cats" / "list.txt")).collect()
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(Exception, match=r"bad\.png cannot be read as an image \(8 bytes\)"):
        NNImageReader.readImages(str(tmp_path)).collect()
