"""What `orca doctor` tries, in a process of its own: `python -m zoo.orca.command.trial engine spark`.

The last line printed is the answer, as JSON; the traceback of an error goes where it always goes.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zoo.orca.command import MODE_OF

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker

WORKERS = 2


def load(*modules: str) -> dict[str, Any]:
    """Import libraries."""
    for module in modules:
        if module == "mxnet":
            importlib.import_module("zoo.orca.mxnet_library").load()
        else:
            importlib.import_module(module)
    return {}


def engine(name: str) -> dict[str, Any]:
    """Start an engine, compute on its shards, run a gang of two, and stop it."""
    import numpy as np

    from zoo.orca.context import current_engine, init_orca_context, stop_orca_context
    from zoo.orca.data import XShards
    from zoo.orca.engine.gang import run_gang

    init_orca_context(MODE_OF[name], cores=WORKERS)
    try:
        doubled = XShards.partition(np.arange(8), num_shards=WORKERS).transform_shard(lambda shard: shard * 2)
        total = int(np.concatenate(doubled.collect()).sum())
        ranks = run_gang(current_engine(), _rank, WORKERS)
    finally:
        stop_orca_context()
    if (total, ranks) != (56, [[0, 1], [0, 1]]):
        raise RuntimeError(f"two workers gave {total} and {ranks}, and not 56 and [[0, 1], [0, 1]]")
    return {"workers": WORKERS}


def _rank(worker: Worker) -> list[int]:
    return worker.all_gather(worker.rank)


def gpus() -> dict[str, Any]:
    """The GPUs that torch can use."""
    import torch

    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    for number in range(len(names)):
        torch.ones(8, device=f"cuda:{number}").sum().item()
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "names": names}


TRIALS: dict[str, Callable[..., dict[str, Any]]] = {"load": load, "engine": engine, "gpus": gpus}


def main(arguments: list[str]) -> int:
    """Make one trial and print what came of it; 0 if it went well."""
    name, *rest = arguments
    began = time.monotonic()
    try:
        answer = TRIALS[name](*rest) | {"seconds": time.monotonic() - began}
    except Exception as error:
        traceback.print_exc()
        first, *_ = str(error).strip().splitlines() or [""]
        answer = {"error": f"{type(error).__name__}: {first}"}
    print(json.dumps(answer))
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
