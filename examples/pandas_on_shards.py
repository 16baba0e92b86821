"""Pandas over many files at once: read, change, group, join and sort trips that lie in four CSV files.

python examples/pandas_on_shards.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import zoo.orca.data.pandas
from zoo.orca import OrcaContext, init_orca_context, stop_orca_context
from zoo.orca.data import SharedValue, XShards

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


def write_trips(folder: Path) -> None:
    """Four files of a thousand trips each."""
    random = np.random.default_rng(7)
    for number in range(4):
        trips = pd.DataFrame(
            {
                "zone": random.integers(1, 6, 1000),
                "km": random.gamma(2.0, 2.5, 1000).round(1),
                "tip": random.exponential(1.5, 1000).round(2),
            }
        )
        trips.to_csv(folder / f"trips-{number}.csv", index=False)


def with_fare(trips: pd.DataFrame, tariff: SharedValue) -> pd.DataFrame:
    """Runs on every shard, where the shard lies; the tariff was sent there once."""
    base, per_km = tariff.value
    return trips.assign(fare=base + per_km * trips.km)


def example(folder: Path) -> None:
    write_trips(folder)
    OrcaContext.pandas_read_backend = "pandas"  # pandas' own arguments and order of files, on Spark too
    trips = zoo.orca.data.pandas.read_csv(str(folder), dtype={"zone": "int32"})
    print(f"{len(trips)} trips in {len(trips.collect())} shards of {trips.num_partitions()} partitions")

    paid = trips.transform_shard(with_fare, SharedValue((2.5, 1.25))).cache()
    print(paid.head(3))

    print(f"zones: {sorted(paid['zone'].unique().tolist())}")
    print(paid.describe().round(2))

    by_zone = paid.groupby("zone").agg({"fare": "sum", "tip": "max"})
    by_zone = by_zone.transform_shard(lambda frame: frame.reset_index())
    names = pd.DataFrame({"zone": [1, 2, 3, 4, 5], "name": ["Harbour", "Hill", "Market", "Park", "Station"]})
    ranking = by_zone.merge(XShards.partition(names, num_shards=1), on="zone").sort_values("fare", ascending=False)
    print(ranking.to_pandas()[["name", "fare", "tip"]].round(2).to_string(index=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=CONTEXTS, default="local", help="where to run (default: local)")
    init_orca_context(CONTEXTS[parser.parse_args().engine], cores=2)
    try:
        with tempfile.TemporaryDirectory() as folder:
            example(Path(folder))
    finally:
        stop_orca_context()


if __name__ == "__main__":
    main()
