"""maybe_download: a file is fetched once."""

from __future__ import annotations

import pytest

from bigdl.dataset.base import maybe_download
from zoo.orca.errors import PathNotFoundError


def test_a_file_is_fetched_once(tmp_path):
    source, folder = tmp_path / "source.txt", tmp_path / "a" / "b"
    source.write_text("first")
    for _ in range(2):
        path = maybe_download("here.txt", str(folder), source.as_uri())
        assert path == str(folder / "here.txt")
        assert (folder / "here.txt").read_text() == "first"
        source.write_text("second")
    assert [each.name for each in folder.iterdir()] == ["here.txt"]


@pytest.mark.parametrize("url", ["file:///nowhere/x.txt", "not a url"])
def test_what_cannot_be_fetched_is_said(tmp_path, url):
    with pytest.raises(PathNotFoundError, match=rf"{url} could not be fetched: .* Put the file there .*x\.txt"):
        maybe_download("x.txt", str(tmp_path), url)
    assert list(tmp_path.iterdir()) == []
