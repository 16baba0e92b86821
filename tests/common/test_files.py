from __future__ import annotations

import os
import subprocess
import sys

import fsspec
import numpy as np
import pytest

import zoo.common
from zoo.common import (
    append_suffix,
    convert_to_safe_path,
    enable_multi_fs_load,
    enable_multi_fs_load_static,
    enable_multi_fs_save,
    get_file_list,
    get_remote_file_to_local,
    is_local_path,
    put_local_file_to_remote,
    set_core_number,
    to_list_of_numpy,
)
from zoo.orca.errors import InvalidArgumentError, PathExistsError, PathNotFoundError


@pytest.fixture
def remote():
    """A filesystem that is not this machine's own files: fsspec's, in memory."""
    fs = fsspec.filesystem("memory")
    yield "memory://orca-tests"
    if fs.exists("/orca-tests"):
        fs.rm("/orca-tests", recursive=True)


@pytest.mark.parametrize(
    ("path", "local"),
    [("/a", True), ("a", True), ("file:///a", True), ("hdfs://node:1/a", False), ("s3://bucket/a", False)],
)
def test_local_paths_are_plain_or_file(path, local):
    assert is_local_path(path) is local


def test_a_file_list_can_go_into_subfolders(tmp_path):
    for name in ("b.txt", "a.txt", "sub/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert get_file_list(tmp_path) == [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    assert get_file_list(f"file://{tmp_path}", recursive=True)[2:] == [str(tmp_path / "sub/c.txt")]
    assert get_file_list(tmp_path / "a.txt") == [str(tmp_path / "a.txt")]
    with pytest.raises(PathNotFoundError, match=r"No such file or directory: .*nothing"):
        get_file_list(tmp_path / "nothing")


def test_files_go_there_and_come_back(tmp_path, remote):
    (tmp_path / "a.txt").write_text("hello")
    put_local_file_to_remote(tmp_path / "a.txt", f"{remote}/a.txt")
    get_remote_file_to_local(f"{remote}/a.txt", tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_text() == "hello"
    with pytest.raises(PathExistsError, match="over_write=True"):
        put_local_file_to_remote(tmp_path / "a.txt", f"{remote}/a.txt")
    with pytest.raises(FileExistsError, match=r"b\.txt, which exists"):
        get_remote_file_to_local(f"{remote}/a.txt", tmp_path / "b.txt")
    (tmp_path / "a.txt").write_text("again")
    put_local_file_to_remote(tmp_path / "a.txt", f"{remote}/a.txt", over_write=True)
    get_remote_file_to_local(f"{remote}/a.txt", tmp_path / "b.txt", over_write=True)
    assert (tmp_path / "b.txt").read_text() == "again"


def test_folders_go_there_and_come_back(tmp_path, remote):
    (tmp_path / "model/variables").mkdir(parents=True)
    (tmp_path / "model/variables/v").write_text("1")
    (tmp_path / "model/graph").write_text("2")
    for _ in range(2):
        put_local_file_to_remote(tmp_path / "model", f"{remote}/model", over_write=True)
    get_remote_file_to_local(f"{remote}/model", tmp_path / "back")
    found = sorted(os.path.relpath(file, tmp_path / "back") for file in get_file_list(tmp_path / "back", True))
    assert found == ["graph", "variables/v"]


def test_a_missing_source_is_named(tmp_path, remote):
    with pytest.raises(PathNotFoundError, match=r"No such file or directory: .*/nothing"):
        put_local_file_to_remote(tmp_path / "nothing", f"{remote}/a")
    with pytest.raises(PathNotFoundError, match=r"No such file or directory: memory://orca-tests/nothing"):
        get_remote_file_to_local(f"{remote}/nothing", tmp_path / "a")


class Note:
    """Something that can only save itself to a local file."""

    def __init__(self, text=""):
        self.text = text

    @enable_multi_fs_save
    def save(self, path, over_write=False):
        with open(path, "w") as file:
            file.write(self.text)
        return os.path.basename(path)

    @enable_multi_fs_load
    def fill(self, path, suffix=""):
        with open(path) as file:
            self.text = file.read() + suffix
        return self

    @staticmethod
    @enable_multi_fs_load_static
    def load(path, suffix=""):
        return Note().fill(path, suffix=suffix)


def test_decorated_functions_take_any_path(tmp_path, remote):
    for path in (f"{remote}/a.txt", f"file://{tmp_path}/a.txt", str(tmp_path / "b.txt")):
        assert Note("hello").save(path).endswith(".txt")
        assert Note().fill(path, "!").text == "hello!"
        assert Note.load(path, suffix="?").text == "hello?"
    with pytest.raises(PathExistsError, match="over_write=True"):
        Note("new").save(f"{remote}/a.txt")
    Note("new").save(f"{remote}/a.txt", over_write=True)
    assert Note.load(f"{remote}/a.txt").text == "new"
    assert Note.save.__name__ == "save"


def test_a_saver_without_an_overwrite_argument_overwrites(remote):
    @enable_multi_fs_save
    def save(text, path):
        with open(path, "w") as file:
            file.write(text)

    save("one", f"{remote}/a")
    save("two", f"{remote}/a")
    assert Note.load(f"{remote}/a").text == "two"


def test_suffixes_and_safe_paths(tmp_path):
    assert append_suffix("/tmp/copy", "hdfs://node/model.h5") == "/tmp/copy.h5"
    assert append_suffix("/tmp/copy", "hdfs://node/model") == "/tmp/copy"
    (tmp_path / "link").symlink_to(tmp_path / "goal")
    assert convert_to_safe_path(f"{tmp_path}/x/../link") == os.path.realpath(tmp_path / "goal")
    assert convert_to_safe_path(f"{tmp_path}/x/../link", follow_symlinks=False) == str(tmp_path / "link")


def test_to_list_of_numpy():
    array = np.arange(3)
    assert to_list_of_numpy(array)[0] is array
    assert [part.tolist() for part in to_list_of_numpy([array, 1.5, np.int8(2)])] == [[0, 1, 2], 1.5, 2]
    assert to_list_of_numpy([1, np.int8(2)])[1].dtype == np.int8
    with pytest.raises(InvalidArgumentError, match="array, a number or a list of these, got str"):
        to_list_of_numpy("one")


def test_set_core_number_sets_the_threads_of_the_layers():
    import torch

    before = torch.get_num_threads()
    try:
        set_core_number(1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    with pytest.raises(InvalidArgumentError, match="1 core or more, got 0"):
        set_core_number(0)


def test_tensors_keep_dtypes_and_take_numbers():
    from bigdl.util import common

    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    tensor = zoo.common.JTensor.from_ndarray(array)
    assert isinstance(tensor, common.JTensor)
    assert tensor.to_ndarray().dtype == np.int64
    np.testing.assert_array_equal(tensor.to_ndarray(), array)
    assert zoo.common.JTensor.from_ndarray(2.5).to_ndarray() == np.array(2.5)
    assert zoo.common.JTensor.from_ndarray(None) is None
    sparse = zoo.common.JTensor.sparse(np.array([1.0, 2.0]), np.array([0, 1, 1, 2]), np.array([2, 3]))
    assert sparse.storage.dtype == np.float64


def test_samples_keep_dtypes_and_take_numbers():
    sample = zoo.common.Sample.from_ndarray([np.ones(2), np.zeros(3, np.uint8)], 4)
    assert [feature.to_ndarray().dtype for feature in sample.features] == [np.float64, np.uint8]
    assert sample.label.to_ndarray().shape == ()
    assert sample.label.to_ndarray() == 4
    assert zoo.common.Sample is zoo.common.utils.Sample
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = zoo.common.nothing


def test_importing_loads_no_framework():
    script = (
        "import sys, zoo.common;"
        "print({'pyspark', 'ray', 'torch', 'tensorflow', 'bigdl.util.common'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
