"""Files as memory: views of them, which keep no file open and go with their last owner."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from zoo.orca.engine.maps import mapped

MANY_PARTITIONS = """
import numpy as np
import resource
import torch
from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.data import XShards
from zoo.orca.learn.pytorch import Estimator

resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600))
init_orca_context("embedded", cores=2)
x = np.arange(1400, dtype=np.float32).reshape(-1, 1) / 1400
shards = XShards.partition({"x": x, "y": x[:, 0]}, num_shards=700)
estimator = Estimator.from_torch(
    model=torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Flatten(0)),
    optimizer=lambda model, config: torch.optim.SGD(model.parameters(), lr=0.1),
    loss=torch.nn.MSELoss(),
    workers_per_node=2,
    backend="torch_distributed",
)
print(shards.num_partitions(), estimator.fit(shards, epochs=1, batch_size=100)[0]["num_samples"])
stop_orca_context()
"""
NO_MORE_MAPS = """
import resource, sys
from pathlib import Path
from zoo.orca.engine.maps import mapped

spare = [bytearray(9000) for _ in range(1000)]
del spare  # what Python itself needs from here on
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
views = [mapped(sys.argv[1], private) for private in (False, True)]
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print([(bytes(view), view.readonly) for view in views], Path("/proc/self/maps").read_text().count(sys.argv[1]))
"""


def maps_of(path):
    return Path("/proc/self/maps").read_text().count(str(path))


@pytest.fixture
def few_descriptors():
    before, few = resource.getrlimit(resource.RLIMIT_NOFILE), len(os.listdir("/proc/self/fd")) + 64
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_more_files_than_a_process_may_open(tmp_path, few_descriptors):
    count = 3 * few_descriptors
    for number in range(count):
        (tmp_path / str(number)).write_bytes(bytes([number % 256]) * 10)
    views = [mapped(tmp_path / str(number)) for number in range(count)]
    assert [view[9] for view in views] == [number % 256 for number in range(count)]


def test_a_map_goes_with_the_last_view_of_it(tmp_path):
    path = tmp_path / "numbers"
    np.arange(1000).tofile(path)
    half = np.frombuffer(mapped(path), np.int64)[500:]
    gc.collect()
    assert half[0] == 500
    assert maps_of(path) == 1
    del half
    assert maps_of(path) == 0


def test_what_is_written_to_a_private_map_stays_here(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"aaaa")
    mine = mapped(path, private=True)
    mine[0] = ord("b")
    assert (bytes(mine), bytes(mapped(path)), path.read_bytes()) == (b"baaa", b"aaaa", b"aaaa")


def test_others_cannot_be_written_to(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"aaaa")
    with pytest.raises(TypeError, match="read-only"):
        mapped(path)[0] = 1
    assert not np.frombuffer(mapped(path), np.uint8).flags.writeable


def test_an_empty_file_is_no_bytes(tmp_path):
    (tmp_path / "x").touch()
    assert bytes(mapped(tmp_path / "x", private=True)) == b""


def test_a_folder_is_refused_as_open_does(tmp_path):
    with pytest.raises(IsADirectoryError):
        mapped(tmp_path)


def test_where_a_process_can_have_no_more_maps_files_are_read(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    line = [sys.executable, "-c", NO_MORE_MAPS, tmp_path / "x"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[(b'abc', True), (b'abc', False)] 0\n", "")


def test_a_fit_of_more_partitions_than_a_process_may_open_files(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", MANY_PARTITIONS], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.stdout, done.stderr) == ("700 1400\n", "")
