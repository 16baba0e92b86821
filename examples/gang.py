"""A gang of workers by hand: they start together, know each other, agree on figures, and fail as one.

    python examples/gang.py --engine local      # or spark, or ray

This is what an estimator does for you; write it yourself when no estimator fits.
"""

from __future__ import annotations

import argparse

import numpy as np

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.context import current_engine
from zoo.orca.data import XShards
from zoo.orca.engine.gang import GangOptions, run_gang

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


def mean_and_spread(worker) -> tuple[float, float]:
    """Two rounds over rows that no single worker has: each sends sums and counts, never a mean of means."""
    rows = np.concatenate([shard for _, shard in worker.shards])
    sums = worker.all_gather((rows.sum(), len(rows)))
    mean = sum(total for total, _ in sums) / sum(count for _, count in sums)
    worker.report(step=1, total=2, mean=mean)
    squares = worker.all_gather(((rows - mean) ** 2).sum())
    worker.report(step=2, total=2)
    return mean, np.sqrt(sum(squares) / sum(count for _, count in sums))


def stumble(worker) -> None:
    """Rank 1 fails while the others wait for it."""
    worker.report(step=3)
    if worker.rank == 1:
        raise ValueError("row 17 has no label")
    worker.barrier()


def example() -> None:
    engine = current_engine()
    for line in run_gang(engine, lambda worker: f"rank {worker.rank} of {worker.world_size}", 2):
        print(line)

    rows = XShards.partition(np.random.default_rng(0).normal(10.0, 3.0, 10_001), num_shards=5)
    watched = GangOptions(description="two rounds", stall_timeout=60, max_failures=1)
    results = run_gang(engine, mean_and_spread, 2, data=rows.placement, options=watched)
    print("every rank has the same answer:", len(set(results)) == 1)
    print("mean {:.4f}, spread {:.4f}".format(*results[0]))

    try:
        run_gang(engine, stumble, 2)
    except ValueError as error:
        print(f"rank {error.rank} raised at step {error.step}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=CONTEXTS, default="local", help="where to run (default: local)")
    init_orca_context(CONTEXTS[parser.parse_args().engine], cores=2)
    try:
        example()
    finally:
        stop_orca_context()


if __name__ == "__main__":
    main()
