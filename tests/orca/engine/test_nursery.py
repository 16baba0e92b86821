"""Workers of the embedded engine are forks of one process, and yet what fresh processes would be."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from zoo.orca.engine.gang import run_gang
from zoo.orca.engine.local import LocalEngine
from zoo.orca.errors import WorkerLostError


@pytest.fixture
def local():
    with LocalEngine(cores=2) as engine:
        yield engine


def ask(engine, question, workers=2):
    return run_gang(engine, lambda worker: question(), workers)


def nursery_of(engine):
    (nursery,) = set(ask(engine, os.getppid))
    assert nursery in engine.pids
    assert psutil.Process(nursery).ppid() == os.getpid()
    return nursery


def test_what_a_function_names_is_imported_once_for_all_and_nothing_else(local):
    import torch

    nursery = nursery_of(local)
    assert not has_torch(nursery)
    dtypes = ask(local, lambda: torch.zeros(1).dtype, workers=4)
    assert dtypes == [torch.float32] * 4
    assert has_torch(nursery)
    assert nursery_of(local) == nursery


def has_torch(pid):
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text()


def kill(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(10)


def test_a_worker_that_takes_a_lost_ones_place_is_of_the_same_nursery(local):
    nursery, (lost, left) = nursery_of(local), sorted(ask(local, os.getpid))
    kill([lost])
    now = set(ask(local, os.getpid))
    assert left in now
    assert lost not in now
    assert nursery_of(local) == nursery


def test_random_numbers_of_workers_differ(local):
    import torch

    ask(local, lambda: torch.get_num_threads())
    assert "_multiarray_umath" in Path(f"/proc/{nursery_of(local)}/maps").read_text()  # so that forks share its state
    ask(local, lambda: np.random.seed(1))
    one, other, *more = ask(local, lambda: np.random.rand(), workers=4)
    assert one == other  # these had been seeded
    assert len({one, *more}) == 3


def test_a_worker_sees_the_variables_of_the_moment_and_older_ones_go_on(local, monkeypatch):
    old = set(ask(local, os.getpid))
    kept = local.place([[1], [2]]).map(lambda index, shards: [(shard, os.getpid()) for shard in shards])
    kept.persist()
    kept.compute()
    monkeypatch.setenv("ORCA_TEST_WORD", "whale")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    seen = ask(local, lambda: (os.getpid(), os.environ.get("ORCA_TEST_WORD"), os.environ["OMP_NUM_THREADS"]), workers=4)
    assert {word for pid, word, threads in seen if pid not in old} == {"whale"}
    assert {threads for pid, word, threads in seen if pid not in old} == {"3"}
    assert {word for pid, word, threads in seen if pid in old} == {None}
    assert old < {pid for pid, *_ in seen}
    assert [shards[0][0] for shards in kept.fetch()] == [1, 2]


def test_variables_that_come_back_find_their_nursery_again(local, monkeypatch):
    nursery = nursery_of(local)
    with monkeypatch.context() as changed:
        changed.setenv("ORCA_TEST_WORD", "whale")
        kill(ask(local, os.getpid))
        other = nursery_of(local)
    kill(ask(local, os.getpid))
    assert nursery_of(local) == nursery != other
    for word in ("one", "two", "three"):
        monkeypatch.setenv("ORCA_TEST_WORD", word)
        kill(ask(local, os.getpid))
        last = nursery_of(local)
    assert len(left_of(local, last)) <= 1


def left_of(engine, current):
    """Nurseries that wait for their variables."""
    workers = set(ask(engine, os.getpid))
    deadline = time.monotonic() + 10
    while len(left := engine.pids - workers - {current}) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)  # one that retired ends in a moment
    return left


def test_a_worker_begins_in_the_folder_of_the_driver(local, tmp_path, monkeypatch):
    nursery = nursery_of(local)
    (tmp_path / "whales.py").write_text("name = 'orca'")
    monkeypatch.chdir(tmp_path)

    def where():
        import whales

        return os.getppid(), os.getcwd(), whales.name

    with pytest.raises(Exception, match="whales"):  # started elsewhere
        ask(local, where)
    kill(ask(local, os.getpid))
    assert ask(local, where) == [(nursery, str(tmp_path), "orca")] * 2


def test_a_worker_writes_where_the_driver_writes_now(local, capfd):
    with capfd.disabled():
        nursery_of(local)
        kill(ask(local, os.getpid))
    ask(local, lambda: os.write(2, b"from a worker\n"), workers=4)
    assert capfd.readouterr().err.count("from a worker") == 4


def test_where_no_more_processes_may_be_the_others_go_on(local, tmp_path, monkeypatch):
    """The nursery may not fork, as at a limit of the system: that is told, and nobody else is harmed."""
    words = (
        "import os\ndef refuse():\n    raise BlockingIOError(11, 'Resource temporarily unavailable')\nos.fork = refuse"
    )
    (tmp_path / "no_more_forks.py").write_text(words)
    monkeypatch.syspath_prepend(str(tmp_path))
    workers = set(ask(local, os.getpid))
    local.expect(["no_more_forks"])
    *old, new = local._pool.take(3)
    assert {each.pid for each in old} == workers
    assert not new.is_free(10)
    assert new.end_words() == "it could not be started: [Errno 11] Resource temporarily unavailable"
    local._pool.drop(new)
    for each in old:
        local._pool.give_back(each)
    assert set(ask(local, os.getpid)) == workers


def test_workers_are_seen_to_end(local):
    """A process that nobody waits for stays in the system's table where the first process does not look after it."""
    workers = [psutil.Process(pid) for pid in ask(local, os.getpid, workers=4)]
    local.close()
    assert not any(each.is_running() for each in workers)  # psutil counts what has ended, and waits, as running


def test_a_daemon_does_not_keep_a_dead_workers_line_open(local, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def leave(index, shards):
        os.system("sleep 60 & echo $! >> daemons")
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerLostError, match=r"died 3 times"):
        local.place([[1]]).map(leave).compute()
    for line in Path("daemons").read_text().split():
        os.kill(int(line), signal.SIGKILL)


def test_how_a_worker_ended_is_told(local):
    with pytest.raises(WorkerLostError, match=r"died 3 times \(exit code 3\)"):
        local.place([[1]]).map(lambda index, shards: os._exit(3)).compute()


def test_a_nursery_that_is_killed_is_replaced(local):
    nursery = nursery_of(local)
    made = local.place([[1], [2]]).map(lambda index, shards: [shard * 10 for shard in shards])
    made.persist()
    made.compute()
    kill([nursery])
    assert made.map(lambda index, shards: shards).fetch() == [[10], [20]]
    assert nursery_of(local) != nursery
    assert not psutil.pid_exists(nursery)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_driver_without_outputs_has_workers_all_the_same(tmp_path, closed):
    (tmp_path / "script.py").write_text(
        "import subprocess, sys\n"
        "from zoo.orca.engine.local import LocalEngine\n"
        "with LocalEngine(cores=2) as engine:\n"
        "    engine.expect(['pandas'])\n"
        "    def times_seven(index, shards):\n"
        "        for number in (1, 2):\n"
        "            subprocess.run([sys.executable, '-Sc', f'import os; os.write({number}, bytes(9))'])\n"
        "        return [7 * each for each in shards]\n"
        "    for _ in range(2):\n"
        "        found = engine.place([[1], [2]]).map(times_seven).fetch()\n"
        "open('found', 'w').write(str(found))\n"
    )
    subprocess.run(["bash", "-c", f"exec {sys.executable} script.py {closed}"], cwd=tmp_path, check=True, timeout=120)
    assert (tmp_path / "found").read_text() == "[[7], [14]]"


def test_an_engine_that_is_closed_at_once_leaves_nothing():
    import torch  # noqa: F401 - what is to be imported takes longer than this test has

    engine = LocalEngine(cores=2)
    engine.expect(["torch"])
    asked = engine._pool.take(2)
    held = {psutil.Process(pid) for pid in engine.pids}
    assert held
    engine.close()
    assert [process.alive for process in asked] == [False, False]
    assert psutil.wait_procs(held, timeout=10)[1] == []
