"""The support tables of the docs, asked of the code: python docs/support_table.py writes them into the pages.

A page holds a table between `<!-- support:NAME -->` and `<!-- /support -->`. tests/test_docs.py fails when what stands
there is not what the code says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd

from bigdl.nn import layer
from bigdl.nn.catalogue import FAMILIES
from bigdl.util import common
from zoo.orca.data import XShards
from zoo.orca.data.tf.data import Dataset
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed import _MAKERS, engine_of, kind_of
from zoo.orca.learn.estimator import BACKENDS
from zoo.orca.learn.mxnet.estimator import KINDS as MXNET_KINDS
from zoo.orca.learn.pytorch.estimator import BACKENDS as TORCH_BACKENDS
from zoo.orca.learn.sync import make_sync
from zoo.orca.learn.tf2.estimator import BACKENDS as KERAS_BACKENDS
from zoo.orca.learn.tf2.quiet import import_tensorflow

DOCS = Path(__file__).parent
# Below zoo.orca.learn, and the backends that each takes.
ESTIMATORS = {
    "pytorch": TORCH_BACKENDS,
    "tf": ["bigdl"],
    "tf2": KERAS_BACKENDS,
    "bigdl": ["bigdl"],
    "mxnet": ["mxnet"],
}
ENGINES = {"local": "local", "spark": "Spark", "ray": "Ray"}
MARKED = re.compile(r"(<!-- support:(\w+) -->\n).*?(<!-- /support -->)", re.DOTALL)


def backends_table() -> str:
    """Which engines a backend runs on, and who updates the weights there."""
    rows = []
    for name, (sync, home) in BACKENDS.items():
        update = "each worker updates its 1/N of the weights" if make_sync(sync).sharded else "every worker, alike"
        takers = _words([estimator for estimator, backends in ESTIMATORS.items() if name in backends])
        places = ["yes" if home in (None, each) else "-" for each in ENGINES]
        rows.append([f"`{name}`", takers, f"`{sync}`", update, *places])
    return _table(["backend", "estimators", "sync", "who updates the weights", *ENGINES.values()], rows)


def data_table() -> str:
    """Which backends take which kind of data, on each engine."""
    rows = [[kind, *(_words(_backends(kind, engine)) for engine in ENGINES)] for kind in _MAKERS]
    return _table(["data", *ENGINES.values()], rows)


def layers_table() -> str:
    """Every layer of bigdl.nn.layer: those that hold others, and the catalogue by family."""
    held = {row.name for rows in FAMILIES.values() for row in rows}
    others = [name for name in layer.__all__ if name not in held and name not in common.__all__]
    families = {
        "Containers and graphs": others,
        **{name: [row.name for row in rows] for name, rows in FAMILIES.items()},
    }
    return _table(["family", "layers"], [[family, _words(names)] for family, names in families.items()])


TABLES: dict[str, Callable[[], str]] = {"backends": backends_table, "data": data_table, "layers": layers_table}


def filled(text: str) -> str:
    """A page with its tables as the code says they are."""
    return MARKED.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


def _backends(kind: str, engine: str) -> list[str]:
    """The backends that take a kind of data that is on an engine, or comes to it."""
    stand_in = _stand_ins(engine)[kind]
    if kind_of(stand_in) != kind:
        raise AssertionError(f"the stand-in for {kind} is taken for {kind_of(stand_in)}")
    named: Any = SimpleNamespace(name=engine)
    try:
        engine_of(stand_in, asked=named)
    except InvalidArgumentError:
        return []
    takers = [name for name in BACKENDS if name != "mxnet" or kind in MXNET_KINDS]
    return [name for name in takers if BACKENDS[name][1] in (None, engine)]


def _stand_ins(engine: str) -> dict[str, Any]:
    """Something of each kind, with nothing started: only what it is matters here."""
    import pyspark.sql
    import ray.data
    import torch.utils.data

    shards = Mock(XShards, placement=SimpleNamespace(engine=SimpleNamespace(name=engine)))
    return {
        "XShards": shards,
        "Spark DataFrame": Mock(pyspark.sql.DataFrame),
        "Ray Dataset": Mock(ray.data.Dataset),
        "DataLoader": torch.utils.data.DataLoader([0]),
        "tf.data.Dataset": Mock(import_tensorflow().data.Dataset),
        "orca.data.tf.Dataset": Mock(Dataset, xshards=shards),
        "creator": lambda config: None,
        "pandas DataFrame": pd.DataFrame({"a": [1]}),
        "arrays": np.zeros(1),
    }


def _words(backends: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in backends) or "-"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    for page in DOCS.glob("*.md"):
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
