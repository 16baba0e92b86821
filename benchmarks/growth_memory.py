"""The `memory` curves: what a worker holds while the rows of its partitions grow, at the same batch and model.

Two kinds of memory are told apart, as Linux does (`/proc/PID/smaps_rollup`). A worker's own (anonymous) memory is what
must be there. Pages of files that it maps, such as rows laid down, are the page cache's: shared by all who map them,
counted here in equal parts, and given up when memory is short.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq

from benchmarks import learn_data
from benchmarks.growth import Column, Curve, Figures, GrowthBar, Measured, Point, ratio
from benchmarks.growth_rows import BATCH_SIZE, WORKERS, folder_of, predict_all, start, train
from benchmarks.row import Settings
from benchmarks.train_rows import NEEDS

# Eight files of fewer rows have columns shorter than a page of Parquet, of which a reader holds some for each column.
BASE = 1_000_000
QUICK_BASE = 20_000
TIMES = (1, 4, 16)
SAMPLE_SECONDS = 0.02
ROW_BYTES = 4 * (learn_data.WIDTH + 1)


def curve(settings: Settings) -> Curve:
    base = QUICK_BASE if settings.quick else BASE
    sizes = [base * times for times in TIMES]
    points = [
        Point(
            f"{work}, {engine}",
            size,
            f"benchmarks.growth_memory:{work}",
            {"folder": str(folder_of(settings, size)), "engine": engine, "warm": str(folder_of(settings, base))},
            NEEDS["local" if engine == "embedded" else engine],
        )
        for work, engine in (("fit", "embedded"), ("fit", "spark"), ("predict", "spark"))
        for size in sizes
    ]
    series = list(dict.fromkeys(point.series for point in points))
    return Curve(
        name="memory",
        title=(
            f"Memory of {WORKERS} workers for {', '.join(f'{size:,}' for size in sizes)} rows of {ROW_BYTES} bytes, "
            f"at batches of {BATCH_SIZE} and an MLP of 1,409 parameters"
        ),
        sizes="rows",
        contenders=tuple(points),
        columns=(
            Column("data", "rows, MB"),
            Column("own", "a worker's own, MB"),
            Column("more", "more than before, MB", 1),
            Column("mapped", "mapped by all, MB"),
            Column("copies", "copies of the rows", 2),
        ),
        bars=(
            *(
                GrowthBar(
                    f"{each}: a worker's own memory for 16 times the rows is at most 1.3 times as much",
                    ratio("own", each, sizes[-1], sizes[0]),
                    1.3,
                )
                for each in series
            ),
            *(
                GrowthBar(f"{each}: {WORKERS} ranks map at most 1.2 copies of the rows", _copies(each, sizes[-1]), 1.2)
                for each in series
                if each.startswith("fit")
            ),
        ),
        drawn="own",
        prepare=partial(_prepare, settings, sizes),
        note=(
            "The workers have done the same with the fewest rows before, so that libraries are loaded; what they hold "
            "then is in a worker's own. Mapped is the sum over workers of their parts of pages of files, less what "
            "they had mapped before; a page that both map counts half for each."
        ),
    )


def fit(size: int, folder: str, engine: str, warm: str) -> Figures:
    return _watched(size, folder, engine, warm, train)


def predict(size: int, folder: str, engine: str, warm: str) -> Figures:
    return _watched(size, folder, engine, warm, predict_all)


def _watched(size: int, folder: str, engine: str, warm: str, work: Callable[..., None]) -> Figures:
    from zoo.orca import stop_orca_context

    read = start(engine)
    if engine == "embedded":
        read = _arrays
    work(read(warm), engine)
    workers = _workers(engine)
    before = [_memory(process) for process in workers]
    data = read(folder)
    with _peaks(workers) as peaks:
        work(data, engine)
    stop_orca_context()
    held, own = max(own for own, _ in before), max(own for own, _ in peaks.values())
    mapped = max(0, peaks.mapped - sum(mapped for _, mapped in before))
    return {
        "data": size * ROW_BYTES / 2**20,
        "own": own / 2**20,
        "more": (own - held) / 2**20,
        "mapped": mapped / 2**20,
        "copies": mapped / (size * ROW_BYTES),
    }


def _arrays(folder: str) -> dict[str, np.ndarray]:
    """All rows on the driver. XShards would lie in the workers' memory, as far as the engine allows: as is promised."""
    table = pq.read_table(folder)
    return {"x": learn_data.matrix_of(table), "y": table.column(learn_data.LABEL).to_numpy()}


class _Peaks(dict[int, tuple[int, int]]):
    """The most of each process's own and mapped memory, by pid, and the most that all together had mapped."""

    mapped = 0

    def look(self, processes: list[psutil.Process]) -> None:
        now = {process.pid: _memory(process) for process in processes}
        for pid, (own, mapped) in now.items():
            most = self.get(pid, (0, 0))
            self[pid] = max(own, most[0]), max(mapped, most[1])
        self.mapped = max(self.mapped, sum(mapped for _, mapped in now.values()))


@contextmanager
def _peaks(processes: list[psutil.Process]):
    peaks, over = _Peaks(), threading.Event()

    def watch() -> None:
        while not over.wait(SAMPLE_SECONDS):
            peaks.look(processes)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peaks
    finally:
        over.set()
        thread.join()


def _memory(process: psutil.Process) -> tuple[int, int]:
    """Bytes of a process's own, and its part of the files it maps."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    parts = {name: 1024 * int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return parts.get("Pss_Anon", 0), parts.get("Pss_File", 0) + parts.get("Pss_Shmem", 0)


def _workers(engine: str) -> list[psutil.Process]:
    """The processes that work: what the embedded engine's nursery or the daemon of Spark's Python workers forked."""
    children = psutil.Process().children(recursive=True)
    word = "zoo.orca.engine.nursery_process" if engine == "embedded" else "pyspark.worker"
    # A task that gave up its worker, as Spark's do now and then, leaves it to its parent for a moment, without a name.
    alive = [each for each in children if each.status() != psutil.STATUS_ZOMBIE]
    found = [each for each in alive if word in " ".join(each.cmdline())]
    parents = {each.ppid() for each in found}
    return [each for each in found if each.pid not in parents]


def _copies(series: str, size: int) -> Callable[[Measured], float | None]:
    return lambda measured: measured[series][size]["copies"]


def _prepare(settings: Settings, sizes: list[int]) -> None:
    for size in sizes:
        learn_data.make_columns(folder_of(settings, size), size)
