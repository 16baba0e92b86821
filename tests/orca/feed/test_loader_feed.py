"""A DataLoader's batches, put together again from what the ranks got, are those that plain torch gives."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import random
import threading
import time
from collections import UserDict

import numpy as np
import psutil
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.distributed import DistributedSampler

from zoo.orca import OrcaContext
from zoo.orca.engine.gang import run_gang
from zoo.orca.errors import InvalidArgumentError, NotPicklableError
from zoo.orca.feed.creator import CreatorFeed
from zoo.orca.feed.loader import LoaderFeed, is_loader

SEED = 11

local = pytest.mark.engines("local")


def feed_of(data, engine, config=None):
    return LoaderFeed(data, engine) if is_loader(data) else CreatorFeed(data, engine, config)


class Numbers(Dataset):
    """Row i is the number i. It remembers which rows it was asked for."""

    def __init__(self, rows):
        self.rows = rows
        self.asked = []

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        self.asked.append(int(index))
        return torch.tensor(int(index))


class Moody(BatchSampler):
    """Batches of all sizes, drawn from Python's and numpy's generators as it goes."""

    def __init__(self, rows):
        super().__init__(SequentialSampler(range(rows)), 1, False)
        self.rows = rows

    def __iter__(self):
        left = list(range(self.rows))
        random.shuffle(left)
        while left:
            size = 1 + np.random.randint(4)
            yield left[:size]
            left = left[size:]

    def __len__(self):
        raise TypeError("who knows")


class Stream(IterableDataset):
    """Rows 0 to n - 1 or at random, dealt to the loader's worker processes."""

    def __init__(self, rows, at_random=False):
        self.rows = rows
        self.at_random = at_random

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for row in range(first, self.rows, step):
            yield torch.tensor(random.randrange(10**6) + int(torch.randint(10**6, ())) if self.at_random else row)


class Span(IterableDataset):
    """Rows of a span that a worker_init_fn may narrow, as torch's documentation shows it."""

    def __init__(self, start, stop):
        self.start, self.stop = start, stop

    def __iter__(self):
        return iter(range(self.start, self.stop))


def narrow(worker_id):
    info = get_worker_info()
    middle = (info.dataset.start + info.dataset.stop) // 2
    if worker_id == 0:
        info.dataset.stop = middle
    else:
        info.dataset.start = middle


def as_dict(samples):
    return UserDict({"x": torch.stack(samples).float(), "count": len(samples)})


def read(worker, feed, epochs=(0,), start=0, batch_size=4):
    """Every epoch's shares as (batch, rows, total), what the source knew, and whether training's generators moved."""
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    source = feed.open(worker, batch_size, SEED)
    if worker.rank < 2:
        source.agree = lambda value: sum(worker.all_gather(value))  # as the driver is asked without it
    try:
        shares = [[(share.batch, share.rows, share.total) for share in source.epoch(epoch, start)] for epoch in epochs]
    finally:
        source.close()
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    undisturbed = torch.equal(before[0], after[0]) and before[1:] == after[1:]
    return shares, source.steps, source.rows, undisturbed, len(psutil.Process().children(recursive=True))


def read_all(worker, feeds, **how):
    return [read(worker, feed, **how) for feed in feeds]


def plainly(loader, epochs=(0,)):
    """What plain torch gives, seeded as a rank is."""
    given = []
    for epoch in epochs:
        torch.manual_seed(SEED + epoch)
        np.random.seed(SEED + epoch)
        random.seed(SEED + epoch)
        given.append([batch.tolist() for batch in loader])
    return given


def read_beside_plain_torch(worker, feeds, loaders, epochs):
    """Loaders with worker processes leave things behind in a process that uses them, so plain torch runs here too."""
    results = read_all(worker, feeds, epochs=epochs)
    return results, [plainly(loader, epochs) for loader in loaders] if worker.rank == 0 else None


def together(results, epoch=0):
    """The global batches of an epoch; checks that ranks take the same steps and agree on totals."""
    by_rank = [shares[epoch] for shares, *_ in results]
    assert len({len(shares) for shares in by_rank}) == 1
    batches = []
    for parts in zip(*by_rank, strict=True):
        rows = [row for batch, count, _ in parts if count for row in torch.as_tensor(batch).tolist()]
        assert {total for *_, total in parts} == {len(rows)}
        for batch, count, total in parts:
            assert len(batch) == (count or min(2, total))
        batches.append(rows)
    return batches


SAMPLERS = {
    "in order": lambda rows, size, drop: {"batch_size": size, "drop_last": drop},
    "shuffled": lambda rows, size, drop: {"batch_size": size, "drop_last": drop, "shuffle": True},
    "own generator": lambda rows, size, drop: {
        "batch_size": size,
        "drop_last": drop,
        "shuffle": True,
        "generator": torch.Generator().manual_seed(rows),
    },
    "sampler's generator": lambda rows, size, drop: {
        "batch_size": size,
        "drop_last": drop,
        "sampler": RandomSampler(range(rows), replacement=True, generator=torch.Generator().manual_seed(rows)),
    },
    "weighted": lambda rows, size, drop: {
        "batch_size": size,
        "sampler": WeightedRandomSampler([1.0 + row for row in range(rows)], 2 * rows),
    },
    "subset": lambda rows, size, drop: {"batch_size": size, "sampler": SubsetRandomSampler(range(0, rows, 2))},
    "moody": lambda rows, size, drop: {"batch_sampler": Moody(rows)},
    "listed": lambda rows, size, drop: {"batch_sampler": [[0], list(range(rows)), [rows - 1] * size]},
}

cases = st.tuples(st.integers(1, 40), st.integers(1, 12), st.booleans(), st.sampled_from(sorted(SAMPLERS)))


@local
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(cases, min_size=10, max_size=10), st.integers(1, 4))
def test_the_ranks_parts_are_the_batches_of_plain_torch(engine, drawn, workers):
    usable = [(rows, min(size, rows) if drop else size, drop, kind) for rows, size, drop, kind in drawn]
    loaders = [DataLoader(Numbers(rows), **SAMPLERS[kind](rows, size, drop)) for rows, size, drop, kind in usable]
    feeds = [LoaderFeed(loader, engine) for loader in loaders]
    results = run_gang(engine, functools.partial(read_all, epochs=(0, 1)), workers, feeds)
    for number, (loader, (_, _, _, kind)) in enumerate(zip(loaders, usable, strict=True)):
        mine = [result[number] for result in results]
        expected = plainly(loader, (0, 1) if "generator" not in kind else (0,))
        assert [together(mine, epoch) for epoch in range(len(expected))] == expected
        for _, steps, rows, undisturbed, _ in mine:
            assert steps == (None if kind == "moody" else len(expected[0]))
            assert rows == (None if kind == "moody" else sum(map(len, expected[0])))
            assert undisturbed


@local
def test_each_epoch_of_a_loader_with_its_own_generator_has_another_order(engine):
    loader = DataLoader(Numbers(30), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3))
    results = run_gang(engine, functools.partial(read, epochs=(0, 1, 0)), 2, LoaderFeed(loader, engine))
    first, second, again = (together(results, number) for number in range(3))
    assert first == again != second
    assert sorted(itertools.chain(*second)) == list(range(30))


@local
def test_a_rank_loads_only_its_rows_and_nothing_that_is_skipped(engine):
    def asked(worker, feed, start):
        source = feed.open(worker, 0, SEED)
        shares = [share.batch.tolist() for share in source.epoch(1, start)]
        return [*itertools.chain(*shares)], source._loader.dataset.asked

    loader = DataLoader(Numbers(40), batch_size=8, shuffle=True)
    results = run_gang(engine, asked, 2, LoaderFeed(loader, engine), 3)
    plain = plainly(loader, (1,))[0]
    assert [rows for rows, _ in results] == [plain[3][:4] + plain[4][:4], plain[3][4:] + plain[4][4:]]
    assert all(rows == asked for rows, asked in results)


def shuffled(config, batch_size):
    part, _ = torch.utils.data.random_split(Numbers(40), [30, 10])
    return DataLoader(part, batch_size=batch_size, shuffle=True)


def test_loaders_and_creators_work_in_gangs_of_every_engine(engine):
    given = [
        DataLoader(Numbers(23), batch_size=5, shuffle=True, num_workers=2),
        DataLoader(Numbers(23), batch_size=5, shuffle=True, num_workers=1, persistent_workers=True, prefetch_factor=3),
        DataLoader(Stream(23), batch_size=5, num_workers=2),
        shuffled,
    ]
    torch.manual_seed(SEED)  # as for the creator on the workers
    plain = [
        DataLoader(given[0].dataset, batch_size=5, shuffle=True),
        DataLoader(given[1].dataset, batch_size=5, shuffle=True),
        DataLoader(given[2].dataset, batch_size=5, num_workers=2),
        shuffled({}, 4),
    ]
    feeds = [feed_of(each, engine) for each in given]
    results, (expected, _) = zip(*run_gang(engine, read_beside_plain_torch, 2, feeds, plain, (0, 1)), strict=True)
    for number, epochs in enumerate(expected):
        mine = [result[number] for result in results]
        assert [together(mine, epoch) for epoch in (0, 1)] == epochs
        assert all(undisturbed for *_, undisturbed, _ in mine)
        assert {children for *_, children in mine} == {0}


@local
def test_loader_processes_end_when_an_epoch_is_broken_off(engine):
    def broken_off(worker, feed):
        source = feed.open(worker, 0, SEED)
        started = len(psutil.Process().children()) if next(source.epoch(0)) else 0
        shares = source.epoch(1)
        next(shares)
        during = len(psutil.Process().children())
        source.close()
        return started, during, len(psutil.Process().children())

    for persistent in (False, True):
        loader = DataLoader(Numbers(40), batch_size=2, num_workers=2, persistent_workers=persistent)
        assert run_gang(engine, broken_off, 2, LoaderFeed(loader, engine)) == [(2 if persistent else 0, 2, 0)] * 2


@local
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9), st.booleans(), st.booleans()), min_size=8, max_size=8),
    st.integers(1, 4),
)
def test_every_row_of_a_stream_is_used_once(engine, drawn, workers):
    loaders = [
        DataLoader(Stream(rows, at_random), batch_size=min(size, rows) if drop else size, drop_last=drop)
        for rows, size, drop, at_random in drawn
    ]
    feeds = [LoaderFeed(loader, engine) for loader in loaders]
    results = run_gang(engine, functools.partial(read_all, epochs=(0, 1)), workers, feeds)
    for number, loader in enumerate(loaders):
        mine = [result[number] for result in results]
        assert [together(mine, epoch) for epoch in (0, 1)] == plainly(loader, (0, 1))
        assert all((steps, rows, undisturbed) == (None, None, True) for _, steps, rows, undisturbed, _ in mine)


@local
def test_streams_that_draw_and_shard_in_worker_processes(engine):
    loaders = [
        DataLoader(Stream(25, at_random=True), batch_size=4, num_workers=2),
        DataLoader(Stream(25), batch_size=4, drop_last=True, num_workers=2, persistent_workers=True),
        DataLoader(Span(3, 24), batch_size=4, num_workers=2, worker_init_fn=narrow),
        DataLoader(IterableWrapper(range(25)).shuffle().sharding_filter(), batch_size=4, num_workers=2),
    ]
    feeds = [LoaderFeed(loader, engine) for loader in loaders]
    plain = [loaders[0], DataLoader(Stream(25), batch_size=4, drop_last=True, num_workers=2), loaders[2]]
    results, (expected, _) = zip(*run_gang(engine, read_beside_plain_torch, 2, feeds, plain, (0, 1)), strict=True)
    for number, epochs in enumerate(expected):
        assert [together([result[number] for result in results], epoch) for epoch in (0, 1)] == epochs
    piped = [together([result[3] for result in results], epoch) for epoch in (0, 1)]
    assert [sorted(itertools.chain(*epoch)) for epoch in piped] == [list(range(25))] * 2
    assert piped[0] != piped[1]


@local
def test_a_stream_goes_on_where_it_was_broken_off(engine):
    loader = DataLoader(Stream(20, at_random=True), batch_size=4)
    results = run_gang(engine, functools.partial(read, epochs=(2,), start=3), 2, LoaderFeed(loader, engine))
    assert together(results) == plainly(loader, (2,))[0][3:]


class Uneven(IterableDataset):
    """As many rows as the file of this process's rank says."""

    def __iter__(self):
        return iter(range(int(os.environ["ROWS_OF_RANK"])))


def read_uneven(worker, feed, rows):
    os.environ["ROWS_OF_RANK"] = str(rows[worker.rank])
    try:
        return read(worker, feed)
    finally:
        del os.environ["ROWS_OF_RANK"]


@local
def test_ranks_whose_streams_end_early_take_part_until_all_have_ended(engine):
    feed = LoaderFeed(DataLoader(Uneven(), batch_size=4), engine)
    results = run_gang(engine, read_uneven, 2, feed, [4, 12])
    counted = [[(batch.tolist(), rows, total) for batch, rows, total in shares[0]] for shares, *_ in results]
    assert counted[0] == [([0, 1], 2, 4), ([0, 1], 0, 2), ([0, 1], 0, 2)]
    assert counted[1] == [([2, 3], 2, 4), ([6, 7], 2, 2), ([10, 11], 2, 2)]
    with pytest.raises(InvalidArgumentError, match="no rows to rank 0, but some to others in epoch 0"):
        run_gang(engine, read_uneven, 2, feed, [0, 12])
    with pytest.raises(InvalidArgumentError, match="no rows to any worker in epoch 0"):
        run_gang(engine, read_uneven, 2, feed, [0, 0])


@local
def test_a_stream_that_shards_by_rank_is_warned_of(engine, caplog):
    def shifted(worker, feed):
        feed = LoaderFeed(DataLoader(Span(worker.rank, 20 + worker.rank), batch_size=4), None)
        return read(worker, feed)

    with caplog.at_level(logging.WARNING, logger="zoo.orca"):
        run_gang(engine, shifted, 2, None)
    assert [record.message for record in caplog.records if "different rows" in record.message] != []


class Blocks(Dataset):
    """Each item is a batch: of three rows, of two, of one, ..."""

    sizes = (3, 2, 1, 6)

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, index):
        rows = range(self.sizes[index])
        return {"x": np.array([[10 * index + row] for row in rows]), "names": [str(row) for row in rows], "k": 7}


class BlockStream(IterableDataset):
    def __iter__(self):
        return (Blocks()[index] for index in range(4))


@local
@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize("dataset", [Blocks(), BlockStream()], ids=["items", "stream"])
def test_without_automatic_batching_every_item_is_cut(engine, dataset, processes):
    loader = DataLoader(dataset, batch_size=None, num_workers=processes)
    results = run_gang(engine, read, 2, LoaderFeed(loader, engine))
    for step, plain in enumerate(DataLoader(dataset, batch_size=None)):
        parts = [shares[0][step] for shares, *_ in results]
        counted = [batch for batch, rows, _ in parts if rows]
        assert torch.equal(torch.cat([batch["x"] for batch in counted]), plain["x"])
        assert [*itertools.chain(*(batch["names"] for batch in counted))] == plain["names"]
        assert {(batch["k"], total) for batch, _, total in parts} == {(7, len(plain["x"]))}
        assert all(len(batch["x"]) == (rows or min(2, total)) for batch, rows, total in parts)


@local
def test_items_that_cannot_be_cut_are_refused(engine):
    def refused(item):
        loader = DataLoader([item], batch_size=None)
        with pytest.raises(InvalidArgumentError, match="batch_size=None must yield batches that can be cut") as caught:
            run_gang(engine, read, 2, LoaderFeed(loader, engine))
        return str(caught.value)

    assert "arrays of [2, 3] rows" in refused((torch.zeros(2), torch.zeros(3, 1)))
    assert "a str without arrays" in refused("text")


@local
def test_a_custom_collate_function_is_kept(engine):
    loader = DataLoader(Numbers(10), batch_size=4, collate_fn=as_dict)
    results = run_gang(engine, read, 2, LoaderFeed(loader, engine))
    batches = [[(batch["x"].tolist(), batch["count"]) for batch, *_ in shares[0]] for shares, *_ in results]
    assert batches == [[([0, 1], 2), ([4, 5], 2), ([8, 9], 2)], [([2, 3], 2), ([6, 7], 2), ([8, 9], 2)]]
    assert [type(results[0][0][0][0][0]), results[1][0][0][2][1:]] == [UserDict, (0, 2)]


@local
def test_a_sampler_that_shards_by_rank_is_taken_as_it_is(engine):
    data = Numbers(21)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, num_replicas=2, rank=0, seed=5))
    results = run_gang(engine, functools.partial(read, epochs=(0, 3), start=1), 2, LoaderFeed(loader, engine))
    for rank, (shares, steps, rows, *_) in enumerate(results):
        assert (steps, rows) == (3, 22)
        for place, epoch in enumerate((0, 3)):
            sampler = DistributedSampler(data, num_replicas=2, rank=rank, seed=5)
            sampler.set_epoch(epoch)
            plain = list(BatchSampler(sampler, 4, False))[1:]
            assert [batch.tolist() for batch, *_ in shares[place]] == plain
            assert [(rows, total) for _, rows, total in shares[place]] == [(4, 8), (3, 6)]
    with pytest.raises(InvalidArgumentError, match=r"made for 2 replicas, but there are 3 workers.*num_replicas=3"):
        run_gang(engine, read, 3, LoaderFeed(loader, engine))


class Ragged(Sampler):
    """A sharding sampler of somebody else, with fewer rows on later ranks."""

    num_replicas, rank = 2, 0

    def __iter__(self):
        return iter(range(6 - 4 * self.rank))


@local
def test_ranks_whose_own_sampler_gives_less_take_every_step(engine):
    loader = DataLoader(Numbers(9), batch_size=2, sampler=Ragged())
    results = run_gang(engine, read, 2, LoaderFeed(loader, engine))
    assert [[(batch.tolist(), rows, total) for batch, rows, total in shares[0]] for shares, *_ in results] == [
        [([0, 1], 2, 4), ([2, 3], 2, 2), ([4, 5], 2, 2)],
        [([0, 1], 2, 4), ([0, 1], 0, 2), ([0, 1], 0, 2)],
    ]


class Unruly(Sampler):
    """Another order on each worker, out of nobody's control."""

    def __iter__(self):
        return iter(np.random.default_rng().permutation(1000).tolist())

    def __len__(self):
        return 1000


@local
def test_a_sampler_that_differs_between_workers_is_refused(engine):
    feed = LoaderFeed(DataLoader(Numbers(1000), batch_size=8, sampler=Unruly()), engine)
    with pytest.raises(InvalidArgumentError, match=r"different rows in epoch 0.*set_epoch"):
        run_gang(engine, read, 2, feed)


def from_config(config):
    return DataLoader(Numbers(config["rows"]), batch_size=config["batch_size"])


class Creator:
    def make(self, config, *, batch_size, more=0):
        return DataLoader(Numbers(config["rows"]), batch_size=batch_size)


def with_default(config, train=True):
    assert train is True
    return from_config(config)


CREATORS = {
    "one argument": from_config,
    "by keyword": Creator().make,
    "anything": lambda *args: DataLoader(Numbers(args[0]["rows"]), batch_size=args[1]),
    "another second": with_default,
    "partial": functools.partial(lambda rows, config, size: DataLoader(Numbers(rows), batch_size=size), 10),
}


@local
@pytest.mark.parametrize("creator", CREATORS.values(), ids=CREATORS)
def test_creators_get_the_global_batch_size(engine, creator):
    feed = feed_of(creator, engine, {"rows": 10})
    results = run_gang(engine, functools.partial(read, batch_size=5), 2, feed)
    assert together(results) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@local
def test_creators_of_a_machine_run_one_after_the_other_when_asked_to(engine, tmp_path):
    def slow(config):
        entered = time.monotonic()
        time.sleep(0.1)
        (tmp_path / f"{os.getpid()}").write_text(f"{entered} {time.monotonic()}")
        return DataLoader(Numbers(4), batch_size=4)

    OrcaContext.serialize_data_creator = True
    try:
        feed = feed_of(slow, engine)
    finally:
        OrcaContext.serialize_data_creator = False
    run_gang(engine, read, 3, feed)
    turns = sorted(tuple(map(float, path.read_text().split())) for path in tmp_path.iterdir())
    assert len(turns) == 3
    assert all(left <= entered for (_, left), (entered, _) in itertools.pairwise(turns))


def differing(config):
    return DataLoader(Numbers(10 + os.getpid() % 1000), batch_size=4)


BAD_CREATORS = {
    "not a loader": (lambda config: [1, 2], "'<lambda>' must return a torch.utils.data.DataLoader or .*returned a b"),
    "empty": (lambda config: DataLoader(Numbers(0)), "dataset, a Numbers, is empty"),
    "different": (differing, r"every worker must make the same DataLoader.* rank 0 \d+ rows in \d+ batches and rank 1"),
}


@local
@pytest.mark.parametrize(("creator", "message"), BAD_CREATORS.values(), ids=BAD_CREATORS)
def test_what_creators_get_wrong_is_told_by_the_worker(engine, creator, message):
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        run_gang(engine, read, 2, feed_of(creator, engine))
    assert caught.value.rank in (0, 1)


def with_a_lock():
    data = Numbers(3)
    data.lock = threading.Lock()
    return DataLoader(data)


BAD_DATA = {
    "empty": (lambda: DataLoader(Numbers(0)), InvalidArgumentError, "dataset, a Numbers, is empty"),
    "no batches": (
        lambda: DataLoader(Numbers(3), batch_size=4, drop_last=True),
        InvalidArgumentError,
        "no batches: its dataset has 3 rows, its batch_size is 4 and drop_last is True",
    ),
    "a lock": (with_a_lock, NotPicklableError, "the DataLoader cannot be sent .*the attribute 'lock', a _thread.lock"),
    "no arguments": (lambda: lambda: None, InvalidArgumentError, "takes no arguments. Expected creator"),
    "a number": (lambda: 3, InvalidArgumentError, "but is a builtins.int"),
}


@pytest.mark.parametrize(("make", "error", "message"), BAD_DATA.values(), ids=BAD_DATA)
def test_what_is_wrong_with_data_is_told_at_once(make, error, message):
    with pytest.raises(error, match=message):
        feed_of(make(), None)


@local
def test_a_loader_in_use_travels_without_its_processes(engine):
    loader = DataLoader(Numbers(12), batch_size=4, num_workers=1, persistent_workers=True)
    in_use = iter(loader)
    next(in_use)
    results = run_gang(engine, read, 2, LoaderFeed(loader, engine))
    assert together(results) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert loader._iterator is in_use
    in_use._shutdown_workers()


@local
def test_worker_processes_may_be_spawned(engine):
    loader = DataLoader(Numbers(9), batch_size=4, shuffle=True, num_workers=1, multiprocessing_context="spawn")
    results = run_gang(engine, read, 1, LoaderFeed(loader, engine))
    fork = DataLoader(Numbers(9), batch_size=4, shuffle=True)
    assert together(results) == plainly(fork)[0]


def test_a_sample_can_be_had_without_changing_anything():
    data = Numbers(20)
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(data, batch_size=4, shuffle=True, generator=generator, num_workers=2, timeout=5)
    feed = LoaderFeed(loader, None)
    before = generator.get_state(), torch.get_rng_state(), random.getstate()
    assert feed.sample().shape == (4,)
    assert torch.equal(generator.get_state(), before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert random.getstate() == before[2]
    assert feed_of(from_config, None).sample() is None
    assert LoaderFeed(DataLoader(Stream(3)), None).sample() is None


def test_loaders_are_told_from_other_things():
    assert is_loader(DataLoader(Numbers(3)))
    assert not is_loader(Numbers(3))
    assert not is_loader(DataLoader)
