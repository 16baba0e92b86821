"""One suite for every sync, on every engine: sums, slices and moves agree, and nothing stays behind."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zoo.orca.engine.gang import GangOptions, run_gang
from zoo.orca.errors import (
    GangStalledError,
    InvalidArgumentError,
    MissingPackageError,
    StrangerError,
    WorkerLostError,
)
from zoo.orca.learn.sync import SYNCS, make_sync
from zoo.orca.learn.sync.timed import TimedGroup

# Where all ranks share a host, gloo must be asked for.
KINDS = {
    "bigdl": ("bigdl", {}),
    "bigdl-gloo": ("bigdl", {"shared_memory": False}),
    "torch_distributed": ("torch_distributed", {}),
    "torch_distributed-gloo": ("torch_distributed", {"shared_memory": False}),
    "horovod": ("horovod", {}),
    "kvstore": ("kvstore", {}),
}
# Longer than the scratch memory of a rank, and than what is summed at once.
LENGTHS = (1, 5, 5000, 300_001)


def numbers(rank, length, dtype):
    return np.random.default_rng(rank).integers(-1000, 1000, length).astype(dtype)


def check_collectives(group, lengths=LENGTHS, dtypes=(np.float32, np.float64, np.int64)):
    """Whole numbers, so that sums are exact in any order."""
    for dtype in dtypes:
        for length in lengths:
            by_rank = [numbers(rank, length, dtype) for rank in range(group.world_size)]
            for make in (np.empty, group.empty):
                check_sums(group, make(length, dtype), by_rank)
                check_moves(group, make(length, dtype), by_rank)


def check_sums(group, flat, by_rank):
    total, tail = sum(by_rank), min(3, len(flat))
    flat[:] = by_rank[group.rank]
    group.all_reduce(flat)
    np.testing.assert_array_equal(flat, total)
    flat[:] = by_rank[group.rank]
    group.reduce_scatter(flat, tail)
    mine = group.slice(len(flat) - tail)
    np.testing.assert_array_equal(flat[mine], total[mine])
    np.testing.assert_array_equal(flat[-tail:], total[-tail:])


def check_moves(group, flat, by_rank):
    flat[:] = by_rank[group.rank]
    for rank, part in enumerate(group.all_gather(flat)):
        np.testing.assert_array_equal(part, by_rank[rank][group.slice(len(flat), rank)])
    group.broadcast(flat.copy())
    flat[:] = by_rank[group.rank]
    group.broadcast(flat)
    np.testing.assert_array_equal(flat, by_rank[0])


def traces():
    """What a process would keep if a group did not leave cleanly; descriptors tell sockets and anonymous files."""
    process = psutil.Process()
    listening = {each.laddr.port for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN}
    threads = {thread.name for thread in threading.enumerate()}
    return listening, threads, dict(os.environ), [name for name in files() if "orca-sync" in name]


def files():
    for number in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue


def test_ranks_agree_again_and_again_and_leave_nothing(engine):
    def agree(worker, kinds):
        left = {}
        for kind in kinds:
            name, options = KINDS[kind]
            for turn in range(2):
                with make_sync(name, **options).join(worker) as group:
                    assert (group.rank, group.world_size) == (worker.rank, worker.world_size)
                    check_collectives(group, (5, 70_001), (np.float32, np.int64))
                worker.barrier()
                left[kind, turn] = traces()
        return left

    for kinds in (list(KINDS), list(KINDS)[::-1]):  # Spark uses its Python workers again
        for left in run_gang(engine, agree, 3, kinds):
            for kind in kinds:
                listening, threads, environment, memory = left[kind, 1]
                assert (listening, threads, environment) == left[kind, 0][:3], kind
                assert not memory, kind
                assert not [name for name in environment if name.startswith(("HOROVOD", "GLOO", "DMLC"))], kind


@pytest.mark.engines("local")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_all_lengths_and_types(engine, kind, world_size):
    def agree(worker, sync):
        with sync.join(worker) as group:
            timed = TimedGroup(group, worker)
            assert (timed.rank, timed.world_size, timed.device) == (group.rank, group.world_size, group.device)
            check_collectives(timed)
            assert timed.seconds > 0

    name, options = KINDS[kind]
    run_gang(engine, agree, world_size, make_sync(name, **options))


@pytest.mark.engines("local")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    world_size=st.integers(2, 4),
    lengths=st.lists(st.integers(0, 9000), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
)
def test_shared_memory_sums_in_the_order_of_ranks(engine, world_size, lengths, seed):
    """To the bit what adding rank after rank gives, in whatever order buffers of all sizes come."""

    def agree(worker, sync):
        random = np.random.default_rng(seed)
        with sync.join(worker) as group:
            own = group.empty(max(lengths), np.float32)
            for length in lengths:
                by_rank = [random.standard_normal(length, np.float32) for _ in range(worker.world_size)]
                flat = own[:length] if random.random() < 0.5 else np.empty(length, np.float32)
                flat[:] = by_rank[worker.rank]
                group.all_reduce(flat)
                expected = by_rank[0]
                for each in by_rank[1:]:
                    expected = expected + each
                assert flat.tobytes() == expected.tobytes()

    run_gang(engine, agree, world_size, make_sync("bigdl"))


@pytest.mark.engines("local")
def test_torch_tensors_are_buffers_too(engine):
    def agree(worker, sync):
        import torch

        with sync.join(worker) as group:
            flat = torch.full((10,), float(worker.rank + 1), requires_grad=True)
            group.all_reduce(flat)
            shared = torch.from_numpy(group.empty(10_000, np.float64))
            shared.fill_(worker.rank + 1)
            group.all_reduce(shared)
            return flat.detach().tolist(), shared.unique().tolist()

    for name in ("bigdl", "torch_distributed", "horovod"):
        assert run_gang(engine, agree, 2, make_sync(name)) == [([3.0] * 10, [3.0])] * 2


@pytest.mark.engines("local")
@pytest.mark.parametrize("world_size", [1, 2])
def test_the_libraries_are_there_for_users(engine, world_size):
    def in_torch(worker, sync):
        import torch
        import torch.distributed as dist

        with sync.join(worker):
            ones = torch.ones(2)
            dist.all_reduce(ones)
            inside = dist.get_world_size(), ones.tolist()
        return inside, dist.is_initialized()

    def in_horovod(worker, sync):
        import horovod.torch as hvd
        import torch

        with sync.join(worker):
            inside = hvd.size(), hvd.allreduce(torch.ones(2), op=hvd.Sum, name="mine").tolist()
        return inside, hvd.is_initialized()

    expected = [((world_size, [float(world_size)] * 2), False)] * world_size
    assert run_gang(engine, in_torch, world_size, make_sync("torch_distributed")) == expected
    assert run_gang(engine, in_horovod, world_size, make_sync("horovod")) == expected


@pytest.mark.engines("local")
def test_ranks_that_cannot_share_memory_use_gloo_together(engine):
    def agree(worker, sync):
        from zoo.orca.learn.sync import shared_memory

        opened, shared_memory._open_offered = shared_memory._open_offered, lambda *_: None
        try:
            with sync.join(worker) as group:
                check_collectives(group, (5, 5000))
                return type(group).__name__, [name for name in files() if "orca-sync" in name]
        finally:
            shared_memory._open_offered = opened

    assert run_gang(engine, agree, 2, make_sync("bigdl")) == [("TorchGroup", [])] * 2


@pytest.mark.engines("local")
def test_a_file_of_another_process_is_not_taken_for_ours(engine):
    """In another container a pid and a descriptor mean something else."""
    from zoo.orca.learn.sync.shared_memory import _open_offered

    descriptor = os.memfd_create("somebody's")
    try:
        os.write(descriptor, b"something else entirely")
        assert _open_offered(os.getpid(), descriptor, b"0" * 16) is None
        assert _open_offered(os.getpid(), 10_000, b"0" * 16) is None
    finally:
        os.close(descriptor)


@pytest.mark.engines("local")
def test_a_killed_rank_ends_the_gang_and_the_next_one_works(engine):
    def die(worker, sync):
        with sync.join(worker) as group:
            flat = group.empty(100_000, np.float32)
            group.all_reduce(flat)
            if worker.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            group.all_reduce(flat)

    def live(worker, sync):
        with sync.join(worker) as group:
            check_collectives(group, (5000,))

    with pytest.raises(WorkerLostError, match=r"lost rank\(s\) 1"):
        run_gang(engine, die, 3, make_sync("bigdl"))
    run_gang(engine, live, 3, make_sync("bigdl"))


@pytest.mark.engines("local")
def test_an_error_within_reaches_the_caller(engine):
    def fail(worker, sync):
        with sync.join(worker) as group:
            if worker.rank == 1:
                raise KeyError("mine")
            group.all_reduce(np.zeros(10))

    for name, options in (KINDS["bigdl"], KINDS["torch_distributed-gloo"], KINDS["horovod"]):
        with pytest.raises(KeyError, match="mine"):
            run_gang(engine, fail, 2, make_sync(name, **options))


# Torch takes longer to import than these tests want to wait for a word.
def load(worker, name):
    thread = threading.Thread(target=importlib.import_module, args=(name,))
    thread.start()
    while thread.is_alive():
        worker.report()
        thread.join(0.2)


STALLS = {"local": "torch_distributed-gloo", "spark": "bigdl", "ray": "horovod"}


@pytest.mark.alone
def test_who_never_enters_a_collective_is_blamed_alone(engine):
    def oversleep(worker, name, options):
        load(worker, SYNCS[name][0])
        with make_sync(name, **options).join(worker) as group:
            group = TimedGroup(group, worker)
            group.all_reduce(np.zeros(10))
            worker.report(step=3)
            if worker.rank == 1:
                slow_loader()
            group.all_reduce(np.zeros(10))

    def slow_loader():
        time.sleep(300)

    name, options = KINDS[STALLS[engine.name]]
    with pytest.raises(GangStalledError, match=r"rank\(s\) 1 reported nothing for 1 s") as caught:
        run_gang(engine, oversleep, 3, name, options, options=GangOptions(stall_timeout=1))
    assert caught.value.ranks == (1,)
    assert "slow_loader()" in caught.value.stacks[1]
    assert all("group.all_reduce(np.zeros(10))" in caught.value.stacks[rank] for rank in (0, 2))


@pytest.mark.alone
@pytest.mark.engines("local")
def test_a_timed_group_counts_the_wait_for_others(engine):
    def agree(worker, sync):
        with sync.join(worker) as group:
            timed = TimedGroup(group, worker)
            if worker.rank == 1:
                time.sleep(0.3)
            timed.all_reduce(np.zeros(3))
            return timed.seconds

    waited, came_late = run_gang(engine, agree, 2, make_sync("bigdl"))
    assert waited > 0.1 > came_late


@pytest.mark.engines("local")
def test_torch_finds_its_ranks_through_the_gang(engine):
    """Everything torch may ask of a store, as it asks: through a prefix of its own, from C++."""

    def ask(worker, sync):
        from datetime import timedelta

        import torch.distributed as dist

        with sync.join(worker):
            store = dist.PrefixStore("mine", dist.distributed_c10d._get_default_store())
            other = 1 - worker.rank
            store.set(f"from {worker.rank}", f"hello {other}")
            heard = store.get(f"from {other}")
            store.barrier("all here", worker.world_size)
            counted = store.add("count", 2)
            store.barrier("all counted", worker.world_size)
            swapped = [
                store.compare_set(f"swap {worker.rank}", old, new) for old, new in (("", "a"), ("x", "b"), ("a", "c"))
            ]
            store.append(f"list {worker.rank}", "a")
            store.append(f"list {worker.rank}", "b")
            store.multi_set([f"x {worker.rank}", f"y {worker.rank}"], ["1", "2"])
            many = store.multi_get([f"list {worker.rank}", f"x {worker.rank}", f"y {worker.rank}"])
            known = store.check([f"x {worker.rank}"]), store.check(["nobody's"]), store.num_keys() > 8
            removed = store.delete_key(f"x {worker.rank}"), store.delete_key(f"x {worker.rank}")
            with pytest.raises(dist.DistStoreError, match=r"no other rank gave .*nobody's.* within 0.1 s"):
                store.wait(["nobody's"], timedelta(seconds=0.1))
            with pytest.raises(dist.DistStoreError):
                store.wait(["count", "nobody's"], timedelta(seconds=0.1))
            store.wait(["count"])
            return heard, counted, swapped, many, known, removed, worker.ask("add", "mine", 1)

    first, second = run_gang(engine, ask, 2, make_sync("torch_distributed"))
    assert (first[0], second[0]) == (b"hello 0", b"hello 1")
    assert {first[1], second[1]} == {2, 4}
    for result in (first, second):
        assert result[2:6] == ([b"a", b"a", b"c"], [b"ab", b"1", b"2"], (True, False, True), (True, False))
    assert {first[6], second[6]} == {1, 2}


INTRUDE = (
    "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.send(bytes(8)); s.recv(1)"
)


@pytest.mark.engines("local")
@pytest.mark.parametrize("times", [1, 9])
def test_a_stranger_among_the_ranks_is_found(engine, times):
    """Somebody connects while the ranks connect: they do it again, and give up when that happens each time."""

    def agree(worker, sync):
        from zoo.orca.learn.sync import torch_distributed
        from zoo.orca.learn.sync.sealed import doors

        started, before = [], doors()

        def put(store, key, value):
            if worker.rank == 0 and len(started) < times:
                (door,) = doors() - before
                started.append(subprocess.Popen([sys.executable, "-S", "-c", INTRUDE, str(door[1])]))
                time.sleep(0.3)
            worker.ask("put", key, value)

        torch_distributed.GangStore.set, kept = put, torch_distributed.GangStore.set
        try:
            with sync.join(worker) as group:
                check_collectives(group, (5000,), (np.float32,))
        finally:
            torch_distributed.GangStore.set = kept
            for each in started:
                each.kill()
                each.wait()
        return len(started)

    sync = make_sync("torch_distributed", shared_memory=False)
    if times == 1:
        assert run_gang(engine, agree, 3, sync) == [1, 0, 0]
        return
    with pytest.raises(StrangerError, match=r"connected to the workers \(127.0.0.1:.* each of the 3 times"):
        run_gang(engine, agree, 3, sync)


@pytest.mark.engines("local")
def test_ranks_that_want_different_things_are_told(engine):
    def differ(worker, sync):
        with sync.join(worker) as group:
            group.all_reduce(np.zeros(10 + worker.rank))

    with pytest.raises(InvalidArgumentError, match="disagree about what to combine"):
        run_gang(engine, differ, 2, make_sync("bigdl"))


@pytest.mark.engines("local")
def test_solo_is_for_one(engine):
    def agree(worker, sync):
        with sync.join(worker) as group:
            check_collectives(group)

    run_gang(engine, agree, 1, make_sync("solo"))
    with pytest.raises(InvalidArgumentError, match="for one worker, but there are 2"):
        run_gang(engine, agree, 2, make_sync("solo"))


def test_names_are_checked():
    with pytest.raises(InvalidArgumentError, match="'torch_distributed', 'horovod', 'kvstore', but 'mpi'"):
        make_sync("mpi")
    assert [make_sync(name).sharded for name in SYNCS] == [False, True, False, False, False]


def test_horovod_that_is_not_installed_is_named(monkeypatch):
    sync = make_sync("horovod")
    sync.check()
    for module in ("horovod", "horovod.torch"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackageError, match=r"backend 'horovod' needs the package 'horovod'.*Type: .*horovod"):
        sync.check()


def test_no_framework_is_needed_for_shared_memory():
    code = "import sys; import zoo.orca.learn.sync.bigdl, zoo.orca.learn.sync.solo; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
