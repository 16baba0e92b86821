"""The tables of README and docs that say what runs where, and how fast: python docs/support_table.py writes them.

A page holds a table between `<!-- support:NAME -->` and `<!-- /support -->`. What runs where is asked of the code; how
fast it is, of the tables that the benchmarks wrote into docs/performance.md. tests/test_docs.py fails when what stands
in a page is something else.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
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
from zoo.orca.learn.bigdl.estimator import BigDLEstimator
from zoo.orca.learn.estimator import BACKENDS
from zoo.orca.learn.mxnet.estimator import KINDS as MXNET_KINDS
from zoo.orca.learn.mxnet.estimator import MXNetEstimator
from zoo.orca.learn.openvino.estimator import OpenVINOEstimator
from zoo.orca.learn.pytorch.estimator import BACKENDS as TORCH_BACKENDS
from zoo.orca.learn.pytorch.estimator import PyTorchEstimator
from zoo.orca.learn.sync import make_sync
from zoo.orca.learn.tf2.estimator import BACKENDS as KERAS_BACKENDS
from zoo.orca.learn.tf2.estimator import TensorFlow2Estimator
from zoo.orca.learn.tf2.quiet import import_tensorflow

DOCS = Path(__file__).parent
README = DOCS.parent / "README.md"
# Below zoo.orca.learn, and the backends that each takes.
ESTIMATORS = {
    "pytorch": TORCH_BACKENDS,
    "tf": ["bigdl"],
    "tf2": KERAS_BACKENDS,
    "bigdl": ["bigdl"],
    "mxnet": ["mxnet"],
}
ENGINES = {"local": "local", "spark": "Spark", "ray": "Ray"}
STARTS = {
    "local": 'nothing, or `init_orca_context("embedded")`',
    "spark": '`init_orca_context("local")`, or [a cluster\'s mode](docs/guides/to-a-cluster.md)',
    "ray": '`init_orca_context("ray")`',
}
CALLS = ("fit", "evaluate", "predict", "export")
# The rows of docs/performance.md that the README shows, in a user's words. Of peers that a Spark DataFrame does not lie
# with, nothing is shown.
JOBS = {
    "train-mlp": "train a PyTorch MLP of 5.8M parameters on arrays",
    "train-small": "train a model of 1 ms a step",
    "train-keras-5m": "train a Keras MLP of 5.1M parameters",
    "train-mxnet-mlp": "train a gluon MLP over MXNet's kvstore",
    "ingest": "2 epochs over 4M rows of a Spark DataFrame",
    "predict-columns": "predict 2M rows of a Spark DataFrame",
    "csv": "read, transform and ask 500 MB of CSV",
    "start-spark": "start workers on a Spark that runs",
    "start-ray": "start workers on a Ray that runs",
}
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


def models_table() -> str:
    """Which models an estimator takes, what it can be asked, and on which engines."""
    rows = []
    for model, (folder, kind) in _estimators().items():
        homes = {BACKENDS[backend][1] for backend in ESTIMATORS.get(folder, [])} or {None}
        places = ["yes" if homes & {None, engine} else "-" for engine in ENGINES]
        calls = [call for call in CALLS if _offers(kind, call)]
        rows.append([model, f"`zoo.orca.learn.{folder}`", _words(calls), *places])
    return _table(["model", "estimator", "calls", *ENGINES.values()], rows)


def engines_table() -> str:
    """How each engine is started, and the data that estimators take there."""
    rows = [
        [shown, STARTS[engine], ", ".join(kind for kind in _MAKERS if _backends(kind, engine))]
        for engine, shown in ENGINES.items()
    ]
    return _table(["engine", "you start it with", "data that `fit` takes there"], rows)


def ratios_table() -> str:
    """How many times as fast as every peer we are, by the tables of docs/performance.md."""
    rows = []
    for name, job in JOBS.items():
        peers = [(peer, ratio) for peer, ratio in _peers(name) if "Spark D" not in job or not peer.startswith("Ray")]
        shown = "; ".join(f"**{ratio}** {peer}" for peer, ratio in peers)
        rows.append([job, shown, f"`make bench ARGS={name}`"])
    return _table(["job, on 2 workers", "so many times as fast as", "measure it"], rows)


def layers_table() -> str:
    """Every layer of bigdl.nn.layer: those that hold others, and the catalogue by family."""
    held = {row.name for rows in FAMILIES.values() for row in rows}
    others = [name for name in layer.__all__ if name not in held and name not in common.__all__]
    families = {
        "Containers and graphs": others,
        **{name: [row.name for row in rows] for name, rows in FAMILIES.items()},
    }
    return _table(["family", "layers"], [[family, _words(names)] for family, names in families.items()])


TABLES: dict[str, Callable[[], str]] = {
    "backends": backends_table,
    "data": data_table,
    "models": models_table,
    "engines": engines_table,
    "layers": layers_table,
    "ratios": ratios_table,
}


def filled(text: str) -> str:
    """A page with its tables as the code says they are."""
    return MARKED.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


def _estimators() -> dict[str, tuple[str, type]]:
    """The models that users have: where their estimator is below zoo.orca.learn, and its class."""
    import_tensorflow()  # without its remarks
    from zoo.orca.learn.tf.estimator import TensorFlowEstimator

    return {
        "PyTorch module": ("pytorch", PyTorchEstimator),
        "Keras 3 model": ("tf2", TensorFlow2Estimator),
        "TensorFlow 1 graph, tf_keras model": ("tf", TensorFlowEstimator),
        "BigDL layers": ("bigdl", BigDLEstimator),
        "MXNet block or module": ("mxnet", MXNetEstimator),
        "OpenVINO or ONNX file": ("openvino", OpenVINOEstimator),
    }


def _offers(kind: type, call: str) -> bool:
    """Whether an estimator has a call that does something; what only raises is annotated with NoReturn."""
    method = getattr(kind, call, None)
    return method is not None and inspect.signature(method).return_annotation != "NoReturn"


def _peers(name: str) -> Iterator[tuple[str, str]]:
    """Each peer of a benchmark, and its first ratio to us, from the benchmark's table; ours are in bold there."""
    page = (DOCS / "performance.md").read_text()
    found = re.search(rf"<!-- bench:{name} -->\n(.*?)<!-- /bench -->", page, re.DOTALL)
    lines = [line for line in (found[1] if found else "").splitlines() if line.startswith("| ")]
    heads, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    column = heads.index("ratio to us")
    for cells in rows:
        if not cells[0].startswith("**") and re.match(r"\d", cells[column]):
            yield cells[0], cells[column].partition(" ")[0]


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
    for page in (README, *DOCS.rglob("*.md")):
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
