from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from zoo.orca.data import file as orca_file
from zoo.orca.data.file import (
    exists,
    filesystem_of,
    list_files,
    load_numpy,
    makedirs,
    open_file,
    open_image,
    open_text,
    write_text,
)
from zoo.orca.errors import InvalidArgumentError, MissingPackageError, PathNotFoundError


@pytest.fixture(params=["plain", "file://", "s3://"])
def folder(request, tmp_path):
    """A folder to write in, as each kind of path that users pass."""
    if request.param == "s3://":
        return request.getfixturevalue("s3_bucket") + "/folder"
    tmp_path = tmp_path / "folder"
    tmp_path.mkdir()
    return str(tmp_path) if request.param == "plain" else f"file://{tmp_path}"


def test_text_comes_back_as_stripped_lines_and_the_count_is_of_characters(folder):
    assert write_text(f"{folder}/a.txt", "  one \nzwölf\n\n") == 14
    assert open_text(f"{folder}/a.txt") == ["one", "zwölf", ""]


def test_image_keeps_size_and_pixels(folder):
    from PIL import Image

    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    with open_file(f"{folder}/a.png", "wb") as opened:
        Image.fromarray(pixels).save(opened, format="PNG")
    image = open_image(f"{folder}/a.png")
    assert image.size == (6, 4)
    np.testing.assert_array_equal(np.asarray(image), pixels)


def test_numpy_arrays_keep_dtype_and_values(folder):
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    with open_file(f"{folder}/a.npy", "wb") as opened:
        np.save(opened, array)
    with open_file(f"{folder}/b.npz", "wb") as opened:
        np.savez(opened, first=array, second=array * 2)
    loaded = load_numpy(f"{folder}/a.npy")
    assert loaded.dtype == np.int16
    np.testing.assert_array_equal(loaded, array)
    np.testing.assert_array_equal(load_numpy(f"{folder}/b.npz")["second"], array * 2)


def test_pickled_arrays_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        load_numpy(tmp_path / "a.npy")


def test_makedirs_makes_the_folders_above_and_can_be_called_twice(folder):
    assert not exists(f"{folder}/x")
    makedirs(f"{folder}/x/y")
    makedirs(f"{folder}/x/y")
    assert exists(f"{folder}/x")
    assert exists(f"{folder}/x/y")


def test_a_folder_lists_its_data_files_by_name(folder):
    makedirs(folder)
    for name in ("b.csv", "a.csv", "c.json", "_SUCCESS", ".hidden.csv", "sub/d.csv"):
        makedirs(f"{folder}/sub")
        write_text(f"{folder}/{name}", name)
    assert [open_text(path) for path in list_files(folder)] == [["a.csv"], ["b.csv"], ["c.json"]]
    assert [open_text(path) for path in list_files(folder + "/", (".csv",))] == [["a.csv"], ["b.csv"]]
    assert [open_text(path) for path in list_files(f"{folder}/*.json")] == [["c.json"]]


def test_a_list_keeps_the_order_given_and_a_named_file_needs_no_suffix(folder):
    for name in ("b.txt", "a.csv"):
        write_text(f"{folder}/{name}", name)
    found = list_files([f"{folder}/b.txt", f"{folder}/a.csv"], (".csv",))
    assert [open_text(path) for path in found] == [["b.txt"], ["a.csv"]]


def test_remote_names_keep_scheme_and_local_ones_are_plain(s3_bucket, tmp_path):
    write_text(f"{s3_bucket}/a.csv", "1")
    (tmp_path / "a.csv").write_text("1")
    assert list_files(s3_bucket) == [f"{s3_bucket}/a.csv"]
    assert list_files(f"file://{tmp_path}") == [str(tmp_path / "a.csv")]
    assert list_files(tmp_path) == [str(tmp_path / "a.csv")]


def test_hosts_stay_in_remote_names():
    # No Hadoop is at hand, so only the arithmetic of names is checked for hdfs.
    assert orca_file.url_of("hdfs://node:8020/a/", "/a", "/a/b.csv") == "hdfs://node:8020/a/b.csv"


@pytest.mark.parametrize("read", [open_text, open_image, load_numpy, list_files])
def test_a_missing_path_is_named(folder, read):
    with pytest.raises(PathNotFoundError) as caught:
        read(f"{folder}/nothing")
    assert str(caught.value) == f"No such file or directory: {folder}/nothing"
    assert isinstance(caught.value, FileNotFoundError)
    assert not exists(f"{folder}/nothing")


def test_a_folder_without_a_fitting_file_says_so(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(PathNotFoundError, match=r"folder with no file that ends in \.csv in it"):
        list_files(tmp_path, (".csv",))


def test_an_unknown_scheme_is_an_invalid_argument():
    with pytest.raises(InvalidArgumentError, match=r"Expected a plain path or a URL.*got 'nowhere://a'"):
        filesystem_of("nowhere://a")


def test_a_changed_environment_gives_another_filesystem(monkeypatch):
    first, _ = filesystem_of("s3://a/b")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    second, name = filesystem_of("s3a://a/b/")
    assert name == "a/b"
    assert second is not first
    assert second.endpoint_url == "http://127.0.0.1:9"


def test_missing_s3fs_names_the_line_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingPackageError, match=r'Type: pip install "orca-estimator\[s3\]"'):
        open_text("s3://bucket/a.txt")


def test_importing_loads_no_framework():
    script = (
        "import sys, zoo.orca.data.file;"
        "print({'pyspark', 'ray', 'torch', 'tensorflow', 'PIL', 's3fs'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
