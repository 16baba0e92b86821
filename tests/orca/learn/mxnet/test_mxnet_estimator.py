"""Estimators of MXNet as users call them, on every engine: exact, recovering, and the same kind out as in."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from learning import CLASSES, RAGGED, Rows, global_batches
from zoo.orca.data import XShards
from zoo.orca.errors import CheckpointError, InvalidArgumentError, MissingPackageError, PreconditionError
from zoo.orca.learn.callbacks import Callback
from zoo.orca.learn.mxnet import Estimator, MXNetEstimator, create_config
from zoo.orca.learn.mxnet.recipe import MXNetRecipe
from zoo.orca.learn.mxnet.trained import net_of
from zoo.orca.learn.trigger import SeveralIteration
from zoo.orca.mxnet_library import load

mx = load()
autograd, gluon = mx.autograd, mx.gluon

BATCH = 8
ROWS = Rows(sum(RAGGED))
STEPS = -(-sum(RAGGED) // BATCH)
ADAM = {"optimizer": "adam", "optimizer_params": {"learning_rate": 0.05}}


def net(config):
    made = gluon.nn.HybridSequential()
    made.add(gluon.nn.Dense(6, activation="tanh"), gluon.nn.Dense(CLASSES))
    made.hybridize()
    return made


def drawing_net(config):
    """All that asks for care when training is taken up: random numbers, statistics of each rank."""
    made = gluon.nn.HybridSequential()
    made.add(gluon.nn.Dense(6), gluon.nn.BatchNorm(momentum=0.5), gluon.nn.Dropout(0.4), gluon.nn.Dense(CLASSES))
    return made


def loss(config):
    return gluon.loss.SoftmaxCrossEntropyLoss()


def estimator(model=net, workers=1, config=None, **options) -> MXNetEstimator:
    def metrics_of(config):
        return [mx.metric.Accuracy(), mx.metric.TopKAccuracy(2, name="top")]

    return Estimator.from_mxnet(
        config=create_config(**ADAM) | (config or {}),
        model_creator=model,
        loss_creator=loss,
        eval_metrics_creator=metrics_of,
        validation_metrics_creator=metrics_of,
        num_workers=workers,
        **options,
    )


def weights_of(block) -> dict[str, np.ndarray]:
    return {name: each.data().asnumpy() for name, each in block._collect_params_with_prefix().items()}


def assert_same(found, expected, tolerance=0.0):
    found, expected = weights_of(found), weights_of(expected)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


def by_hand(first, epochs):
    """What one process of plain MXNet makes of the same global batches, from the same first weights."""
    trainer = gluon.Trainer(first.collect_params(), "adam", {"learning_rate": 0.05})
    for rows in global_batches(RAGGED, BATCH, range(epochs)):
        x, y = mx.nd.array(ROWS.x[rows]), mx.nd.array(ROWS.classes[rows])
        with autograd.record():
            found = loss({})(first(x), y)
        found.backward()
        trainer.step(len(rows))
    return first


def first_net():
    """The weights that every worker starts from: they follow from the seed."""
    made = net_of(MXNetRecipe(net, loss, config=create_config()))
    made.build((ROWS.x[:1],), ROWS.classes[:1])
    return made.native


class Killer(Callback):
    """Kills rank 1 once, after a step in the middle of an epoch."""

    def __init__(self, mark: Path, step: int):
        self.mark, self.step = mark, step

    def on_step_end(self, run):
        if run.rank == 1 and run.step == self.step and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_ragged_shards_train_as_plain_mxnet_does(engine, tmp_path):
    """On Spark and Ray a rank is killed in the middle of the second epoch, which changes nothing."""
    shards = XShards.from_placement(engine.place(ROWS.cut(RAGGED)))
    workers, options = (3, {}) if engine.name == "local" else (2, {"callbacks": [Killer(tmp_path / "dead", STEPS + 2)]})
    est = estimator(workers=workers, num_servers=1, model_dir=str(tmp_path / "runs"), max_failures=1)
    figures = est.fit(shards, 2, BATCH, validation_data=shards, checkpoint_trigger=SeveralIteration(2), **options)
    assert est.result_.restarts == (engine.name != "local")
    expected = by_hand(first_net(), 2)
    assert_same(est.get_model(), expected, 1e-5)
    output = expected(mx.nd.array(ROWS.x)).asnumpy()
    right = np.mean(output.argmax(axis=1) == ROWS.classes)
    assert figures[workers:] == [{}]
    assert sum(each["num_samples"] for each in figures[:workers]) == sum(RAGGED)
    for each in figures[:workers]:
        assert each["epoch"] == 2
        assert each["epoch_time"] > 0
        assert each["val_accuracy"] == pytest.approx(right)
        assert (each["accuracy"], each["train_loss"]) == (figures[0]["accuracy"], figures[0]["train_loss"])
    assert est.result_.history["num_samples"].tolist() == [sum(RAGGED)] * 2
    if engine.name == "local":  # the next test predicts on the others
        predicted = est.predict(shards).collect()
        assert [len(shard["prediction"]) for shard in predicted] == list(RAGGED)
        found = np.concatenate([shard["prediction"] for shard in predicted if len(shard["x"])])
        np.testing.assert_allclose(found, output, rtol=1e-4, atol=1e-5)


def test_frames_in_frames_out(engine):
    frame = pd.DataFrame({"a": ROWS.x[:, 0], "b": ROWS.x[:, 1], "label": ROWS.classes})

    class Columns(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.out = gluon.nn.Dense(CLASSES)

        def hybrid_forward(self, F, a, b):
            return self.out(F.stack(a, b, axis=1))

    data = frame
    if engine.name == "spark":
        from zoo.orca import OrcaContext

        data = OrcaContext.get_spark_session().createDataFrame(frame).coalesce(1)
    elif engine.name == "ray":
        import ray

        data = ray.data.from_pandas(frame)
    est = estimator(lambda config: Columns())
    est.fit(data, 1, BATCH, validation_data=data, feature_cols=["a", "b"], label_cols=["label"])
    predicted = est.predict(data, feature_cols=["a", "b"])
    block = est.get_model()
    expected = block(mx.nd.array(ROWS.x[:, 0]), mx.nd.array(ROWS.x[:, 1])).asnumpy()
    if engine.name == "spark":
        found = np.array([row["prediction"].toArray() for row in predicted.orderBy("a").collect()])
        expected = expected[np.argsort(ROWS.x[:, 0])]
    elif engine.name == "ray":
        found = np.stack([row["prediction"] for row in predicted.take_all()])
    else:
        found = predicted
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.engines("local")
def test_fit_again_save_load_and_resume(engine, tmp_path):
    data = (ROWS.x, ROWS.classes)
    once, twice = estimator(drawing_net, model_dir=str(tmp_path / "runs")), estimator(drawing_net)
    figures = once.fit(data, 3, BATCH, validation_data=data, checkpoint_trigger=SeveralIteration(2))
    twice.fit(data, 1, BATCH)
    saved = twice.save(str(tmp_path / "saved"))
    twice.fit(data, 2, BATCH)
    assert_same(twice.get_model(), once.get_model())
    # From a file, with the optimizer's moments and the epochs done.
    loaded = estimator(drawing_net).load(saved)
    assert loaded.fit(data, 2, BATCH)[0]["epoch"] == 3
    assert_same(loaded.get_model(), once.get_model())
    # In the middle of an epoch, from a checkpoint.
    for path in sorted(tmp_path.glob("runs/*/models/*/model.*"))[-2:]:
        path.unlink()
    resumed = estimator(drawing_net, model_dir=str(tmp_path / "runs"))
    resumed.fit(data, 3, BATCH, validation_data=data, checkpoint_trigger=SeveralIteration(2), resume="auto")
    assert_same(resumed.get_model(), once.get_model())
    assert resumed.result_.history["train_loss"].tolist() == once.result_.history["train_loss"].tolist()
    # What validation measured is what evaluate measures.
    measured = once.evaluate(data, batch_size=5)
    assert set(measured) == {"accuracy", "top_2", "loss"}
    for name, value in measured.items():
        assert value == pytest.approx(figures[0][f"val_{name}"], rel=1e-5)
    assert len(once.get_validation_summary("accuracy")) == 3
    assert {round(value, 6) for _, value, _ in once.get_train_summary("LearningRate")} == {0.05}
    # Gluon's own file, and the weights of a newest checkpoint.
    once.get_model().save_parameters(str(tmp_path / "own.params"))
    own = drawing_net({})
    own.load_parameters(str(tmp_path / "own.params"))
    newest = estimator(drawing_net).load(str(tmp_path / "runs"))
    for block in (own, newest.get_model()):
        assert_same(block, once.get_model())
    with pytest.raises(CheckpointError, match="another model"):
        estimator(net).load(saved)


@pytest.mark.engines("local")
def test_creators_of_unequal_length(engine, tmp_path):
    """Each worker's iterator is its own: of another kind and length, padded, and none of their rows is lost."""

    def creator(config, kv):
        part = slice(0, 10) if kv.rank == 0 else slice(10, 17)
        x, y = ROWS.x[part], ROWS.classes[part]
        (tmp_path / f"{kv.rank}").write_text(f"{config['batch_size']} of {kv.num_workers} {kv.type}")
        if kv.rank == 0:
            return mx.io.NDArrayIter(x, y, batch_size=config["batch_size"], shuffle=True)
        if config.get("stream"):
            return [(x[:5], y[:5]), (x[5:], y[5:])]
        dataset = gluon.data.ArrayDataset(x, y.astype(np.float32))
        return gluon.data.DataLoader(dataset, config["batch_size"], shuffle=True)

    for stream in (False, True):
        est = estimator(workers=2, num_servers=1, config={"stream": stream}, max_failures=0)
        figures = est.fit(creator, epochs=2, batch_size=7, validation_data=creator)
        assert [each["num_samples"] for each in figures[:2]] == [10, 7]
        assert {each["batch_count"] for each in figures[:2]} == {3}
        assert est.result_.history["val_num_samples"].tolist() == [17, 17]
        shares = [(tmp_path / str(rank)).read_text() for rank in (0, 1)]
        assert shares == ["4 of 2 dist_sync", "3 of 2 dist_sync"]
        measured = est.evaluate(creator, batch_size=4)  # without a kvstore, and in other batches
        assert measured["loss"] == pytest.approx(figures[0]["val_loss"], rel=1e-5)
        assert measured["accuracy"] == pytest.approx(figures[1]["val_accuracy"])


@pytest.mark.engines("local")
def test_the_published_example(engine):
    """As the published documents have it: a Block that nobody initialised, and all rows on every worker."""
    data_ndarray, label_ndarray = ROWS.x.reshape(-1, 1, 2, 2), ROWS.classes

    class LeNet(gluon.Block):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.conv = gluon.nn.Conv2D(8, kernel_size=2)
                self.out = gluon.nn.Dense(CLASSES)

        def forward(self, x):
            return self.out(mx.nd.relu(self.conv(x)))

    def get_model(config):
        return LeNet()  # a mxnet.gluon.Block

    def get_loss(config):
        return gluon.loss.SoftmaxCrossEntropyLoss()

    config = create_config(log_interval=2, optimizer="adam", optimizer_params={"learning_rate": 0.02})
    est = Estimator.from_mxnet(config=config, model_creator=get_model, loss_creator=get_loss, num_workers=2)

    def get_train_data_iter(config, kv):
        return mx.io.NDArrayIter(data_ndarray, label_ndarray, batch_size=config["batch_size"], shuffle=True)

    figures = est.fit(get_train_data_iter, epochs=2)
    assert [each.get("num_samples", 0) for each in figures] == [17, 17, 0, 0]
    assert weights_of(est.get_model())["conv.weight"].shape == (8, 1, 2, 2)


@pytest.mark.engines("local")
def test_a_creator_of_one_worker_and_steps_that_are_asked_for(engine):
    def creator(config, kv):
        return mx.io.NDArrayIter(ROWS.x, ROWS.classes, batch_size=config["batch_size"], shuffle=True)

    est = estimator(config={"batch_size": 5})
    (figures, _) = est.fit(creator, epochs=1, batch_size=99)
    assert (figures["num_samples"], figures["batch_count"]) == (17, 4)
    (figures, _) = est.fit(creator, epochs=2, train_resize_batch_num=6)
    assert (figures["epoch"], figures["batch_count"]) == (3, 6)
    again = estimator(config={"batch_size": 5})
    again.fit(creator, 1)
    again.fit(creator, 2, train_resize_batch_num=6)
    assert_same(again.get_model(), est.get_model())


@pytest.mark.engines("local")
def test_symbolic_modules_and_names_of_inputs(engine):
    def module(config):
        left, right = mx.sym.Variable("left"), mx.sym.Variable("right")
        both = mx.sym.concat(left, right, dim=1)
        out = mx.sym.FullyConnected(both, num_hidden=CLASSES, name="out")
        return mx.mod.Module(mx.sym.SoftmaxOutput(out, name="softmax"), data_names=["left", "right"])

    named = {"x": {"right": ROWS.x[:, 2:], "left": ROWS.x[:, :2]}, "y": {"softmax_label": ROWS.classes}}
    listed = {"x": [ROWS.x[:, :2], ROWS.x[:, 2:]], "y": ROWS.classes}
    models = []
    for data in (named, listed):
        est = Estimator.from_mxnet(
            config=create_config(optimizer_params={"learning_rate": 0.5}),
            model_creator=module,
            eval_metrics_creator=lambda config: "acc",
            validation_metrics_creator=lambda config: "ce",
            num_workers=1,
        )
        (figures, _) = est.fit(data, epochs=3, batch_size=BATCH, validation_data=data)
        assert {"accuracy", "val_cross-entropy"} <= set(figures)
        models.append(est)
    assert models[0].predict(named["x"]).tolist() == models[1].predict(listed["x"]).tolist()
    plain = Estimator.from_mxnet(config={}, model_creator=module, num_workers=1)
    with pytest.raises(PreconditionError, match="nothing to measure a Module by"):
        plain.evaluate(listed)
    arguments, _ = models[0].get_model().get_params()
    scores = ROWS.x @ arguments["out_weight"].asnumpy().T + arguments["out_bias"].asnumpy()
    assert (models[0].predict(named["x"]).argmax(axis=1) == scores.argmax(axis=1)).all()


@pytest.mark.engines("local")
def test_what_the_driver_refuses(engine):
    with pytest.raises(InvalidArgumentError, match="model_creator must be a function"):
        estimator(model=3)
    with pytest.raises(InvalidArgumentError, match="num_servers"):
        estimator(num_servers=0)
    with pytest.raises(InvalidArgumentError, match="optimizer must be a name"):
        estimator(config={"optimizer": 3})
    with pytest.raises(InvalidArgumentError, match="eval_metrics_creator must be a function"):
        Estimator.from_mxnet(config={}, model_creator=net, loss_creator=loss, eval_metrics_creator=3)
    with pytest.raises(InvalidArgumentError, match="seed"):
        estimator(config={"seed": "x"})
    with pytest.raises(PreconditionError, match="loss_creator"):
        Estimator.from_mxnet(config=create_config(), model_creator=gluon.nn.Dense(1))
    plain = Estimator.from_mxnet(config={}, model_creator=net, loss_creator=loss)
    with pytest.raises(PreconditionError, match="validation_metrics_creator"):
        plain.fit((ROWS.x, ROWS.classes), validation_data=(ROWS.x, ROWS.classes))
    with pytest.raises(InvalidArgumentError, match="has no labels"):
        plain.fit(ROWS.x)
    with pytest.raises(InvalidArgumentError, match="each worker calls it"):
        plain.fit(mx.io.NDArrayIter(ROWS.x, ROWS.classes))
    with pytest.raises(PreconditionError, match="nothing to save"):
        plain.save("anywhere")
    with pytest.raises(InvalidArgumentError, match="train_resize_batch_num"):
        plain.fit((ROWS.x, ROWS.classes), train_resize_batch_num=0)
    plain.shutdown()


def test_without_mxnet_there_is_a_line_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "mxnet", None)
    with pytest.raises(MissingPackageError, match=r"pip install .*mxnet==1\.9\.1"):
        estimator()


@pytest.mark.engines("local")
def test_a_check_finds_what_fit_would(engine):
    def creator(config, kv):
        return mx.io.NDArrayIter(ROWS.x, ROWS.classes, batch_size=config["batch_size"])

    est = estimator()
    for data in ((ROWS.x, ROWS.classes), creator):
        report = est.check(data, batch_size=BATCH, validation_data=data)
        assert report.ok, report
        assert "the loss is" in str(report)
    wrong = estimator(lambda config: gluon.nn.Dense(CLASSES, in_units=9)).check((ROWS.x, ROWS.classes))
    assert not wrong.ok
    assert "cannot take a batch of float32" in str(wrong)


def test_create_config():
    assert create_config() == {"optimizer": "sgd", "optimizer_params": {"learning_rate": 0.01}, "log_interval": 10}
    made = create_config("adam", {"beta1": 0.5}, 2, 7, {"hidden": 3, "log_interval": 4})
    assert made == {"optimizer": "adam", "optimizer_params": {"beta1": 0.5}, "log_interval": 4, "seed": 7, "hidden": 3}
