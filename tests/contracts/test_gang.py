"""One suite for every engine: workers start together, speak, fail, are lost and stall alike."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
import time

import psutil
import pytest

from zoo.orca.engine.gang import GangOptions, run_gang
from zoo.orca.errors import (
    GangStalledError,
    InvalidArgumentError,
    NotEnoughSlotsError,
    NotPicklableError,
    WorkerError,
    WorkerLostError,
)


def test_workers_know_themselves_and_each_other(engine):
    def who(worker):
        with socket.create_server(worker.rendezvous) if worker.rank == 0 else socket.socket():
            worker.barrier()
        return worker.rank, worker.world_size, worker.local_rank, worker.local_size, worker.peers, worker.rendezvous

    results = run_gang(engine, who, 3)
    assert [result[:4] for result in results] == [(0, 3, 0, 3), (1, 3, 1, 3), (2, 3, 2, 3)]
    assert {result[4:] for result in results} == {results[0][4:]}
    assert len(results[0][4]) == 3


def test_workers_run_at_the_same_time_and_gather(engine):
    def together(worker, base):
        return [worker.all_gather((round_, base + worker.rank)) for round_ in range(3)]

    results = run_gang(engine, together, 4, 100)
    assert results == [[[(round_, 100 + rank) for rank in range(4)] for round_ in range(3)]] * 4


@pytest.mark.parametrize(
    ("partitions", "workers", "expected"),
    [
        ([["a"], ["b"]], 2, [[(0, "a")], [(1, "b")]]),
        ([["a", "b"], [], ["c"]], 2, [[(0, "a"), (0, "b")], [(2, "c")]]),
        ([["a"]], 3, [[(0, "a")], [], []]),
        ([[]], 2, [[], []]),
        ([[1], [2], [3], [4], [5]], 2, [[(0, 1), (1, 2), (2, 3)], [(3, 4), (4, 5)]]),
    ],
    ids=["even", "ragged", "more-workers-than-shards", "no-rows", "more-shards-than-workers"],
)
def test_shards_are_dealt_to_ranks(engine, partitions, workers, expected):
    placed = engine.place(partitions).map(lambda index, shards: shards)
    assert run_gang(engine, lambda worker: list(worker.shards), workers, data=placed) == expected


class Odd(Exception):
    """An exception of a script."""


def test_what_a_worker_raises_arrives_as_that_type_and_ends_the_others(engine, tmp_path):
    def fail(worker):
        (tmp_path / str(worker.rank)).write_text(str(os.getpid()))
        worker.barrier()
        worker.report(step=7)
        if worker.rank == 1:
            raise Odd("a bad batch")
        time.sleep(300)

    started = time.monotonic()
    with pytest.raises(Odd, match="a bad batch") as caught:
        run_gang(engine, fail, 3, options=GangOptions(max_failures=5))
    assert time.monotonic() - started < 60
    error = caught.value
    assert (error.rank, error.step) == (1, 7)
    assert 'raise Odd("a bad batch")' in error.remote_traceback
    assert "raised on rank 1, step 7" in error.__notes__[0]
    assert isinstance(error.__cause__, WorkerError)
    assert "in fail" in str(error.__cause__)
    for rank in (0, 2):
        _wait_until_gone(int((tmp_path / str(rank)).read_text()))


def test_an_exception_that_cannot_travel_arrives_as_words(engine):
    class Stubborn(Exception):
        def __init__(self, needed, also_needed):
            super().__init__("stubborn")

    def fail(worker):
        raise Stubborn(1, 2)

    with pytest.raises(WorkerError, match=r"Stubborn: stubborn \(raised on rank 0, no step known yet\)"):
        run_gang(engine, fail, 1)


@pytest.mark.engines("local")
def test_an_exception_that_only_workers_can_read_arrives_as_words(engine):
    driver = os.getpid()

    def only_here():
        if os.getpid() == driver:
            raise ImportError("not on the driver")
        return KeyError("spoilt")

    class Foreign(Exception):
        def __reduce__(self):
            return only_here, ()

    def fail(worker):
        raise Foreign("row 3 is spoilt")

    with pytest.raises(WorkerError, match="Foreign: row 3 is spoilt"):
        run_gang(engine, fail, 1)


def test_a_lost_process_is_told_apart_and_not_retried_without_a_budget(engine):
    def die(worker):
        worker.report(step=2)
        worker.barrier()
        if worker.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        worker.barrier()

    with pytest.raises(WorkerLostError, match=r"lost rank\(s\) 1 of 2 .* \(rank 1: step 2\)") as caught:
        run_gang(engine, die, 2)
    assert caught.value.ranks == (1,)


def test_a_lost_process_restarts_the_gang_within_its_budget(engine, caplog):
    def die_twice(worker):
        worker.barrier()
        if worker.rank == 0 and worker.attempt < 2:
            os.kill(os.getpid(), signal.SIGKILL)
        worker.barrier()
        return worker.attempt, list(worker.shards)

    placed = engine.place([["a"], ["b"]])
    with caplog.at_level(logging.WARNING, logger="zoo.orca"):
        results = run_gang(engine, die_twice, 2, data=placed, options=GangOptions(max_failures=2))
    assert results == [(2, [(0, "a")]), (2, [(1, "b")])]
    assert sum("Restarting the gang" in record.message for record in caplog.records) == 2


def test_a_process_that_ends_itself_is_lost(engine):
    def leave(worker):
        worker.barrier()
        if worker.rank == 1:
            os._exit(0)
        time.sleep(300)

    with pytest.raises(WorkerLostError, match=r"lost rank\(s\) 1 of 2") as caught:
        run_gang(engine, leave, 2)
    assert caught.value.ranks == (1,)


def test_each_restart_may_have_other_arguments(engine):
    def die_until_told_otherwise(worker, lives):
        worker.barrier()
        if worker.rank == 1 and lives:
            os._exit(1)
        worker.barrier()
        return worker.attempt, lives

    asked = []

    def again(lost):
        asked.append(lost.ranks)
        return (2 - len(asked),)

    options = GangOptions(max_failures=2, again=again)
    assert run_gang(engine, die_until_told_otherwise, 2, 2, options=options) == [(2, 0)] * 2
    assert asked == [(1,), (1,)]


def test_a_pair_of_sizes_takes_what_there_is(engine, monkeypatch, caplog):
    monkeypatch.setattr("zoo.orca.engine.base.ROOM_SECONDS", 0.5)
    assert run_gang(engine, lambda worker: worker.world_size, (1, 3)) == [3] * 3
    if engine.name == "local":
        assert engine.check_gang(9, 2) == 9
        return
    assert engine.check_gang(4, 2) == 4
    assert run_gang(engine, lambda worker: worker.world_size, (2, 9)) == [4] * 4
    assert "There is room for 4 of 9 workers" in caplog.text
    with pytest.raises(NotEnoughSlotsError, match=r"5 workers must run at once.* 4 .*at most 4 workers"):
        run_gang(engine, lambda worker: worker.rank, (5, 9))


def test_an_interrupted_driver_ends_all_workers(engine, tmp_path):
    def work_on(worker):
        (tmp_path / str(worker.rank)).write_text(str(os.getpid()))
        worker.barrier()
        worker.report(step=1)
        time.sleep(300)

    def interrupt(rank, report):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_gang(engine, work_on, 2, options=GangOptions(max_failures=3, on_report=interrupt))
    for rank in (0, 1):
        _wait_until_gone(int((tmp_path / str(rank)).read_text()))


def test_a_users_exception_is_never_retried(engine, tmp_path):
    def fail(worker):
        (tmp_path / f"attempt-{worker.attempt}").touch()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_gang(engine, fail, 2, options=GangOptions(max_failures=3))
    assert [path.name for path in tmp_path.iterdir()] == ["attempt-0"]


@pytest.mark.alone
def test_a_stall_names_the_silent_rank_and_shows_all_stacks(engine):
    def oversleep(worker):
        worker.report(step=4)
        if worker.rank == 1:
            time.sleep(300)
        worker.barrier()

    with pytest.raises(GangStalledError, match=r"rank\(s\) 1 reported nothing for 1 s") as caught:
        run_gang(engine, oversleep, 2, options=GangOptions(stall_timeout=1))
    assert caught.value.ranks == (1,)
    assert "time.sleep(300)" in caught.value.stacks[1]
    assert "worker.barrier()" in caught.value.stacks[0]
    assert "rank 1: step 4" in str(caught.value)


@pytest.mark.alone
def test_a_rank_that_waits_for_others_is_not_blamed(engine):
    def oversleep(worker):
        worker.report(step=4)
        if worker.rank == 1:
            time.sleep(0.5)
            worker.report(step=5)  # the last word, and yet it holds up the others
            time.sleep(300)
        with worker.waiting():
            time.sleep(300)

    with pytest.raises(GangStalledError, match=r"rank\(s\) 1 reported nothing for 1 s") as caught:
        run_gang(engine, oversleep, 3, options=GangOptions(stall_timeout=1))
    assert caught.value.ranks == (1,)
    assert sorted(caught.value.stacks) == [0, 1, 2]
    assert "rank 0: step 4, waits for others, rank 1: step 5, rank 2: step 4, waits for others" in str(caught.value)


@pytest.mark.alone
def test_where_all_wait_all_are_blamed_but_those_that_finished(engine):
    def never_together(worker):
        worker.report(step=1)
        if worker.rank == 1:
            return
        if worker.rank == 2:
            worker.barrier()
        with worker.waiting():
            time.sleep(300)

    with pytest.raises(GangStalledError, match=r"rank\(s\) 0, 2 reported nothing.*rank 1: finished") as caught:
        run_gang(engine, never_together, 3, options=GangOptions(stall_timeout=1))
    assert caught.value.ranks == (0, 2)
    assert sorted(caught.value.stacks) == [0, 2]


@pytest.mark.alone
@pytest.mark.engines("local")
def test_a_rank_that_does_not_answer_is_blamed(engine, monkeypatch):
    monkeypatch.setattr("zoo.orca.engine.gang.STACKS_SECONDS", 0.5)

    def stop(worker):
        with worker.waiting():
            worker.report(step=1)
            if worker.rank == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(300)

    with pytest.raises(GangStalledError) as caught:
        run_gang(engine, stop, 2, options=GangOptions(stall_timeout=1))
    assert caught.value.ranks == (1,)
    assert "no answer" in caught.value.stacks[1]


@pytest.mark.alone
def test_others_may_wait_for_a_rank_that_works_on(engine):
    def work(worker):
        with worker.waiting():
            for step in range(12):
                if worker.rank == 1:
                    worker.report(step=step)
                time.sleep(0.25)
        return "done"

    assert run_gang(engine, work, 2, options=GangOptions(stall_timeout=2)) == ["done", "done"]


def test_more_workers_than_slots(engine):
    if engine.name == "local":
        assert run_gang(engine, lambda worker: worker.rank, 9) == list(range(9))
    else:
        with pytest.raises(NotEnoughSlotsError, match=r"9 workers must run at once.* 4 .*at most 4 workers.*cores=9"):
            run_gang(engine, lambda worker: worker.rank, 9)


def test_bad_gangs_are_refused_before_anything_starts(engine):
    lock = threading.Lock()
    with pytest.raises(NotPicklableError, match="the variable 'lock'"):
        run_gang(engine, lambda worker: lock, 2)
    with pytest.raises(NotPicklableError, match=r"item 0, a _thread\.lock"):
        run_gang(engine, lambda worker, arg: arg, 2, lock)
    for wrong in (0, (0, 2), (3, 2)):
        with pytest.raises(
            InvalidArgumentError, match=f"at least 1 worker, but num_workers is {re.escape(str(wrong))}"
        ):
            run_gang(engine, lambda worker: 1, wrong)


def test_a_result_that_cannot_travel_is_named(engine):
    with pytest.raises(NotPicklableError, match="what the function returned cannot be sent"):
        run_gang(engine, lambda worker: threading.Lock(), 2)


def test_logs_of_workers_reach_the_driver(engine, caplog):
    def talk(worker):
        logging.getLogger("mine").warning("hello from %d", worker.rank)
        logging.getLogger("mine").debug("too quiet")

    run_gang(engine, talk, 2)
    said = sorted(record.getMessage() for record in caplog.records if record.name == "mine")
    assert said == ["[rank 0] hello from 0", "[rank 1] hello from 1"]


@pytest.mark.engines("local")
def test_a_forked_process_leaves_the_line_alone(engine, caplog):
    """It inherits the connection, and a lock that a thread of its parent may hold at that moment."""

    def fork(worker):
        line = worker._desk.line
        with line._lock:
            child = os.fork()
            if child == 0:
                logging.getLogger("mine").warning("from the child")
                os._exit(0 if line._sock.fileno() == -1 else 9)
            ended = os.waitpid(child, 0)[1]
        logging.getLogger("mine").warning("from the parent")
        return ended

    assert run_gang(engine, fork, 1) == [0]
    assert [record.getMessage() for record in caplog.records if record.name == "mine"] == ["[rank 0] from the parent"]


def test_reports_reach_the_driver_in_order(engine):
    def steps(worker):
        for step in range(1, 4):
            worker.report(step=step, total=3, loss=step / 2)

    seen = []
    run_gang(engine, steps, 2, options=GangOptions(on_report=lambda rank, report: seen.append((rank, report))))
    for rank in (0, 1):
        mine = [report for who, report in seen if who == rank]
        assert [(each.step, each.total, each.metrics) for each in mine] == [
            (step, 3, {"loss": step / 2}) for step in (1, 2, 3)
        ]


def test_gangs_again_and_again(engine):
    for workers in (2, 4, 1, 3):
        assert (
            run_gang(engine, lambda worker: worker.all_gather(worker.rank), workers) == [list(range(workers))] * workers
        )


def test_large_results_and_arguments(engine):
    blob = os.urandom(5_000_000)
    assert run_gang(engine, lambda worker, given: given, 2, blob) == [blob, blob]


def _wait_until_gone(pid):
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"process {pid} of a sleeping rank lives on"
        time.sleep(0.05)
