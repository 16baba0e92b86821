"""The CSV files of the `csv` row: seeded, made once, about 12 MB each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

ROWS = 190_000
CITIES = [f"{name}{number:03d}" for name in ("Arden", "Brookfield", "Castellon", "Dunmore") for number in range(250)]
FIRST_DAY = np.datetime64("2015-01-01")


def make(folder: Path, files: int) -> None:
    """Fill the folder, unless it is there: it gets its name only when it is complete."""
    if folder.exists():
        return
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        _write(table(number), unfinished / f"part-{number:02d}.csv")
    unfinished.rename(folder)


def _write(table: pa.Table, file: Path) -> None:
    with file.open("wb") as output:
        output.write(",".join(table.column_names).encode() + b"\n")  # Arrow would put the names in quotes
        csv.write_csv(table, output, csv.WriteOptions(include_header=False, quoting_style="none"))


def table(number: int, rows: int = ROWS) -> pa.Table:
    """What file `number` holds: the same on every machine."""
    random = np.random.default_rng([2026, number])
    return pa.table(
        {
            "id": np.arange(number * rows, (number + 1) * rows),
            "quantity": random.integers(1, 100, rows),
            "price": random.gamma(2.0, 40.0, rows).round(2),
            "discount": random.random(rows).round(4),
            "latitude": random.uniform(-90, 90, rows).round(6),
            "longitude": random.uniform(-180, 180, rows).round(6),
            "city": pa.array(CITIES).take(pa.array(random.integers(0, len(CITIES), rows))),
            "day": pa.array((FIRST_DAY + random.integers(0, 3650, rows)).astype(str)),
        }
    )
