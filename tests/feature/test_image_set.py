"""Image sets and feature sets: on the driver and on every engine alike, and what estimators get of them."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from tests.feature.images import write_images

from bigdl.util.common import Sample
from zoo.feature.common import ChainedPreprocessing, FeatureSet
from zoo.feature.image import (
    DistributedImageSet,
    ImageBytesToMat,
    ImageCenterCrop,
    ImageChannelNormalize,
    ImageFeatureToSample,
    ImageFeatureToTensor,
    ImageHFlip,
    ImageMatToTensor,
    ImagePreprocessing,
    ImageRandomCrop,
    ImageRandomPreprocessing,
    ImageResize,
    ImageSet,
    ImageSetToSample,
    LocalImageSet,
    RowToImageFeature,
)
from zoo.orca.errors import InvalidArgumentError, InvalidKeyError, NotOfferedError, UnknownArgumentError
from zoo.orca.learn.records import Records

IMAGE = np.random.default_rng(3).integers(0, 256, (6, 8, 3)).astype(np.uint8)


def listed(values) -> list:
    return values if isinstance(values, list) else values.collect()


def context_of(engine):
    return engine.sc if engine.name == "spark" else engine


def records_of(engine, values):
    return engine.sc.parallelize(values, 2) if engine.name == "spark" else Records.of(values, 2)


def joined(data, key: str) -> np.ndarray:
    return np.concatenate([shard[key] for shard in data.collect()])


@pytest.mark.engines("local", "spark")
def test_images_of_class_folders(engine, tmp_path):
    written = write_images(tmp_path)
    chain = ChainedPreprocessing(
        [
            ImageBytesToMat(),
            ImageCenterCrop(4, 4),
            ImageChannelNormalize(1.0, 2.0, 3.0),
            ImageRandomPreprocessing(ImageHFlip(), 0.0),
            ImageMatToTensor(format="NHWC"),
            ImageSetToSample(),
        ],
        seed=1,
    )
    expected = [cv2.resize(pixels, (10, 8))[2:6, 3:7] - np.array([3, 2, 1], np.float32) for pixels in written.values()]
    for sc in (None, context_of(engine)):
        images = ImageSet.read(
            str(tmp_path),
            sc,
            2,
            resize_height=8,
            resize_width=10,
            image_codec=1,
            with_label=True,
            one_based_label=False,
        )
        assert isinstance(images, LocalImageSet if sc is None else DistributedImageSet)
        made = chain(images)
        assert made.label_map == {"cats": 0, "dogs": 1}
        np.testing.assert_array_equal(listed(made.get_label()), [[0], [0], [0], [1], [1], [1]])
        np.testing.assert_allclose(listed(made.get_image("imageTensor")), expected)
        data, _ = FeatureSet.image_set(made).estimator_data()
        np.testing.assert_allclose(joined(data, "x"), expected)
        np.testing.assert_array_equal(joined(data, "y"), [[0], [0], [0], [1], [1], [1]])
        assert made.to_image_frame().is_local() == made.is_local() == (sc is None)
        # Predictions that were made elsewhere come back to the images.
        sums = made.samples().map(lambda index, rows: (row.feature.to_ndarray().sum() for row in rows))
        found = made.with_predictions(sums).map_predict(lambda value: value * 2)
        assert [uri for uri, _ in listed(found.get_predict())] == list(written)
        np.testing.assert_allclose([value for _, value in listed(found.get_predict())], np.sum(expected, (1, 2, 3)) * 2)


def test_classes_by_folders(tmp_path):
    write_images(tmp_path)
    numbers = {"cats": 1, "dogs": 2}
    for path in (str(tmp_path), f"{tmp_path}/", tmp_path, f"{tmp_path}/*", f"{tmp_path}/cats/*,{tmp_path}/dogs/*"):
        assert ImageSet.read(path, with_label=True).label_map == numbers
    (tmp_path / "crows").mkdir()  # no image of it here: dogs are 3 nevertheless, as where there are some
    (tmp_path / "cats" / "0.png").rename(tmp_path / "crows" / "notes.txt")
    (tmp_path / "dogs" / "small").mkdir()
    (tmp_path / "dogs" / "0.png").rename(tmp_path / "dogs" / "small" / "0.png")
    images = ImageSet.read(str(tmp_path), with_label=True)
    assert images.label_map == {"cats": 1, "crows": 2, "dogs": 3}
    assert np.ravel(images.get_label()).tolist() == [1, 1, 3, 3, 3]
    with pytest.raises(InvalidArgumentError, match="needs a folder for each class"):
        ImageSet.read(str(tmp_path / "cats"), with_label=True)
    with pytest.raises(InvalidArgumentError, match="both, or none"):
        ImageSet.read(str(tmp_path), resize_height=3)
    with pytest.raises(InvalidArgumentError, match=r"transformer must be a Preprocessing, .* but is a function"):
        images.transform(lambda image: image)
    with pytest.raises(InvalidKeyError, match=r"no 'label'.* target_keys=None"):
        LocalImageSet([IMAGE]).transform(ChainedPreprocessing([ImageMatToTensor(), ImageSetToSample()]))


@pytest.mark.engines("local")
def test_sets_of_arrays_become_samples(engine):
    images, labels = [IMAGE.astype(np.float32)] * 4, [1, 2, 3, 4]
    chain = ChainedPreprocessing(
        [ImageBytesToMat(), ImageHFlip(), ImageMatToTensor(), ImageSetToSample(target_keys=None)]
    )
    flipped = IMAGE[:, ::-1].transpose(2, 0, 1)
    for made in (
        LocalImageSet(images, labels),
        ImageSet.from_rdds(records_of(engine, images), records_of(engine, labels)),
    ):
        samples = listed(made.transform(chain).get_sample())
        np.testing.assert_array_equal(samples[3].feature.to_ndarray(), flipped)
        assert samples[3].labels == []
        np.testing.assert_array_equal(listed(made.get_label()), [[1], [2], [3], [4]])
        records = FeatureSet.image_frame(made.to_image_frame()).transform(ImageMatToTensor())
        data, _ = records.transform(ImageFeatureToSample()).estimator_data()
        np.testing.assert_array_equal(joined(data, "x"), [IMAGE.transpose(2, 0, 1)] * 4)
        np.testing.assert_array_equal(joined(data, "y"), [[1], [2], [3], [4]])


@pytest.mark.engines("local", "spark")
def test_feature_sets_of_records(engine):
    samples = [Sample.from_ndarray([np.full(2, n), np.full((1, 2), n)], np.array([n])) for n in range(5)]
    made = FeatureSet.sample_rdd(records_of(engine, samples), memory_type="disk_2", sequential_order=True)
    assert (made.memory_type, made.shuffle) == ("DISK_2", False)
    for data, _ in (made.estimator_data(), made.to_dataset().estimator_data()):
        shards = data.collect()
        np.testing.assert_array_equal(np.concatenate([shard["x"][0] for shard in shards])[:, 0], range(5))
        assert shards[0]["x"][1].shape[1:] == (1, 2)
        np.testing.assert_array_equal(joined(data, "y")[:, 0], range(5))
    data, _ = FeatureSet.rdd(records_of(engine, [(np.ones(2), n) for n in range(3)])).estimator_data()
    np.testing.assert_array_equal(joined(data, "y")[:, 0], range(3))
    for records in ([np.ones(2)] * 3, [(np.ones(2), None)] * 3):
        data, _ = FeatureSet.rdd(records_of(engine, records)).estimator_data()
        assert all(shard.keys() == {"x"} for shard in data.collect())


@pytest.mark.engines("local")
def test_records_in_their_order(engine):
    from bigdl.nn.criterion import MSECriterion
    from bigdl.nn.layer import Linear
    from bigdl.optim.optimizer import SGD, MaxEpoch
    from zoo.pipeline.estimator import Estimator

    random = np.random.default_rng(0)
    x = random.normal(size=(16, 3)).astype(np.float32)
    y = x.sum(1, keepdims=True)
    expected = np.zeros((1, 3), np.float32)
    for start in range(0, 16, 4):
        rows, labels = x[start : start + 4], y[start : start + 4]
        expected -= 0.3 * (2 * (rows @ expected.T - labels) * rows).mean(0)

    def trained(**options):
        model = Linear(3, 1, with_bias=False)
        model.set_weights([np.zeros((1, 3))])
        train_set = FeatureSet.sample_rdd(list(map(Sample.from_ndarray, x, y)), **options)
        Estimator(model, SGD(0.3)).train(train_set, MSECriterion(), MaxEpoch(1), batch_size=4)
        return model.get_weights()[0]

    np.testing.assert_allclose(trained(shuffle=False), expected, rtol=1e-4)
    assert not np.allclose(trained(), expected, rtol=1e-2)


@pytest.mark.engines("local")
def test_feature_sets_of_loaders(engine):
    import torch

    rows = [{"left": torch.ones(2) * n, "right": torch.ones(1) * n, "label": n} for n in range(4)]
    loader = torch.utils.data.DataLoader(rows, batch_size=2)
    parts = {"features": "_data['left'], _data['right']", "labels": "_data['label']"}
    for source in (loader, lambda: torch.utils.data.DataLoader(rows, batch_size=2)):
        data, _ = FeatureSet.pytorch_dataloader(source, **parts).estimator_data()
        batches = list(data if source is loader else data({}, 2))
        assert len(batches) == 2
        (left, right), labels = batches[1]
        assert (left[1].tolist(), right[1].tolist(), labels.tolist()) == ([3, 3], [3], [2, 3])
    assert len(next(iter(loader))) == 3  # the user's own is left as it was
    with pytest.raises(InvalidArgumentError, match=r"a dict, has no part _data\[0\]"):
        list(FeatureSet.pytorch_dataloader(loader).estimator_data()[0])
    assert FeatureSet.tf_dataset(lambda: "rows", 3).estimator_data()[0]({}, 1) == "rows"
    with pytest.raises(InvalidArgumentError, match="must name parts of a batch"):
        FeatureSet.pytorch_dataloader(loader, "__import__('os')")
    with pytest.raises(InvalidArgumentError, match="but is a int"):
        FeatureSet.pytorch_dataloader(3)
    with pytest.raises(InvalidArgumentError, match="but returned a list"):
        FeatureSet.pytorch_dataloader(lambda: [1]).estimator_data()[0]({}, 1)
    with pytest.raises(NotOfferedError, match="has no records for transform"):
        FeatureSet.pytorch_dataloader(loader).transform(ImageHFlip())
    with pytest.raises(InvalidArgumentError, match=r"memory_type must be .* but is 'TAPE'"):
        FeatureSet.rdd([1], memory_type="TAPE")
    mixed = FeatureSet.rdd([Sample.from_ndarray(np.ones(1), []), Sample.from_ndarray(np.ones(1), 1.0)] * 9)
    with pytest.raises(InvalidArgumentError, match="as many arrays each"):
        mixed.estimator_data()[0].collect()
    with pytest.raises(InvalidArgumentError, match="must hold images"):
        FeatureSet.image_set([IMAGE])
    with pytest.raises(InvalidArgumentError, match="transformer must be a Preprocessing"):
        FeatureSet.rdd([1]).transform(abs)


def test_rows_of_a_dataframe_become_tensors():
    row = {"origin": "a.png", "height": 6, "width": 8, "nChannels": 3, "mode": 16, "data": IMAGE.tobytes()}
    chain = ChainedPreprocessing([RowToImageFeature(), ImageMatToTensor(to_RGB=True), ImageFeatureToTensor()])
    np.testing.assert_array_equal(chain.transform(row), IMAGE[..., ::-1].transpose(2, 0, 1))
    assert RowToImageFeature().transform(row)["uri"] == "a.png"
    random = ChainedPreprocessing([RowToImageFeature(), ImageRandomCrop(3, 3), ImageFeatureToTensor()], seed=1)
    cut = [random.transform(row | {"origin": f"{number % 5}.png"}) for number in range(10)]
    np.testing.assert_array_equal(cut[:5], cut[5:])  # by the file, wherever its row lies
    assert len({each.tobytes() for each in cut}) > 2
    with pytest.raises(InvalidArgumentError, match="NNImageReader"):
        RowToImageFeature().transform([1, 2])
    with pytest.raises(InvalidArgumentError, match=r"begin with RowToImageFeature\(\)"):
        ImageResize(2, 2).transform([1, 2])


def test_steps_of_ones_own_and_bad_ones():
    class Darker(ImagePreprocessing):
        def transform(self, feature):
            feature.put_mat(feature.mat() * np.float32(0.5))
            return feature

    images = LocalImageSet([IMAGE])
    np.testing.assert_array_equal(images.transform(Darker()).get_image(to_chw=False)[0], IMAGE * 0.5)
    np.testing.assert_array_equal(images.get_image(to_chw=False)[0], IMAGE)
    assert images.transform(ImageRandomCrop(2, 3, seed=1)).get_image()[0].shape == (3, 3, 2)
    with pytest.raises(InvalidArgumentError, match="makes a ndarray of an image"):
        images.transform(ImageFeatureToTensor())
    with pytest.raises(UnknownArgumentError, match="Did you mean resize_h=3"):
        ImageResize(resize_height=3, resize_w=2)
    with pytest.raises(InvalidArgumentError, match='must be "NCHW" or "NHWC"'):
        ImageMatToTensor(format="CHW")
    with pytest.raises(InvalidArgumentError, match="such as ImageHFlip"):
        ImageRandomPreprocessing(abs, 0.5)
