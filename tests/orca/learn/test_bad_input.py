"""What users get wrong, as a table: a typed error that says what was expected and what to type, and nothing started."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from nets import CLASSES, LABELS, REGRESSION, ROWS, X, Y, classifier, linear, make_model, regression, weights
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from zoo.orca.data import XShards
from zoo.orca.errors import (
    BatchError,
    CheckpointError,
    ContextError,
    InvalidArgumentError,
    InvalidKeyError,
    NotEnoughSlotsError,
    NotPicklableError,
    OrcaError,
    PathNotFoundError,
    PreconditionError,
)
from zoo.orca.learn import estimator as shared_estimator
from zoo.orca.learn.metrics import AUC, MSE, Accuracy
from zoo.orca.learn.pytorch import TrainingOperator

RAY = "torch_distributed"


@dataclass(frozen=True)
class Case:
    """One mistake.

    Attributes:
        call: makes it; called with an empty folder.
        error: the type of ours, which must also be `builtin`.
        says: parts of the message.
        starts: whether a gang has to run to find out.
    """

    name: str
    call: Callable[[Any], Any]
    error: type[OrcaError]
    builtin: type[BaseException]
    says: tuple[str, ...]
    starts: bool = False


def argument(name, call, *says, **more):
    return Case(name, call, InvalidArgumentError, ValueError, says, **more)


class Returning(TrainingOperator):
    """An operator whose hook gives nothing back."""

    def train_batch(self, batch, batch_info):
        super().train_batch(batch, batch_info)


class Locked(nn.Linear):
    """A model that holds what cannot be sent."""

    def __init__(self):
        super().__init__(3, 1)
        self.guard = threading.Lock()


def loader(batch_size=8, x=X, y=Y):
    return DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=batch_size)


def frame(**columns):
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "label": Y[:, 0]} | columns)


class Sum(nn.Module):
    """Takes two columns."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, a, b):
        return (a + b) * self.scale


def saved(folder, damage=None, make=regression):
    path = folder / "model.pt"
    make().save(str(path))
    if damage is not None:
        path.write_bytes(damage(path.read_bytes()))
    return str(path)


def from_torch(**options):
    return lambda folder: regression(**options)


def fit(data=REGRESSION, make=regression, **options):
    given = {name: options.pop(name) for name in list(options) if name in CONSTRUCTOR}
    return lambda folder: make(**given).fit(data, **options)


def evaluate(data=REGRESSION, **options):
    given = {name: options.pop(name) for name in list(options) if name in CONSTRUCTOR}
    return lambda folder: regression(RAY, **given).evaluate(data, **options)


CONSTRUCTOR = {
    "model",
    "optimizer",
    "loss",
    "metrics",
    "scheduler_creator",
    "scheduler_step_freq",
    "training_operator_cls",
    "backend",
    "num_workers",
    "workers_per_node",
    "config",
    "model_dir",
}
COLUMNS = {"feature_cols": ["a", "b"], "label_cols": ["label"]}
ONE_COLUMN = {"feature_cols": ["a"], "label_cols": ["label"]}

TYPES_OF_ARGUMENTS = [
    argument("unknown backend", from_torch(backend="mpi"), "'bigdl', 'torch_distributed', 'horovod'", "'mpi'"),
    argument("backend no text", from_torch(backend=None), "backend must be one of", "None"),
    argument("a class as model", from_torch(model=Locked), "the class Locked", "Give Locked(...)"),
    argument("text as model", from_torch(model="net"), "model must be a torch.nn.Module or a function", "str"),
    argument("a list of others as model", from_torch(model=[linear(), 5]), "model must be a torch.nn.Module"),
    argument("no model", from_torch(model=None), "model must be a torch.nn.Module", "NoneType"),
    argument("text as optimizer", from_torch(optimizer="adam"), "zoo.orca.learn.optimizers", "str"),
    argument(
        "another model's optimizer",
        from_torch(optimizer=torch.optim.SGD(linear().parameters(), lr=0.1)),
        "parameters that are not the model's",
        "optimizer(model, config)",
    ),
    argument(
        "an optimizer and a model creator",
        from_torch(model=make_model, optimizer=torch.optim.SGD(linear().parameters(), lr=0.1)),
        "with a model creator give a function optimizer(model, config)",
    ),
    argument("text as loss", from_torch(loss="mse"), "torch.nn.MSELoss()", "'mse'"),
    argument("no loss", fit(loss=None), "loss must be given", "forward_batch"),
    argument("text as metric", from_torch(metrics="acc"), "Only orca metrics are supported, but get str"),
    argument("a metric twice", from_torch(metrics=[Accuracy(), Accuracy()]), "both reported as 'Top1Accuracy'"),
    argument("text as scheduler", from_torch(scheduler_creator="step"), "scheduler(optimizer, config)", "'step'"),
    argument("when to step", from_torch(scheduler_step_freq="step"), '"epoch", "score", "manual" or None', "'step'"),
    argument("an operator of another class", from_torch(training_operator_cls=dict), "subclass of TrainingOperator"),
    argument("text as hook", lambda folder: regression(initialization_hook="x"), "initialization_hook", "'x'"),
    argument("text as config", from_torch(config="lr"), "config must be a dict", "'lr'"),
    argument("text as seed", lambda folder: regression(seed="x"), "seed must be a whole number", "'x'"),
    argument("a number as model_dir", from_torch(model_dir=5), "model_dir must be a path", "5"),
    argument("no workers", from_torch(num_workers=0), "num_workers must be a whole number of at least 1", "0"),
    argument("half a worker", from_torch(workers_per_node=0.5), "workers_per_node must be a whole number", "0.5"),
    Case(
        "batch_size in config",
        from_torch(config={"batch_size": 4}),
        PreconditionError,
        AssertionError,
        ("config must not hold batch_size", "fit"),
    ),
    argument("epochs 0", fit(epochs=0), "epochs must be a whole number of at least 1", "0"),
    argument("half an epoch", fit(epochs=1.5), "epochs must be a whole number", "1.5"),
    argument("True epochs", fit(epochs=True), "epochs must be a whole number"),
    argument("batch_size 0", fit(batch_size=0), "batch_size must be a whole number of at least 1", "0"),
    argument("negative batch_size", fit(batch_size=-8), "batch_size must be a whole number", "-8"),
    argument("half a row", fit(batch_size=2.5), "batch_size must be a whole number", "2.5"),
    argument("text as batch_size", fit(batch_size="8"), "batch_size must be a whole number", "'8'"),
    argument(
        "fewer rows than workers",
        fit(batch_size=1, num_workers=2),
        "at least the number of workers (2)",
        "is 1",
        "Raise",
    ),
    Case(
        "batch_size with a loader",
        fit(loader(), batch_size=8),
        PreconditionError,
        AssertionError,
        ("batch_size must be left out with a DataLoader", "is 8"),
    ),
    argument("a number as columns", fit(frame(), feature_cols=3), "feature_cols must be a list of column names", "3"),
    argument("a column of columns", fit(frame(), feature_cols=[["a"]]), "feature_cols must be a list of column names"),
    argument(
        "a list as weight", fit(frame(), weight_col=["a"], **COLUMNS), "weight_col must be the name of one column"
    ),
    argument("a number as trigger", fit(checkpoint_trigger=3), "EveryEpoch()", "3"),
    argument("a trigger's class", fit(checkpoint_trigger=shared_estimator.EveryEpoch), "Type EveryEpoch(...)"),
    argument("an unknown trigger", fit(checkpoint_trigger="often"), "everyepoch", "'often'"),
    argument("a number as info", fit(backend=RAY, info=5), "info must be a dict", "5"),
    argument("num_steps 0", evaluate(num_steps=0), "num_steps must be a whole number of at least 1", "0"),
    argument("text as num_steps", evaluate(num_steps="3"), "num_steps must be a whole number", "'3'"),
    argument("a norm of 0", lambda folder: regression().set_l2_norm_gradient_clipping(0), "above 0"),
    argument("text as norm", lambda folder: regression().set_l2_norm_gradient_clipping("x"), "above 0", "'x'"),
    argument(
        "a range from above", lambda folder: regression().set_constant_gradient_clipping(1, -1), "min below max", "1"
    ),
    argument(
        "a number as log_dir", lambda folder: regression().set_tensorboard(3, "app"), "log_dir must be a path", "3"
    ),
    argument("no metric named", lambda folder: summarised(folder).get_validation_summary(), "a metric must be named"),
    argument("a number to load", lambda folder: regression().load(3), "model_path must be a path", "3"),
    argument("None to save", lambda folder: regression(RAY).save(None), "model_path must be a path", "None"),
]

DATA = [
    argument("no data", fit(None), "numpy arrays (x, y)", "Spark DataFrame", "builtins.NoneType"),
    argument("a number as data", fit(5), "data must be", "builtins.int"),
    argument("three arrays", fit((X, X, Y)), "(features, labels)", "([x1, x2], y)"),
    argument("no rows", fit((X[:0], Y[:0])), "data has no rows"),
    argument("an empty frame", fit(frame()[:0], **ONE_COLUMN), "data has no rows"),
    argument("empty shards", fit({"x": X[:0], "y": Y[:0]}), "data has no rows"),
    argument("an empty loader", fit(loader(x=X[:0], y=Y[:0])), "empty", "at least one row"),
    argument(
        "a loader that drops all",
        fit(DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=100, drop_last=True)),
        "no batches",
        "drop_last=False",
    ),
    argument("unequal lengths", fit({"x": X, "y": Y[:5]}), "same number of records", "[5, 24]"),
    argument("ragged features", fit({"x": [X, X[:3]], "y": Y}), "same number of records"),
    argument("text in arrays", fit({"x": np.array(["a"] * ROWS), "y": Y}), "must be numbers", "one-hot"),
    Case("a set as shard", fit({"z": 3}), InvalidArgumentError, ValueError, ("ndarray", "dict")),
    Case(
        "no feature_cols",
        fit(frame(), label_cols=["label"]),
        PreconditionError,
        AssertionError,
        ("feature_cols must be given", "'a', 'b', 'label'"),
    ),
    argument("no labels", fit({"x": X}), "compares outputs with labels, but data has none", "label_cols"),
    argument("no label_cols", fit(frame(), feature_cols=["a"]), "data has none", "label_cols=[...]"),
    argument(
        "no labels to validate by",
        fit(validation_data={"x": X}, metrics=MSE()),
        "validation_data has none",
        "label_cols",
    ),
    Case(
        "a missing column",
        fit(frame(), feature_cols=["a", "B"], label_cols=["label"]),
        InvalidKeyError,
        KeyError,
        ("there is no column 'B'", "Did you mean 'b'?", "a, b, label"),
    ),
    Case(
        "a missing label",
        fit(frame(), feature_cols=["a"], label_cols=["lable"]),
        InvalidKeyError,
        KeyError,
        ("there is no column 'lable'", "Did you mean 'label'?"),
    ),
    Case(
        "a missing weight",
        fit(frame(), weight_col="w", **COLUMNS),
        InvalidKeyError,
        KeyError,
        ("there is no column 'w'",),
    ),
    Case(
        "a missing column of validation data",
        fit(frame(), validation_data=frame().drop(columns="b"), model=Sum(), optimizer=None, metrics=MSE(), **COLUMNS),
        InvalidKeyError,
        KeyError,
        ("there is no column 'b'",),
    ),
    argument("text in a column", fit(frame(a=["x"] * ROWS), **ONE_COLUMN), "'a' holds text", "factorize"),
    argument("ragged arrays", fit(frame(a=[[1.0]] * 23 + [[1.0, 2.0]]), **ONE_COLUMN), "'a'", "lengths 1, 2", "Pad"),
    argument(
        "mixed kinds",
        fit((X, Y), validation_data=frame(), metrics=MSE()),
        "same kind as data",
        "data is arrays and validation_data a pandas DataFrame",
    ),
    argument("a creator for arrays", fit((X, Y), validation_data=lambda config: loader(), metrics=MSE()), "same kind"),
    Case(
        "validation without metrics",
        fit(validation_data=REGRESSION),
        PreconditionError,
        AssertionError,
        ("validation_data needs metrics", "metrics=[Accuracy()]"),
    ),
    Case(
        "evaluate without metrics",
        lambda folder: regression().evaluate(REGRESSION),
        PreconditionError,
        AssertionError,
        ("evaluate needs metrics",),
    ),
    argument(
        "an unknown metric for a call",
        lambda folder: regression().evaluate(REGRESSION, validation_metrics="mse"),
        "str",
    ),
    argument("a data creator without arguments", fit(lambda: loader()), "takes no arguments", "creator(config"),
    argument(
        "a data creator that gives no loader",
        fit(lambda config: [1, 2]),
        "must return a torch.utils.data.DataLoader",
        "builtins.list",
        starts=True,
    ),
]

MODELS = [
    Case(
        "a wrong shape",
        fit((X[:, :2], Y)),
        BatchError,
        RuntimeError,
        ("the model cannot take data", "float32 of shape (2, 2)", "feature_cols"),
    ),
    Case(
        "a wrong shape to validate by",
        fit(validation_data=(X[:, :2], Y), metrics=MSE()),
        BatchError,
        RuntimeError,
        ("the model cannot take validation_data", "(2, 2)"),
    ),
    Case(
        "a wrong shape from a loader",
        fit(loader(x=X[:, :2].copy())),
        BatchError,
        RuntimeError,
        ("the model cannot take data", "float32 of shape (8, 2)"),
    ),
    Case(
        "too many features",
        fit({"x": [X, X], "y": Y}),
        BatchError,
        RuntimeError,
        ("the model cannot take data", "forward()", "(2, 3), float32 of shape (2, 3)"),
    ),
    Case(
        "labels out of range",
        fit((X, LABELS + 2), make=classifier),
        BatchError,
        IndexError,
        ("labels are out of range", "2 outputs", "0 to 1", "number the classes from 0"),
    ),
    Case(
        "labels out of range in later rows",
        fit((X, np.r_[LABELS[:-1], 9]), make=classifier, num_workers=2, config={"shuffle": False}),
        BatchError,
        ValueError,
        ("labels are out of range", "labels must be 0 to 1", "to 9"),
        starts=True,
    ),
    Case(
        "labels of a wrong type",
        fit((X, Y), make=classifier),
        BatchError,
        ValueError,
        ("the loss cannot take the model's output", "float32 of shape (2, 2)", "reshape"),
    ),
    argument("a loss for each row", fit(loss=nn.MSELoss(reduction="none")), "one number", "(2, 1)", "reduction='mean'"),
    argument("a loss that is no tensor", fit(loss=lambda output, target: 5.0), "one number", "float"),
    argument("a loss of nothing", fit(loss=lambda output, target: None), "one number", "NoneType"),
    argument(
        "a loss for each row, later",
        fit(model=make_model, optimizer=None, loss=nn.MSELoss(reduction="none")),
        "one number",
        "reduction='mean'",
        starts=True,
    ),
    argument(
        "a model creator of something else",
        fit(model=lambda config: 5, optimizer=None),
        "model creator must return a torch.nn.Module",
        "int",
        starts=True,
    ),
    argument(
        "an optimizer creator of something else",
        fit(optimizer=lambda model, config: 5),
        "optimizer creator must return a torch optimizer",
        "int",
        starts=True,
    ),
    argument(
        "a batch that is no pair",
        fit(DataLoader(torch.from_numpy(X), batch_size=8)),
        "a batch must be (*features, target)",
        "forward_batch",
    ),
    argument(
        "an operator's hook that returns nothing",
        fit(training_operator_cls=Returning),
        "train_batch must return a dict",
        "NoneType",
        starts=True,
    ),
    argument(
        "a plateau stepped for you",
        fit(scheduler_creator=lambda optimizer, config: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)),
        "ReduceLROnPlateau",
        'scheduler_step_freq="manual"',
        starts=True,
    ),
    argument(
        "weights for a loss that has no rows",
        fit(frame(w=1.0), model=Sum(), optimizer=None, loss=lambda o, t: o.mean(), weight_col="w", **COLUMNS),
        "no `reduction`",
        "reduction='mean'",
        starts=True,
    ),
    Case(
        "a model that does not pickle",
        fit(model=Locked(), optimizer=None),
        NotPicklableError,
        TypeError,
        ("cannot be sent to the workers", "the attribute 'guard', a _thread.lock"),
    ),
    Case(
        "a config that does not pickle",
        fit(config={"guard": threading.Lock()}),
        NotPicklableError,
        TypeError,
        ("the entry 'guard', a _thread.lock", "inside the function, on the worker"),
    ),
]

FILES = [
    Case(
        "a missing file",
        lambda folder: regression().load(str(folder / "none.pt")),
        PathNotFoundError,
        FileNotFoundError,
        ("there is no file", "none.pt", "save()"),
    ),
    Case(
        "a truncated file",
        lambda folder: regression().load(saved(folder, lambda raw: raw[:200])),
        CheckpointError,
        ValueError,
        ("cannot be read: it is damaged", "torch.save(model.state_dict(), path)"),
    ),
    Case(
        "another model's file",
        lambda folder: regression().load(saved(folder, make=classifier)),
        CheckpointError,
        ValueError,
        ("written for another model", "size mismatch"),
    ),
    argument(
        "a folder without checkpoints", lambda folder: regression().load(str(folder)), "no checkpoint", "EveryEpoch()"
    ),
]

ENGINES = [
    Case(
        "spark without Spark",
        fit(backend="spark"),
        ContextError,
        RuntimeError,
        ("No SparkContext", "init_orca_context"),
    ),
    Case("ray without Ray", fit(backend="ray"), ContextError, RuntimeError, ('init_orca_context("ray")',)),
]


def summarised(folder):
    est = regression()
    est.set_tensorboard(str(folder), "app")
    return est


def check(case, folder, monkeypatch):
    if not case.starts:
        monkeypatch.setattr(shared_estimator, "run_gang", lambda *args, **options: pytest.fail("a gang was started"))
    with pytest.raises(case.error) as caught:
        case.call(folder)
    assert isinstance(caught.value, case.builtin)
    text = str(caught.value)
    for part in case.says:
        assert part in text


@pytest.mark.engines("local")
@pytest.mark.parametrize(
    "case", [*TYPES_OF_ARGUMENTS, *DATA, *MODELS, *FILES, *ENGINES], ids=lambda case: case.name.replace(" ", "-")
)
def test_bad_input(engine, case, tmp_path, monkeypatch):
    check(case, tmp_path, monkeypatch)


@pytest.mark.engines("local")
def test_an_estimator_is_as_it_was_after_an_error(engine):
    est = classifier(metrics=Accuracy()).fit(CLASSES)
    before = weights(est.get_model())
    for data in ((X, LABELS + 1), (X[:, :2], LABELS), (X, np.r_[LABELS[:-1], 9])):
        with pytest.raises(BatchError):
            est.fit(data, epochs=2)
    assert np.array_equal(weights(est.get_model()), before)
    est.fit(CLASSES, epochs=2)
    assert not np.array_equal(weights(est.get_model()), before)


@pytest.mark.engines("local")
def test_a_wrong_shape_for_a_model_that_only_workers_make(engine):
    """It is torch's own error, which is told what the model was called with, and where."""
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        regression(model=make_model, optimizer=None).fit((X[:, :2], Y))
    assert "The model was called with float32 of shape (24, 2)." in caught.value.__notes__
    assert (caught.value.rank, caught.value.step) == (0, 1)


@pytest.mark.engines("local")
def test_auc_has_no_form_on_the_other_backends(engine):
    with pytest.raises(NotImplementedError):
        regression(RAY, metrics=AUC())


def spark_frame():
    from pyspark.sql import SparkSession

    numbers = (
        SparkSession.builder.getOrCreate().range(-12, 12, numPartitions=2).selectExpr("double(id) AS a", "id % 2 AS b")
    )
    return numbers.selectExpr("a", "b", "array(1.0D, a) AS pair", "int(abs(b)) AS label", "'x' AS text")


def ray_frame():
    import ray

    return ray.data.from_pandas(frame(text="x"))


def on_spark(change=None, make=classifier, **options):
    def call(folder):
        df = spark_frame()
        df = df if change is None else change(df)
        given = {"feature_cols": ["a"], "label_cols": ["label"]} | options
        return fit(df, make=make, **given)(folder)

    return call


def on_ray(**options):
    return lambda folder: fit(ray_frame(), **({"feature_cols": ["a"], "label_cols": ["label"]} | options))(folder)


def expression(text):
    from pyspark.sql.functions import expr

    return expr(text)


SPARK = [
    Case(
        "a missing column",
        on_spark(feature_cols=["A"]),
        InvalidKeyError,
        KeyError,
        ("there is no column 'A'", "Did you mean 'a'?"),
    ),
    Case(
        "no feature_cols", on_spark(feature_cols=None), PreconditionError, AssertionError, ("must be given", "'pair'")
    ),
    argument("no label_cols", on_spark(label_cols=None), "data has none", "label_cols=[...]"),
    argument("no rows", on_spark(lambda df: df.where("a > 100")), "data has no rows", "filter"),
    argument("text", on_spark(feature_cols=["text"]), "'text' holds text", "StringIndexer"),
    argument(
        "nulls",
        on_spark(lambda df: df.withColumn("a", expression("CASE WHEN a > 0 THEN a END"))),
        "'a' has",
        "missing values (null)",
        "df.na.fill(0, ['a'])",
    ),
    argument(
        "ragged arrays",
        on_spark(
            lambda df: df.withColumn("pair", expression("CASE WHEN a > 0 THEN pair ELSE array(1.0D) END")),
            feature_cols=["pair"],
        ),
        "'pair' must all have one length",
        "lengths 1, 2",
    ),
    Case(
        "a wrong shape",
        on_spark(feature_cols=["pair"]),
        BatchError,
        RuntimeError,
        ("the model cannot take data", "float32 of shape (2, 2)"),
    ),
    Case(
        "labels out of range",
        on_spark(
            lambda df: df.selectExpr("array(a, b, a) AS x", "label + 5 AS label"),
            feature_cols=["x"],
        ),
        BatchError,
        IndexError,
        ("labels are out of range", "number the classes from 0"),
    ),
    argument("mixed kinds", on_spark(validation_data=CLASSES, metrics=Accuracy()), "a Spark DataFrame", "arrays"),
    Case(
        "too many workers",
        on_spark(feature_cols=["a", "b"], num_workers=9),
        NotEnoughSlotsError,
        RuntimeError,
        ("9", "4"),
    ),
    Case("ray without Ray", on_spark(backend="ray"), ContextError, RuntimeError, ('init_orca_context("ray")',)),
]

RAYS = [
    Case(
        "a missing column",
        on_ray(label_cols=["Label"]),
        InvalidKeyError,
        KeyError,
        ("there is no column 'Label'", "Did you mean 'label'?"),
    ),
    Case("no feature_cols", on_ray(feature_cols=None), PreconditionError, AssertionError, ("must be given", "'label'")),
    argument("text", on_ray(feature_cols=["text"]), "'text' holds text"),
    Case(
        "too many workers",
        on_ray(feature_cols=["a", "b"], num_workers=9),
        NotEnoughSlotsError,
        RuntimeError,
        ("9 workers", "4 CPUs", "Ask for at most 4"),
    ),
    Case(
        "spark without Spark",
        on_ray(backend="spark"),
        ContextError,
        RuntimeError,
        ("No SparkContext", "init_orca_context"),
    ),
]


@pytest.mark.engines("spark")
@pytest.mark.parametrize("case", SPARK, ids=lambda case: case.name.replace(" ", "-"))
def test_bad_input_on_spark(engine, case, tmp_path, monkeypatch):
    check(case, tmp_path, monkeypatch)


@pytest.mark.engines("ray")
@pytest.mark.parametrize("case", RAYS, ids=lambda case: case.name.replace(" ", "-"))
def test_bad_input_on_ray(engine, case, tmp_path, monkeypatch):
    check(case, tmp_path, monkeypatch)


@pytest.mark.engines("spark", "ray")
def test_shards_of_another_engine(engine):
    """A backend that names an engine refuses data that lies on another one."""
    from zoo.orca.engine.local import LocalEngine

    with LocalEngine(cores=1) as other:
        shards = XShards.from_placement(other.place([[REGRESSION]]))
        with pytest.raises(InvalidArgumentError, match=rf"lies on the local engine, but the {engine.name} engine"):
            regression(engine.name).fit(shards)


@pytest.mark.engines("local")
def test_shards_of_other_things(engine):
    for shard, says in (([1, 2], "each shard should be an dict"), ({"y": Y}, "key x should in each shard")):
        with pytest.raises(AssertionError, match=says):
            regression().fit(XShards.from_placement(engine.place([[shard]])))
    with pytest.raises(ValueError, match=r"should be an ndarray, or a tuple, list or dict"):
        regression().fit(XShards.from_placement(engine.place([[{"x": "text"}]])))
    with pytest.raises(ValueError, match="must have the same arrays"):
        regression().fit(XShards.from_placement(engine.place([[REGRESSION], [{"x": X[:, :2], "y": Y}]])))
