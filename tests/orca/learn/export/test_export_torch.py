"""`est.export` of PyTorch estimators: files that other runtimes read, checked against est.predict before they stay."""

from __future__ import annotations

import sys

import fsspec
import numpy as np
import onnxruntime
import openvino
import pandas as pd
import pytest
import torch
from torch import nn

from zoo.orca.data import XShards
from zoo.orca.errors import (
    ExportMismatchError,
    InvalidArgumentError,
    MissingPackageError,
    NotOfferedError,
    PathExistsError,
    PreconditionError,
)
from zoo.orca.learn.metrics import Accuracy
from zoo.orca.learn.openvino import Estimator as ServingEstimator
from zoo.orca.learn.pytorch import Estimator, TrainingOperator

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.load. is deprecated:DeprecationWarning")

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(120, 6))
Y = (X[:, 0] > X[:, 1]).astype(np.int64)
ENDINGS = {"openvino": ".xml", "onnx": ".onnx", "torchscript": ".pt", "torch.export": ".pt2"}


def classifier() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.4), nn.Linear(32, 2))


@pytest.fixture(scope="module")
def trained():
    """An estimator that was trained, without a context: on the embedded engine."""
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    est = Estimator.from_torch(model=model, optimizer=optimizer, loss=nn.CrossEntropyLoss(), metrics=Accuracy())
    return est.fit((X, Y), epochs=8, batch_size=40)


def run_file(path: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """What a written model gives, by its own runtime and nothing of ours."""
    if path.endswith(".xml"):
        compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        found = compiled(list(arrays))
        return [found[output] for output in compiled.outputs]
    if path.endswith(".onnx"):
        session = onnxruntime.InferenceSession(path)
        return session.run(None, {each.name: array for each, array in zip(session.get_inputs(), arrays, strict=True)})
    model = torch.jit.load(path) if path.endswith(".pt") else torch.export.load(path).module()
    found = model(*map(torch.from_numpy, arrays))
    return [each.detach().numpy() for each in (found if isinstance(found, tuple) else (found,))]


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.layer = nn.Embedding(10, 4), nn.Linear(5, 3)

    def forward(self, user, price):
        both = torch.cat([self.users(user), price[:, None]], dim=1)
        return {"score": self.layer(both), "both": both}


class Scaled(nn.Module):
    """What it gives depends on the size of the batch, or on its sum, or on chance."""

    def __init__(self, how: str):
        super().__init__()
        self.layer, self.how = nn.Linear(6, 1), how

    def forward(self, x):
        if self.how == "noise":
            return self.layer(x) + torch.rand(x.shape[0], 1)
        if self.how == "size":
            return self.layer(x) * (2.0 if len(x) == 2 else 1.0)
        if self.how == "sign":
            return self.layer(x) * (1.0 if float(x.sum()) > 0 else 3.0)
        if self.how == "fixed":
            return self.layer(x).reshape(len(x), 1) + torch.zeros(len(x), 1)
        return self.layer(x) if float(x.sum()) > -1e9 else x


def test_trained_anywhere_served_by_openvino(engine, tmp_path):
    frame = pd.DataFrame({name: X[:, number] for number, name in enumerate("abcdef")} | {"y": Y})
    columns = {"feature_cols": list("abcdef"), "label_cols": ["y"]}
    est = Estimator.from_torch(
        model=lambda config: ByColumn(),
        optimizer=lambda model, config: torch.optim.SGD(model.parameters(), lr=0.1),
        loss=nn.CrossEntropyLoss(),
        num_workers=2,
    )
    shards = XShards.partition(frame, num_shards=3)
    est.fit(shards, epochs=1, batch_size=24, **columns)
    report = est.export("openvino", str(tmp_path / "model"), int8=shards)
    assert [each.name for each in report.inputs] == list("abcdef")
    assert report.agreement.within(1e-5)
    assert report.int8.rows == 120
    assert set(report.int8.before) == {"accuracy"}
    # Without int8, it is what the estimator predicts, row for row.
    est.export("torchscript", str(tmp_path / "model"))
    expected = np.concatenate(
        [shard["prediction"] for shard in est.predict(shards, feature_cols=list("abcdef")).collect()]
    )
    found = run_file(str(tmp_path / "model.pt"), *(X[:, number].astype(np.float32) for number in range(6)))
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


class ByColumn(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, a, b, c, d, e, f):
        return self.layer(torch.stack([a, b, c, d, e, f], dim=1))


@pytest.mark.engines("local")
@pytest.mark.parametrize("format", ENDINGS)
def test_a_written_model_predicts_what_the_estimator_does(format, trained, tmp_path, engine):
    report = trained.export(format, str(tmp_path / "model"))
    assert report.path == str(tmp_path / f"model{ENDINGS[format]}")
    assert report.inputs[0].shape == (None, 6)
    assert "float32 (?, 2)" in str(report)
    assert report.size == sum(each.stat().st_size for each in tmp_path.iterdir())
    model = trained.get_model().eval()
    for rows in (1, 5, 120):
        x = X[:rows].astype(np.float32)
        (found,) = run_file(report.path, x)
        np.testing.assert_allclose(found, model(torch.from_numpy(x)).detach().numpy(), atol=1e-5)


@pytest.mark.engines("local")
def test_several_inputs_and_outputs(tmp_path, engine):
    # Columns that are called like an operation of the model, and like an output.
    frame = pd.DataFrame({"cat": np.arange(40) % 10, "output_0": RANDOM.random(40)})
    est = Estimator.from_torch(model=TwoInputs())
    sample = (frame["cat"].to_numpy(), frame["output_0"].to_numpy())
    scores, both = est.predict({"x": [*sample]})
    for format in ENDINGS:
        report = est.export(format, str(tmp_path / "two"), sample=frame)
        assert [str(each) for each in report.inputs] == ["cat: int64 (?)", "output_0: float32 (?)"]
        found = run_file(report.path, sample[0], sample[1].astype(np.float32))
        np.testing.assert_allclose(found[0], scores, atol=1e-5)
        np.testing.assert_allclose(found[1], both, atol=1e-5)
    # Without columns the names are those of forward's arguments.
    report = est.export("torchscript", str(tmp_path / "again"), sample={"x": [*sample]})
    assert [each.name for each in report.inputs] == ["user", "price"]


@pytest.mark.engines("local")
@pytest.mark.parametrize("how", ["size", "sign", "noise"])
def test_a_model_that_does_not_agree_is_not_kept(how, tmp_path, engine):
    est = Estimator.from_torch(model=Scaled(how))
    for format in ("openvino", "torchscript"):
        path = tmp_path / f"model{ENDINGS[format]}"
        path.write_text("what was there before")
        with pytest.raises(ExportMismatchError, match=r"something else than est\.predict"):
            est.export(format, str(path), sample=X, overwrite=True)
        assert path.read_text() == "what was there before"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model.pt", "model.xml"]


@pytest.mark.engines("local")
def test_python_in_forward(tmp_path, engine, capfd):
    est = Estimator.from_torch(model=Scaled("value"))
    for format in ("openvino", "onnx", "torchscript"):
        assert "branches of forward() that the rows took" in str(est.export(format, str(tmp_path / "model"), sample=X))
    with pytest.raises(NotImplementedError, match=r"cannot be written as torch\.export.*may do"):
        est.export("torch.export", str(tmp_path / "model"), sample=X)
    assert not (tmp_path / "model.pt2").exists()
    assert capfd.readouterr() == ("", "")


@pytest.mark.engines("local")
def test_an_operator_that_predicts_in_its_own_way_is_noticed(tmp_path, engine):
    class Twice(TrainingOperator):
        def predict_batch(self, batch):
            return 2 * self.model(*batch)

    est = Estimator.from_torch(model=nn.Linear(6, 1), training_operator_cls=Twice)
    with pytest.raises(ExportMismatchError, match="TrainingOperator"):
        est.export("torchscript", str(tmp_path / "model"), sample=X)


@pytest.mark.engines("local")
def test_int8_says_what_it_costs(trained, tmp_path, engine):
    order = np.argsort(Y, kind="stable")  # rows of both classes are among those that are taken
    report = trained.export("openvino", str(tmp_path / "model"), int8=(X[order], Y[order]), calibration_rows=60)
    loss = report.int8
    assert loss.rows == 60
    assert set(loss.before) == {"Top1Accuracy"}
    assert loss.before["Top1Accuracy"] > 0.8
    assert loss.loss["Top1Accuracy"] == pytest.approx(loss.after["Top1Accuracy"] - loss.before["Top1Accuracy"])
    assert "Top1Accuracy" in str(report)
    assert "i8" in (tmp_path / "model.xml").read_text()
    # What the report says can be measured again.
    full = np.asarray(trained.predict(X))
    (found,) = run_file(report.path, X.astype(np.float32))
    assert 0 < np.abs(found - full).max() / np.abs(full).max() < 0.1
    assert np.mean(found.argmax(axis=1) == full.argmax(axis=1)) > 0.9


@pytest.mark.engines("local")
def test_int8_by_a_metric_or_within_a_tolerance(trained, tmp_path, engine):
    def hits(labels, predictions):
        return (predictions.argmax(axis=1) == labels).sum()

    report = trained.export("onnx", str(tmp_path / "a"), int8=(X, Y), metric=hits)
    full = trained.predict(X)
    assert report.int8.before == {"hits": hits(Y, full)}
    (found,) = run_file(report.path, X.astype(np.float32))
    assert report.int8.after == {"hits": hits(Y, found)}
    with pytest.raises(ExportMismatchError, match="in int8"):
        trained.export("openvino", str(tmp_path / "c"), int8=X, tolerance=1e-4)
    assert not (tmp_path / "c.xml").exists()


@pytest.mark.engines("local")
def test_half_precision(trained, tmp_path, engine):
    half = trained.export("openvino", str(tmp_path / "half"), half=True)
    weights = sum(each.numel() for each in trained.get_model().state_dict().values())
    assert (tmp_path / "half.bin").stat().st_size < 0.6 * 4 * weights
    assert 1e-4 < half.agreement.relative < half.tolerance
    # An estimator that computes in half precision is not held to more than that.
    est = Estimator.from_torch(model=nn.Linear(6, 3), precision="bf16")
    report = est.export("torchscript", str(tmp_path / "bf16"), sample=X)
    assert 1e-4 < report.agreement.relative < report.tolerance < 0.1


@pytest.mark.engines("local")
def test_a_loaded_estimator_and_other_filesystems(trained, tmp_path, engine):
    torch.save(trained.get_model().state_dict(), tmp_path / "saved.pt")
    again = Estimator.from_torch(model=classifier()).load(str(tmp_path / "saved.pt"))
    with pytest.raises(PreconditionError, match="sample=x"):
        again.export("onnx", "memory://models/net.onnx")
    report = again.export("onnx", "memory://models/net.onnx", sample=X)
    try:
        written = fsspec.filesystem("memory").cat("/models/net.onnx")
        (tmp_path / "net.onnx").write_bytes(written)
        served = ServingEstimator.from_onnx(model_path=str(tmp_path / "net.onnx"))
        np.testing.assert_allclose(served.predict(X), trained.predict(X), atol=1e-5)
        with pytest.raises(FileExistsError, match="overwrite=True"):
            again.export("onnx", report.path, sample=X)
    finally:
        fsspec.filesystem("memory").rm("/models", recursive=True)


@pytest.mark.engines("local")
def test_what_cannot_be_exported(trained, tmp_path, engine, monkeypatch):
    path = str(tmp_path / "model")
    with pytest.raises(InvalidArgumentError, match=r"'onnx'.*but is 'onx'"):
        trained.export("onx", path)
    with pytest.raises(InvalidArgumentError, match="format must be one of"):
        trained.export(["onnx"], path)
    for bad in ("", "out/"):
        with pytest.raises(InvalidArgumentError, match=r"name a file, like 'model\.onnx'"):
            trained.export("onnx", bad)
    with pytest.raises(InvalidArgumentError, match=r"'openvino' writes \.xml, but path is .*\.onnx'"):
        trained.export("openvino", f"{path}.onnx")
    with pytest.raises(InvalidArgumentError, match="tolerance must be a number above 0"):
        trained.export("onnx", path, tolerance=-1)
    with pytest.raises(InvalidArgumentError, match='half=True goes with format="openvino"'):
        trained.export("onnx", path, half=True)
    with pytest.raises(NotOfferedError, match="int8 is offered for 'openvino' and 'onnx'"):
        trained.export("torchscript", path, int8=X)
    with pytest.raises(InvalidArgumentError, match=r"rows of the shapes \[\(6,\)\], but they are \[\(5,\)\]"):
        trained.export("openvino", path, int8=X[:, :5])
    with pytest.raises(InvalidArgumentError, match="metric must be a function"):
        trained.export("openvino", path, int8=(X, Y), metric="accuracy")
    for data in (None, X):
        with pytest.raises(InvalidArgumentError, match=r"against labels.*int8=\(x, y\)"):
            trained.export("openvino", path, int8=data, metric=max)
    with pytest.raises(InvalidArgumentError, match="they have 5, 120"):
        trained.export("openvino", path, int8=(X, Y[:5]))
    with pytest.raises(InvalidArgumentError, match="1 of 120 rows have NaN"):
        trained.export("openvino", path, int8=np.where(np.arange(120)[:, None] == 3, np.nan, X))
    with pytest.raises(InvalidArgumentError, match="calibration_rows"):
        trained.export("openvino", path, int8=X, calibration_rows=0)
    with pytest.raises(NotOfferedError, match="only models of numbers"):
        trained.export("onnx", path, sample=np.array(["a", "b"]))
    with pytest.raises(InvalidArgumentError, match="at least one row"):
        trained.export("onnx", path, sample=X[:0])
    with pytest.raises(InvalidArgumentError, match=r"cannot predict the rows.*input: float32 \(\?, 5\).*sample=x"):
        trained.export("onnx", path, sample=X[:, :5])
    with pytest.raises(InvalidArgumentError, match="no finite number for the 120 rows"):
        trained.export("onnx", path, sample=np.full_like(X, np.nan))
    several = Estimator.from_torch(model=lambda config: [nn.Linear(6, 1), nn.Linear(6, 1)], training_operator_cls=Own)
    with pytest.raises(NotOfferedError, match="export writes one model, but there are 2"):
        several.export("onnx", path, sample=X)
    (tmp_path / "there.bin").touch()
    with pytest.raises(PathExistsError, match=r"there\.bin is there already"):
        trained.export("openvino", str(tmp_path / "there"))
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingPackageError, match=r"orca-estimator\[onnx\]"):
        trained.export("onnx", path)
    assert [each.name for each in tmp_path.iterdir()] == ["there.bin"]


class Own(TrainingOperator):
    """For several models."""


@pytest.mark.engines("local")
def test_layers_of_bigdl(tmp_path, engine):
    from bigdl.nn.criterion import MSECriterion
    from bigdl.nn.layer import Linear, ReLU, Sequential
    from bigdl.optim.optimizer import Adam
    from zoo.orca.learn.bigdl import Estimator as LayersEstimator

    shards = XShards.partition({"x": X, "y": X.sum(axis=1, keepdims=True)}, num_shards=2)
    net = Sequential().add(Linear(6, 8)).add(ReLU()).add(Linear(8, 1))
    est = LayersEstimator.from_bigdl(model=net, loss=MSECriterion(), optimizer=Adam(0.1))
    expected = np.concatenate([shard["prediction"] for shard in est.predict(shards).collect()])
    for format in ("openvino", "torch.export"):
        report = est.export(format, str(tmp_path / "model"), sample=shards)
        np.testing.assert_allclose(run_file(report.path, X.astype(np.float32))[0], expected, atol=1e-4)
