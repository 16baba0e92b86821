"""The PyTorch listings of the documents, run as they are written, with small data and models in place of theirs."""

from __future__ import annotations

import inspect
import sys
import textwrap
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from zoo.orca.data import XShards
from zoo.orca.learn.metrics import Accuracy
from zoo.orca.learn.pytorch import Estimator, TrainingOperator
from zoo.orca.learn.pytorch.estimator import PyTorchRayEstimator, PyTorchSparkEstimator
from zoo.orca.learn.trigger import EveryEpoch

ROWS = 24
PIXELS = 16


class LeNet(nn.Module):
    """A small stand-in: ten classes of images, as an image or as a row of pixels."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(PIXELS, 10)

    def forward(self, x):
        return nn.functional.log_softmax(self.line(x.reshape(len(x), PIXELS)), dim=1)


class MNIST(Dataset):
    """torchvision's dataset as far as the listings use it."""

    def __init__(self, root, train=True, download=False, transform=None):
        self.transform = transform

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        image = np.full((4, 4), index % 7, np.uint8)
        return self.transform(image), index % 10


class Compose:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, image):
        for step in self.steps:
            image = step(image)
        return image


class ToTensor:
    def __call__(self, image):
        return torch.from_numpy(image / np.float32(255))[None]


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean[0], std[0]

    def __call__(self, image):
        return (image - self.mean) / self.std


DATASETS = SimpleNamespace(MNIST=MNIST)
TRANSFORMS = SimpleNamespace(Compose=Compose, ToTensor=ToTensor, Normalize=Normalize)


@pytest.fixture
def script(monkeypatch):
    """Runs a listing as a script does, with torchvision's names, and gives its variables."""
    vision = ModuleType("torchvision")
    vision.datasets, vision.transforms = DATASETS, TRANSFORMS
    monkeypatch.setitem(sys.modules, "torchvision", vision)

    def run(listing, **names):
        variables = {"__name__": "__main__", "torch": torch, "nn": nn, "np": np, "Estimator": Estimator} | names
        exec(compile(textwrap.dedent(listing), "<listing>", "exec"), variables)
        return variables

    return run


def images(rows=ROWS):
    return np.random.default_rng(0).random((rows, 1, 4, 4), dtype=np.float32)


def loader():
    return DataLoader(MNIST("/tmp/mnist", transform=ToTensor()), batch_size=8, shuffle=True)


def loader_func(config):
    return loader()


ARGS = SimpleNamespace(lr=0.01, epochs=2)

BIGDL = """
    model = LeNet() # a torch.nn.Module
    model.train()
    criterion = nn.NLLLoss()

    adam = torch.optim.Adam(model.parameters(), args.lr)
    est = Estimator.from_torch(model=model, optimizer=adam, loss=criterion)

    est.fit(data=train_loader, epochs=args.epochs)
    predictions = est.predict(xshards)
"""


@pytest.mark.engines("local")
def test_the_bigdl_backend(engine, script):
    ran = script(BIGDL, LeNet=LeNet, args=ARGS, train_loader=loader(), xshards=XShards.partition({"x": images()}))
    shards = ran["predictions"].collect()
    assert sum(len(shard["prediction"]) for shard in shards) == ROWS
    assert all(shard["prediction"].shape[1] == 10 for shard in shards)


DISTRIBUTED = """
    def model_creator(config):
        model = LeNet() # a torch.nn.Module
        model.train()
        return model

    def optimizer_creator(model, config):
        return torch.optim.Adam(model.parameters(), config["lr"])

    est = Estimator.from_torch(model=model,
                               optimizer=optimizer_creator,
                               loss=nn.NLLLoss(),
                               config={"lr": 1e-2},
                               backend="torch_distributed") # or backend="horovod"

    est.fit(data=train_loader_func, epochs=args.epochs)
    predictions = est.predict(data=df,
                              feature_cols=['image'])
"""


@pytest.mark.engines("spark")
@pytest.mark.parametrize("backend", ["torch_distributed", "horovod"])
def test_the_other_backends(engine, script, backend):
    """The listing passes the model itself by slip, and the text says a creator: both work."""
    from pyspark.sql import SparkSession

    names = {"LeNet": LeNet, "args": ARGS, "train_loader_func": loader_func}
    rows = "transform(sequence(1, 16), i -> float(i * id)) AS image"
    df = SparkSession.builder.getOrCreate().range(ROWS).selectExpr("id", rows)
    as_written = DISTRIBUTED.replace('"torch_distributed"', f'"{backend}"')
    for listing in (as_written, as_written.replace("model=model,", "model=model_creator,")):
        ran = script(listing, model=LeNet(), df=df, **names)
        rows = ran["predictions"].orderBy("id").collect()
        assert [row.id for row in rows] == list(range(ROWS))
        with torch.no_grad():
            expected = ran["est"].get_model()(torch.tensor([row.image for row in rows]))
        np.testing.assert_allclose([list(row.prediction) for row in rows], expected, rtol=1e-4, atol=1e-4)


LOADER = """
    import torch
    from torchvision import datasets, transforms
    from zoo.orca.learn.pytorch import Estimator

    train_loader = torch.utils.data.DataLoader(
            datasets.MNIST("/tmp/mnist", train=True, download=True,
                           transform=transforms.Compose([
                               transforms.ToTensor(),
                               transforms.Normalize((0.1307,), (0.3081,))
                           ])),
            batch_size=batch_size, shuffle=True)

    est = Estimator.from_torch(model=torch_model, optimizer=torch_optim, loss=torch_criterion)
    zoo_estimator = est  # the listing forgets it
    zoo_estimator.fit(data=train_loader)
"""


@pytest.mark.engines("local")
def test_a_loader(engine, script):
    model = LeNet()
    script(
        LOADER,
        batch_size=8,
        torch_model=model,
        torch_optim=torch.optim.SGD(model.parameters(), lr=0.1),
        torch_criterion=nn.NLLLoss(),
    )


CREATOR = """
    def train_data_creator(config):
        train_loader = torch.utils.data.DataLoader(
                datasets.MNIST(config["dir"], train=True, download=True,
                               transform=transforms.Compose([
                                   transforms.ToTensor(),
                                   transforms.Normalize((0.1307,), (0.3081,))
                               ])),
                batch_size=config["batch_size"], shuffle=True)
        return train_loader
"""


@pytest.mark.engines("local")
@pytest.mark.parametrize("backend", ["bigdl", "torch_distributed"])
def test_a_data_creator_function(engine, script, backend):
    creator = script(CREATOR, datasets=DATASETS, transforms=TRANSFORMS)["train_data_creator"]
    est = Estimator.from_torch(model=LeNet(), loss=nn.NLLLoss(), config={"dir": "/tmp/mnist"}, backend=backend)
    result = est.fit(creator, batch_size=12)
    assert result is est if backend == "bigdl" else result[0]["batch_count"] == 2


FRAME = """
    est.fit(data=df,
            feature_cols=['user', 'item'], # specifies which column(s) to be used as inputs
            labels_cols=['label']) # specifies which column(s) to be used as labels
"""


class Taste(nn.Module):
    """Takes a user and an item."""

    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(10, 2)
        self.items = nn.Embedding(10, 2)

    def forward(self, user, item):
        return (self.users(user) * self.items(item)).sum(dim=1)


@pytest.mark.engines("spark")
def test_a_data_frame_of_two_inputs(engine, script):
    from pyspark.sql import SparkSession

    df = SparkSession.builder.getOrCreate().range(ROWS).selectExpr("id % 10 user", "id % 7 item", "float(id % 2) label")
    est = Estimator.from_torch(model=Taste(), optimizer=None, loss=nn.MSELoss())
    script(FRAME, est=est, df=df)


SHARDS = """
    import numpy as np
    from zoo.orca.data import XShards

    train_images = np.random.random((20, 3, 224, 224))
    train_label_images = np.zeros(20)
    train_shards = XShards.partition([train_images, train_label_images])

    def transform_to_dict(train_data):
        return {"x": train_data[0], "y": train_data[1]}

    train_shards = train_shards.transform_shard(transform_to_dict)
"""


@pytest.mark.engines("local", "spark")
def test_shards(engine, script):
    shards = script(SHARDS)["train_shards"]

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return x.mean(dim=(1, 2, 3)) * self.scale

    est = Estimator.from_torch(model=Mean(), optimizer=None, loss=nn.MSELoss())
    est.fit(shards, batch_size=8)
    assert est.get_model().scale < 1


PANDAS = """
    from zoo.orca.data.pandas import read_csv
    shard = read_csv(csv_path)

    def negative(df, column_name):
        df[column_name] = df[column_name] * (-1)
        return df

    train_shards = shard.transform_shard(negative, 'value')
"""


@pytest.mark.engines("local")
def test_data_parallel_pandas(engine, script, tmp_path):
    pd.DataFrame({"value": np.arange(8) / 8, "label": np.arange(8) / 4}).to_csv(tmp_path / "data.csv", index=False)
    shards = script(PANDAS, csv_path=str(tmp_path / "data.csv"))["train_shards"]

    class Times(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(()))

        def forward(self, value):
            return value * self.scale

    est = Estimator.from_torch(model=Times(), optimizer=None, loss=nn.MSELoss())
    est.fit(shards, feature_cols=["value"], label_cols=["label"])
    assert est.get_model().scale < 0


def parameters(function):
    return {name: each.default for name, each in inspect.signature(function).parameters.items()}


def test_from_torch_as_listed():
    given = parameters(Estimator.from_torch)
    documented = {
        "loss": None,
        "scheduler_creator": None,
        "training_operator_cls": TrainingOperator,
        "initialization_hook": None,
        "config": None,
        "scheduler_step_freq": "batch",
        "use_tqdm": False,
        "workers_per_node": 1,
        "model_dir": None,
        "backend": "bigdl",
    }
    assert {"model", "optimizer"} <= set(given)
    assert {name: given[name] for name in documented} == documented


@pytest.mark.parametrize(
    ("owner", "method", "names"),
    [
        (PyTorchRayEstimator, "fit", "data epochs profile reduce_results info"),
        (PyTorchRayEstimator, "evaluate", "data num_steps profile info"),
        (PyTorchRayEstimator, "save", "checkpoint"),
        (PyTorchRayEstimator, "load", "checkpoint"),
        (PyTorchRayEstimator, "shutdown", "force"),
        (PyTorchSparkEstimator, "fit", "data epochs batch_size validation_data validation_methods checkpoint_trigger"),
        (PyTorchSparkEstimator, "evaluate", "data validation_methods batch_size"),
        (PyTorchSparkEstimator, "load", "checkpoint loss"),
        (PyTorchSparkEstimator, "set_constant_gradient_clipping", "min max"),
        (PyTorchSparkEstimator, "set_l2_norm_gradient_clipping", "clip_norm"),
    ],
)
def test_arguments_as_listed(owner, method, names):
    assert set(names.split()) <= set(parameters(getattr(owner, method)))


@pytest.mark.engines("local")
def test_the_older_bigdl_calls(engine, tmp_path):
    """fit, evaluate and load with the older release's keywords."""
    shards = XShards.partition({"x": images(), "y": np.arange(ROWS) % 10})
    est = Estimator.from_torch(model=LeNet(), optimizer=None, loss=nn.NLLLoss(), model_dir=str(tmp_path))
    est.fit(
        data=shards,
        epochs=1,
        batch_size=8,
        validation_data=shards,
        validation_methods=[Accuracy()],
        checkpoint_trigger=EveryEpoch(),
    )
    figures = est.evaluate(shards, validation_methods=[Accuracy()], batch_size=32)
    assert set(figures) == {"Top1Accuracy"}
    again = Estimator.from_torch(model=LeNet(), optimizer=None, loss=nn.NLLLoss())
    again.load(checkpoint=str(tmp_path), loss=nn.NLLLoss())
    assert again.evaluate(shards, validation_methods=[Accuracy()]) == figures


@pytest.mark.engines("local")
def test_the_older_horovod_calls(engine, tmp_path):
    """fit, evaluate, save and load with the older release's keywords, and a loss creator."""
    est = Estimator.from_torch(
        model=lambda config: LeNet(),
        optimizer=lambda model, config: torch.optim.Adam(model.parameters(), config["lr"]),
        loss=lambda config: nn.NLLLoss(),
        config={"lr": 0.1},
        backend="horovod",
        workers_per_node=2,
    )
    (stats,) = est.fit(loader_func, epochs=1, profile=True, reduce_results=True, info={"a": 1})
    assert stats["num_samples"] == ROWS
    figures = est.evaluate(loader_func, num_steps=2, profile=False, info=None)
    assert figures["num_samples"] == 16
    path = est.save(checkpoint=str(tmp_path / "model"))
    est.load(checkpoint=path)
    assert isinstance(est.get_model(), LeNet)
    est.shutdown(force=False)
