"""Frames of images: on the driver and on every engine alike."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from tests.feature.images import write_images

from bigdl.dataset.dataset import DataSet
from bigdl.transform.vision.image import (
    BytesToMat,
    CenterCrop,
    ChannelNormalize,
    DistributedImageFrame,
    HFlip,
    ImageFrame,
    ImageFrameToSample,
    LocalImageFrame,
    MatToTensor,
    Pipeline,
    RandomCrop,
    Resize,
    predict_frame,
)
from zoo.orca.errors import InvalidArgumentError, NotOfferedError, PathExistsError, PathNotFoundError
from zoo.orca.learn.records import Records

CHAIN = Pipeline([BytesToMat(), Resize(8, 8), CenterCrop(4, 4), ChannelNormalize(1, 2, 3), MatToTensor()])


def by_hand(pixels: np.ndarray) -> np.ndarray:
    return (cv2.resize(pixels, (8, 8))[2:6, 2:6].astype(np.float32) - [3, 2, 1]).transpose(2, 0, 1)


def listed(values) -> list:
    return values if isinstance(values, list) else values.collect()


def context_of(engine):
    return engine.sc if engine.name == "spark" else engine


def test_images_of_a_folder_here_and_on_the_workers(engine, tmp_path):
    import torch

    written = write_images(tmp_path)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 2))
    expected = np.stack([by_hand(pixels) for pixels in written.values()])
    outputs = network(torch.tensor(expected, dtype=torch.float32)).detach().numpy()
    labels = {path: number for number, path in enumerate(written)}

    for sc in (None, context_of(engine)):
        frame = ImageFrame.read(str(tmp_path), sc, min_partitions=3)
        assert (frame.is_local(), frame.is_distributed()) == (sc is None, sc is not None)
        assert listed(frame.get_uri()) == list(written)
        for pixels, image in zip(written.values(), listed(frame.get_image(to_chw=False)), strict=True):
            np.testing.assert_array_equal(image, pixels)
        assert listed(frame.get_label()) == [None] * 6
        made = frame.set_label(labels).transform(Pipeline([CHAIN, ImageFrameToSample(target_keys=["label"])]))
        np.testing.assert_allclose(listed(made.get_image("imageTensor")), expected)
        np.testing.assert_array_equal(listed(made.get_label()), np.arange(6)[:, None])
        samples = listed(made.get_sample())
        np.testing.assert_allclose([each.feature.to_ndarray() for each in samples], expected)
        np.testing.assert_array_equal([each.label.to_ndarray() for each in samples], np.arange(6)[:, None])
        predicted = listed(predict_frame(network, made, batch_per_partition=4, predict_key="p").get_predict("p"))
        assert [uri for uri, _ in predicted] == list(written)
        np.testing.assert_allclose([each for _, each in predicted], outputs, rtol=1e-3, atol=1e-3)
        data, _ = DataSet.image_frame(frame.set_label(labels)).transform(CHAIN).estimator_data()
        np.testing.assert_allclose(np.concatenate([shard["x"] for shard in data.collect()]), expected)
        np.testing.assert_array_equal(np.concatenate([shard["y"] for shard in data.collect()]), np.arange(6)[:, None])
    assert network.training  # the user's own module is left as it was

    # Random steps are the same whenever and wherever they are computed.
    random = Pipeline([RandomCrop(2, 2)], seed=5)
    here, there, cut = (
        listed(ImageFrame.read(str(tmp_path), sc, parts).transform(random).get_image())
        for sc, parts in ((None, 1), (context_of(engine), 1), (context_of(engine), 6))
    )
    np.testing.assert_array_equal(here, there)
    np.testing.assert_array_equal(here, cut)
    parts = ImageFrame.read(str(tmp_path), context_of(engine)).random_split([0.5, 0.5], seed=1)
    uris = [listed(part.get_uri()) for part in parts]
    assert sorted(uris[0] + uris[1]) == sorted(written)
    assert all(uris)


@pytest.mark.engines("local", "spark")
def test_frames_of_arrays_and_labels(engine):
    images = [np.full((4, 4, 3), number, np.float64) for number in range(5)]
    labels = [np.array([number, -number]) for number in range(5)]
    if engine.name == "spark":
        rdds = engine.sc.parallelize(images, 2), engine.sc.parallelize(labels, 2)
    else:
        rdds = Records.of(images, 2), Records.of(labels, 2)
    for frame in (LocalImageFrame(images, labels), DistributedImageFrame(*rdds)):
        moved = HFlip()(frame)  # a transformer takes a frame as well
        np.testing.assert_array_equal(listed(moved.get_image(to_chw=False)), images)
        np.testing.assert_array_equal(listed(moved.get_label()), labels)
        assert listed(moved.get_predict()) == [(None, None)] * 5
    np.testing.assert_array_equal(listed(DistributedImageFrame(rdds[0]).get_image(to_chw=False)), images)
    fewer = engine.sc.parallelize(labels, 1) if engine.name == "spark" else Records.of(labels, 1)
    with pytest.raises(InvalidArgumentError, match="the same partitions, but have 2 and 1"):
        DistributedImageFrame(rdds[0], fewer)


@pytest.mark.engines("local")
def test_images_in_parquet(engine, tmp_path):
    (tmp_path / "images").mkdir()
    written = write_images(tmp_path / "images")
    stored = str(tmp_path / "stored")
    ImageFrame.write_parquet(str(tmp_path / "images"), stored, context_of(engine), 2)
    for sc in (None, context_of(engine)):
        frame = ImageFrame.read_parquet(stored, sc)
        assert listed(frame.get_uri()) == list(written)
        np.testing.assert_array_equal(listed(frame.get_image(to_chw=False))[-1], list(written.values())[-1])
    with pytest.raises(PathExistsError, match="exists already"):
        ImageFrame.write_parquet(str(tmp_path / "images"), stored)


@pytest.mark.engines("local")
def test_paths_of_many_forms(engine, tmp_path):
    written = list(write_images(tmp_path))
    for path, expected in {
        written[0]: written[:1],
        f"file://{written[0]}": written[:1],
        f"{tmp_path}/cats": written[:3],
        f"{tmp_path}/*/1.png": [written[1], written[4]],
        f"{tmp_path}/d*": written[3:],
        f"{written[5]},{tmp_path}/cats": [written[5], *written[:3]],
    }.items():
        assert ImageFrame.read(path).get_uri() == expected
    (tmp_path / "empty").mkdir()
    for path, text in {"none": "nothing is there", "*.gif": "nothing is there", "empty": "no image in it"}.items():
        with pytest.raises(PathNotFoundError, match=text):
            ImageFrame.read(str(tmp_path / path))


@pytest.mark.engines("local")
def test_an_image_that_cannot_be_read_is_named(engine, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(InvalidArgumentError, match=r"bad\.png cannot be read as an image \(8 bytes\)"):
        ImageFrame.read(str(tmp_path)).get_image()
    with pytest.raises(Exception, match=r"bad\.png cannot be read as an image"):
        ImageFrame.read(str(tmp_path), context_of(engine)).get_image().collect()


@pytest.mark.engines("local")
def test_bad_frames(engine):
    import torch

    frame = LocalImageFrame([np.zeros((2, 2, 3))] * 2)
    with pytest.raises(InvalidArgumentError, match="a label for each of 1 images, but there are 2"):
        LocalImageFrame([np.zeros((2, 2, 3))], [1, 2])
    with pytest.raises(InvalidArgumentError, match="but was given a function"):
        frame.transform(lambda image: image)
    with pytest.raises(InvalidArgumentError, match="neither a sample nor a tensor"):
        predict_frame(torch.nn.Flatten(), frame)
    with pytest.raises(InvalidArgumentError, match="1 image or more"):
        predict_frame(torch.nn.Flatten(), frame, batch_per_partition=0)
    with pytest.raises(NotOfferedError, match="no layer 'pool'"):
        predict_frame(torch.nn.Flatten(), frame, "pool")
    with pytest.raises(InvalidArgumentError, match="weights must be"):
        frame.random_split([0, 0])
    with pytest.raises(InvalidArgumentError, match=r"sc must be the SparkContext, .* but is a str"):
        ImageFrame.read(__file__, "local[2]")
    with pytest.raises(InvalidArgumentError, match="image_rdd"):
        DistributedImageFrame(3)
    images, labels = Records.of([np.zeros((2, 2, 3))] * 5, 2), Records.of([1] * 4, 2)
    with pytest.raises(InvalidArgumentError, match="a label for each image"):
        DistributedImageFrame(images, labels).get_label().collect()
