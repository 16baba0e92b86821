"""Object storage on every engine: workers reach it with the driver's settings, even if they were started before."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from zoo.orca import OrcaContext
from zoo.orca.data import XShards
from zoo.orca.data.file import open_file
from zoo.orca.data.pandas import read_csv, read_parquet


@pytest.fixture(params=["spark", "pandas"])
def backend(request):
    before, OrcaContext.pandas_read_backend = OrcaContext.pandas_read_backend, request.param
    yield request.param
    OrcaContext.pandas_read_backend = before


@pytest.fixture
def trips(s3_bucket):
    """Two CSV files in a folder of a bucket."""
    whole = pd.DataFrame({"n": np.arange(10), "s": [f"w{i % 3}" for i in range(10)]})
    for number, part in enumerate((whole[:6], whole[6:])):
        with open_file(f"{s3_bucket}/trips/{number}.csv", "wb") as file:
            file.write(part.to_csv(index=False).encode())
    return f"{s3_bucket}/trips", whole


def test_csv(engine, backend, trips):
    folder, whole = trips
    shards = read_csv(folder)
    pd.testing.assert_frame_equal(shards.to_pandas().sort_values("n", ignore_index=True), whole)


def test_pickles_and_parquet(engine, s3_bucket, trips):
    _, whole = trips
    shards = XShards.partition(whole, 2)
    shards.save_pickle(f"{s3_bucket}/saved")
    pd.testing.assert_frame_equal(XShards.load_pickle(f"{s3_bucket}/saved").to_pandas(), whole)
    with open_file(f"{s3_bucket}/trips.parquet", "wb") as file:
        whole.to_parquet(file)
    pd.testing.assert_frame_equal(read_parquet(f"{s3_bucket}/trips.parquet").to_pandas(), whole)
