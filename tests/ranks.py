"""Ranks of a gang as threads of this process: for feeds, which need no more of a worker than to know the others."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import cloudpickle


class Rank:
    """A worker as feeds see it."""

    def __init__(self, rank, values, barrier):
        self.rank = rank
        self.world_size = len(values)
        self._values = values
        self._barrier = barrier

    def all_gather(self, value):
        self._values[self.rank] = value
        self._barrier.wait()
        gathered = list(self._values)
        self._barrier.wait()
        return gathered


def run_ranks(world_size, function):
    """What `function(worker)` gives on every rank; the first error of a rank is raised."""
    barrier = threading.Barrier(world_size, timeout=60)
    values = [None] * world_size

    def run(rank):
        try:
            return function(Rank(rank, values, barrier))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(world_size) as pool:
        futures = [pool.submit(run, rank) for rank in range(world_size)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]


def read(feed, world_size=1, batch_size=4, epoch=0, start=0, seed=3, limit=None, drop_last=False):
    """What every rank is given in an epoch: [step][rank] as Shares. The feed has travelled."""
    sent = cloudpickle.loads(cloudpickle.dumps(feed))

    def on_rank(worker):
        source = sent.open(worker, batch_size, seed, drop_last=drop_last)
        try:
            return list(itertools.islice(source.epoch(epoch, start), limit)), source.steps, source.rows
        finally:
            source.close()

    ranks = run_ranks(world_size, on_rank)
    assert len({(steps, rows) for _, steps, rows in ranks}) == 1
    return list(zip(*(shares for shares, *_ in ranks), strict=True))


def first_of(share):
    return share.batch[0]


def batches(steps, of=first_of):
    """The rows of each global batch that count, sorted: a batch is a set."""
    return [sorted(value for share in shares if share.rows for value in of(share).tolist()) for shares in steps]


def all_of(steps, of=first_of):
    """The rows of an epoch that count, sorted."""
    return sorted(value for batch in batches(steps, of) for value in batch)
