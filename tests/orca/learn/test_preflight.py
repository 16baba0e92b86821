"""`est.check`: every finding provoked, told by type and text, and the same that fit raises; nothing is changed."""

from __future__ import annotations

import copy
import dataclasses
import functools
import random
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from nets import CLASSES, LABELS, REGRESSION, ROWS, X, Y, classifier, linear, make_model, make_optimizer, regression
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from zoo.orca import feed
from zoo.orca.data import XShards
from zoo.orca.engine.pickling import find_culprit
from zoo.orca.errors import (
    BatchError,
    ContextError,
    DynamicAllocationError,
    InvalidArgumentError,
    InvalidKeyError,
    MissingPackageError,
    NotEnoughMemoryError,
    NotEnoughSlotsError,
    NotFiniteLossError,
    NotPicklableError,
    PreconditionError,
    VersionMismatchError,
)
from zoo.orca.feed import taste
from zoo.orca.learn.callbacks import Callback
from zoo.orca.learn.check_report import CheckReport, Finding
from zoo.orca.learn.pytorch import TrainingOperator
from zoo.orca.learn.rehearsal import Memory
from zoo.orca.learn.surroundings import (
    _free_in_container,
    ask_workers,
    compare_memory,
    compare_versions,
    free_memory,
    versions,
)

COLUMNS = {"feature_cols": ["a", "b", "c"], "label_cols": ["y"]}
LOCK = threading.Lock()


def levels(report):
    return {finding.name: finding.level for finding in report.findings}


def frame():
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": LABELS})


def loader(config=None, batch_size=8):
    return DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(LABELS)), batch_size=batch_size)


class Stream(IterableDataset):
    """Rows one after the other, once for each time it was made: a check must not use them up."""

    def __iter__(self):
        return iter(zip(X, LABELS, strict=True))


class ByColumns(nn.Module):
    """Takes a column as an argument."""

    def __init__(self):
        super().__init__()
        self.line = linear(2)

    def forward(self, a, b, c):
        return self.line(torch.stack([a, b, c], dim=1).float())


def by_columns(**options):
    return classifier(model=ByColumns(), optimizer=None, num_workers=2, **options)


def shards_of_frames():
    return XShards.partition(frame(), num_shards=3)


KINDS = {
    "local": {
        "XShards": lambda: (classifier(num_workers=2), XShards.partition(CLASSES, num_shards=3), {}),
        "XShards of pandas": lambda: (by_columns(), shards_of_frames(), COLUMNS),
        "pandas": lambda: (by_columns(), frame(), COLUMNS),
        "DataLoader": lambda: (classifier(num_workers=2), loader(), {}),
        "a stream": lambda: (classifier(num_workers=2), DataLoader(Stream(), batch_size=8), {}),
        "creators": lambda: (
            classifier(model=make_model, optimizer=make_optimizer, config={"outputs": 2}, num_workers=2),
            loader,
            {"batch_size": 12},
        ),
        "another backend": lambda: (classifier("torch_distributed", num_workers=2), CLASSES, {}),
    },
    "spark": {
        "XShards of pandas": lambda: (by_columns(), shards_of_frames(), COLUMNS),
        "a Spark DataFrame": lambda: (by_columns(), spark().createDataFrame(frame()), COLUMNS),
    },
    "ray": {
        "XShards": lambda: (classifier(num_workers=2), XShards.partition(CLASSES, num_shards=3), {}),
        "a Ray Dataset": lambda: (by_columns(), ray_data().from_pandas(frame()), COLUMNS),
    },
}


def spark():
    from zoo.orca import OrcaContext

    return OrcaContext.get_spark_session()


def ray_data():
    import ray.data

    return ray.data


def held_by(est):
    """What an estimator holds beside the model, as it is now."""
    return {name: copy.copy(value) for name, value in vars(est).items() if name != "_recipe"}


def test_all_is_well_and_nothing_is_changed(engine, tmp_path):
    """The first check of an engine, with everything that can be given."""
    est = classifier(model_dir=str(tmp_path), num_workers=2)
    net = est._recipe.model
    before = {name: value.clone() for name, value in net.state_dict().items()}
    generators = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate(), torch.get_num_threads()
    held = held_by(est)
    report = est.check(CLASSES, 8, validation_data=CLASSES, callbacks=[Callback()])
    assert report.ok, report
    assert not report.warnings, report
    assert list(levels(report)) == [
        "backend", "workers", "pickling", "versions", "data", "validation_data", "model", "gradients", "memory"
    ]  # fmt: skip
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(param.grad is None for param in net.parameters())
    assert not est._recipe.optimizer.state
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert (np.random.get_state()[1] == generators[1]).all()
    assert (random.getstate(), torch.get_num_threads()) == generators[2:]
    assert held_by(est) == held
    assert list(tmp_path.iterdir()) == []


def test_every_kind_of_data_is_checked_and_then_fitted(engine):
    for kind, make in KINDS[engine.name].items():
        est, data, options = make()
        report = est.check(data, **options)
        assert report.ok, (kind, report)
        assert not report.warnings, (kind, report)
        assert levels(report)["model"] == "ok", (kind, report)
        if engine.name == "local":
            est.fit(data, epochs=1, **options)
            assert est.check(data, **options).ok  # from the trained state, too


@pytest.mark.engines("spark")
def test_of_a_spark_frame_only_the_first_rows_are_computed(engine, tmp_path):
    folder = str(tmp_path)

    def touch(batches):
        from pyspark import TaskContext

        for batch in batches:
            (Path(folder) / str(TaskContext.get().partitionId())).touch()
            yield batch

    rows = spark().range(0, 400, numPartitions=8).selectExpr("float(id) a", "float(id) b", "float(id) c", "id % 2 y")
    report = by_columns().check(rows.mapInArrow(touch, rows.schema), **COLUMNS)
    assert report.ok, report
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


@pytest.mark.engines("spark", "ray")
def test_too_many_workers_and_all_else_is_still_told(engine):
    report = classifier(num_workers=9).check({"x": X, "y": LABELS + 5}, 18)
    assert [(each.name, type(each.error)) for each in report.errors] == [
        ("workers", NotEnoughSlotsError),
        ("model", BatchError),
    ]
    assert "9 workers must run at once" in report.errors[0].text
    assert "labels must be 0 to 1, but there are labels from 5 to 6" in report.errors[1].text
    assert levels(report)["versions"] == "warning"
    with pytest.raises(NotEnoughSlotsError):
        report.raise_first()


@pytest.mark.engines("spark")
def test_a_range_of_workers_takes_what_there_is(engine):
    report = classifier(num_workers=(1, 9)).check(CLASSES, 18)
    assert report.ok, report
    assert "room for 4 of the 9 workers" in report.warnings[0].text


class Locked(nn.Module):
    """Holds what cannot be sent, deep inside."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
        self.layers[2].lock = threading.Lock()

    def forward(self, x):
        return self.layers(x)


class LockedCallback(Callback):
    def __init__(self):
        self.guards = {"mine": threading.Lock()}


class Inplace(nn.Module):
    """Changes what its backward pass needs."""

    def __init__(self):
        super().__init__()
        self.line = linear(1)

    def forward(self, x):
        out = torch.sigmoid(self.line(x))
        squared = out**2
        if self.training:
            out += 1
        return squared


class Normed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def broken(config):
    raise KeyError("no such setting")


def plain_loss(output, target):
    return nn.functional.cross_entropy(output, target) * 2


NAN = {"x": np.where(np.arange(ROWS)[:, None] == 3, np.nan, X).astype(np.float32), "y": Y}
LATE = {"x": X, "y": np.where(np.arange(ROWS) == ROWS - 5, 4, LABELS)}
MISTAKES = {
    "a missing column": (
        lambda: (by_columns(), frame(), COLUMNS | {"feature_cols": ["a", "b", "C"]}),
        "data", InvalidKeyError, "no column 'C'. Did you mean 'c'",
    ),
    "no columns": (lambda: (by_columns(), frame(), {}), "data", PreconditionError, "feature_cols must be given"),
    "text": (
        lambda: (by_columns(), frame().assign(a="red"), COLUMNS),
        "data", InvalidArgumentError, "the column 'a' holds text",
    ),
    "lengths that differ": (
        lambda: (regression(), {"x": X, "y": Y[:5]}, {}),
        "data", InvalidArgumentError, "the same number of records",
    ),
    "data of another kind": (lambda: (regression(), {1, 2}, {}), "data", InvalidArgumentError, "but is a builtins.set"),
    "no rows": (lambda: (regression(), {"x": X[:0], "y": Y[:0]}, {}), "data", InvalidArgumentError, "data has no rows"),
    "a wrong shape": (
        lambda: (regression(), {"x": X[:, :2], "y": Y}, {}),
        "model", BatchError, "cannot take data: it was called with float32 of shape",
    ),
    "a label out of range, late": (
        lambda: (classifier(), LATE, {}),
        "model", BatchError, "labels must be 0 to 1, but there are labels from 0 to 4",
    ),
    "no labels": (
        lambda: (classifier(), X, {}), "model", InvalidArgumentError, "the loss compares outputs with labels",
    ),
    "no loss": (lambda: (regression(loss=None), REGRESSION, {}), "loss", InvalidArgumentError, "loss must be given"),
    "validation of another kind": (
        lambda: (regression(metrics=None, backend="torch_distributed"), REGRESSION, {"validation_data": frame()}),
        "validation_data", InvalidArgumentError, "but data is arrays and validation_data a pandas DataFrame",
    ),
    "validation of another shape": (
        lambda: (regression("torch_distributed"), REGRESSION, {"validation_data": {"x": X[:, :2], "y": Y}}),
        "model", BatchError, "the model cannot take validation_data",
    ),
    "fewer rows than workers": (
        lambda: (regression(num_workers=4), REGRESSION, {"batch_size": 3}),
        "batch_size", InvalidArgumentError, "at least the number of workers (4), but is 3",
    ),
    "a batch size for a loader": (
        lambda: (classifier(), loader(), {"batch_size": 4}),
        "batch_size", PreconditionError, "must be left out with a DataLoader",
    ),
    "Ray that does not run": (
        lambda: (regression("ray"), REGRESSION, {}), "workers", ContextError, "needs a Ray that runs",
    ),
    "a model with a lock": (
        lambda: (classifier(model=Locked(), optimizer=None), CLASSES, {}),
        "pickling", NotPicklableError, "the attribute 'lock', a _thread.lock (model.layers[2].lock)",
    ),
    "a creator that captured a lock": (
        lambda: (regression(optimizer=lambda model, config: LOCK), REGRESSION, {}),
        "pickling", NotPicklableError, "the optimizer cannot be sent to the workers",
    ),
    "a config with a lock": (
        lambda: (regression(config={"guards": [LOCK]}), REGRESSION, {}),
        "pickling", NotPicklableError, "(config['guards'][0])",
    ),
    "a callback with a lock": (
        lambda: (regression(), REGRESSION, {"callbacks": [LockedCallback()]}),
        "pickling", NotPicklableError, "(callbacks[0].guards['mine'])",
    ),
    "no callback": (
        lambda: (regression(), REGRESSION, {"callbacks": [print]}), "callbacks", InvalidArgumentError, "is none",
    ),
    "a loader with a lock": (
        lambda: (classifier(), DataLoader([(LOCK, 1)]), {}), "data", NotPicklableError, "the DataLoader cannot be sent",
    ),
    "a creator that fails": (
        lambda: (regression(model=broken, optimizer=None), REGRESSION, {}), "model", KeyError, "no such setting",
    ),
    "a data creator that fails": (lambda: (regression(), broken, {}), "data", KeyError, "no such setting"),
    "a backward pass that fails": (
        lambda: (regression(model=Inplace(), optimizer=None), REGRESSION, {}),
        "model", RuntimeError, "modified by an inplace operation",
    ),
    "one row at the end": (
        lambda: (regression(model=Normed(), optimizer=None), REGRESSION, {"batch_size": ROWS - 1}),
        "last batch", ValueError, 'config={"drop_last": True}',
    ),
    "weights and a loss that knows no rows": (
        lambda: (
            classifier(model=ByColumns(), optimizer=None, loss=plain_loss), frame(), COLUMNS | {"weight_col": "a"}
        ),
        "model", InvalidArgumentError, "has no `reduction`",
    ),
    "a loss that is no number and must be": (
        lambda: (regression(stop_on_nan=True), NAN, {}), "model", NotFiniteLossError, "nan",
    ),
}  # fmt: skip


@pytest.mark.engines("local")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_and_is_what_fit_raises(engine, name):
    make, where, error, says = MISTAKES[name]
    est, data, options = make()
    report = est.check(data, **options)
    assert not report.ok
    found = [each for each in report.errors if each.name == where]
    assert [type(each.error) for each in found] == [error], report
    assert says in found[0].text
    with pytest.raises(type(report.errors[0].error)):
        report.raise_first()
    with pytest.raises(error):
        est.fit(data, epochs=1, **options)


class Unused(nn.Module):
    """Has a parameter that nothing depends on."""

    def __init__(self):
        super().__init__()
        self.line, self.spare = linear(), nn.Linear(2, 2)

    def forward(self, x):
        return self.line(x)


class InAGang(TrainingOperator):
    """Works only where there are others."""

    def train_batch(self, batch, batch_info):
        torch.distributed.barrier()
        return super().train_batch(batch, batch_info)


WARNINGS = {
    "a parameter without a gradient": (
        lambda: (regression(model=Unused(), optimizer=None), REGRESSION),
        "gradients", "2 of 4 trainable parameters get none, so they stay as they are: spare.weight, spare.bias",
    ),
    "nothing to train": (
        lambda: (frozen(), REGRESSION),
        "gradients", "no parameters to train",
    ),
    "a loss that is no number": (lambda: (regression(), NAN), "model", "the batch holds NaN or inf: fill or drop them"),
    "an operator that needs a gang": (
        lambda: (regression(training_operator_cls=InAGang), REGRESSION),
        "model", "On workers it may not: your TrainingOperator was not in a gang",
    ),
    "a creator that needs its hook": (
        lambda: (regression(model=broken, optimizer=None, initialization_hook=print), REGRESSION),
        "model", "no batch was trained on: KeyError: 'no such setting' On workers it may do: initialization_hook",
    ),
}  # fmt: skip


def frozen():
    model = linear().requires_grad_(False)
    return regression(model=model, optimizer=make_optimizer, training_operator_cls=Frozen)


class Frozen(TrainingOperator):
    def train_batch(self, batch, batch_info):
        return {"train_loss": 0.0, "num_samples": len(batch[0])}


@pytest.mark.engines("local")
@pytest.mark.parametrize("name", WARNINGS)
def test_what_does_not_stop_fit_is_a_warning(engine, name):
    make, where, says = WARNINGS[name]
    est, data = make()
    report = est.check(data)
    assert report.ok
    assert [each.name for each in report.warnings] == [where], report
    assert says in report.warnings[0].text
    report.raise_first()


@pytest.mark.engines("local")
def test_hooks_of_workers_are_not_called_here(engine):
    called = []
    report = regression(initialization_hook=functools.partial(called.append, 1)).check(REGRESSION)
    assert report.ok
    assert called == []


@pytest.mark.engines("local")
def test_every_shard_is_looked_at(engine):
    """One with other columns, and one with a label out of range, wherever they lie."""
    parts = [{"x": X[:6], "y": LABELS[:6]}, {"x": X[6:], "y": LABELS[6:]}]
    odd = engine.place([[parts[0]], [parts[1] | {"x": X[6:, :2]}]])
    (error,) = classifier().check(XShards(odd)).errors
    assert (error.name, type(error.error)) == ("data", InvalidArgumentError)
    assert "partition 1 has features an array of float32[2]" in error.text
    late = engine.place([[parts[0]], [parts[1] | {"y": np.where(np.arange(ROWS - 6) == 9, 7, LABELS[6:])}]])
    (error,) = classifier().check(XShards(late)).errors
    assert (error.name, type(error.error)) == ("model", BatchError)
    assert "labels from 0 to 7" in error.text


@pytest.mark.engines("local")
def test_dynamic_allocation_is_told_as_the_engine_tells_it(engine, monkeypatch):
    def refuse(self, most, least=None):
        raise DynamicAllocationError("expected spark.dynamicAllocation.enabled=false, but it is true.")

    monkeypatch.setattr(type(engine), "check_gang", refuse)
    (error,) = regression().check(REGRESSION).errors
    assert (error.name, type(error.error)) == ("workers", DynamicAllocationError)


class Outer:
    def __init__(self):
        self.inner = nn.ModuleDict({"a": nn.ModuleList([nn.Linear(1, 1), Locked()])})


class Slotted:
    __slots__ = ("guard",)

    def __init__(self):
        self.guard = threading.Lock()


def of_script(function, **variables):
    """A function as a script defines it: it is sent whole, with the global variables that it uses."""
    code = function.__code__
    made = type(function)(code, {"__name__": "__main__", **variables}, "made", function.__defaults__)
    made.__module__ = "__main__"
    return made


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Locked(), "the attribute 'lock', a _thread.lock (it.layers[2].lock)"),
        (Outer(), "the attribute 'lock', a _thread.lock (it.inner.a[1].layers[2].lock)"),
        (Slotted(), "the attribute 'guard', a _thread.lock (it.guard)"),
        ({"x": [1, {"y": LOCK}]}, "the entry 'y', a _thread.lock (it['x'][1]['y'])"),
        (functools.partial(max, LOCK), "item 0, a _thread.lock (it.args[0])"),
        (Locked().forward, "the attribute 'lock', a _thread.lock (it.layers[2].lock)"),
        (of_script(lambda: net, net=Locked()), "the attribute 'lock', a _thread.lock (net.layers[2].lock)"),  # noqa: F821
        (of_script(lambda x=LOCK: x), "the default of the argument 'x', a _thread.lock"),
        (linear(), None),
    ],
)
def test_what_cannot_be_sent_is_named_as_one_would_type_it(value, says):
    assert find_culprit(value, "it") == says


def test_a_structure_that_holds_itself_is_searched_to_the_end():
    ring = {"lock": LOCK}
    ring["ring"] = [ring]
    assert "the entry 'lock'" in find_culprit({"ring": [ring]})


@pytest.fixture(scope="module")
def around():
    """What real workers say of themselves."""
    from zoo.orca.engine.local import LocalEngine

    with LocalEngine(cores=2) as engine:
        return ask_workers(engine, 2, ("torch",), None)


def with_versions(around, rank, **other):
    changed = [*around]
    changed[rank] = dataclasses.replace(around[rank], versions=around[rank].versions | other)
    return changed


def test_workers_have_the_drivers_versions(around):
    (finding,) = compare_versions(versions(["torch"]), around, ["torch"])
    assert finding.level == "ok"
    assert f"torch {torch.__version__}" in finding.text
    assert {each.memory for each in around} != {0}
    assert max(each.memory for each in around) < free_memory()  # two ranks share it


@pytest.mark.parametrize(
    ("other", "level", "error", "says"),
    [
        ({"python": "3.9.2"}, "error", VersionMismatchError, "Start the workers with this interpreter (PYSPARK_PYTHON"),
        ({"torch": "1.13.1"}, "error", VersionMismatchError, "but 1.13.1 on rank(s) 1"),
        ({"torch": f"{torch.__version__}.post1"}, "warning", None, "Install the same on both: pip install torch=="),
        ({"torch": None}, "error", MissingPackageError, "is installed here, but not on rank(s) 1"),
        ({"cloudpickle": "2.0.0"}, "error", VersionMismatchError, "pip install cloudpickle=="),
        ({"numpy": "1.26.4"}, "warning", None, "numpy is"),
        ({"pandas": None}, "warning", None, "is installed here, but not on"),
        ({"zoo": "0.0.1"}, "warning", None, "zoo is"),
    ],
)
def test_other_versions_on_a_worker(around, other, level, error, says):
    (finding,) = compare_versions(versions(["torch"]), with_versions(around, 1, **other), ["torch"])
    assert (finding.name, finding.level, type(finding.error)) == ("versions", level, error or type(None))
    assert says in finding.text


@pytest.mark.parametrize(
    ("part", "level", "error"), [(0.5, "ok", None), (0.9, "warning", None), (1.1, "error", NotEnoughMemoryError)]
)
def test_memory_against_what_the_tightest_worker_has(around, part, level, error):
    workers = [around[0], dataclasses.replace(around[1], memory=1_000_000)]
    finding = compare_memory(Memory(weights=int(part * 1_000_000)), workers)
    assert (finding.level, type(finding.error)) == (level, error or type(None))
    assert "1.0 MB of memory are free" in finding.text
    on_gpus = [dataclasses.replace(each, device=3_000_000) for each in workers]
    assert compare_memory(Memory(weights=int(part * 1_000_000)), on_gpus).level == "ok"


def test_the_limit_of_a_container_counts(tmp_path):
    assert _free_in_container(tmp_path) == []
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert _free_in_container(tmp_path) == []
    (tmp_path / "memory.max").write_text("1000\n")
    assert _free_in_container(tmp_path) == [450]


def need(rows=256, **options):
    net = nn.Sequential(nn.Linear(40, 100), nn.Tanh(), nn.Linear(100, 50), nn.Tanh(), nn.Linear(50, 1))
    given = {"model": net, "optimizer": torch.optim.Adam(net.parameters()), "loss": nn.MSELoss()}
    est = regression(**given | options)
    rehearsal = est._rehearsal()
    est._rehearsal = lambda: rehearsal
    data = {"x": np.zeros((rows, 40), np.float32), "y": np.zeros((rows, 1), np.float32)}
    assert est.check(data, rows).ok
    return rehearsal.memory


@pytest.mark.engines("local")
def test_memory_is_what_the_arithmetic_says(engine):
    weights = 4 * (40 * 100 + 100 + 100 * 50 + 50 + 50 + 1)
    alone = need()
    assert (alone.weights, alone.gradients, alone.exchange) == (weights, weights, 0)
    assert alone.optimizer == pytest.approx(2 * weights, rel=0.01)
    assert alone.batch == 256 * 41 * 4
    # Two activations of tanh, the difference in the loss, for each row; by a line from 16 and 32 rows.
    assert alone.activations == pytest.approx(256 * 4 * (100 + 50 + 1), rel=0.02)
    sharded = need(num_workers=2)
    assert sharded.optimizer == pytest.approx(weights, rel=0.01)
    assert sharded.activations == pytest.approx(alone.activations / 2, rel=0.02)
    whole = need(num_workers=2, backend="torch_distributed")
    assert (whole.optimizer, whole.exchange) == (alone.optimizer, weights)


@pytest.mark.engines("local")
def test_a_model_too_large_for_the_driver_is_not_copied(engine, monkeypatch):
    monkeypatch.setattr("zoo.orca.learn.pytorch.preflight.free_memory", lambda: 100)
    report = regression().check(REGRESSION)
    assert report.ok
    assert [each.name for each in report.warnings] == ["model"]
    assert "100 B are free" in report.warnings[0].text
    assert levels(report)["memory"] == "ok"
    (error,) = regression().check({"x": X[:, :2], "y": Y}).errors
    assert type(error.error) is BatchError


def test_a_report_reads_well_and_raises():
    error = InvalidKeyError("there is no column 'b'.")
    report = CheckReport(
        [Finding("workers", "ok", "2 can start"), Finding("memory", "warning", "tight"), Finding.of("data", error)]
    )
    assert str(report).splitlines() == [
        "✓ workers  2 can start",
        "! memory   tight",
        "✗ data     there is no column 'b'.",
        "fit would stop: InvalidKeyError.",
    ]
    assert not report.ok
    with pytest.raises(InvalidKeyError) as raised:
        report.raise_first()
    assert raised.value is error
    assert "<td>✗</td><td>data</td>" in report._repr_html_()
    assert str(CheckReport([])) == "Nothing stands in the way of fit."


def test_all_that_fit_takes_can_be_tasted():
    assert taste._TASTERS.keys() == feed._MAKERS.keys()
