"""The data of the train, ingest and predict rows: seeded, made once, easy enough that a few steps learn it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WIDTH = 20
FEATURES = [f"f{number:02d}" for number in range(WIDTH)]
LABEL = "label"
IMAGE = "image"
PIXELS = 784
CLASSES = 10
FILES = 8
# The widths of the layers of each model, the same in every framework.
WIDTHS = {
    "mlp": (PIXELS, 2048, 2048, CLASSES),
    "small": (WIDTH, 64, 1),
    "5m": (PIXELS, 1900, 1900, CLASSES),
    "25m": (PIXELS, 4620, 4620, CLASSES),
}


def make_arrays(folder: Path, rows: int, width: int, classes: int) -> None:
    """`x.npy` and `y.npy`: points around as many centres as there are classes, or, with none, heights of a plane."""

    def fill(unfinished: Path) -> None:
        random = np.random.default_rng(2026)
        if classes:
            x, y = _points(random, rows, width, classes)
        else:
            x, y = _plane(random, rows, width)
        np.save(unfinished / "x.npy", x)
        np.save(unfinished / "y.npy", y)

    _make(folder, fill)


def make_columns(folder: Path, rows: int) -> None:
    """Parquet files of the same size: twenty columns of floats, and a label to fit."""

    def fill(unfinished: Path) -> None:
        for number in range(FILES):
            x, y = _plane(np.random.default_rng([2026, number]), rows // FILES, WIDTH)
            columns = {name: x[:, column] for column, name in enumerate(FEATURES)}
            pq.write_table(pa.table(columns | {LABEL: y}), unfinished / f"part-{number}.parquet")

    _make(folder, fill)


def make_images(folder: Path, rows: int) -> None:
    """Parquet files of the same size: one column of arrays of 784 floats."""

    def fill(unfinished: Path) -> None:
        for number in range(FILES):
            x, _ = _points(np.random.default_rng([2026, number]), rows // FILES, PIXELS, CLASSES)
            images = pa.ListArray.from_arrays(np.arange(0, x.size + 1, PIXELS, dtype=np.int32), pa.array(x.ravel()))
            pq.write_table(pa.table({IMAGE: images}), unfinished / f"part-{number}.parquet")

    _make(folder, fill)


def files_of(folder: str, rank: int = 0, world_size: int = 1) -> list[str]:
    """The Parquet files of a folder, or a rank's share of them."""
    return [str(path) for path in sorted(Path(folder).glob("*.parquet"))][rank::world_size]


def matrix_of(table: pa.Table | pa.RecordBatch) -> np.ndarray:
    """The features as one float32 matrix: twenty columns side by side, or the arrays of the image column."""
    if IMAGE in table.schema.names:
        images = table.column(IMAGE)
        images = images.combine_chunks() if isinstance(images, pa.ChunkedArray) else images
        return images.flatten().to_numpy().reshape(-1, PIXELS)
    matrix = np.empty((table.num_rows, WIDTH), np.float32)
    for column, name in enumerate(FEATURES):
        matrix[:, column] = table.column(name).to_numpy()
    return matrix


def _make(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill the folder, unless it is there: it gets its name only when it is complete."""
    if folder.exists():
        return
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    fill(unfinished)
    unfinished.rename(folder)


def _points(random: np.random.Generator, rows: int, width: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    centres = np.random.default_rng(7).standard_normal((classes, width), np.float32) / 2
    y = random.integers(0, classes, rows)
    x = random.standard_normal((rows, width), np.float32)
    x += centres[y]
    return x, y


def _plane(random: np.random.Generator, rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    slope = np.random.default_rng(7).standard_normal(width, np.float32)
    x = random.standard_normal((rows, width), np.float32)
    return x, x @ (slope / np.linalg.norm(slope))
