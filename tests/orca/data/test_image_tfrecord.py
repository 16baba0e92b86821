from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from zoo.orca.data.file import makedirs, open_file, write_text
from zoo.orca.data.image import read_tfrecord, tfrecord_dataset, write_tfrecord
from zoo.orca.errors import InvalidArgumentError, InvalidKeyError, PathNotFoundError, PreconditionError

pytestmark = pytest.mark.usefixtures("tf")


def save(folder, name, image, format):
    with open_file(f"{folder}/{name}", "wb") as file:
        image.save(file, format=format)


def make_imagenet(folder):
    """Two synsets; an RGB JPEG, a CMYK JPEG, a grey JPEG and a PNG in disguise; two validation images."""
    for name in ("train/n02", "train/n01", "validation"):
        makedirs(f"{folder}/{name}")
    save(folder, "train/n02/rgb.JPEG", Image.new("RGB", (6, 4), (200, 30, 30)), "JPEG")
    save(folder, "train/n02/cmyk.JPEG", Image.new("CMYK", (5, 3), (0, 255, 255, 0)), "JPEG")
    save(folder, "train/n01/png.JPEG", Image.new("RGBA", (7, 2), (0, 200, 0, 255)), "PNG")
    save(folder, "train/n01/grey.JPEG", Image.new("L", (3, 3), 90), "JPEG")
    save(folder, "validation/val_1.JPEG", Image.new("RGB", (8, 8)), "JPEG")
    save(folder, "validation/val_2.JPEG", Image.new("RGB", (9, 8)), "JPEG")
    write_text(f"{folder}/synset_labels.txt", "n02\nn01\n")
    return folder


@pytest.fixture
def imagenet(tmp_path):
    return make_imagenet(str(tmp_path / "imagenet"))


def examples(dataset):
    import tensorflow as tf

    found = []
    for data in dataset.as_numpy_iterator():
        features = tf.train.Example.FromString(data).features.feature
        found.append({name: _value(feature) for name, feature in features.items()})
    return found


def _value(feature):
    (value,) = feature.bytes_list.value or feature.int64_list.value
    return value


def test_imagenet_comes_back_with_every_key(imagenet, tmp_path):
    write_tfrecord(format="imagenet", output_path=str(tmp_path / "out"), imagenet_path=imagenet)
    train = sorted(path.name for path in (tmp_path / "out/train").iterdir())
    validation = sorted(path.name for path in (tmp_path / "out/validation").iterdir())
    assert (len(train), train[0], train[-1]) == (1024, "train-00000-of-01024", "train-01023-of-01024")
    assert (len(validation), validation[5]) == (128, "validation-00005-of-00128")

    found = {e["image/filename"]: e for e in examples(read_tfrecord("imagenet", tmp_path / "out", is_training=True))}
    assert sorted(found) == [b"cmyk.JPEG", b"grey.JPEG", b"png.JPEG", b"rgb.JPEG"]
    labels = {name: (e["image/class/synset"], e["image/class/label"]) for name, e in found.items()}
    assert labels[b"png.JPEG"] == (b"n01", 1)
    assert labels[b"rgb.JPEG"] == (b"n02", 2)
    sizes = {name: (e["image/width"], e["image/height"]) for name, e in found.items()}
    assert sizes == {b"cmyk.JPEG": (5, 3), b"grey.JPEG": (3, 3), b"png.JPEG": (7, 2), b"rgb.JPEG": (6, 4)}
    for example in found.values():
        assert (example["image/format"], example["image/colorspace"]) == (b"JPEG", b"RGB")
        assert example["image/channels"] == 3
        image = Image.open(io.BytesIO(example["image/encoded"]))
        assert (image.format, image.mode) == ("JPEG", "RGB")
    with open(f"{imagenet}/train/n02/rgb.JPEG", "rb") as file:
        assert found[b"rgb.JPEG"]["image/encoded"] == file.read()
    red = np.asarray(Image.open(io.BytesIO(found[b"cmyk.JPEG"]["image/encoded"])))[1, 2]
    assert red[0] > 200
    assert red[1] < 80

    checked = examples(read_tfrecord("imagenet", f"file://{tmp_path}/out", is_training=False))
    assert [(e["image/filename"], e["image/class/label"]) for e in checked] == [
        (b"val_1.JPEG", 2),
        (b"val_2.JPEG", 1),
    ]


def test_imagenet_on_s3(s3_bucket, monkeypatch):
    # Over a thousand empty objects would only test moto's patience.
    monkeypatch.setattr(tfrecord_dataset, "TRAIN_FILES", 3)
    monkeypatch.setattr(tfrecord_dataset, "VALIDATION_FILES", 2)
    write_tfrecord("imagenet", f"{s3_bucket}/out", imagenet_path=make_imagenet(f"{s3_bucket}/imagenet"))
    names = [e["image/filename"] for e in examples(read_tfrecord("imagenet", f"{s3_bucket}/out", is_training=True))]
    assert sorted(names) == [b"cmyk.JPEG", b"grey.JPEG", b"png.JPEG", b"rgb.JPEG"]
    checked = examples(read_tfrecord("imagenet", f"{s3_bucket}/out", is_training=False))
    assert [e["image/class/synset"] for e in checked] == [b"n02", b"n01"]


def test_faults_in_the_folder_are_named_before_anything_is_written(imagenet, tmp_path):
    write_text(f"{imagenet}/synset_labels.txt", "n02\n")
    with pytest.raises(InvalidArgumentError, match="got 1 lines and 2 images"):
        write_tfrecord("imagenet", tmp_path / "out", imagenet_path=imagenet)
    write_text(f"{imagenet}/synset_labels.txt", "n02\nn09\n")
    with pytest.raises(InvalidKeyError, match=r"folders of train, not \['n09'\]"):
        write_tfrecord("imagenet", tmp_path / "out", imagenet_path=imagenet)
    with pytest.raises(PathNotFoundError, match=r"No such file or directory: .*nothing/train"):
        write_tfrecord("imagenet", tmp_path / "out", imagenet_path=tmp_path / "nothing")
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_image_is_named(imagenet, tmp_path, monkeypatch):
    monkeypatch.setattr(tfrecord_dataset, "TRAIN_FILES", 1)
    write_text(f"{imagenet}/train/n01/bad.JPEG", "not an image")
    with pytest.raises(InvalidArgumentError, match=r"bad\.JPEG to be an image"):
        write_tfrecord("imagenet", tmp_path / "out", imagenet_path=imagenet)


def test_arguments_that_are_missing_or_unknown_are_named(tmp_path):
    with pytest.raises(PreconditionError, match="Expected imagenet_path"):
        write_tfrecord("imagenet", tmp_path)
    with pytest.raises(PreconditionError, match="Expected is_training"):
        read_tfrecord("imagenet", tmp_path)
    for call in (write_tfrecord, read_tfrecord):
        with pytest.raises(ValueError, match="\"imagenet\", got 'coco'"):
            call("coco", tmp_path)
    with pytest.raises(PathNotFoundError, match="No such file or directory"):
        read_tfrecord("imagenet", tmp_path, is_training=True)
