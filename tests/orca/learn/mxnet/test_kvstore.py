"""MXNet's kvstore between ranks: sums to the bit, doors that are locked, and nothing that unpickles."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import socket
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.orca.engine.gang import run_gang
from zoo.orca.errors import InvalidArgumentError, MissingPackageError, StrangerError
from zoo.orca.learn.sync import kvstore, kvstore_sums, make_sync
from zoo.orca.learn.sync.kvstore import KVStoreSync
from zoo.orca.learn.sync.sealed import doors
from zoo.orca.learn.sync.solo import SoloGroup
from zoo.orca.learn.sync.timed import TimedGroup
from zoo.orca.mxnet_library import load

SHAPES = [(3, 4), (200, 300), (5,), (2, 3, 4), (1,)]


def fill(mx, rank, turn, dtype):
    """Whole numbers, so that sums are exact in any order."""
    random = np.random.default_rng([rank, turn])
    return [mx.nd.array(random.integers(-50, 50, shape), dtype=dtype) for shape in SHAPES]


def assert_sums(group, worker, dtypes):
    """Arrays are summed in place, again and again, also where their type changes."""
    mx, timed = load(), TimedGroup(group, worker)
    for turn, dtype in enumerate(dtypes):
        arrays = fill(mx, worker.rank, turn, dtype)
        timed.sum_arrays(arrays)
        by_rank = [fill(mx, rank, turn, dtype) for rank in range(worker.world_size)]
        for array, *parts in zip(arrays, *by_rank, strict=True):
            assert array.dtype == np.dtype(dtype)
            np.testing.assert_array_equal(array.asnumpy(), sum(part.asnumpy() for part in parts))
    timed.sum_arrays([])
    assert timed.seconds > 0


def roles():
    """The scheduler and servers of this process, which may have other children: it is used again and again."""
    alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if "zoo.orca.learn.sync.kvstore_roles" in child.cmdline()]


def assert_doors_are_locked():
    processes = [psutil.Process(), *roles()]
    opened = [door for process in processes for door in doors([process.pid])]
    assert len(opened) == len(processes)
    assert {host for host, _ in opened} == {"127.0.0.1"}
    for door in opened:
        with pytest.raises(TimeoutError):
            socket.create_connection(door, timeout=0.2)


@pytest.mark.engines("local")
def test_more_servers_than_ranks_behind_locked_doors(engine, tmp_path):
    """The first port is taken meanwhile. MXNet's own servers would unpickle what a worker, or a stranger, sends."""

    def agree(worker, mark):
        free_port, offered = kvstore._free_port, []
        with socket.create_server(("127.0.0.1", 0)) as taken:

            def offer(host):
                offered.append(free_port(host) if offered else taken.getsockname()[1])
                return offered[-1]

            kvstore._free_port = offer
            try:
                joined = KVStoreSync(3).join(worker)
                group = joined.__enter__()
            finally:
                kvstore._free_port = free_port
        with contextlib.ExitStack() as stack:
            stack.push(joined)
            assert_doors_are_locked()
            if worker.rank == 0:
                group.store._send_command_to_servers(0, pickle.dumps(Evil(mark), protocol=0).decode())
            assert_sums(group, worker, ["float32", "float32", "float16", "float64", "float32"])
            return len(offered), group.store.num_workers, len(roles())

    assert run_gang(engine, agree, 2, tmp_path / "unpickled") == [(2, 2, 3), (0, 2, 1)]
    assert not (tmp_path / "unpickled").exists()


class Evil:
    """Who unpickles this makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class Doubling:
    """A kvstore of two ranks that always have the same."""

    def __init__(self):
        self.inited, self.messages = {}, 0

    def init(self, key, value):
        assert key not in self.inited
        self.inited[key] = value.shape, value.dtype

    def pushpull(self, key, value, out, priority):
        assert self.inited[key] == (value.shape, value.dtype)
        self.messages += 1
        out[:] = value * 2


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.sampled_from(["float32", "float64"])),
        max_size=12,
    ),
    st.integers(2, 40),
    st.integers(1, 100),
)
def test_fused_or_alone_every_array_gets_its_own_sum(arrays, small, bucket):
    mx, store, patched = load(), Doubling(), pytest.MonkeyPatch()
    with patched.context() as patch:
        patch.setattr(kvstore_sums, "SMALL", small)
        patch.setattr(kvstore_sums, "BUCKET", max(bucket, small))
        sums = kvstore_sums.ArraySums(store, itertools.count(7))
        for turn in (1, 2):
            mine = [mx.nd.full(shape, turn * 100 + place, dtype=dtype) for place, (shape, dtype) in enumerate(arrays)]
            sums.start(mine)()
            for place, array in enumerate(mine):
                np.testing.assert_array_equal(array.asnumpy(), 2.0 * (turn * 100 + place))
    assert store.messages == 2 * len(store.inited)


def test_small_arrays_travel_together():
    mx, store = load(), Doubling()
    sums = kvstore_sums.ArraySums(store, itertools.count())
    sums.start([mx.nd.ones(shape) for shape in [(64, 64), (64,)] * 60 + [(300, 300)]])()
    assert store.messages == 2


INTRUDE = (
    "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1 << 16); s.recv(1)"
)


@pytest.mark.engines("local")
@pytest.mark.parametrize("times", [1, 9])
def test_a_stranger_who_comes_while_they_connect_is_found(engine, times):
    def agree(worker):
        started, waited = [], kvstore.wait_until_connected

        def wait(expected, *rest):
            if worker.rank == 1 and len(started) < times:
                (door, *_) = expected
                started.append(subprocess.Popen([sys.executable, "-S", "-c", INTRUDE, str(door[1])]))
                time.sleep(0.3)
            waited(expected, *rest)

        kvstore.wait_until_connected = wait
        try:
            with KVStoreSync(1).join(worker) as group:
                assert_sums(group, worker, ["float32"])
                return len(roles()), len(started)
        finally:
            kvstore.wait_until_connected = waited
            for each in started:
                each.kill()
                each.wait()

    if times == 1:
        assert run_gang(engine, agree, 2) == [(2, 0), (0, 1)]  # the scheduler and the server; the stranger
        return
    with pytest.raises(StrangerError, match=r"connected to the workers \(127.0.0.1:.* each of the 3 times"):
        run_gang(engine, agree, 2)


def test_a_group_of_one_has_nothing_to_sum():
    assert not hasattr(SoloGroup(), "sum_arrays")


def test_bad_settings_are_told(monkeypatch):
    with pytest.raises(InvalidArgumentError, match="num_servers must be at least 1, but 0 was given"):
        make_sync("kvstore", num_servers=0)
    make_sync("kvstore").check()
    monkeypatch.setitem(sys.modules, "mxnet", None)
    with pytest.raises(MissingPackageError, match=r"needs the package 'mxnet'.*Type: "):
        make_sync("kvstore").check()
