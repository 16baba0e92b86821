"""What users hold in their hands says what it is, and tab completion shows public names only."""

from __future__ import annotations

import importlib
import inspect
import re

import numpy as np
import pandas as pd
import pytest

# Every module of the published interface that users import names from.
PUBLIC = ["zoo", "zoo.orca", "zoo.orca.data", "zoo.orca.data.pandas", "zoo.orca.data.image", "zoo.orca.data.tf.data",
          "zoo.orca.errors", "zoo.orca.learn.metrics", "zoo.orca.learn.trigger", "zoo.orca.learn.optimizers",
          "zoo.orca.learn.optimizers.schedule", "zoo.orca.learn.callbacks", "zoo.orca.learn.pytorch",
          "zoo.orca.learn.pytorch.pytorch_metrics", "zoo.orca.learn.tf2", "zoo.orca.learn.mxnet",
          "zoo.orca.learn.bigdl", "zoo.orca.learn.openvino", "zoo.orca.learn.export", "zoo.orca.learn.summary",
          "zoo.common.nncontext", "zoo.ray", "zoo.tfpark", "zoo.pipeline.api.net", "zoo.pipeline.api.torch",
          "zoo.pipeline.nnframes", "zoo.pipeline.estimator", "zoo.pipeline.inference", "zoo.feature.common",
          "zoo.feature.image", "zoo.util.triggers", "bigdl.nn.layer", "bigdl.nn.criterion",
          "bigdl.nn.initialization_method", "bigdl.optim.optimizer", "bigdl.util.common",
          "bigdl.transform.vision.image", "bigdl.dataset.dataset"]  # fmt: skip
# Nobody has an object of these: they only have functions that make others, or can only be derived from.
NEVER_MADE = {"Estimator", "Net", "NNImageReader", "Relations", "ImageFrame", "ParquetDataset", "JavaCreator",
              "MeanAveragePrecisionObjectDetection", "OrcaContext", "ZooContext", "Exporting"}  # fmt: skip
LEAKS = {"np", "pd", "os", "sys", "torch", "annotations", "Any", "Callable", "require", "dataclass", "TYPE_CHECKING"}
ADDRESS = re.compile(r"object at 0x|<function|<class")


@pytest.mark.parametrize("module", PUBLIC)
def test_tab_completion_shows_public_names_that_are_there(module):
    loaded = importlib.import_module(module)
    shown = [name for name in dir(loaded) if not name.startswith("__")]
    assert shown
    assert not LEAKS & set(shown)
    assert [name for name in shown if not hasattr(loaded, name)] == []


def public_classes() -> dict[str, type]:
    found = {}
    for module in PUBLIC:
        loaded = importlib.import_module(module)
        for name in dir(loaded):
            value = getattr(loaded, name, None)
            if inspect.isclass(value) and not issubclass(value, BaseException) and name not in NEVER_MADE:
                found[f"{module}.{name}"] = value
    return found


def test_every_public_class_says_what_its_objects_are():
    silent = [name for name, each in public_classes().items() if each.__repr__ is object.__repr__]
    assert silent == []


def needs_arguments(kind: type) -> bool:
    options = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(kind).parameters.values()
    return any(each.default is each.empty and each.kind not in options for each in parameters)


def test_objects_that_need_no_arguments_say_something():
    made = 0
    for name, each in public_classes().items():
        if inspect.isabstract(each) or needs_arguments(each):
            continue
        try:
            value = each()
        except Exception:  # those that want a context, a package or an argument after all
            continue
        made += 1
        assert not ADDRESS.search(repr(value)), f"{name}: {value!r}"
    assert made > 80


def test_callbacks_say_how_they_were_made():
    from zoo.orca.learn.callbacks import EarlyStopping, ModelCheckpoint, Progress

    assert repr(EarlyStopping("val_auc", patience=2)) == (
        "EarlyStopping(monitor='val_auc', mode='max', patience=2, min_delta=0.0)"
    )
    assert repr(ModelCheckpoint("500ba")) == (
        "ModelCheckpoint(trigger=EveryBatches(500), keep_last=3, monitor=None, mode='min')"
    )
    assert repr(Progress()) == "Progress()"


@pytest.mark.engines("local")
def test_an_estimator_says_what_it_has_and_what_it_did(engine):
    import torch

    from zoo.orca.learn.pytorch import Estimator

    net = torch.nn.Linear(2, 1)
    est = Estimator.from_torch(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=torch.nn.MSELoss())
    assert repr(est) == "PyTorchSparkEstimator(Linear, backend='bigdl', epochs done: 0)"
    x = np.ones((8, 2), np.float32)
    est.fit((x, x[:, :1]), epochs=1, batch_size=8)
    assert repr(est).endswith("epochs done: 1)")
    shown = est._repr_html_()
    assert "PyTorchSparkEstimator(Linear" in shown
    assert "train_loss" in shown, "the last fit's figures"
    public = [name for name in dir(est) if not name.startswith("_")]
    assert {"fit", "evaluate", "predict", "check", "export", "result_", "save", "load"} <= set(public)
    assert not LEAKS & set(public)


@pytest.mark.engines("local")
def test_shards_show_their_first_rows_in_a_notebook(engine):
    from zoo.orca.data import SharedValue, XShards

    shards = XShards.partition(pd.DataFrame({"zone": ["hill", "port"]}), num_shards=2)
    assert repr(shards) == "XShards(2 partitions on local, cached)"
    assert "XShards(2 partitions" in shards._repr_html_()
    assert "<td>hill</td>" in shards._repr_html_()
    arrays = XShards.partition({"x": np.zeros((4, 3)), "y": np.arange(4)}, num_shards=2)
    assert "the first shard has x: float64 (2, 3), y: int64 (2,)" in arrays._repr_html_()
    shared = SharedValue({"hill": 1})
    assert repr(shared) == "SharedValue(dict on local)"
    shared.unpersist()
