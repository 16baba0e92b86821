"""Transformers of images, against OpenCV and numpy by hand."""

from __future__ import annotations

import pickle
import subprocess
import sys

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigdl.transform.vision.image import (
    AspectScale,
    Brightness,
    BytesToMat,
    CenterCrop,
    ChannelNormalize,
    ChannelOrder,
    ChannelScaledNormalizer,
    ColorJitter,
    Contrast,
    DetectionCrop,
    Expand,
    FeatureTransformer,
    Filler,
    FixedCrop,
    FixExpand,
    HFlip,
    Hue,
    ImageFeature,
    ImageFrameToSample,
    LocalImageFrame,
    MatToFloats,
    MatToTensor,
    Mirror,
    PerImageNormalize,
    Pipeline,
    PixelBytesToMat,
    PixelNormalize,
    RandomAlterAspect,
    RandomAspectScale,
    RandomCrop,
    RandomCropper,
    RandomResize,
    RandomTransformer,
    Resize,
    RoiHFlip,
    RoiLabel,
    RoiNormalize,
    RoiProject,
    RoiResize,
    Saturation,
)
from zoo.orca.errors import InvalidArgumentError, InvalidKeyError, UnknownArgumentError

IMAGE = np.random.default_rng(0).integers(0, 256, (12, 16, 3)).astype(np.uint8)
FLOATS = IMAGE.astype(np.float32)


def changed(transformer: FeatureTransformer, image: np.ndarray = IMAGE) -> np.ndarray:
    feature = ImageFeature(image)
    made = transformer(feature)
    np.testing.assert_array_equal(feature["mat"], image)  # what was given is left alone
    assert made["size"] == made["mat"].shape
    return made["mat"]


@pytest.mark.parametrize(
    ("transformer", "expected"),
    [
        (Resize(6, 8), cv2.resize(IMAGE, (8, 6))),
        (Resize(6, 8, 3), cv2.resize(IMAGE, (8, 6), interpolation=cv2.INTER_AREA)),
        (AspectScale(6), cv2.resize(IMAGE, (8, 6))),
        (AspectScale(24, max_size=16), IMAGE),
        (AspectScale(9, scale_multiple_of=4), cv2.resize(IMAGE, (12, 8))),
        (RandomAspectScale([6]), cv2.resize(IMAGE, (8, 6))),
        (RandomResize(6, 6), cv2.resize(IMAGE, (8, 6))),
        (CenterCrop(8, 6), IMAGE[3:9, 4:12]),
        (CenterCrop(80, 6), IMAGE[3:9]),
        (RandomCrop(16, 12), IMAGE),
        (RandomCropper(8, 6, False, "Center"), IMAGE[3:9, 4:12]),
        (FixedCrop(0.25, 0.5, 0.5, 1.0), IMAGE[6:12, 4:8]),
        (FixedCrop(1, 2, 5, 20, normalized=False), IMAGE[2:12, 1:5]),
        (HFlip(), cv2.flip(IMAGE, 1)),
        (Mirror(), cv2.flip(IMAGE, -1)),
        (FixExpand(14, 20), cv2.copyMakeBorder(IMAGE, 1, 1, 2, 2, cv2.BORDER_CONSTANT)),
        (Expand(max_expand_ratio=1.0), IMAGE),
        (ChannelNormalize(1, 2, 3, 4, 5, 6), (FLOATS - [3, 2, 1]) / [6, 5, 4]),
        (ChannelScaledNormalizer(1, 2, 3, 0.5), (FLOATS - [3, 2, 1]) * 0.5),
        (PixelNormalize(np.arange(576)), FLOATS - np.arange(576).reshape(12, 16, 3)),
        (PerImageNormalize(0, 1), (FLOATS - FLOATS.min()) / (FLOATS.max() - FLOATS.min())),
        (Brightness(40, 40), np.minimum(FLOATS + 40, 255)),
        (Contrast(0.5, 0.5), np.rint(FLOATS * 0.5)),
        (Hue(0, 0), cv2.cvtColor(cv2.cvtColor(IMAGE, cv2.COLOR_BGR2HSV), cv2.COLOR_HSV2BGR)),
        (ColorJitter(0, contrast_prob=0, hue_prob=0, saturation_prob=0), IMAGE),
        (RandomTransformer(HFlip(), 0.0), IMAGE),
        (RandomTransformer(HFlip(), 1.0), cv2.flip(IMAGE, 1)),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, FeatureTransformer) else "",
)
def test_pixels_are_those_of_opencv(transformer, expected):
    np.testing.assert_allclose(changed(transformer), expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(changed(pickle.loads(pickle.dumps(transformer))), expected, rtol=1e-5, atol=1e-4)


def test_colours_of_whole_numbers_stay_whole_and_floats_do_not_end_at_255():
    assert changed(Brightness(40, 40)).dtype == np.uint8
    np.testing.assert_allclose(changed(Brightness(40, 40), FLOATS), FLOATS + 40)
    np.testing.assert_allclose(changed(Contrast(3, 3), FLOATS), FLOATS * 3, rtol=1e-6)


def test_hue_turns_and_saturation_fades_colours():
    red, green = np.full((1, 1, 3), [0, 0, 200], np.uint8), [0, 200, 0]
    for image in (red, red.astype(np.float32)):
        np.testing.assert_allclose(changed(Hue(60, 60), image)[0, 0], green, atol=1)
        np.testing.assert_allclose(changed(Hue(180 + 60, 180 + 60), image)[0, 0], green, atol=1)
        np.testing.assert_allclose(changed(Saturation(0, 0), image)[0, 0], [200, 200, 200], atol=1)


def test_random_steps_stay_within_their_bounds():
    for seed in range(20):
        crop = changed(RandomCrop(8, 6, seed=seed))
        assert crop.shape == (6, 8, 3)
        assert any((IMAGE[top : top + 6, left : left + 8] == crop).all() for top in range(7) for left in range(9))
        assert changed(RandomCropper(8, 6, True, seed=seed)).shape == (6, 8, 3)
        assert changed(RandomAlterAspect(crop_length=5, seed=seed)).shape == (5, 5, 3)
        assert changed(RandomAspectScale([6, 24], seed=seed)).shape in ((6, 8, 3), (24, 32, 3))
        assert 6 <= min(changed(RandomResize(6, 9, seed=seed)).shape[:2]) <= 9
        assert sorted(changed(ChannelOrder(seed=seed))[0, 0]) == sorted(IMAGE[0, 0])
        grown = changed(Expand(9, 8, 7, 1.5, 2.0, seed=seed))
        assert 18 <= grown.shape[0] <= 24
        outside = (grown == [7, 8, 9]).all(axis=2)
        assert outside.sum() >= grown.shape[0] * grown.shape[1] - 12 * 16
    assert {changed(RandomTransformer(HFlip(), 0.5, seed=seed)).tobytes() for seed in range(20)} == {
        IMAGE.tobytes(),
        cv2.flip(IMAGE, 1).tobytes(),
    }


def test_a_seed_repeats_a_run_and_records_draw_their_own_numbers():
    frame = LocalImageFrame([IMAGE] * 8)

    def crops(**options):
        steps = [RandomTransformer(RandomCrop(4, 4), 0.9), RandomCrop(3, 3), ColorJitter()]
        return np.stack(frame.transform(Pipeline(steps, **options)).get_image())

    np.testing.assert_array_equal(crops(seed=1), crops(seed=1))
    assert not np.array_equal(crops(seed=1), crops(seed=2))
    assert not np.array_equal(crops(), crops())
    assert len({crop.tobytes() for crop in crops(seed=1)}) > 4
    crop = RandomCrop(4, 4)
    chains = [Pipeline([crop, crop], seed=seed) for seed in (1, 2)]  # the same step: each chain has its own of it
    once, other = ([each.tobytes() for each in frame.transform(chain).get_image()] for chain in chains)
    assert once != other
    assert once == [each.tobytes() for each in frame.transform(chains[0]).get_image()]
    alone = RandomCrop(4, 4, seed=1)  # a feature of no frame draws the next numbers
    assert len({alone(ImageFeature(IMAGE))["mat"].tobytes() for _ in range(10)}) > 4


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 60),
    columns=st.integers(1, 60),
    size=st.integers(1, 80),
    most=st.integers(1, 120),
    multiple=st.sampled_from([1, 4]),
)
def test_scaled_images_keep_their_bounds(rows, columns, size, most, multiple):
    made = changed(AspectScale(size, multiple, most), np.zeros((rows, columns, 1), np.uint8))
    height, width, channels = made.shape
    assert channels == 1
    assert max(height, width) <= max(most, multiple)
    assert height % multiple == width % multiple == 0
    if multiple == 1 and round(size / min(rows, columns) * max(rows, columns)) <= most:
        assert min(height, width) == size


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 20), columns=st.integers(1, 20), down=st.integers(1, 25), across=st.integers(1, 25),
    seed=st.integers(0, 2**40),
)  # fmt: skip
def test_crops_are_parts_of_the_image(rows, columns, down, across, seed):
    image = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns, 1)
    expected = min(rows, down), min(columns, across)
    for step in (CenterCrop(across, down), RandomCrop(across, down, seed=seed), RandomCropper(across, down, False)):
        part = changed(step, image)[..., 0]
        assert part.shape == expected
        top, left = divmod(int(part[0, 0]), columns)
        np.testing.assert_array_equal(part, image[top : top + expected[0], left : left + expected[1], 0])


def test_filler_fills_a_part():
    expected = IMAGE.copy()
    expected[6:12, 4:8] = 9
    np.testing.assert_array_equal(changed(Filler(0.25, 0.5, 0.5, 1.0, 9)), expected)


def test_bytes_become_mats_tensors_and_samples():
    encoded = cv2.imencode(".png", IMAGE)[1].tobytes()
    feature = Pipeline(
        [BytesToMat(), MatToFloats(), MatToTensor(), ImageFrameToSample(["imageTensor", "floats"], ["label"])]
    )(ImageFeature(encoded, label=2, path="a.png"))
    np.testing.assert_array_equal(feature["mat"], IMAGE)
    np.testing.assert_array_equal(feature["floats"], IMAGE)
    np.testing.assert_array_equal(feature["imageTensor"], IMAGE.transpose(2, 0, 1))
    np.testing.assert_array_equal(MatToTensor(to_rgb=True)(feature)["imageTensor"], IMAGE[..., ::-1].transpose(2, 0, 1))
    sample = feature["sample"]
    np.testing.assert_array_equal(sample.features[0].to_ndarray(), IMAGE.transpose(2, 0, 1))
    np.testing.assert_array_equal(sample.features[1].to_ndarray(), IMAGE)
    np.testing.assert_array_equal(sample.label.to_ndarray(), [2])
    assert (feature["uri"], feature["size"], feature["originalSize"]) == ("a.png", (12, 16, 3), (12, 16, 3))
    assert {"bytes", "mat", "floats", "imageTensor", "label", "uri", "size", "sample"} <= set(feature.keys())
    np.testing.assert_array_equal(BytesToMat()(ImageFeature(FLOATS))["mat"], FLOATS)
    grey = BytesToMat(image_codec=0)(ImageFeature(encoded))["mat"]
    np.testing.assert_allclose(grey[..., 0], cv2.cvtColor(IMAGE, cv2.COLOR_BGR2GRAY), atol=1)
    raw = ImageFeature(IMAGE.tobytes())
    raw["size"] = IMAGE.shape
    np.testing.assert_array_equal(PixelBytesToMat()(raw)["mat"], IMAGE)


def test_a_feature_as_image_and_sample():
    feature = Resize(6, 8)(ImageFeature(FLOATS, [1.0, 2.0]))
    small = cv2.resize(FLOATS, (8, 6))
    np.testing.assert_array_equal(feature.get_image(), small.transpose(2, 0, 1))
    np.testing.assert_array_equal(feature.get_image(to_chw=False), small)
    np.testing.assert_array_equal(feature.get_label(), [1, 2])
    sample = feature.to_sample(with_im_info=True)
    np.testing.assert_array_equal(sample.features[0].to_ndarray(), small.transpose(2, 0, 1))
    np.testing.assert_array_equal(sample.features[1].to_ndarray(), [6, 8, 0.5, 0.5])
    restored = pickle.loads(pickle.dumps(feature))
    assert restored.keys() == feature.keys()
    np.testing.assert_array_equal(restored["mat"], feature["mat"])


def test_boxes_follow_the_image():
    label = RoiLabel([1, 2], [[0, 0, 8, 6], [8, 6, 16, 12]])
    feature = ImageFeature(IMAGE, label)
    np.testing.assert_allclose(RoiNormalize()(feature)["label"].bboxes, [[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]])
    resized = Pipeline([Resize(24, 16), RoiResize()])(feature)["label"]
    np.testing.assert_allclose(resized.bboxes, [[0, 0, 8, 12], [8, 12, 16, 24]])
    flipped = Pipeline([RoiNormalize(), RoiHFlip()])(feature)["label"]
    np.testing.assert_allclose(flipped.bboxes, [[0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1]])
    cut = Pipeline([FixedCrop(4, 3, 16, 12, normalized=False), RoiProject()])(feature)["label"]
    np.testing.assert_allclose(cut.bboxes, [[0, 0, 4, 3], [4, 3, 12, 9]])
    np.testing.assert_allclose(cut.classes, [1, 2])
    dropped = Pipeline([FixedCrop(6, 5, 16, 12, normalized=False), RoiProject()])(feature)["label"]
    np.testing.assert_allclose(dropped.classes, [2])
    feature["box"] = [0.25, 0.5, 0.5, 1.0]
    np.testing.assert_array_equal(DetectionCrop("box")(feature)["mat"], IMAGE[6:12, 4:8])


def test_a_transformer_of_ones_own():
    class Darker(FeatureTransformer):
        factor: float = 0.5

        def apply(self, feature):
            feature.put_mat(feature.mat() * np.float32(self.factor))
            return feature

    np.testing.assert_allclose(changed(Darker(factor=0.25)), FLOATS * 0.25)
    with pytest.raises(UnknownArgumentError, match="Did you mean factor=1"):
        Darker(facto=1)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Resize(6, resize_width=8), UnknownArgumentError, r"Did you mean resize_w=8\?"),
        (lambda: Resize(6), UnknownArgumentError, "missing a required argument: 'resize_w'"),
        (lambda: Resize(6, 8, 9), InvalidArgumentError, "resize_mode must be 0"),
        (lambda: Resize(0, 8), InvalidArgumentError, "resize_h of Resize must be a whole .*, but is 0"),
        (lambda: CenterCrop(4, "4"), InvalidArgumentError, "crop_height of CenterCrop must be .* but is '4'"),
        (lambda: RandomCrop(4, 2.5), InvalidArgumentError, "but is 2.5"),
        (lambda: RandomResize(9, 6), InvalidArgumentError, "but these are 9 and 6"),
        (lambda: ChannelNormalize(1, 2, 3, 1, 0, 1), InvalidArgumentError, "none may be 0, but they are 1, 0 and 1"),
        (lambda: Pipeline([HFlip(), "x"]), InvalidArgumentError, "was given a str"),
        (lambda: RandomTransformer(HFlip(), 2), InvalidArgumentError, "from 0 to 1, but is 2"),
        (lambda: RandomTransformer(HFlip(), "1"), InvalidArgumentError, "from 0 to 1, but is '1'"),
        (lambda: changed(CenterCrop(80, 6, is_clip=False)), InvalidArgumentError, "out of an image of 16 x 12"),
        (lambda: changed(PixelNormalize([1])), InvalidArgumentError, "each of the 576 values"),
        (lambda: changed(ChannelNormalize(1, 2, 3), IMAGE[..., :1]), InvalidArgumentError, "one has 1"),
        (lambda: changed(FixExpand(3, 3)), InvalidArgumentError, "cannot hold an image of 12 x 16"),
        (lambda: Filler(0.5, 0, 0.2, 1), InvalidArgumentError, "the start before the end"),
        (lambda: RandomCropper(1, 1, True, "Middle"), InvalidArgumentError, "but is 'Middle'"),
        (lambda: RandomAlterAspect(interp_mode="BEST"), InvalidArgumentError, "but is 'BEST'"),
        (lambda: HFlip()("a.png"), InvalidArgumentError, "takes an ImageFeature"),
        (lambda: ImageFeature("a.png"), InvalidArgumentError, "the bytes of a file, or an array"),
        (
            lambda: ImageFrameToSample()(ImageFeature(IMAGE)),
            InvalidKeyError,
            "'imageTensor', .* with MatToTensor",
        ),
        (lambda: BytesToMat()(ImageFeature(b"nothing", path="b.png")), InvalidArgumentError, "b.png cannot be read"),
        (lambda: BytesToMat()(ImageFeature(b"", path="c.png")), InvalidArgumentError, "c.png cannot be read"),
        (lambda: PixelBytesToMat()(ImageFeature(b"12")), InvalidKeyError, "no 'size'"),
        (lambda: RoiNormalize()(ImageFeature(IMAGE, 1)), InvalidArgumentError, "needs a label with boxes"),
        (lambda: RoiLabel([1], [[0, 0, 1, 1]] * 2), InvalidArgumentError, "1 classes and 2 boxes"),
    ],
)
def test_bad_input_is_answered(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_importing_loads_no_opencv(tmp_path):
    code = (
        "import sys, bigdl.transform.vision.image, zoo.feature.image, zoo.feature.common; print('cv2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("False\n", "")
