from __future__ import annotations

import gzip
import io
import struct

import numpy as np
import pytest
from PIL import Image

from zoo.orca.data.file import open_file
from zoo.orca.data.image import write_from_directory, write_mnist, write_parquet, write_voc
from zoo.orca.data.image.parquet_dataset import _write_ndarrays, read_parquet
from zoo.orca.errors import InvalidArgumentError, InvalidKeyError, PathNotFoundError, PreconditionError

PIXELS = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)


def records_of(path):
    """The records as they are, which torch would turn into tensors."""
    return list(read_parquet("dataloader", path, batch_size=None, collate_fn=lambda record: record))


@pytest.fixture
def idx_files(tmp_path):
    images, labels = tmp_path / "images", tmp_path / "labels"
    images.write_bytes(struct.pack(">4I", 2051, 3, 4, 5) + PIXELS.tobytes())
    labels.write_bytes(struct.pack(">2I", 2049, 3) + bytes([7, 0, 9]))
    return images, labels


@pytest.fixture
def pets(tmp_path):
    """Two cats and one dog, an empty class and a file beside the classes."""
    for name, colour in (("cat/1.jpg", 10), ("cat/2.jpg", 20), ("dog/1.jpg", 30)):
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4), (colour, 0, 0)).save(tmp_path / "pets" / name)
    (tmp_path / "pets" / "owl").mkdir()
    (tmp_path / "pets" / "cat" / ".DS_Store").write_text("")
    (tmp_path / "pets" / "README").write_text("beside")
    return tmp_path / "pets"


VOC_XML = """<annotation><size><width>{width}</width><height>{height}</height></size>{objects}</annotation>"""
VOC_OBJECT = """<object><name>{}</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox>
</object>"""


@pytest.fixture
def voc(tmp_path):
    root = tmp_path / "VOCdevkit" / "VOC2007"
    for folder in ("ImageSets/Main", "JPEGImages", "Annotations"):
        (root / folder).mkdir(parents=True)
    (root / "ImageSets/Main/trainval.txt").write_text("000005\n000007  1\n\n")
    boxes = {"000005": [("chair", 10, 20, 50, 100), ("cat", 0, 0, 100, 200)], "000007": []}
    for name, found in boxes.items():
        Image.new("RGB", (100, 200)).save(root / f"JPEGImages/{name}.jpg")
        objects = "".join(VOC_OBJECT.format(*box) for box in found)
        (root / f"Annotations/{name}.xml").write_text(VOC_XML.format(width=100, height=200, objects=objects))
    return tmp_path / "VOCdevkit"


def test_mnist_images_and_labels(idx_files, tmp_path):
    write_mnist(*map(str, idx_files), f"file://{tmp_path}/set", block_size=2)
    found = records_of(tmp_path / "set")
    assert [record["label"] for record in found] == [7, 0, 9]
    assert found[0]["image"].dtype == np.uint8
    np.testing.assert_array_equal(np.stack([record["image"] for record in found]), PIXELS[..., None])


def test_gzipped_mnist_is_read_too(idx_files, tmp_path):
    zipped = []
    for file in idx_files:
        zipped.append(f"{file}.gz")
        with gzip.open(zipped[-1], "wb") as out:
            out.write(file.read_bytes())
    write_parquet("mnist", tmp_path / "set", *zipped)
    assert [record["label"] for record in records_of(tmp_path / "set")] == [7, 0, 9]


def test_mnist_files_that_do_not_fit_are_refused(idx_files, tmp_path):
    images, labels = idx_files
    with pytest.raises(InvalidArgumentError, match="idx file of images, with the magic number 2051, got 2049"):
        write_mnist(labels, labels, tmp_path / "set")
    short = tmp_path / "short"
    short.write_bytes(struct.pack(">2I", 2049, 2) + bytes([1, 2]))
    with pytest.raises(InvalidArgumentError, match=r"got 3 images in .* and 2 labels"):
        write_mnist(images, short, tmp_path / "set")
    images.write_bytes(images.read_bytes()[:-1])
    with pytest.raises(InvalidArgumentError, match=r"Expected 20 bytes more in the idx file .*images, got 19"):
        write_mnist(images, labels, tmp_path / "set")


def test_an_image_folder_has_labels_and_ids(pets, tmp_path):
    write_from_directory(f"file://{pets}", {"cat": 1, "dog": 0, "owl": 2}, f"file://{tmp_path}/set", shuffle=False)
    found = records_of(tmp_path / "set")
    assert [(record["label"], record["label_str"]) for record in found] == [(1, "cat"), (1, "cat"), (0, "dog")]
    assert [record["image_id"] for record in found] == [
        str(pets / name) for name in ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg")
    ]
    assert Image.open(io.BytesIO(found[2]["image"])).size == (6, 4)
    assert list(found[0]) == ["image", "label", "image_id", "label_str"]


def test_shuffling_an_image_folder_keeps_every_image_and_repeats(pets, tmp_path):
    for i in range(20):
        Image.new("RGB", (2, 2)).save(pets / "dog" / f"more{i}.jpg")
    orders = []
    for _ in range(2):
        write_parquet("image_folder", tmp_path / "set", directory=pets, label_map={"cat": 1, "dog": 0})
        orders.append([record["image_id"] for record in records_of(tmp_path / "set")])
    assert orders[0] == orders[1]
    assert orders[0] != sorted(orders[0])
    assert len(set(orders[0])) == 23


def test_an_image_folder_on_s3(s3_bucket, pets):
    for name in ("cat/1.jpg", "dog/1.jpg"):
        with open_file(f"{s3_bucket}/pets/{name}", "wb") as out:
            out.write((pets / name).read_bytes())
    write_from_directory(f"{s3_bucket}/pets/", {"cat": 1, "dog": 0}, f"{s3_bucket}/set", shuffle=False)
    found = records_of(f"{s3_bucket}/set")
    assert [record["image_id"] for record in found] == [f"{s3_bucket}/pets/cat/1.jpg", f"{s3_bucket}/pets/dog/1.jpg"]
    assert found[1]["image"] == (pets / "dog/1.jpg").read_bytes()


def test_a_folder_without_a_label_is_named(pets, tmp_path):
    with pytest.raises(InvalidKeyError, match=r"it has \['cat'\], not \['dog'\]"):
        write_from_directory(pets, {"cat": 1}, tmp_path / "set")
    with pytest.raises(PathNotFoundError, match=r"No such file or directory: .*nothing"):
        write_from_directory(tmp_path / "nothing", {"cat": 1}, tmp_path / "set")


def test_voc_boxes_are_fractions_with_their_class(voc, tmp_path):
    write_voc(str(voc), [(2007, "trainval")], f"file://{tmp_path}/set")
    first, second = records_of(tmp_path / "set")
    assert first["image_id"] == "000005"
    assert first["label"].dtype == np.float32
    np.testing.assert_allclose(first["label"], [[0.1, 0.1, 0.5, 0.5, 8], [0, 0, 1, 1, 7]])
    assert second["label"].shape == (0, 5)
    assert first["image"] == (voc / "VOC2007/JPEGImages/000005.jpg").read_bytes()


def test_voc_takes_classes_of_ones_own(voc, tmp_path):
    write_parquet(
        "voc", tmp_path / "set", voc_root_path=voc, splits_names=[(2007, "trainval")], classes=["cat", "chair"]
    )
    assert records_of(tmp_path / "set")[0]["label"][:, 4].tolist() == [1, 0]
    with pytest.raises(InvalidKeyError, match=r"000005\.xml to be one of the classes \['cat'\], got 'chair'"):
        write_voc(voc, [(2007, "trainval")], tmp_path / "set", classes=["cat"])


def test_voc_faults_are_named(voc, tmp_path):
    with pytest.raises(PathNotFoundError, match=r"VOC2012/ImageSets/Main/train\.txt"):
        write_voc(voc, [(2012, "train")], tmp_path / "set")
    with pytest.raises(InvalidArgumentError, match=r"\(year, split\).*got 'trainval'"):
        write_voc(voc, ["trainval"], tmp_path / "set")
    (voc / "VOC2007/Annotations/000005.xml").write_text(VOC_XML.format(width="wide", height=1, objects=""))
    with pytest.raises(InvalidArgumentError, match=r"number in <size/width> of .*000005\.xml, got 'wide'"):
        write_voc(voc, [(2007, "trainval")], tmp_path / "set")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (np.array([1, 0, 2]), [1, 0, 2]),
        (np.array([[0.5], [1.5], [2.5]], np.float32), [[0.5], [1.5], [2.5]]),
    ],
)
def test_arrays_become_records(tmp_path, labels, expected):
    _write_ndarrays(PIXELS, labels, f"file://{tmp_path}/set", block_size=2)
    found = records_of(tmp_path / "set")
    assert [np.asarray(record["label"]).tolist() for record in found] == expected
    np.testing.assert_array_equal(found[1]["image"], PIXELS[1])


def test_arrays_of_unequal_length_are_refused(tmp_path):
    with pytest.raises(PreconditionError, match="as many images as labels, got 3 and 2"):
        _write_ndarrays(PIXELS, np.array([1, 2]), tmp_path / "set")


def test_write_parquet_says_what_is_missing(tmp_path):
    with pytest.raises(AssertionError, match='directory and label_map for format "image_folder", and label_map'):
        write_parquet("image_folder", tmp_path / "set", directory=tmp_path)
    with pytest.raises(ValueError, match=r"one of \['image_folder', 'mnist', 'voc'\], got 'coco'"):
        write_parquet("coco", tmp_path / "set")
    with pytest.raises(PreconditionError, match="got 3 arguments"):
        write_parquet("mnist", tmp_path / "set", "a", "b", "c")
