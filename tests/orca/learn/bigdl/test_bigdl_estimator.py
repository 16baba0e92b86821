"""BigDL layers through `Estimator.from_bigdl`, and what every older door trains with."""

from __future__ import annotations

import copy
import os
import signal

import numpy as np
import pytest
import torch

from bigdl.nn.criterion import AbsCriterion, ClassNLLCriterion, L1Cost, MSECriterion, MultiCriterion
from bigdl.nn.layer import Linear, LogSoftMax, Sequential, Tanh
from bigdl.optim.optimizer import SGD, Adam, EveryEpoch, L2Regularizer, Top1Accuracy
from learning import CLASSES, RAGGED, Rows, global_batches
from zoo.orca import OrcaContext
from zoo.orca.data import XShards
from zoo.orca.errors import BatchError, PreconditionError
from zoo.orca.learn.bigdl import Estimator
from zoo.orca.learn.bigdl.training import LayerEstimator
from zoo.orca.learn.callbacks import Callback
from zoo.orca.learn.metrics import MSE, Accuracy
from zoo.orca.learn.trigger import MaxEpoch, MaxIteration

BATCH = 8
# As the published documents show it, star imports included.
DOCUMENT = """
from bigdl.nn.criterion import *
from bigdl.nn.layer import *
from bigdl.optim.optimizer import *
from zoo.orca.learn.bigdl import Estimator

linear_model = Sequential().add(Linear(2, 2))
mse_criterion = MSECriterion()
est = Estimator.from_bigdl(model=linear_model, loss=mse_criterion, optimizer=Adam())
# read spark Dataframe
df = spark.read.parquet("data.parquet")

# distributed model training
est.fit(df, 1, batch_size=4)

#distributed model inference
result_df = est.predict(df)
"""
ROWS = sum(RAGGED)


def layers(regularizer=None):
    return (
        Sequential().add(Linear(4, 6, wRegularizer=regularizer)).add(Tanh()).add(Linear(6, CLASSES)).add(LogSoftMax())
    )


def shards(engine, rows, labels="classes"):
    parts = rows.cut(RAGGED, labels)
    for part in parts:
        for shard in part:
            shard["y"] = shard["y"] + 1 if labels == "classes" else shard["y"]  # classes count from 1
    return XShards.from_placement(engine.place(parts))


def by_hand(module, rows, epochs, weights=None, penalty=0.0, momentum=0.0):
    """What one process does in plain torch with a copy of the module."""
    net = copy.deepcopy(module)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=momentum, dampening=momentum)
    first = next(net.parameters())
    for batch in global_batches(RAGGED, BATCH, range(epochs)):
        optimizer.zero_grad()
        found = net(torch.from_numpy(rows.x[batch]))
        target = torch.from_numpy(rows.classes[batch])
        loss = torch.nn.functional.nll_loss(found, target, weight=weights)
        (loss + penalty / 2 * first.square().sum()).backward()
        optimizer.step()
    return net


class Dies(Callback):
    """Its worker dies once, in the middle of the second epoch."""

    def __init__(self, mark):
        self.mark = mark

    def on_step_end(self, run):
        if (run.step, run.rank) == (4, 1) and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def assert_alike(module, expected):
    for (name, found), (_, wanted) in zip(module.state_dict().items(), expected.state_dict().items(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6, err_msg=name)


class TestExactness:
    def test_ragged_shards_with_class_weights_and_a_regularizer_equal_one_process(self, engine):
        rows, weights = Rows(ROWS), np.asarray([0.2, 1.0, 5.0], np.float32)
        model = layers(L2Regularizer(0.3))
        expected = by_hand(model.module, rows, 2, torch.from_numpy(weights), penalty=0.3, momentum=0.5)
        est = LayerEstimator(model, ClassNLLCriterion(weights), SGD(0.1, momentum=0.5), num_workers=3)

        est.fit(shards(engine, rows), epochs=2, batch_size=BATCH)

        assert_alike(model.module, expected)

    @pytest.mark.engines("local")
    def test_a_sum_over_rows_is_penalised_once(self, engine):
        rows, model = Rows(ROWS), layers(L2Regularizer(0.3))
        net = copy.deepcopy(model.module)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for batch in global_batches(RAGGED, BATCH):
            optimizer.zero_grad()
            loss = torch.nn.functional.nll_loss(
                net(torch.from_numpy(rows.x[batch])), torch.from_numpy(rows.classes[batch]), reduction="sum"
            )
            (loss + 0.15 * next(net.parameters()).square().sum()).backward()
            optimizer.step()
        est = LayerEstimator(model, ClassNLLCriterion(size_average=False), SGD(0.01), num_workers=3)

        est.fit(shards(engine, rows), epochs=1, batch_size=BATCH)

        assert_alike(model.module, net)

    @pytest.mark.engines("local")
    def test_sums_and_means_in_one_criterion_equal_one_process(self, engine):
        rows, results = Rows(ROWS), []
        criterion = MultiCriterion().add(MSECriterion()).add(AbsCriterion(size_average=False), 0.1).add(L1Cost(), 0.01)
        for workers in (1, 3):
            torch.manual_seed(0)
            model = Sequential().add(Linear(4, CLASSES))
            LayerEstimator(model, criterion, SGD(0.05), num_workers=workers).fit(
                shards(engine, rows, "values"), epochs=2, batch_size=BATCH
            )
            results.append(model.module)
        assert_alike(*results)

    @pytest.mark.engines("local")
    @pytest.mark.parametrize("several", [False, True])
    def test_a_killed_worker_changes_nothing(self, engine, tmp_path, several):
        results = []
        for callbacks in ([], [Dies(tmp_path / "dead")]):
            torch.manual_seed(0)
            model = layers(L2Regularizer(0.1))
            names = [model.layers[0].name(), model.layers[2].name()]
            method = {names[0]: SGD(0.1), names[1]: Adam(0.05)} if several else SGD(0.1, momentum=0.9)
            est = LayerEstimator(model, ClassNLLCriterion(), method, num_workers=2)
            est.fit(shards(engine, Rows(ROWS)), epochs=2, batch_size=BATCH, callbacks=callbacks)
            results.append(model)
        assert (tmp_path / "dead").exists()
        for found, wanted in zip(*(model.get_weights() for model in results), strict=True):
            np.testing.assert_array_equal(found, wanted)
        if not several:
            assert (method.progress["epoch"], method.progress["neval"]) == (3, 7)

    @pytest.mark.engines("local")
    def test_both_ways_to_clip_one_after_the_other(self, engine):
        rows, model = Rows(ROWS), layers()
        net = copy.deepcopy(model.module)
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        for batch in global_batches(RAGGED, BATCH):
            optimizer.zero_grad()
            found = net(torch.from_numpy(rows.x[batch]))
            torch.nn.functional.nll_loss(found, torch.from_numpy(rows.classes[batch])).backward()
            torch.nn.utils.clip_grad_value_(net.parameters(), 0.05)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
        est = LayerEstimator(model, ClassNLLCriterion(), SGD(1.0), num_workers=3)
        est.set_clip(constant=(-0.05, 0.05), l2=0.1)

        est.fit(shards(engine, rows), epochs=1, batch_size=BATCH)

        assert_alike(model.module, net)


class TestEpochs:
    """Epochs and iterations are counted in the method, for the model that it trains."""

    @pytest.mark.engines("local")
    def test_a_target_and_not_an_amount(self, engine):
        rows, model, method = Rows(ROWS), layers(), SGD(0.1, momentum=0.5)
        expected = by_hand(model.module, rows, 3, momentum=0.5)
        data = shards(engine, rows)
        Estimator.from_bigdl(model=model, loss=ClassNLLCriterion(), optimizer=method).fit(data, 2, BATCH)
        after_two = copy.deepcopy(model.module)
        again = Estimator.from_bigdl(model=model, loss=ClassNLLCriterion(), optimizer=method)

        assert_alike(again.fit(data, 2, BATCH).get_model().module, after_two)
        assert again.result_ is None
        assert_alike(again.fit(data, 3, BATCH).get_model().module, expected)
        assert again.get_model() is model

    @pytest.mark.engines("local")
    def test_another_model_begins_anew(self, engine):
        rows, method = Rows(ROWS), SGD(0.1)
        first, second = layers(), layers()
        expected = by_hand(second.module, rows, 1)
        for model in (first, second):
            Estimator.from_bigdl(model=model, loss=ClassNLLCriterion(), optimizer=method).fit(
                shards(engine, rows), 1, BATCH
            )
        assert_alike(second.module, expected)
        assert copy.deepcopy(method).progress is None

    @pytest.mark.engines("local")
    def test_stopped_within_an_epoch_it_goes_on_with_the_rest(self, engine):
        rows, model = Rows(ROWS), layers()
        expected = by_hand(model.module, rows, 2)
        est = LayerEstimator(model, ClassNLLCriterion(), SGD(0.1))
        data = shards(engine, rows)
        for trigger in (MaxIteration(1), MaxIteration(4), MaxEpoch(2)):
            est.train_until(data, trigger, BATCH)
        assert_alike(model.module, expected)


class TestDoors:
    def test_shards_train_measure_and_predict(self, engine):
        rows, model = Rows(ROWS), layers()
        data = shards(engine, rows)
        est = Estimator.from_bigdl(
            model=model, loss=ClassNLLCriterion(), optimizer=Adam(0.05), metrics=[Accuracy(zero_based_label=False)]
        )
        before = est.predict(data).collect()  # works before fit

        assert est.fit(data, 3, BATCH, validation_data=data, validation_trigger=EveryEpoch()) is est

        expected = model.module(torch.from_numpy(rows.x)).detach().numpy()
        found = est.predict(data).collect()
        np.testing.assert_allclose(np.concatenate([each["prediction"] for each in found]), expected, rtol=1e-5)
        assert not np.allclose(before[1]["prediction"], found[1]["prediction"])
        assert [len(each["y"]) for each in found] == list(RAGGED)
        right = float((expected.argmax(axis=1) == rows.classes).mean())
        assert est.evaluate(data) == {"Top1Accuracy": pytest.approx(right)}

    @pytest.mark.engines("spark")
    def test_frames_train_as_shards_do(self, engine):
        from pyspark.ml.linalg import Vectors
        from pyspark.sql import SparkSession

        rows = Rows(ROWS)
        spark = SparkSession.builder.getOrCreate()
        table = [
            (Vectors.dense(x.tolist()), [float(each) for each in x[:3]], float(x[3]), int(y) + 1)
            for x, y in zip(rows.x, rows.classes, strict=True)
        ]
        df = spark.createDataFrame(table, ["features", "first", "last", "label"]).coalesce(1)
        plain = layers()
        model, apart = copy.deepcopy(plain), copy.deepcopy(plain)
        est = Estimator.from_bigdl(
            model=model,
            loss=ClassNLLCriterion(),
            optimizer=SGD(0.1),
            metrics=[Top1Accuracy()],
            feature_preprocessing=[4],
        )
        one = XShards.from_placement(engine.place([[{"x": rows.x, "y": rows.classes + 1}]]))

        est.fit(df, 2, BATCH, validation_data=df, validation_trigger=EveryEpoch())
        assembled = Estimator.from_bigdl(model=apart, loss=ClassNLLCriterion(), optimizer=SGD(0.1))
        assembled.fit(df, 2, BATCH, feature_cols=["first", "last"])
        by_shards = Estimator.from_bigdl(model=plain, loss=ClassNLLCriterion(), optimizer=SGD(0.1)).fit(one, 2, BATCH)

        assert_alike(model.module, plain.module)
        assert_alike(apart.module, plain.module)
        found = est.predict(df)
        assert found.columns == ["features", "first", "last", "label", "prediction"]
        assert found.schema["prediction"].dataType.simpleString() == "array<float>"
        predictions = np.asarray([row.prediction for row in found.collect()])
        expected = by_shards.predict(one).collect()[0]["prediction"]
        np.testing.assert_allclose(predictions, expected, atol=1e-6)
        assert est.evaluate(df)["Top1Accuracy"] == pytest.approx((expected.argmax(axis=1) == rows.classes).mean())

    @pytest.mark.engines("spark")
    def test_the_documents_own_example(self, engine, tmp_path):
        spark = OrcaContext.get_spark_session()
        file = str(tmp_path / "data.parquet")
        spark.createDataFrame(
            [([float(n), 1.0], [float(n), 2.0]) for n in range(6)], ["features", "label"]
        ).write.parquet(file)
        names = {"spark": spark}
        exec(DOCUMENT.replace("data.parquet", file), names)
        assert names["result_df"].columns == ["features", "label", "prediction"]
        rows = names["result_df"].collect()
        expected = names["linear_model"].forward(np.asarray([row.features for row in rows]))
        np.testing.assert_allclose([row.prediction for row in rows], expected, rtol=1e-5)

    @pytest.mark.engines("local")
    def test_saved_loaded_and_checkpoints(self, engine, tmp_path):
        rows, model = Rows(ROWS), layers()
        data = shards(engine, rows)
        options = {"loss": ClassNLLCriterion(), "metrics": [Top1Accuracy()]}
        est = Estimator.from_bigdl(model=model, optimizer=Adam(0.05), model_dir=str(tmp_path / "runs"), **options)
        est.fit(data, 2, BATCH, checkpoint_trigger=EveryEpoch(), validation_data=data)
        est.save(str(tmp_path / "model"))
        assert sorted(each for each in os.listdir(tmp_path) if each.startswith("model")) == ["model.bigdl", "model.bin"]

        other = Estimator.from_bigdl(model=Linear(1, 1), **options).load(str(tmp_path / "model"), optimizer=Adam(0.05))
        assert other.evaluate(data) == est.evaluate(data)
        third = Estimator.from_bigdl(model=layers(), optimizer=Adam(0.05), **options)
        third.load(str(tmp_path / "runs"), is_checkpoint=True)
        assert_alike(third.get_model().module, model.module)
        third.fit(data, 2, BATCH)  # the counters came along
        assert_alike(third.get_model().module, model.module)
        fourth = Estimator.from_bigdl(model=layers(), **options).load(str(tmp_path / "runs"), is_checkpoint=True)
        for each in (est, fourth):  # which has the optimizer of the checkpoint, too
            each.fit(data, 3, BATCH)
        assert_alike(fourth.get_model().module, model.module)
        losses = est.get_train_summary("Loss")
        assert [step for step, _, _ in losses] == list(range(1, 10))
        assert len(est.get_validation_summary("Top1Accuracy")) == 2


class TestBadInput:
    @pytest.mark.engines("local")
    def test_before_anything_starts(self, engine):
        rows = Rows(ROWS)
        data = shards(engine, rows)
        est = Estimator.from_bigdl(model=layers(), loss=ClassNLLCriterion(), optimizer=SGD(0.1))
        with pytest.raises(ValueError, match="Data should be XShards or Spark DataFrame"):
            est.fit(lambda config: None, 1)
        with pytest.raises(PreconditionError, match="validation_data needs metrics"):
            est.fit(data, 1, validation_data=data)
        with pytest.raises(PreconditionError, match="evaluate needs metrics"):
            est.evaluate(data)
        with pytest.raises(TypeError, match="'Parameters' came"):
            est.get_train_summary("Parameters")
        wrong = XShards.from_placement(engine.place([[{"x": rows.x, "y": rows.classes * 0 + 4}]]))
        with pytest.raises(ValueError, match=r"labels.*4"):
            est.fit(wrong, 1)
        narrow = XShards.from_placement(engine.place([[{"x": rows.x[:, :3], "y": rows.classes + 1}]]))
        with pytest.raises(BatchError, match="the model cannot take data"):
            est.fit(narrow, 1)
        unlabelled = XShards.from_placement(engine.place([[{"x": rows.x}]]))
        with pytest.raises(ValueError, match="the loss compares outputs with labels, but data has none"):
            est.fit(unlabelled, 1)
        Estimator.from_bigdl(model=Linear(4, 1), loss=L1Cost()).fit(unlabelled, 1)  # which needs none
        with pytest.raises(ValueError, match=r"model must be a BigDL layer, a TorchModel or a torch\.nn\.Module"):
            Estimator.from_bigdl(model="net")
        with pytest.raises(ValueError, match=r"the criterion must be a BigDL criterion such as MSECriterion\(\)"):
            Estimator.from_bigdl(model=layers(), loss=MSECriterion)

    def test_an_exception_of_the_loss_reaches_the_caller(self, engine):
        calls = []

        def loss(output, target):
            calls.append(1)
            if len(calls) > 2:
                raise ZeroDivisionError("my own")
            return torch.nn.functional.mse_loss(output, target.expand_as(output))

        model = layers()
        before = [each.copy() for each in model.get_weights()]
        est = LayerEstimator(model, loss, SGD(0.1), [MSE()], num_workers=2)
        with pytest.raises(ZeroDivisionError, match="my own"):
            est.fit(shards(engine, Rows(ROWS)), epochs=2, batch_size=BATCH)
        for found, expected in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(found, expected)  # nothing was taken over
