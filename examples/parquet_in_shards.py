"""A table in four Parquet files: read as shards, prepared by pandas, trained on, predicted, saved.

python examples/parquet_in_shards.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_diabetes

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.data import XShards
from zoo.orca.data.pandas import read_parquet
from zoo.orca.learn.metrics import MAE
from zoo.orca.learn.pytorch import Estimator

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


def write_files(folder: Path) -> None:
    patients = load_diabetes(as_frame=True, scaled=False).frame
    folder.mkdir()
    for number in range(4):
        patients.iloc[number::4].to_parquet(folder / f"patients-{number}.parquet", index=False)


def to_arrays(patients: pd.DataFrame, means: pd.Series, spreads: pd.Series) -> dict[str, np.ndarray]:
    """Runs on every shard, where it lies: what a net takes, of columns as different as age and blood pressure."""
    features = (patients.drop(columns="target") - means) / spreads
    return {"x": features.to_numpy(np.float32), "y": patients[["target"]].to_numpy(np.float32) / 100}


def example(folder: Path) -> None:
    write_files(folder / "patients")
    patients = read_parquet(str(folder / "patients")).cache()
    print(f"{len(patients)} patients from four files")
    facts = patients.describe().drop(columns="target")
    shards = patients.transform_shard(to_arrays, facts.loc["mean"], facts.loc["std"]).cache()

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    est = Estimator.from_torch(
        model=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=0.01),
        loss=torch.nn.MSELoss(),
        metrics=[MAE()],
        num_workers=2,
    )
    est.fit(shards, epochs=30, batch_size=34)
    guess = np.concatenate([shard["y"] for shard in shards.collect()])
    off = est.evaluate(shards)["MAE"]
    print("closer than the mean of all would be:", off < 0.75 * np.abs(guess - guess.mean()).mean())

    predicted = est.predict(shards)  # XShards again, in the same partitions, with "prediction" in each
    predicted.save_pickle(str(folder / "predicted"))
    first = XShards.load_pickle(str(folder / "predicted")).collect()[0]
    print("saved and read again:", {name: array.shape[1:] for name, array in sorted(first.items())})


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
