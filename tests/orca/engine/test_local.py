"""The embedded engine's own promises: processes used again, shards in memory or in files, losses made good."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.orca.engine.gang import run_gang
from zoo.orca.engine.local import LocalEngine
from zoo.orca.engine.shelf import Shelf, copy_plain, plain_size
from zoo.orca.errors import InvalidArgumentError, WorkerLostError


@pytest.fixture
def local():
    with LocalEngine(cores=2) as engine:
        yield engine


def test_processes_are_used_again(local):
    def pids():
        return set(run_gang(local, lambda worker: os.getpid(), 2))

    first = pids()
    assert local.place([[1], [2]]).map(lambda index, shards: [os.getpid()]).fetch()[0][0] in first
    assert pids() == first
    (nursery,) = local.pids - first
    assert psutil.Process(min(first)).ppid() == nursery
    assert first < local.pids


def test_a_step_finds_its_shards_in_the_process_that_made_them(local):
    made = local.place([[1], [2], [3], [4]]).map(lambda index, shards: [os.getpid()])
    made.persist()
    made.compute()
    again = made.map(lambda index, shards: [(shard, os.getpid()) for shard in shards]).fetch()
    assert all(maker == reader for partition in again for maker, reader in partition)


def counted(folder, shards):
    for shard in shards:
        (folder / f"{time.monotonic_ns()}-{os.getpid()}").touch()
        yield shard * 10


def test_shards_lost_with_their_process_are_computed_again(local, tmp_path):
    made = local.place([[1], [2]]).map(lambda index, shards: counted(tmp_path, shards))
    made.persist()
    made.compute()
    assert len(list(tmp_path.iterdir())) == 2
    for pid in local.pids:
        os.kill(pid, signal.SIGKILL)
    assert made.map(lambda index, shards: shards).fetch() == [[10], [20]]
    assert len(list(tmp_path.iterdir())) == 4


def test_a_process_that_dies_at_its_work_is_replaced(local, tmp_path):
    made = local.place([[1], [2]]).map(lambda index, shards: counted(tmp_path, shards))
    made.persist()
    made.compute()

    def die_once(index, shards):
        if not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return shards

    assert made.map(die_once).fetch() == [[10], [20]]


def test_a_process_that_always_dies_gives_an_error(local):
    placed = local.place([[1]])
    with pytest.raises(WorkerLostError, match=r"partition 0 died 3 times \(signal 9\).*smaller shards"):
        placed.map(lambda index, shards: os.kill(os.getpid(), signal.SIGKILL)).compute()
    assert placed.fetch() == [[1]]


def test_a_failure_interrupts_the_others_and_loses_no_kept_shards(local, tmp_path):
    made = local.place([[1], [2]]).map(lambda index, shards: counted(tmp_path, shards))
    made.persist()
    made.compute()

    def fail(index, shards):
        if index == 0:
            raise KeyError("bad")
        time.sleep(300)

    started = time.monotonic()
    with pytest.raises(KeyError, match="bad"):
        made.map(fail).compute()
    assert time.monotonic() - started < 60
    assert made.map(lambda index, shards: shards).fetch() == [[10], [20]]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_failure_interrupts_no_import(local, tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text(
        "import time\nfrom pathlib import Path\nhere = Path(__file__).parent\n"
        "(here / 'begun').touch()\ntime.sleep(1)\n(here / 'done').touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def fail(index, shards):
        if index == 1:
            import slow  # noqa: F401

            time.sleep(300)
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        raise KeyError("bad")

    with pytest.raises(KeyError, match="bad"):
        local.place([[1], [2]]).map(fail).compute()
    assert (tmp_path / "done").exists()


def test_without_memory_everything_lies_in_files(tmp_path):
    with LocalEngine(cores=2, memory=0) as engine:
        made = engine.place([[np.arange(5)], [np.arange(3)]]).map(lambda index, shards: [s + 1 for s in shards])
        made.persist()
        made.compute()
        assert [partition[0].sum() for partition in made.map(lambda index, shards: shards).fetch()] == [15, 6]


def test_what_is_added_is_kept_beside_the_shards(tmp_path):
    def stored():
        return sum(file.stat().st_size for file in Path(os.environ["TMPDIR"]).glob("orca-local-*/*"))

    with LocalEngine(cores=2, memory=0) as engine:
        before = stored()
        made = engine.place([[1], [2]]).map(lambda index, shards: [np.full(100_000, each) for each in shards])
        made.persist()
        made.compute()
        size = stored() - before
        extended = made.extend(np.sum, lambda array, added: (array, added))
        extended.persist()
        extended.compute()
        assert stored() - before < size * 1.1
        assert [(len(array), added) for ((array, added),) in extended.fetch()] == [(100_000, 1e5), (100_000, 2e5)]


def test_shards_that_were_extended_are_computed_again(local, tmp_path):
    made = local.place([[1], [2]]).map(lambda index, shards: counted(tmp_path, shards))
    extended = made.extend(lambda shard: shard + 1, lambda shard, added: (shard, added))
    for each in (made, extended):
        each.persist()
        each.compute()
    assert len(list(tmp_path.iterdir())) == 2
    for pid in local.pids:
        os.kill(pid, signal.SIGKILL)
    assert extended.map(lambda index, shards: shards).fetch() == [[(10, 11)], [(20, 21)]]
    assert len(list(tmp_path.iterdir())) == 4


def test_bad_cores():
    with pytest.raises(InvalidArgumentError, match="cores must be at least 1, but is 0"):
        LocalEngine(cores=0)


PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.integers(),
        st.text(max_size=3),
        st.builds(np.arange, st.integers(0, 5)),
        st.builds(lambda n: pd.DataFrame({"a": np.arange(n), "s": ["x"] * n}), st.integers(0, 3)),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=3)),
    max_leaves=6,
)


@given(PLAIN)
@settings(deadline=None)
def test_copies_of_plain_shards_are_equal_and_share_nothing(shard):
    assert plain_size(shard) is not None
    copied = copy_plain(shard)
    spoil(copied)
    assert repr(copy_plain(shard)) == repr(shard)


def spoil(shard):
    if isinstance(shard, np.ndarray):
        shard += 1
    elif isinstance(shard, pd.DataFrame) and len(shard):
        shard.iloc[0, 0] = -1
    elif isinstance(shard, dict):
        for part in shard.values():
            spoil(part)
        shard["spoilt"] = True
    elif isinstance(shard, list):
        for part in shard:
            spoil(part)
        shard.append("spoilt")


@pytest.mark.parametrize(
    "shard",
    [object(), [object()], {"a": {1}}, np.array([[1], None], dtype=object), pd.DataFrame({"a": [[1], [2]]})],
    ids=["object", "list", "set", "objects", "frame-of-lists"],
)
def test_what_is_not_plain_is_not_kept(shard, tmp_path):
    assert plain_size(shard) is None


def test_a_shelf_keeps_within_its_budget(tmp_path):
    shelf = Shelf(budget=1000)
    assert shelf.keep(tmp_path / "a", [np.zeros(50)])
    assert not shelf.keep(tmp_path / "b", [np.zeros(50), np.zeros(50)])
    assert (tmp_path / "b").exists()
    shelf.drop([tmp_path / "a"])
    assert shelf.shards(tmp_path / "a", borrow=True) is None
    assert shelf.keep(tmp_path / "c", [np.zeros(100)])
    shelf.move_to_files([tmp_path / "c"])
    assert (tmp_path / "c").exists()


SCRIPT = """
import time, numpy as np
from zoo.orca.data import XShards
def slow(shard, seconds):
    time.sleep(seconds)
    return shard * 2
shards = XShards.partition(np.arange(4), 2)
print("started", flush=True)
print([shard.tolist() for shard in shards.transform_shard(slow, SECONDS).collect()])
"""


def script(folder: Path, seconds: float) -> list[str]:
    (folder / "script.py").write_text(SCRIPT.replace("SECONDS", str(seconds)))
    return [sys.executable, str(folder / "script.py")]


def test_a_plain_script_needs_no_main_guard(tmp_path):
    done = subprocess.run(script(tmp_path, 0), capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["started", "[[0, 2], [4, 6]]"]
    assert done.stderr == ""


@pytest.mark.alone
def test_control_c_ends_a_script_and_its_workers(tmp_path):
    running = subprocess.Popen(script(tmp_path, 300), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout.readline() == "started\n"
    time.sleep(1)
    workers = psutil.Process(running.pid).children(recursive=True)
    assert workers
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    assert psutil.wait_procs(workers, timeout=10)[1] == []


@pytest.mark.alone
def test_a_killed_driver_leaves_no_worker(tmp_path):
    running = subprocess.Popen(script(tmp_path, 300), stdout=subprocess.PIPE, text=True)
    running.stdout.readline()
    time.sleep(1)
    workers = psutil.Process(running.pid).children(recursive=True)
    running.kill()
    assert psutil.wait_procs(workers, timeout=20)[1] == []
    running.communicate()
    for left in Path(os.environ["TMPDIR"]).glob("orca-local-*"):
        for file in left.iterdir():
            file.unlink()
        left.rmdir()


GANG = """
from zoo.orca.engine.local import LocalEngine
from zoo.orca.engine.gang import GangOptions, run_gang
def work(worker):
    for step in range(1, 6):
        worker.report(step=step, total=5, loss=1 / step)
with LocalEngine(cores=2) as engine:
    run_gang(engine, work, 2, options=GangOptions(description="training"))
"""


def test_one_progress_bar_on_a_terminal_and_silence_elsewhere(tmp_path):
    quiet = subprocess.run([sys.executable, "-c", GANG], capture_output=True, text=True, check=True)
    assert (quiet.stdout, quiet.stderr) == ("", "")
    screen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    subprocess.run([sys.executable, "-c", GANG], stdout=terminal, stderr=terminal, check=True)
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(screen, 10_000)
        except OSError:
            break
    os.close(screen)
    assert b"training" in shown
    assert b"5/5" in shown
    assert b"loss=0.2" in shown
